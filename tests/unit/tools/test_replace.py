"""``repfor``: what is replaced, in which files, and what must have been seen before."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.job_targets import path_of
from tests.support.toolbox import ALLOWED, Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.errors import ToolError
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit import CallOutcome, CallStatus, Category, Executor, ToolCall
from harness.toolkit.interfaces import Verdict
from harness.toolkit.session.file_versions import ReadTracker
from harness_tools import core
from harness_tools.dev import tools
from harness_tools.dev.replace import RepFor
from harness_tools.dev.replacement import FILE_LIMIT, Replacement, candidates_script, folded, read_candidates
from harness_tools.text_changes import apply_changes

"""The same examples each time, however slow the machine is."""

# -- pure


def replaced(data: bytes, search: bytes, new: bytes = b"<>", **options: Any) -> bytes:
    return apply_changes(data, Replacement(search, new, **options).find(data).changes)


@pytest.mark.parametrize(
    ("data", "search", "options", "made"),
    [
        (b"a.b aXb", b"a.b", {}, b"<> aXb"),
        (b"Foo foo FOO", b"foo", {"folds": True}, b"<> <> <>"),
        ("É é E".encode(), "é".encode(), {"folds": True}, b"<> <> E"),
        ("\u0130I i".encode(), b"i", {"folds": True}, "\u0130<> <>".encode()),
        (b"caf\xe9 CAF\xe9", b"caf\xe9", {"folds": True}, b"<> <>"),
        (b"cat concat cat_ cat", b"cat", {"words": True}, b"<> concat cat_ <>"),
        (b"xa a a", b"a a", {"words": True}, b"xa <>"),
        (b"one\r\ntwo\nthree", b"one\ntwo", {}, b"<>\nthree"),
        (b"a\nb a\na # keep\n", b"a", {"exclude": (b"keep", b"zz")}, b"<>\nb <>\na # keep\n"),
        (b"x\ny keep\nx\nyy", b"x\ny", {"exclude": (b"keep",)}, b"x\ny keep\n<>y"),
        (b"\\n \n", b"\\n", {}, b"<> \n"),
        (b"no end", b"end", {}, b"no <>"),
    ],
)
def test_places_are_found_as_they_are_asked_for(
    data: bytes, search: bytes, options: dict[str, Any], made: bytes
) -> None:
    assert replaced(data, search, **options) == made


BYTES = st.lists(st.sampled_from([b"a", b"A", b"b", b"_", b" ", b"\n", b"\xc3\xa9", b"\xc3\x89", b"\xe9"]), max_size=40)


@given(BYTES.map(b"".join), BYTES.filter(bool).map(b"".join), st.booleans(), st.booleans())
def test_what_is_not_replaced_stays_and_the_file_search_finds_every_file(
    data: bytes, search: bytes, folds: bool, words: bool
) -> None:
    change = Replacement(search, b"", folds, words)
    found = change.find(data)
    assert len(apply_changes(data, found.changes)) == len(data) - len(search) * len(found.changes)
    touched = {data.count(b"\n", 0, at) for one in found.changes for at in range(one.start, one.end)}
    assert found.lines == len(touched)
    if found.changes:
        assert change.part.lower() in data.lower() if folds else change.part in data
        assert b"\n" not in change.part
    if not folds and not words:
        assert apply_changes(data, found.changes) == data.replace(search, b"")


@given(st.text(max_size=50))
def test_folding_keeps_every_place(text: str) -> None:
    data = text.encode("utf-8", "replace")
    assert len(folded(data)) == len(data)


@pytest.mark.parametrize("output", [b"", b"F./a\0", b"F./a\0E", b"E"])
def test_an_answer_that_broke_off_is_none(output: bytes) -> None:
    assert read_candidates(output, b"", "") is None


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
@pytest.mark.parametrize("recursive", [False, True])
def test_the_script_finds_the_files_of_a_tree(tmp_path: Path, shell: str, recursive: bool) -> None:
    names = {
        *("a.py", "-e.py", "new\nline.py", "sp ace.py", "quo'te.py", "sub/b.py", "sub/[x].py"),
        *(".git/c.py", "sub/node_modules/d.py"),
    }
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("xx -n Needle yy")
    (tmp_path / "other.py").write_text("nothing")
    (tmp_path / "a.txt").write_text("-n Needle")
    (tmp_path / "bin.py").write_bytes(b"-n Needle\0")
    (tmp_path / "link.py").symlink_to("a.py")
    with (tmp_path / "big.py").open("wb") as big:
        big.write(b"-n Needle")
        big.truncate(FILE_LIMIT + 1)
    script = candidates_script(b"-n needle", ".py", folds=True, recursive=recursive, inline=10 if recursive else 99)
    words = ["env", "-i", f"PATH={path_of(shell)}", "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, cwd=tmp_path, timeout=60, check=True)
    found = read_candidates(done.stdout, done.stderr, ".py")
    assert found is not None
    there = {name for name in names if ".git" not in name and "node_modules" not in name}
    assert set(found.names) == (there if recursive else {name for name in there if "/" not in name})
    assert (found.binary, found.large, found.unreadable) == (("bin.py",), ("big.py",), 0)
    assert found.texts == ({} if recursive else dict.fromkeys(found.names, b"xx -n Needle yy"))


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["dash", "busybox"])
def test_what_may_not_be_read_is_counted_and_the_rest_is_found(shell: str) -> None:
    with tempfile.TemporaryDirectory(prefix="harness-repfor-") as name:
        top = Path(name)
        for path in (top / "a", top / "locked" / "b", top / "secret"):
            path.parent.mkdir(exist_ok=True)
            path.write_text("needle")
        for path, mode in ((top, 0o755), (top / "locked", 0o700), (top / "secret", 0o600)):
            path.chmod(mode if os.getuid() == 0 else 0 if path != top else mode)
        script = candidates_script(b"needle", "", folds=False, recursive=True)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
        words = [*user, "env", "-i", f"PATH={path_of(shell)}", "sh", "-c", script]
        done = subprocess.run(words, capture_output=True, cwd=top, timeout=60, check=True)
        found = read_candidates(done.stdout, done.stderr, "")
        assert found is not None, done.stderr
        assert (found.names, found.unreadable) == (("a",), 2), done.stderr
        (top / "locked").chmod(0o700)


def test_a_dry_run_changes_nothing_and_says_so_to_the_policy() -> None:
    tool = RepFor()
    dry = tool.parse({"search": "a", "replace": "b", "file": "x", "dir": "y", "dry_run": "true"})
    assert (tool.traits_of(dry).mutating, tool.traits_of(dry).category) == (False, Category.FILE_READ)
    assert (tool.requires_approval(dry), tool.preview(dry)) == (False, None)
    assert [(subject.kind, subject.text) for subject in tool.subjects(dry)] == [("read", "x")]
    real = tool.parse({"search": "a\nc", "replace": "b"})
    assert (tool.traits_of(real).mutating, tool.preview(real)) == (True, "-a\n-c\n+b\n")
    assert [(subject.kind, subject.text) for subject in tool.subjects(real)] == [("write", ".")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"search": "", "replace": "x"}, "search: "),
        ({"search": "a\0", "replace": "x"}, "search: .*NUL"),
        ({"search": "a", "replace": "a"}, "are the same"),
        ({"search": "a" * 10_001, "replace": "b"}, "search: "),
        ({"search": "a", "replace": "b" * 100_001}, "replace: "),
        ({"search": "a", "replace": "b", "dir": [""]}, "dir"),
        ({"search": "a", "replace": "b", "file": ["x\0y"]}, "file"),
        ({"search": "a", "replace": "b", "exclude": [""]}, "exclude"),
        ({"search": "a", "replace": "b", "dryrun": True}, "did you mean 'dry_run'"),
    ],
)
def test_mistakes_are_mistakes_of_the_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        RepFor().parse(arguments)


# -- on this machine


@pytest.fixture
async def here(needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutionContext]:
    """This machine without a terminal, with its state apart."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with connect("local:") as opened:
        yield opened


