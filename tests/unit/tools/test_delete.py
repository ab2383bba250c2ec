"""``delete``: what goes to the trash of the target, where that is, and how it comes back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.job_targets import path_of
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.permissions.policy import RulePolicy
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools.dev import tools
from harness_tools.dev.delete import (
    TrashDirectory,
    TrashFacts,
    facts_script,
    info_path,
    move_script,
    parse_facts,
    protection,
    restore,
)

"""The same examples each time, however slow the machine is."""

AT_HOME = TrashFacts(
    "/home/me", "/home/me/.local/state/harness", (), False, ("/home/me/.local/share/Trash", "/.Trash-7")
)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/home",
            "/home/me",
            "/home/me/.local",
            "/home/me/.local/share/Trash",
            "/home/me/.local/share/Trash/files/a",
        ),
        *("/home/me/.local/state/harness", "/home/me/.local/state/harness/jobs/1", "/home/me/.local/state"),
        *("/etc", "/etc/hosts", "/usr/bin/env", "/usr/local", "/var/log/syslog", "/bin", "/tmp", "/var/tmp", "/srv"),
        *("/System/x", "/Library/x", "/private/etc", "/Applications/a.app", "/dev/null", "/proc/1", "/.Trash-7"),
    ],
)
def test_what_belongs_to_the_system_is_protected(path: str) -> None:
    assert protection(path, AT_HOME)


@pytest.mark.parametrize(
    "path",
    [
        *("/home/me/a", "/home/me2", "/home/you", "/etcetera", "/devel/x", "/usr2", "/tmp/x", "/var/tmp/x", "/srv/www"),
        *("/private/tmp/x", "/home/me/.local/stateful", "/home/me/etc/hosts", "/opt/app", "/data"),
    ],
)
def test_names_that_only_begin_alike_are_not(path: str) -> None:
    assert protection(path, AT_HOME) == ""


def test_homes_and_mounts_are_looked_at_as_what_they_are() -> None:
    service = TrashFacts("/var/lib/app", "", (), False)
    assert protection("/var/lib/app/cache", service) == ""
    assert protection("/var/lib/other", service)
    daemon = TrashFacts("/usr/sbin", "", (), False)
    assert protection("/usr/sbin/cron", daemon)
    assert protection("/srv/disk", TrashFacts("/root", "", (), True)) == "a file system is mounted there"
    assert protection("/x", TrashFacts("/", "", (), False)) == ""


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=20))
def test_the_notes_of_the_trash_name_every_path(name: str) -> None:
    if name in (".", ".."):
        return
    path = f"/data/d/{name}"
    assert unquote(info_path(path, TrashDirectory("/t"))) == path
    assert unquote(info_path(path, TrashDirectory("/data/.Trash-1", "/data"))) == f"d/{name}"
    assert info_path(path, TrashDirectory("/t")).isascii()


@pytest.mark.parametrize("output", [b"", b"a\0b\0", b"/h\0/t\0/s\0/\0root\0" + b"1\0\0", b"x" * 100])
def test_what_is_no_answer_is_not_taken_for_one(output: bytes) -> None:
    assert parse_facts(output) is None


# -- on this machine


@pytest.fixture
def home(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of its own."""
    found = tmp_path.resolve() / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.setenv("XDG_STATE_HOME", str(found / "state"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return found


@pytest.fixture
async def here(home: Path) -> AsyncIterator[ExecutionContext]:
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext, cwd: Path) -> Toolbox:
    made = toolbox(tools(), execution=execution)
    old = made.executor
    reads = ReadTracker().of("s1", execution)
    made.executor = Executor(execution, old.registry, old.services, old.events, reads, "s1", cwd=str(cwd))
    return made


async def delete(made: Toolbox, path: str) -> CallOutcome:
    return await made.executor.call(ToolCall("delete", {"path": path}))


def data_of(outcome: CallOutcome) -> dict[str, Any]:
    assert outcome.status is CallStatus.OK, outcome.result.text
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


NAMES = ["plain", "-rf", "a b'c\"$(x)`y`", "new\nline", "*", "h\udce9", "n" * 250, ".hidden", "é" * 120]


async def test_files_go_to_the_trash_under_every_name_and_come_back(here: ExecutionContext, home: Path) -> None:
    made, work = box(here, home / "work"), home / "work"
    work.mkdir()
    for number, name in enumerate(NAMES):
        (work / name).write_text(str(number))
        done = data_of(await delete(made, name))
        trashed = Path(done["trash_path"])
        assert (trashed.parent, trashed.read_text()) == (home / ".local/share/Trash/files", str(number))
        note = Path(done["info"])
        head, path, date = note.read_text().splitlines()
        assert (head, date[:14], len(date)) == ("[Trash Info]", "DeletionDate=2", 32)
        assert os.fsencode(unquote(path.removeprefix("Path="), errors="surrogateescape")) == os.fsencode(work / name)
        subprocess.run(["sh", "-c", os.fsencode(done["restore"])], check=True, timeout=60)
        assert ((work / name).read_text(), trashed.exists(), note.exists()) == (str(number), False, False)
    assert sorted(os.listdir(home / ".local/share/Trash/files")) == []
    assert (home / ".local/share/Trash").stat().st_mode & 0o777 == 0o700


async def test_nothing_in_the_trash_is_written_over(here: ExecutionContext, home: Path) -> None:
    made = box(here, home)
    trashed = []
    for number in range(3):
        (home / "same").write_text(str(number))
        trashed.append(data_of(await delete(made, "same"))["trash_path"])
    assert [Path(path).read_text() for path in trashed] == ["0", "1", "2"]
    assert [Path(path).name for path in trashed] == ["same", "same.2", "same.3"]
    (home / "same").write_text("new")
    back = f"[ ! -e {home}/same ] && [ ! -L {home}/same ] && mv -- {trashed[0]} {home}/same && "
    assert subprocess.run(["sh", "-c", back + "true"], check=False).returncode == 1
    assert (home / "same").read_text() == "new"


async def test_a_link_goes_itself_and_a_tree_as_a_whole(here: ExecutionContext, home: Path) -> None:
    made = box(here, home)
    tree = home / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_text("x")
    (home / "link").symlink_to("tree")
    (home / "dangling").symlink_to("nowhere")
    for name in ("link/", "dangling"):
        done = data_of(await delete(made, name))
        assert (done["type"], os.path.islink(done["trash_path"])) == ("link", True)
    assert (tree / "sub" / "file").read_text() == "x"
    done = data_of(await delete(made, "tree/sub/.."))
    assert (done["path"], (Path(done["trash_path"]) / "sub/file").read_text(), tree.exists()) == (str(tree), "x", False)
    assert (await delete(made, "tree")).result.error_code == "file_not_found"


async def test_what_is_protected_stays(here: ExecutionContext, home: Path) -> None:
    made = box(here, home)
    (home / "up").symlink_to("/")
    (home / "file").write_text("x")
    data_of(await delete(made, "file"))
    trashed = ".local/share/Trash/files/file"
    for path in ("/", "~", ".", "..", "up/etc/passwd", "/etc/passwd", "state", ".local", trashed):
        outcome = await delete(made, path)
        assert outcome.result.error_code == "protected", (path, outcome.result.text)
    assert (await delete(made, "a\0b")).result.error_code == "invalid_args"
    assert (await delete(made, "")).result.error_code == "invalid_args"
    assert (home / trashed).exists()


async def test_the_directory_that_the_session_works_in_stays(here: ExecutionContext, home: Path) -> None:
    (home / "work/sub").mkdir(parents=True)
    (home / "link").symlink_to("work/sub")
    for path in (".", "..", str(home / "work")):
        outcome = await delete(box(here, home / "link"), path)
        assert outcome.result.error_code == "protected", path
        assert "this session works in it" in outcome.result.text
    (home / "work/sub/other").mkdir()
    assert data_of(await delete(box(here, home / "work/sub"), "other"))["type"] == "dir"
    assert data_of(await delete(box(here, home), "link"))["type"] == "link"


async def test_files_that_would_become_readable_in_the_trash_stay_with_their_directory(
    here: ExecutionContext, home: Path
) -> None:
    made = box(here, home)
    denied = ({"argument": f"{home}/ruled/**"}, {"tool": "delete", "argument": "**/precious"})
    rules = tuple(Rule(Action.DENY, match=Match.GLOB, **one) for one in denied)
    policy = RulePolicy(PermissionSettings(mode=Mode.AUTO, rules=rules))
    made.executor = replace(made.executor, services=replace(made.executor.services, policy=policy))
    kept = {
        "excluded/deep/plan.secret": "*.secret",
        "named/deep/x\ny": "named/deep/*",
        "own/.aiexclude": "",
        "ruled/x": "",
        ".aws/credentials": "",
        "conf/.config/harness/config.toml": "",
        "some/precious": "",
    }
    (home / ".aiexclude").write_text("\n".join(pattern for pattern in kept.values() if pattern))
    for name in (*kept, "plain/.env", "plain/sub/a.pem", "plain/file"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    for name in kept:
        top = name.partition("/")[0]
        outcome = await delete(made, top)
        assert outcome.status is not CallStatus.OK, (name, outcome.result.text)
        assert (home / name).exists()
    done = await delete(made, "excluded")
    assert done.result.error_code == "protected"
    assert "excluded was not moved to the trash: the policy protects files in it (deep/plan.secret)" in (
        done.result.text
    )
    assert Path(data_of(await delete(made, "plain"))["trash_path"], ".env").exists()


async def test_a_trash_that_cannot_be_used_is_not_and_another_one_is(
    here: ExecutionContext, home: Path, tmp_path: Path
) -> None:
    made = box(here, home)
    (home / ".local/share").mkdir(parents=True)
    (home / "elsewhere").mkdir()
    (home / ".local/share/Trash").mkdir()
    (home / ".local/share/Trash/files").symlink_to(home / "elsewhere")
    (home / "file").write_text("x")
    done = data_of(await delete(made, "file"))
    assert done["trash_path"].startswith(str(home / "state"))
    assert os.listdir(home / "elsewhere") == []


@pytest.mark.usefixtures("needs_process")
def test_what_is_on_another_file_system_goes_to_a_trash_there(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="harness-trash-", dir="/dev/shm") as name:
        (Path(name) / "file x").write_text("x")
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

        def run(script: str) -> bytes:
            return subprocess.run(["sh", "-c", script], capture_output=True, env=env, timeout=60, check=True).stdout

        places = parse_facts(run(facts_script(f"{name}/file x", f"{tmp_path}/state")))
        assert places is not None
        (place,) = places.trashes
        assert place == TrashDirectory(f"/dev/shm/.Trash-{os.getuid()}", "/dev/shm")
        kept = run(move_script(f"{name}/file x", place, "t")).decode().removesuffix("\0")
        note = Path(place.directory, "info", f"{kept}.trashinfo")
        assert f"Path={Path(name).name}/file%20x\n" in note.read_text()
        subprocess.run(["sh", "-c", restore(f"{name}/file x", place, kept)], check=True, timeout=60)
        assert ((Path(name) / "file x").read_text(), note.exists()) == ("x", False)
    for folder in ("files", "info", ""):
        with contextlib.suppress(OSError):  # somebody else's trash stays
            Path(place.directory, folder).rmdir()


SHELLS = ("dash", "bash", "busybox", "mksh")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_work_in_every_shell_and_for_a_user_without_rights(shell: str) -> None:
    """Run as nobody, in a directory where he may do only some things."""
    with tempfile.TemporaryDirectory(prefix="harness-trash-") as name:
        top = Path(name).resolve()
        home, locked = top / "h", top / "locked"
        home.mkdir()
        locked.mkdir()
        (locked / "file").write_text("x")
        (home / "file").write_text("x")
        (home / "locked").mkdir()
        os.chmod(top, 0o755)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
        if user:
            for path in (home, home / "file", home / "locked"):
                os.chown(path, 65534, 65534)
        else:
            locked.chmod(0o555)
        place = TrashDirectory(str(home / "t"))

        def run(script: str) -> subprocess.CompletedProcess[bytes]:
            env = {"PATH": path_of(shell), "HOME": str(home)}
            words = [*user, "env", "-i", *(f"{key}={value}" for key, value in env.items()), "sh", "-c", script]
            return subprocess.run(words, capture_output=True, cwd="/", timeout=60, check=False)

        facts = parse_facts(run(facts_script(f"{home}/file", "")).stdout)
        assert facts is not None
        assert (facts.home, facts.trashes[0].directory, facts.mounted) == (
            str(home),
            f"{home}/.local/share/Trash",
            False,
        )
        nowhere = run(f"HOME=/nonexistent {facts_script(f'{home}/file', '')}")
        homeless = parse_facts(nowhere.stdout)
        assert homeless is not None, nowhere.stderr
        assert (homeless.home, [place.top != "" for place in homeless.trashes]) == ("", [True])
        assert run(move_script(f"{home}/none", place, "a")).returncode == 70
        assert run(move_script(f"{locked}/file", place, "b")).returncode == 71
        assert run(move_script(f"{home}/file", TrashDirectory(f"{locked}/t"), "c")).returncode == 72
        done = run(move_script(f"{home}/file", place, "d"))
        assert (done.returncode, done.stdout, done.stderr) == (0, b"file\0", b"")
        assert run(move_script(f"{home}/locked", place, "e")).stdout == b"locked\0"
        assert sorted(os.listdir(home / "t/files")) == ["file", "locked"]
        assert sorted(os.listdir(home)) == ["t"]
        assert os.listdir(locked) == ["file"]
        locked.chmod(0o755)


@pytest.mark.usefixtures("needs_process")
def test_a_full_disk_is_told_and_no_empty_trash_is_left(tmp_path: Path) -> None:
    disk, fillers = tmp_path / "disk", "{ head -c 1M /dev/zero >filler; } 2>/dev/null"
    disk.mkdir()
    limits = ["sh", "-c", 'cd "$0" && mkdir sub && ulimit -f 0 && eval "$1"; ls -A', str(disk)]
    mounts = 'mount -t tmpfs -o size=64k none . && cd . && cd "$0"'
    full = ["unshare", "-m", "sh", "-c", f'cd "$0" && {mounts} && mkdir sub; {fillers}; eval "$1"; ls -A', str(disk)]
    script = move_script(f"{disk}/sub", TrashDirectory(f"{disk}/.Trash-7", str(disk)), "token")
    done = subprocess.run(
        [*(full if os.geteuid() == 0 else limits), script], capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) - {"filler"} == {"sub"}
    if os.geteuid() == 0:
        assert "No space left on device" in done.stderr
