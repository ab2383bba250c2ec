"""The state directory, job ids and job records."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.job_targets import SHELLS, ShellTransport, open_job_target, path_of

from harness.errors import ConnectError
from harness.target import Target
from harness_backends.posix.persistent_shell import open_held_shell
from harness_backends.posix.state_directory import (
    PROLOGUE,
    RELEASE,
    JobRecord,
    open_job_store,
    parse_record,
    parse_report,
    render_record,
)

TIME = 20.0

words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=40)
records = st.builds(
    JobRecord,
    job_id=st.integers(1, 10**9).map(str),
    command=words,
    kind=st.sampled_from(("plain", "pane")),
    started=st.none() | st.integers(0, 2**31).map(float),
    owner=words,
    pane=words,
    cwd=words,
    log=words,
    offset=st.none() | st.integers(0, 2**40),
    nonce=words,
    user=words,
)


@given(records)
def test_a_record_survives_being_written_and_read(record: JobRecord) -> None:
    assert parse_record(render_record(record)) == record


@given(records)
def test_the_header_is_one_line_that_a_shell_skips(record: JobRecord) -> None:
    header = render_record(record).removesuffix(record.command)
    assert header.startswith("hxc #% " if record.kind == "pane" else "#% ")
    assert header.endswith(" #%%\n")
    assert all(ord(character) >= 32 for character in header[:-1])


@pytest.mark.parametrize("text", ["", "#% job: 1 #%%", "#% job: 1 #", "#% job: 1\n", "echo not a record\n"])
def test_a_claimed_or_torn_record_is_no_record(text: str) -> None:
    assert parse_record(text) is None


def test_keys_that_are_unknown_are_skipped() -> None:
    text = "#% job: 7 #% colour: blue #% offset: x #% started: y #%%\necho"
    assert parse_record(text) == JobRecord("7", "echo")


def test_the_work_of_a_tool_is_marked_as_such() -> None:
    for helper in (False, True):
        record = JobRecord("7", "echo", helper=helper)
        assert parse_record(render_record(record)) == record


@given(st.text(max_size=60))
def test_any_text_can_be_read_as_a_record(text: str) -> None:
    parse_record(text)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ("link /s/harness", "/s/harness is a symbolic link"),
        ("file /s/harness", "/s/harness is not a directory"),
        ("owner /s/harness", "/s/harness belongs to another user"),
        ("open /s/harness", "/s/harness can be written by other users"),
        ("none", "no writable directory"),
        ("", "no writable directory"),
    ],
)
def test_every_refusal_says_what_is_in_the_way_and_what_to_do(refused: str, said: str) -> None:
    with pytest.raises(ConnectError, match=said) as caught:
        parse_report(f"state=\nrefused={refused}\nclaimed=\n", Target.parse("local:"))
    assert caught.value.hint


async def store_root(home: Path, shell: str = "dash") -> str:
    with anyio.fail_after(TIME):
        async with open_held_shell(ShellTransport(path_of(shell), home)) as held, open_job_store(held) as store:
            return store.root


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", SHELLS)
async def test_the_state_directory_is_made_private(tmp_path: Path, shell: str) -> None:
    os.umask(os.umask(0o022))
    root = Path(await store_root(tmp_path, shell))
    assert root == tmp_path / "state" / "harness"
    for directory in (root, root / "jobs", root / "panes", root / "run", root.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.usefixtures("needs_process")
async def test_a_directory_that_others_may_read_is_closed(tmp_path: Path) -> None:
    root = tmp_path / "state" / "harness"
    root.mkdir(parents=True)
    root.chmod(0o755)
    assert await store_root(tmp_path) == str(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.usefixtures("needs_process")
async def test_a_link_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "harness").symlink_to(tmp_path)
    with pytest.raises(ConnectError, match="symbolic link"):
        await store_root(tmp_path)


@pytest.mark.usefixtures("needs_process")
async def test_a_link_below_it_is_refused(tmp_path: Path) -> None:
    root = Path(await store_root(tmp_path))
    (root / "panes").rmdir()
    (root / "panes").symlink_to(tmp_path)
    with pytest.raises(ConnectError, match="panes is a symbolic link"):
        await store_root(tmp_path)


@pytest.mark.usefixtures("needs_process")
async def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "harness").write_text("")
    with pytest.raises(ConnectError, match="not a directory"):
        await store_root(tmp_path)


@pytest.mark.usefixtures("needs_process")
async def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "state" / "harness"
    root.mkdir(parents=True)
    root.chmod(0o777)
    with pytest.raises(ConnectError, match="written by other users"):
        await store_root(tmp_path)


@pytest.mark.usefixtures("needs_process")
async def test_another_users_directory_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "state" / "harness"
    root.mkdir(parents=True)
    root.chmod(0o700)
    if os.getuid() == 0:
        os.chown(root, 65534, 65534)
        with pytest.raises(ConnectError, match="another user"):
            await store_root(tmp_path)
    else:
        assert await store_root(tmp_path) == str(root)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", SHELLS)
async def test_ids_are_never_given_twice_to_harnesses_at_work_together(tmp_path: Path, shell: str) -> None:
    ids: list[str] = []

    async def harness() -> None:
        async with open_job_target(shell, tmp_path) as target:
            for _ in range(100):
                ids.append(await target.store.claim())
                (target.state / "jobs" / f"{ids[-1]}.cmd").write_text("#%%\n")

    with anyio.fail_after(TIME):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(harness)
    assert len(set(ids)) == 300


# Claims and gives back, over and over; a line for each claim that did not bring four ids.
CLAIMS = """
hx_i=0
while [ $((hx_i += 1)) -le 700 ]; do
  hx_ids=$(hx_claim 4 && [ "$-" = "${-#*C}" ]) && [ "$(echo $hx_ids | wc -w)" -eq 4 ] || echo "claimed only: $hx_ids"
  (%s)