def box(execution: ExecutionContext, cwd: str, answer: Any = lambda request: ALLOWED) -> Toolbox:
    made = toolbox([*core.tools(), *tools()], execution=execution, answer=answer)
    old = made.executor
    reads = ReadTracker().of("s1", execution)
    made.executor = Executor(execution, old.registry, old.services, old.events, reads, "s1", cwd=cwd)
    return made


async def repfor(made: Toolbox, search: str, new: str, **arguments: Any) -> CallOutcome:
    return await made.executor.call(ToolCall("repfor", {"search": search, "replace": new, **arguments}))


def data_of(outcome: CallOutcome) -> dict[str, Any]:
    assert isinstance(outcome.result.data, dict), outcome.result.text
    return outcome.result.data


@pytest.fixture
def tree(needs_process: None, tmp_path: Path) -> Path:
    found = tmp_path / "tree"
    for name, content in {
        "a.go": b"old\r\nold \xe9\nx old",
        "b.go": b"nothing\n",
        "sub/c.go": b"old\n",
        "d.txt": b"old\n",
        ".git/config.go": b"old\n",
        "bin.go": b"old\0",
    }.items():
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_bytes(content)
    (found / "a.go").chmod(0o750)
    return found


async def test_a_dry_run_shows_what_then_is_changed(here: ExecutionContext, tree: Path) -> None:
    made = box(here, str(tree))
    refused = await repfor(made, "old", "new", ext="go", recursive=True)
    assert (refused.result.error_code, len(data_of(refused)["files"])) == ("not_read", 2)
    shown = await repfor(made, "old", "new", ext="go", recursive=True, dry_run=True)
    assert shown.result.text.startswith("Would replace 4 places in 2 files\n")
    assert f"--- {tree}/a.go\n" in shown.result.text
    assert "-old\r\n-old \udce9\n-x old\n" in shown.result.text
    assert "[skipped: 1 binary file]" in shown.result.text
    assert (tree / "a.go").read_bytes() == b"old\r\nold \xe9\nx old"
    other = await repfor(made, "old", "newer", ext="go", recursive=True)
    assert other.result.error_code == "not_read", "another replacement was shown"
    done = await repfor(made, "old", "new", ext=".go", recursive=True)
    facts = data_of(done)
    assert done.status is CallStatus.OK, done.result.text
    assert [(one["dir"], one["files_modified"], one["total_replacements"]) for one in facts["directories"]] == [
        (str(tree), 1, 3),
        (str(tree / "sub"), 1, 1),
    ]
    assert (facts["dry_run"], facts["directories"][0]["lines_changed"], facts["errors"]) == (False, 3, [])
    assert (tree / "a.go").read_bytes() == b"new\r\nnew \xe9\nx new"
    assert (tree / "a.go").stat().st_mode & 0o777 == 0o750
    for name in ("d.txt", ".git/config.go"):
        assert (tree / name).read_bytes() == b"old\n"
    assert (tree / "bin.go").read_bytes() == b"old\0"
    none = await repfor(made, "old", "new", ext=".go", recursive=True)
    assert (none.status, data_of(none)["total_replacements"]) == (CallStatus.OK, 0)
    assert (await repfor(made, "new", "newest", ext="go", recursive=True)).status is CallStatus.OK, "we wrote them"


