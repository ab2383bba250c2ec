"""What a path really is on a real target: links, ``..``, names that are not there, secrets, ``.aiexclude``."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.lowlevel
import pytest
from tests.support.own_home import here
from tests.support.permits import Desk, desk, says

from harness.context import ExecutionContext
from harness.errors import ConnectionLost, ToolError
from harness.results import FileContent, FileStat
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit.permissions.paths.hard_denials import AiExclude, excluded, parse_lines
from harness.toolkit.permissions.paths.target_paths import PathResolver
from harness.toolkit.permissions.questions import ApprovalScope
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode

__all__ = ["here"]


async def test_the_real_path_is_what_the_target_says(here: ExecutionContext, tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "d/e").mkdir(parents=True)
    (root / "d/e/f").write_text("x")
    (root / "link").symlink_to("d/e")
    (root / "dangling").symlink_to("d/new/file")
    (root / "loop").symlink_to("loop")
    cases = {
        f"{root}/link/f": f"{root}/d/e/f",
        f"{root}/link/../x": f"{root}/d/x",
        f"{root}/link/new/deep": f"{root}/d/e/new/deep",
        f"{root}/dangling": f"{root}/d/new/file",
        f"{root}/./d//e/": f"{root}/d/e",
        f"/proc/self/root{root}/link/f": f"{root}/d/e/f",
        f"/proc/self/root{root}/link/none": f"{root}/d/e/none",
        "~/.ssh/id_rsa": f"{root}/home/.ssh/id_rsa",
        "$HOME/x": f"{root}/d/$HOME/x",
        "x": f"{root}/d/x",
        "../x": f"{root}/x",
        "/": "/",
        "/nowhere/../../y": "/y",
        f"{root}/d/e/f/under": f"{root}/d/e/f/under",
    }
    for given, real in cases.items():
        path = await PathResolver(here).find(given, f"{root}/d")
        assert (path.real, path.is_known) == (real, True), given
    assert not (await PathResolver(here).find(f"{root}/loop", "/")).is_known


@pytest.mark.parametrize("there", [0, 1, 2, 3, 7])
async def test_what_is_not_there_is_found_from_the_deepest_directory_that_is(there: int) -> None:
    backend = MemoryBackend()
    execution = memory_context(backend)
    await execution.mkdir("/top" + "/n" * there, parents=True)
    for missing in (1, 2, 5, 2000):
        path = "/top" + "/n" * there + "/m" * missing + "/../f"
        found = await PathResolver(execution).find(path, "/")
        assert (found.real, found.is_known) == (os.path.normpath(path), True)


async def test_calls_at_the_same_time_do_not_take_from_each_other_what_they_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.toolkit.permissions.paths.hard_denials.KEPT", 0)
    found = AiExclude(60.0, lambda: 0.0)
    execution = memory_context(MemoryBackend())
    read_file = execution.read_file

    async def read_slowly(path: str, *, limit: int | None = None) -> FileContent:
        if path.startswith("/a/"):
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            await found.reason("/", execution)  # forgets what is known
        return await read_file(path, limit=limit)

    monkeypatch.setattr(execution, "read_file", read_slowly)
    assert await found.reason("/a/b/c", execution) == ""


async def test_a_path_too_deep_to_be_judged_is_denied(here: ExecutionContext) -> None:
    made = desk(mode=Mode.AUTO, execution=here)
    verdict = await made.decide("write_file", "/nowhere" + "/n" * 2000)
    assert (verdict.allowed, verdict.by, "too many" in verdict.reason) == (False, "hard denial", True)


async def test_a_link_to_a_secret_is_a_secret(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").symlink_to(tmp_path / "home/.ssh/id_rsa")
    (tmp_path / "dir").symlink_to(tmp_path / "home/.ssh")
    (tmp_path / "future").symlink_to(tmp_path / "home/.ssh/id_ed25519")
    made = desk(says(ApprovalScope.SESSION), mode=Mode.AUTO, execution=here, cwd=str(tmp_path))
    for path in (
        "notes.txt",
        "dir/id_rsa",
        "dir/../.ssh/id_rsa",
        "future",
        f"/proc/self/root{tmp_path}/notes.txt",
        "dir",
    ):
        for tool in ("read_file", "write_file"):
            verdict = await made.decide(tool, path)
            assert (verdict.allowed, verdict.by) == (False, "hard denial"), path
    assert await made.allows("read_file", "dir/../.profile")


async def test_a_link_that_becomes_a_secret_between_two_calls_is_noticed(
    here: ExecutionContext, tmp_path: Path
) -> None:
    link = tmp_path / "x"
    (tmp_path / "plain").write_text("")
    made = desk(says(ApprovalScope.EXACT), execution=here)
    link.symlink_to(tmp_path / "plain")
    assert await made.allows("write_file", str(link))
    other = tmp_path / "y"
    other.symlink_to(tmp_path / "home/.ssh/id_rsa")
    os.replace(other, link)
    assert not await made.allows("write_file", str(link))
    other.symlink_to(tmp_path / "home/other")
    os.replace(other, link)
    made.policy.approver = None
    assert not await made.allows("write_file", str(link)), "a grant is for the real file, not for the name of a link"
    assert await made.allows("write_file", str(tmp_path / "plain"))


async def test_a_rule_matches_the_real_path_and_the_one_with_the_home(here: ExecutionContext, tmp_path: Path) -> None:
    allow = Rule(Action.ALLOW, tool="write_file", argument="~/out/**", match=Match.GLOB)
    made = desk(execution=here, rules=(allow,))
    (tmp_path / "home/out").mkdir()
    (tmp_path / "home/out/away").symlink_to("/tmp")
    assert await made.allows("write_file", "~/out/a")
    assert await made.allows("write_file", f"{tmp_path}/home/out/b/c")
    assert not await made.allows("write_file", "~/out/../x")
    assert not await made.allows("write_file", "~/out/away/x")


async def test_a_rule_that_denies_goes_by_every_name_of_a_file(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("")
    (tmp_path / "name").symlink_to("real")
    for argument in (f"{tmp_path}/name", f"{tmp_path}/real"):
        made = desk(mode=Mode.AUTO, execution=here, rules=(Rule(Action.DENY, argument=argument),))
        assert not await made.allows("read_file", f"{tmp_path}/name")
    assert await made.allows("read_file", f"{tmp_path}/other")


async def test_a_directory_that_is_granted_is_the_real_one(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    made = desk(says(ApprovalScope.DIRECTORY), execution=here)
    assert await made.allows("write_file", f"{tmp_path}/link/x")
    made.policy.approver = None
    assert await made.allows("write_file", f"{tmp_path}/a/y")
    (tmp_path / "a/out").symlink_to("/tmp")
    assert not await made.allows("write_file", f"{tmp_path}/a/out/y")
    assert not await made.allows("write_file", f"{tmp_path}/a/.env"), "a secret in it stays one"


@pytest.mark.parametrize("path", ["", "a\0b"])
async def test_what_is_no_path_is_denied(path: str) -> None:
    assert not await desk(says(ApprovalScope.ONCE), mode=Mode.AUTO).allows("read_file", path)


async def test_a_look_alike_asks_and_says_what_it_holds() -> None:
    approver = says(ApprovalScope.ONCE)
    made = desk(approver, mode=Mode.AUTO)
    assert await made.allows("read_file", "/srv/p\u0430sswd")
    assert "CYRILLIC" in approver.questions[0].reason
    assert not await made.allows("read_file", "/srv/.e\u200bnv")


async def test_files_that_give_rights_are_not_written(here: ExecutionContext, tmp_path: Path) -> None:
    file = tmp_path / "conf" / "grants.json"
    made = desk(mode=Mode.AUTO, execution=here, file=file)
    for path in ("~/.config/harness/config.toml", "/srv/.aiexclude", str(file), f"{file.parent}/tools/t.toml"):
        verdict = await made.decide("write_file", path)
        assert (verdict.allowed, verdict.by) == (False, "hard denial"), path
    assert await made.allows("read_file", "~/.config/harness/config.toml")
    assert await made.policy.read_denial(f"{tmp_path}/home/.config/harness/config.toml", here) == "", "it may be read"
    assert await made.policy.read_denial(f"{tmp_path}/home/.ssh/id_rsa", here) != ""
    assert (await made.decide("write_file", "/srv/.aiexclude.bak")).by != "hard denial", "a copy excludes nothing"


# -- .aiexclude


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("secret.txt", "secret.txt", True),
        ("secret.txt", "a/b/secret.txt", True),
        ("secret", "secret/a/b", True),
        ("secret/", "a/secret/b", True),
        ("/secret", "secret", True),
        ("/secret", "a/secret", False),
        ("a/secret", "a/secret/x", True),
        ("a/secret", "b/a/secret", False),
        ("*.db", "x/y.db", True),
        ("data/*", "data/x/y", True),
        ("**/data", "x/data/y", True),
        ("data/**/x", "data/a/b/x", True),
        ("*.db\n!keep.db", "x/keep.db", False),
        ("data\n!data/keep", "data/keep", True),
        ("# secret\n\n  \n", "secret", False),
        ("secret \r\n", "secret", True),
        ("\\#x", "#x", True),
        ("", "x", False),
    ],
)
def test_the_syntax_of_aiexclude(text: str, path: str, expected: bool) -> None:
    assert bool(excluded(parse_lines(text), path)) is expected


async def test_aiexclude_is_read_on_the_target_in_every_directory_above(here: ExecutionContext, tmp_path: Path) -> None:
    (tmp_path / "p/q").mkdir(parents=True)
    (tmp_path / "p/.aiexclude").write_text("private/\n*.dump\n")
    (tmp_path / "into").symlink_to("p/q")
    made = desk(says(ApprovalScope.SESSION), mode=Mode.AUTO, execution=here)
    for path in ("p/private/x", "p/q/x.dump", "into/x.dump"):
        verdict = await made.decide("read_file", f"{tmp_path}/{path}")
        assert (verdict.allowed, verdict.by) == (False, "hard denial"), path
        assert f"{tmp_path}/p/.aiexclude excludes it" in verdict.reason
    assert await made.allows("read_file", f"{tmp_path}/p/q/x.txt")
    assert await made.allows("read_file", f"{tmp_path}/x.dump")


async def test_aiexclude_is_remembered_for_a_moment_only(here: ExecutionContext, tmp_path: Path) -> None:
    made = desk(mode=Mode.AUTO, execution=here)
    assert await made.allows("read_file", f"{tmp_path}/x")
    (tmp_path / ".aiexclude").write_text("x")
    made.clock.now += 5
    assert not await made.allows("read_file", f"{tmp_path}/x")
    (tmp_path / ".aiexclude").unlink()
    assert not await made.allows("read_file", f"{tmp_path}/x")
    made.clock.now += 5
    assert await made.allows("read_file", f"{tmp_path}/x")


@pytest.mark.parametrize("kind", ["directory", "pipe", "loop", "long"])
async def test_an_aiexclude_that_cannot_be_read_excludes_everything(
    here: ExecutionContext, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / ".aiexclude"
    {
        "directory": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "loop": lambda: path.symlink_to(".aiexclude"),
        "long": lambda: path.write_bytes(b"x\n" * (200 << 10)),
    }[kind]()
    assert not await desk(mode=Mode.AUTO, execution=here).allows("read_file", f"{tmp_path}/x")


# -- when the target does not answer


async def test_a_lost_link_is_a_failure_of_the_decision_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(path: str, *, follow: bool = True) -> FileStat:
        raise ConnectionLost("the link broke", target="memory://here")

    backend = MemoryBackend()
    made: Desk = desk(mode=Mode.AUTO, backend=backend)
    monkeypatch.setattr(backend.files, "stat", lost)
    with pytest.raises(ToolError, match="so it was not run: the link broke") as caught:
        await made.decide("read_file", "/x")
    assert caught.value.code == "permission_failure"
    monkeypatch.undo()
    monkeypatch.setattr(backend.files, "read", lambda *words: lost(""))
    with pytest.raises(ToolError, match="so it was not run"):
        await made.decide("read_file", "/x")