done
"""


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", SHELLS)
def test_an_id_that_is_given_back_while_another_claims_is_no_full_disk(tmp_path: Path, shell: str) -> None:
    script = PROLOGUE + CLAIMS % RELEASE.format(jobs='"$hx_root/jobs"', ids="$hx_ids")
    environment = {"HOME": str(tmp_path), "PATH": path_of(shell)}
    argv = ["sh", "-c", script]
    harnesses = [subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [harness.communicate()[0] for harness in harnesses] == ["", "", ""]


@pytest.mark.usefixtures("needs_process")
async def test_unused_ids_are_given_back_and_the_used_ones_not_reused(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        for expected in range(1, 4):
            async with open_job_target("dash", tmp_path) as target:
                assert (await target.run("true")).exit_code == 0
                jobs = target.state / "jobs"
            kept = [path for path in jobs.glob("*.cmd") if path.stat().st_size == 0]
            assert kept == []
            assert len(list(jobs.glob("*.exit"))) == expected


@pytest.mark.usefixtures("needs_process")
async def test_a_broken_hint_of_the_last_id_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    root = Path(await store_root(tmp_path / "home"))
    (root / "jobs" / "1.cmd").write_text("#% job: 1 #%%\ntrue")
    for hint in ("", "x\n", "007\n", "-3\n", "99999999999999999999\n"):
        (root / "jobs" / "last").write_text(hint)
        with anyio.fail_after(TIME):
            async with open_job_target("dash", tmp_path) as target:
                assert int(await target.store.claim()) > 1


@pytest.mark.usefixtures("needs_process")
def test_without_a_home_the_directory_is_below_tmp() -> None:
    script = 'HOME=/nonexistent; unset XDG_STATE_HOME; eval "$1"; printf %s "$hx_root"'
    text = PROLOGUE.replace("/tmp/harness-", "/tmp/harness-test-")
    reply = subprocess.run(["sh", "-c", script, "sh", text], capture_output=True, text=True, check=True)
    try:
        assert reply.stdout == f"/tmp/harness-test-{os.getuid()}"
        assert stat.S_IMODE(os.stat(reply.stdout).st_mode) == 0o700
    finally:
        subprocess.run(["rm", "-rf", f"/tmp/harness-test-{os.getuid()}"], check=True)