async def test_a_file_that_changed_after_the_dry_run_keeps_all_from_being_changed(
    here: ExecutionContext, tree: Path
) -> None:
    made = box(here, str(tree))
    await repfor(made, "old", "new", recursive=True, dry_run=True)
    (tree / "sub/c.go").write_text("old and more\n")
    refused = await repfor(made, "old", "new", recursive=True)
    assert (refused.result.error_code, data_of(refused)["files"]) == ("stale", [str(tree / "sub/c.go")])
    assert (tree / "d.txt").read_text() == "old\n"
    (tree / "e.txt").write_text("old too\n")
    await made.executor.call(ToolCall("read_file", {"path": str(tree / "sub/c.go")}))
    refused = await repfor(made, "old", "new", recursive=True)
    assert (refused.result.error_code, data_of(refused)["files"]) == ("not_read", [str(tree / "e.txt")])
    await repfor(made, "old", "new", recursive=True, dry_run=True, file=["e.txt"])
    assert (await repfor(made, "old", "new", recursive=True)).status is CallStatus.OK
    assert (tree / "sub/c.go").read_text() == "new and more\n"


async def test_files_that_are_named_report_each_what_is_wrong(here: ExecutionContext, tree: Path) -> None:
    made = box(here, str(tree))
    (tree / "link").symlink_to("d.txt")
    files = ["link", "d.txt", "nowhere", "bin.go", "sub"]
    await repfor(made, "old", "new", file=files, dry_run=True)
    done = await repfor(made, "old", "new", file=files, dir=["/nowhere"])
    assert (done.result.error_code, data_of(done)["total_replacements"]) == ("partial", 1)
    assert [one["file"] for one in data_of(done)["errors"]] == ["nowhere", "bin.go", "sub"]
    assert ((tree / "d.txt").read_text(), (tree / "link").is_symlink()) == ("new\n", True)
    assert (await repfor(made, "old", "new", file=["nowhere"])).result.error_code == "file_not_found"
    assert (await repfor(made, "old", "new", dir="nowhere")).result.error_code == "file_not_found"
    assert (await repfor(made, "old", "new", dir="d.txt")).result.is_error


