"""Copies between two targets, here both this machine: what goes where, what is kept, and what a host cannot do."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from harness import connect
from harness.backend import Files, ReceivedFile
from harness.copying import Copier, CopyObserver, CopyOptions, CopySide, CopySummary, FileCopy
from harness.copying import sources as copying_sources
from harness.errors import ConnectionLost, FileError, FileNotFound, HarnessError, NotADirectory, UnsupportedOperation
from harness.results import DirEntry


class Ended(CopyObserver):
    """Keeps what a copy reports."""

    def __init__(self) -> None:
        self.files: list[FileCopy] = []
        self.size = self.done = self.lost = 0

    def planned(self, files: int, size: int) -> None:
        self.size = size

    def advanced(self, size: int) -> None:
        self.done += size

    def left_out(self, size: int) -> None:
        self.size -= size

    def ended(self, ended: FileCopy) -> None:
        self.files.append(ended)

    def reconnecting(self, error: Exception) -> None:
        self.lost += 1

    def status(self) -> dict[str, str]:
        """Return how each file ended, by its name."""
        return {os.path.basename(item.path): item.status for item in self.files}


class Desk:
    """Two open targets in a directory."""

    def __init__(self, root: Path, source: Files, destination: Files) -> None:
        self.root = root
        self.source = source
        self.destination = destination
        self.ended = Ended()

    async def copy(self, paths: list[str], to: str, *, label: str = "far:", **options: Any) -> CopySummary:
        self.ended = Ended()
        sources = [(CopySide(self.source, label), [f"{self.root}/{path}" for path in paths])]
        how = CopyOptions(**options)
        return await Copier(sources, CopySide(self.destination), f"{self.root}/{to}", how, self.ended).run()


@pytest.fixture
async def desk(needs_process: None, tmp_path: Path) -> AsyncIterator[Desk]:
    async with connect("local:") as one, connect("local:") as other:
        yield Desk(tmp_path, one.files, other.files)


ODD_NAMES = ["-r", "a b", "new\nline", "a:b", "*", "$(touch x)", "'\"", "\udcff\udcfe", "~", "é", ".hidden"]


async def test_a_tree_of_odd_names_is_copied_and_copied_again(desk: Desk) -> None:
    for name in ODD_NAMES:
        (desk.root / "tree" / name).mkdir(parents=True)
        (desk.root / "tree" / name / name).write_text(name.encode("utf-8", "surrogateescape").hex())
    (desk.root / "tree/empty").touch()
    summary = await desk.copy(["tree"], "copy", recursive=True)
    assert (summary.counts["copied"], summary.failed) == (len(ODD_NAMES) + 1, 0), summary.problems
    for name in ODD_NAMES:
        assert (desk.root / "copy" / name / name).read_bytes() == (desk.root / "tree" / name / name).read_bytes()
    assert desk.ended.done == desk.ended.size == summary.transferred
    summary = await desk.copy(["tree/."], "copy", recursive=True)
    assert summary.counts["unchanged"] == len(ODD_NAMES) + 1
    assert summary.transferred == 0
    assert desk.ended.done == desk.ended.size == 0


async def test_a_name_as_cp_gives_it(desk: Desk) -> None:
    for name in ("a", "b"):
        (desk.root / name).write_text(name)
    (desk.root / "dir").mkdir()
    await desk.copy(["a"], "dir")
    await desk.copy(["a"], "dir/other")
    await desk.copy(["a", "b"], "dir/")
    assert sorted(os.listdir(desk.root / "dir")) == ["a", "b", "other"]
    with pytest.raises(NotADirectory):
        await desk.copy(["a", "b"], "dir/a")
    with pytest.raises(FileNotFound):
        await desk.copy(["a", "b"], "none")
    with pytest.raises(FileNotFound):
        await desk.copy(["a"], "none/")
    assert (await desk.copy(["a"], "none/b")).failed == 1
    assert (await desk.copy(["dir"], "dir2")).failed == 1  # without -r
    with pytest.raises(NotADirectory):
        await desk.copy(["dir"], "a", recursive=True)
    assert (await desk.copy(["dir"], "dir2", recursive=True)).failed == 0
    assert (await desk.copy(["dir"], "dir2", recursive=True)).failed == 0
    assert sorted(os.listdir(desk.root / "dir2")) == ["a", "b", "dir", "other"]


async def test_patterns_are_matched_and_not_evaluated(desk: Desk) -> None:
    for name in ("a.log", "b.log", "[x].log", "$(touch evil).log", ".c.log"):
        (desk.root / name).write_text(name)
    (desk.root / "to").mkdir()
    await desk.copy(["*.log"], "to")
    assert sorted(os.listdir(desk.root / "to")) == ["$(touch evil).log", "[x].log", "a.log", "b.log"]
    assert not (desk.root / "evil").exists()
    await desk.copy(["[x].log"], "literal")  # a name that looks like a pattern comes first
    assert (desk.root / "literal").read_text() == "[x].log"
    summary = await desk.copy(["none*", "a.log"], "to")
    assert (summary.failed, summary.counts["unchanged"]) == (1, 1)


async def test_links_are_followed_and_special_files_skipped(desk: Desk) -> None:
    tree = desk.root / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "file").write_text("x")
    (tree / "link").symlink_to("file")
    (tree / "dangling").symlink_to("none")
    (tree / "sub/loop").symlink_to("..")
    os.mkfifo(tree / "pipe")
    summary = await desk.copy(["tree"], "copy", recursive=True)
    assert desk.ended.status() == {
        "file": "copied", "link": "copied", "dangling": "failed", "loop": "failed", "pipe": "skipped",
    }  # fmt: skip
    assert (desk.root / "copy/link").read_text() == "x"
    assert not (desk.root / "copy/link").is_symlink()
    assert summary.failed == 2


async def test_temporary_files_of_harness_are_skipped(desk: Desk) -> None:
    """A copy with the time of the original would be removed at once, as what a write has left."""
    tree = desk.root / "tree"
    tree.mkdir()
    for name in (".hx-tmp-0123", ".hx-tmp", "a", "b"):
        (tree / name).write_text(name)
        os.utime(tree / name, (1e9, 1e9))
    (tree / ".hx-lock").mkdir()
    summary = await desk.copy(["tree"], "copy", recursive=True, preserve=True)
    assert desk.ended.status() == {
        ".hx-tmp-0123": "skipped", ".hx-lock": "skipped", ".hx-tmp": "copied", "a": "copied", "b": "copied",
    }  # fmt: skip
    assert sorted(os.listdir(desk.root / "copy")) == [".hx-tmp", "a", "b"]
    summary = await desk.copy(["tree/.hx-tmp-0123"], "other")
    assert (summary.failed, (desk.root / "other").exists()) == (1, False)


@pytest.mark.parametrize("size", [10, 300_000, 3 << 20])
async def test_modes_follow_the_umask_or_are_kept(desk: Desk, size: int) -> None:
    (desk.root / "run").write_bytes(os.urandom(size))
    (desk.root / "run").chmod(0o775)
    os.utime(desk.root / "run", (1e9, 1e9 + 0.25))
    await desk.copy(["run"], "new")
    assert stat.S_IMODE((desk.root / "new").stat().st_mode) == 0o775 & ~_umask()
    (desk.root / "old").touch(0o600)
    await desk.copy(["run"], "old")
    assert stat.S_IMODE((desk.root / "old").stat().st_mode) == 0o600
    await desk.copy(["run"], "old", preserve=True)  # the content is there already
    kept = (desk.root / "old").stat()
    assert (stat.S_IMODE(kept.st_mode), kept.st_mtime) == (0o775, 1e9 + 0.25)


async def test_directories_keep_their_modes_and_times(desk: Desk) -> None:
    (desk.root / "tree/private").mkdir(parents=True, mode=0o700)
    (desk.root / "tree/private/f").touch()
    os.utime(desk.root / "tree/private", (1e9, 1e9))
    await desk.copy(["tree"], "plain", recursive=True)
    assert stat.S_IMODE((desk.root / "plain/private").stat().st_mode) == 0o700
    await desk.copy(["tree"], "kept", recursive=True, preserve=True)
    kept = (desk.root / "kept/private").stat()
    assert (stat.S_IMODE(kept.st_mode), kept.st_mtime) == (0o700, 1e9)


async def test_directories_of_a_copy_that_was_cut_have_their_modes(desk: Desk) -> None:
    for name, mode in (("open", 0o777), ("usual", 0o755), ("private", 0o700), ("read-only", 0o555)):
        (desk.root / "tree" / name).mkdir(parents=True)
        (desk.root / "tree" / name / "f").write_bytes(os.urandom(4 << 20))
        (desk.root / "tree" / name).chmod(mode)
    destination = desk.destination
    desk.destination = Losing(destination, 1000)  # type: ignore[assignment]  # it forwards every call
    with pytest.raises(ConnectionLost):
        await desk.copy(["tree"], "copy", recursive=True, reconnect=0.0)
    desk.destination = destination
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (desk.root / "copy").iterdir()}
    assert modes == {"open": 0o777 & ~_umask(), "usual": 0o755 & ~_umask(), "private": 0o700, "read-only": 0o755}
    assert (await desk.copy(["tree/."], "copy", recursive=True)).failed == 0
    await desk.copy(["tree"], "whole", recursive=True)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (desk.root / "whole").iterdir()}
    assert (modes["usual"], modes["read-only"]) == (0o755 & ~_umask(), 0o555 & ~_umask())


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current


async def test_a_failed_directory_does_not_stop_the_others(desk: Desk) -> None:
    for path in ("tree/one/a", "tree/one/deep/b", "tree/two/c"):
        (desk.root / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.root / path).write_text(path)
    (desk.root / "copy/tree").mkdir(parents=True)
    (desk.root / "copy/tree/one").write_text("a file in the place of a directory")
    summary = await desk.copy(["tree"], "copy", recursive=True)
    assert (summary.failed, summary.counts["copied"], len(summary.problems)) == (4, 1, 1)
    assert (desk.root / "copy/tree/two/c").exists()


async def test_two_sources_of_one_name_do_not_replace_each_other(desk: Desk) -> None:
    for name in ("x/f", "y/f"):
        (desk.root / name).parent.mkdir()
        (desk.root / name).write_text(name)
    (desk.root / "to").mkdir()
    summary = await desk.copy(["x/f", "y/f"], "to")
    assert (summary.failed, (desk.root / "to/f").read_text()) == (1, "x/f")


@pytest.mark.parametrize("to", ["d", "d/", "d/d", "d/new", "link", "link/new"])
async def test_a_directory_is_not_copied_into_itself(desk: Desk, to: str) -> None:
    (desk.root / "d/d").mkdir(parents=True)
    (desk.root / "d/x").write_text("1")
    (desk.root / "d/d/x").write_text("2")
    (desk.root / "link").symlink_to("d")
    desk.destination = desk.source
    before = _tree(desk.root)
    with pytest.raises(FileError, match="into itself"):
        await desk.copy(["d"], to, label="", recursive=True)
    assert (_tree(desk.root), (desk.root / "d/d/x").read_text()) == (before, "2")
    assert (await desk.copy(["d"], "d2", label="", recursive=True)).counts["copied"] == 2
    assert (await desk.copy(["d/."], "d", label="", recursive=True)).counts["unchanged"] == 2


# -- a host that answers what it likes


class Hostile(Files):
    """Forwards to a target, but lists other names."""

    def __init__(self, files: Files, names: list[str]) -> None:
        self._files = files
        self._names = names

    def __getattribute__(self, name: str) -> Any:
        if name in {"list_dir", "glob", "_files", "_names"}:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_files"), name)

    async def list_dir(self, path: str) -> list[DirEntry]:
        return [DirEntry(name, "file", 1) for name in self._names]

    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        return [f"{pattern.rpartition('/')[0]}/{name}" for name in self._names]


Hostile.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # every call is forwarded


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "/etc/x", "a/../../x", "sub/x"])
async def test_a_host_cannot_choose_where_a_name_leads(desk: Desk, name: str) -> None:
    (desk.root / "tree").mkdir()
    (desk.root / "x").write_text("evil")
    desk.source = Hostile(desk.source, [name])
    before = _tree(desk.root)
    summary = await desk.copy(["tree"], "copy", recursive=True)
    assert (summary.failed, summary.counts["copied"]) == (1, 0)
    assert "is not the name of a file" in str(summary.problems[0].error)
    assert _tree(desk.root) - before == {"copy"}
    (desk.root / "to").mkdir()
    await desk.copy(["t*"], "to")
    assert set(os.listdir(desk.root / "to")) <= {"x"}  # the last name of a match, if it has one


@pytest.mark.parametrize("source", ["tree/.", "tree/sub/.."])
async def test_a_name_below_a_directory_without_a_name_is_not_followed_either(desk: Desk, source: str) -> None:
    for path in ("tree/sub/f", "tree/current", "outside/f"):
        (desk.root / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.root / path).write_text("new")
    (desk.root / "victim").write_text("old")
    (desk.root / "outside/f").write_text("old")
    (desk.root / "to").mkdir()
    (desk.root / "to/current").symlink_to(desk.root / "victim")
    (desk.root / "to/sub").symlink_to(desk.root / "outside")
    for to in ("to", "to/"):
        summary = await desk.copy([source], to, recursive=True)
        assert (summary.counts["copied"], len(summary.problems)) == (0, 2)
        assert ((desk.root / "victim").read_text(), (desk.root / "outside/f").read_text()) == ("old", "old")


async def test_refused_names_count_as_files_do(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.root / "tree").mkdir()
    monkeypatch.setattr(copying_sources, "MAX_ENTRIES", 100)
    desk.source = Hostile(desk.source, ["a/b"] * 100)
    with pytest.raises(HarnessError, match="more than 100 files"):
        await desk.copy(["tree"], "copy", recursive=True)


def _tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


async def test_a_name_from_a_host_is_not_followed_through_a_link(desk: Desk) -> None:
    (desk.root / "outside").mkdir()
    (desk.root / "victim").write_text("old")
    for path in ("tree/dir/f", "tree/file"):
        (desk.root / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.root / path).write_text("new")
    (desk.root / "to/tree").mkdir(parents=True)
    (desk.root / "to/tree/dir").symlink_to(desk.root / "outside")
    (desk.root / "to/tree/file").symlink_to(desk.root / "victim")
    summary = await desk.copy(["tree"], "to", recursive=True)
    assert (summary.counts["copied"], os.listdir(desk.root / "outside")) == (0, [])
    assert (desk.root / "victim").read_text() == "old"
    await desk.copy(["tree"], "to", recursive=True, label="")  # the operator's own names
    assert ((desk.root / "victim").read_text(), os.listdir(desk.root / "outside")) == ("new", ["f"])


# -- many small files


class Counting:
    """Counts the calls that transfer content, and fails some of them."""

    def __init__(self, files: Files, *errors: Exception) -> None:
        self._files = files
        self._errors = list(errors)
        self.singles = self.batches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def receive(self, source: Any, request: Any, progress: Any) -> ReceivedFile:
        self.singles += 1
        return await self._files.receive(source, request, progress)

    async def receive_small(self, files: Any, requests: Any) -> list[bool]:
        self.batches += 1
        if self._errors:
            raise self._errors.pop()
        return await self._files.receive_small(files, requests)


def _make_small_files(desk: Desk) -> None:
    """Create 300 files in 4 directories."""
    for number in range(300):
        path = desk.root / f"tree/d{number % 4}/f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number))


def _contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def test_small_files_are_copied_together(desk: Desk) -> None:
    _make_small_files(desk)
    desk.destination = counting = Counting(desk.destination)  # type: ignore[assignment]  # it forwards every call
    summary = await desk.copy(["tree"], "copy", recursive=True)
    assert (summary.counts["copied"], counting.singles, counting.batches) == (300, 0, 2)
    assert _contents(desk.root / "copy") == _contents(desk.root / "tree")
    assert desk.ended.done == desk.ended.size == summary.transferred
    (desk.root / "copy/d1/f1").write_bytes(b"x")  # of the same size, and another content
    (desk.root / "copy/d2/f2").unlink()
    (desk.root / "tree/d3/f3").write_bytes(b"longer")
    summary = await desk.copy(["tree/."], "copy", recursive=True)
    assert (summary.counts["copied"], summary.counts["unchanged"], summary.failed) == (3, 297, 0)
    assert _contents(desk.root / "copy") == _contents(desk.root / "tree")
    for path in desk.root.glob("tree/d?/*"):
        path.write_bytes(os.urandom(20))
    counting.singles = 0
    summary = await desk.copy(["tree/."], "copy", recursive=True)
    assert (summary.counts["copied"], summary.failed, counting.singles) == (300, 0, 0)
    assert _contents(desk.root / "copy") == _contents(desk.root / "tree")
    assert not list(desk.root.rglob(".hx-*"))
    os.utime(desk.root / "tree/d0/f4", (1e9, 1e9))
    (desk.root / "tree/d0/f8").chmod(0o600)
    summary = await desk.copy(["tree/."], "copy", recursive=True, preserve=True)
    assert (summary.counts["unchanged"], summary.transferred, desk.ended.size) == (300, 0, 0)
    assert (desk.root / "copy/d0/f4").stat().st_mtime == 1e9
    assert stat.S_IMODE((desk.root / "copy/d0/f8").stat().st_mode) == 0o600


async def test_two_copies_to_one_directory_send_their_files_together(desk: Desk) -> None:
    for name in ("one", "two"):
        (desk.root / name).mkdir()
        for number in range(500):
            (desk.root / name / f"f{number}").write_text(f"{name} {number}")
        for number in range(100):
            (desk.root / name / f"{name}{number}").write_text(name)
    (desk.root / "to").mkdir()
    counting = Counting(desk.destination)
    summaries: list[CopySummary] = []

    async def copy(name: str) -> None:
        async with connect("local:") as ctx:
            there = CopySide(counting)  # type: ignore[arg-type]  # it forwards every call
            sources = [(CopySide(ctx.files, "far:"), [f"{desk.root}/{name}/."])]
            copier = Copier(sources, there, f"{desk.root}/to", CopyOptions(recursive=True), CopyObserver())
            summaries.append(await copier.run())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(copy, "one")
        tasks.start_soon(copy, "two")
    assert [summary.failed for summary in summaries] == [0, 0]
    assert counting.singles < 20
    there = _contents(desk.root / "to")
    assert len(there) == 700
    for number in range(500):
        assert there[f"f{number}"].decode() in (f"one {number}", f"two {number}")


@pytest.mark.parametrize("error", [FileError("no tar"), UnsupportedOperation("one channel")])
async def test_what_cannot_be_copied_together_is_copied_alone(desk: Desk, error: Exception) -> None:
    _make_small_files(desk)
    desk.destination = counting = Counting(desk.destination, *[error] * 1000)  # type: ignore[assignment]  # as above
    summary = await desk.copy(["tree/d0"], "copy", recursive=True)
    assert (summary.counts["copied"], summary.failed, counting.singles) == (75, 0, 75)
    assert counting.batches <= 3
    assert _contents(desk.root / "copy") == _contents(desk.root / "tree/d0")


async def test_a_batch_is_sent_again_after_a_cut(desk: Desk) -> None:
    _make_small_files(desk)
    cuts = [ConnectionLost("cut"), ConnectionLost("cut")]
    desk.destination = counting = Counting(desk.destination, *cuts)  # type: ignore[assignment]  # as above
    summary = await desk.copy(["tree"], "copy", recursive=True)
    assert (summary.counts["copied"], counting.singles, desk.ended.lost) == (300, 0, 2)
    assert desk.ended.done == desk.ended.size == summary.transferred


async def test_one_file_that_cannot_be_read_is_the_only_one_to_fail(desk: Desk) -> None:
    _make_small_files(desk)
    tree = desk.source

    class Lying(Hostile):
        """Lists a file that does not exist."""

        async def list_dir(self, path: str) -> list[DirEntry]:
            return [*await tree.list_dir(path), DirEntry("none", "file", 1)]

    Lying.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]  # every call is forwarded
    desk.source = Lying(tree, [])
    desk.destination = counting = Counting(desk.destination)  # type: ignore[assignment]  # it forwards every call
    summary = await desk.copy(["tree/d0"], "copy", recursive=True)
    assert (summary.counts["copied"], summary.failed, counting.singles) == (75, 1, 0)
    assert "none: no such file" in str(summary.problems[0].error)


async def test_a_link_in_the_place_of_one_of_many_files_is_not_followed(desk: Desk) -> None:
    _make_small_files(desk)
    (desk.root / "to").mkdir()
    (desk.root / "victim").write_text("old")
    (desk.root / "to/f4").symlink_to(desk.root / "victim")
    (desk.root / "to/f8").symlink_to(desk.root / "missing")
    summary = await desk.copy(["tree/d0/*"], "to")
    assert (summary.counts["copied"], summary.failed) == (73, 2)
    assert (desk.root / "victim").read_text() == "old"
    assert not (desk.root / "missing").exists()


async def test_a_link_that_appears_after_the_listing_is_not_followed(desk: Desk) -> None:
    _make_small_files(desk)
    (desk.root / "to").mkdir()
    (desk.root / "victim").write_text("old")

    class Planting(Counting):
        """Has a link in the place of a file when the files of a batch get their names."""

        async def receive_small(self, *args: Any) -> list[bool]:
            with suppress(FileExistsError):
                (desk.root / "to/f4").symlink_to(desk.root / "victim")
            created: list[bool] = await desk_files.receive_small(*args)
            return created

    desk_files = desk.destination
    desk.destination = Planting(desk_files)  # type: ignore[assignment]  # it forwards every call
    summary = await desk.copy(["tree/d0/*"], "to")
    assert (sum(summary.counts.values()), summary.failed) == (75, 1)
    assert (desk.root / "victim").read_text() == "old"
    (desk.root / "to/f4").unlink()
    assert _contents(desk.root / "to") == {
        name: data for name, data in _contents(desk.root / "tree/d0").items() if name != "f4"
    }


# -- resuming


class Losing:
    """Loses the connection in the middle of a file, a number of times."""

    def __init__(self, files: Files, times: int) -> None:
        self._files = files
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def receive(self, source: Any, request: Any, progress: Any) -> ReceivedFile:
        first = True

        def counted(done: int, whole: int | None) -> None:
            nonlocal first
            if not first and self._times and done > 2 << 20:
                self._times -= 1
                raise ConnectionLost("cut")
            first = False
            progress(done, whole)

        return await self._files.receive(source, request, counted)


async def test_what_was_transferred_before_a_cut_is_not_transferred_again(desk: Desk) -> None:
    (desk.root / "f").write_bytes(content := os.urandom(8 << 20))
    desk.destination = Losing(desk.destination, 2)  # type: ignore[assignment]  # it forwards every call
    summary = await desk.copy(["f"], "copy", preserve=True)
    (copied,) = desk.ended.files
    assert ((desk.root / "copy").read_bytes(), desk.ended.lost) == (content, 2)
    assert copied.resumed_at > 1 << 20  # what was on its way is lost
    assert summary.transferred == len(content) - copied.resumed_at == desk.ended.done == desk.ended.size
    assert sorted(os.listdir(desk.root)) == ["copy", "f"]


async def test_a_copy_gives_up_when_the_connection_does_not_come_back(desk: Desk) -> None:
    (desk.root / "f").write_bytes(os.urandom(8 << 20))
    desk.destination = Losing(desk.destination, 1000)  # type: ignore[assignment]  # it forwards every call
    with pytest.raises(ConnectionLost):
        await desk.copy(["f"], "copy", reconnect=0.0)
    (left,) = [name for name in os.listdir(desk.root) if name.startswith(".hx-tmp-")]
    assert (desk.root / left).stat().st_size > 1 << 20


async def test_a_partial_file_with_other_content_is_not_continued(desk: Desk) -> None:
    (desk.root / "f").write_bytes(content := os.urandom(8 << 20))
    destination = desk.destination
    desk.destination = Losing(destination, 1000)  # type: ignore[assignment]  # it forwards every call
    with pytest.raises(ConnectionLost):
        await desk.copy(["f"], "copy", reconnect=0.0)
    (left,) = [name for name in os.listdir(desk.root) if name.startswith(".hx-tmp-")]
    with (desk.root / left).open("r+b") as file:
        file.write(b"other")
    desk.destination = destination
    await desk.copy(["f"], "copy")
    assert ((desk.root / "copy").read_bytes(), desk.ended.files[0].resumed_at) == (content, 0)
    assert sorted(os.listdir(desk.root)) == ["copy", "f"]