async def test_a_file_that_would_grow_without_bounds_is_left_alone(here: ExecutionContext, tmp_path: Path) -> None:
    made, file = box(here, str(tmp_path)), tmp_path / "grows"
    file.write_text("x" * 1_000)
    outcome = await repfor(made, "x", "y" * 100_000, file=["grows"], dry_run=True)
    assert "grows would grow to 100000000 bytes" in outcome.result.text


async def test_a_file_that_cannot_be_written_keeps_no_other_from_it(here: ExecutionContext, tree: Path) -> None:
    made = box(here, str(tree))
    (tree / "\uff46\uff55\uff4c\uff4c.txt").write_text("Linux\n")
    files = ["/proc/version", "\uff46\uff55\uff4c\uff4c.txt"]
    shown = await repfor(made, "Linux", "Unix", file=files, dry_run=True)
    assert data_of(shown)["files_modified"] == 2
    done = await repfor(made, "Linux", "Unix", file=files)
    assert (done.result.error_code, data_of(done)["files_modified"]) == ("partial", 1)
    assert [one["file"] for one in data_of(done)["errors"]] == ["/proc/version"]
    assert (tree / "\uff46\uff55\uff4c\uff4c.txt").read_text() == "Unix\n"


async def test_a_change_while_it_runs_is_noticed_file_by_file(here: ExecutionContext, tree: Path) -> None:
    def answer(request: Any) -> Verdict:
        if any(subject.text == str(tree / "d.txt") for subject in request.subjects if subject.kind == "write"):
            (tree / "d.txt").write_text("old, by an editor\n")  # after the last look, before the first write
        return ALLOWED

    made = box(here, str(tree), answer)
    await repfor(made, "old", "new", dry_run=True)
    done = await repfor(made, "old", "new")
    assert done.result.error_code == "partial"
    assert [(one["file"], one["code"]) for one in data_of(done)["errors"]] == [(str(tree / "d.txt"), "stale")]
    assert (tree / "d.txt").read_text() == "old, by an editor\n"
    assert (tree / "a.go").read_bytes() == b"new\r\nnew \xe9\nx new"


async def test_the_policy_judges_the_files_that_were_found(here: ExecutionContext, tree: Path) -> None:
    def answer(request: Any) -> Verdict:
        paths = [subject.text for subject in request.subjects if subject.kind == "write"]
        return Verdict(False, "a rule", "test") if str(tree / "d.txt") in paths else ALLOWED

    made = box(here, str(tree), answer)
    await repfor(made, "old", "new", dry_run=True)
    refused = await repfor(made, "old", "new")
    assert (refused.result.error_code, "a rule" in refused.result.text) == ("denied", True)
    assert (tree / "a.go").read_bytes() == b"old\r\nold \xe9\nx old"
    assert (await repfor(made, "old", "new", ext="go")).status is CallStatus.OK


async def test_without_programs_on_the_target_the_files_are_looked_at_here() -> None:
    backend = MemoryBackend()
    execution = memory_context(backend)
    for name in ("a.py", "sub/b.py", ".git/c.py", "d.txt"):
        await execution.write_file(f"/home/user/w/{name}", "one two\n")
    made = box(execution, "/home/user/w")
    await repfor(made, "two", "2", dir=".", ext="py", recursive=True, dry_run=True)
    done = await repfor(made, "two", "2", dir=".", ext="py", recursive=True)
    assert (done.status, data_of(done)["files_modified"]) == (CallStatus.OK, 2)
    assert (await execution.read_file("/home/user/w/.git/c.py")).data == b"one two\n"
