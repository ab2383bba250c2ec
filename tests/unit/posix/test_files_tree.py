"""Listing, walking and matching directories through real shells."""

from __future__ import annotations

import glob as python_glob
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.file_targets import (
    BUSYBOX,
    DASH,
    FLAVOURS,
    FileTarget,
    Flavour,
    open_file_target,
    unprivileged_target,
)

from harness.errors import FileError, FileNotFound, NotADirectory
from harness.results import DirEntry

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("needs_process")]

NAMES = ["a.py", "b.txt", ".hidden.py", "-n", "two words.py", "new\nline.py", "\udcff\udc81.py", "\n", "é.py"]


@pytest.fixture(params=FLAVOURS, ids=lambda flavour: flavour.name)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FileTarget]:
    flavour: Flavour = request.param
    with anyio.fail_after(60):
        async with open_file_target(flavour, tmp_path) as opened:
            grow(opened.home)
            yield opened


def grow(home: Path) -> None:
    for directory in (home, home / "d1", home / "d1" / "deep", home / ".git"):
        directory.mkdir(exist_ok=True)
        for name in NAMES:
            (directory / name).write_bytes(b"x" * len(os.fsencode(name)))
    (home / "to_d1").symlink_to("d1")
    (home / "dangling").symlink_to("nowhere")
    (home / "loop").symlink_to(".")
    os.mkfifo(home / "pipe")


def kind_of(path: Path) -> str:
    if path.is_symlink():
        return "link"
    return "dir" if path.is_dir() else "file" if path.is_file() else "other"


def expected_below(root: Path) -> list[tuple[str, str]]:
    found = []
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = Path(directory) / name
            found.append((str(path.relative_to(root)), kind_of(path)))
    return sorted(found)


def pairs(entries: list[DirEntry]) -> list[tuple[str, str]]:
    return [(entry.name, entry.type) for entry in entries]


async def test_list_dir_names_everything_with_its_type_and_size(target: FileTarget) -> None:
    entries = await target.files.list_dir("~")
    expected = sorted((name, kind_of(target.home / name)) for name in os.listdir(target.home))
    assert pairs(entries) == expected
    sizes = {entry.name: entry.size for entry in entries if entry.type == "file"}
    assert sizes == {name: len(os.fsencode(name)) for name in NAMES}
    assert pairs(await target.files.list_dir("to_d1/")) == [
        (name, kind) for name, kind in pairs(await target.files.list_dir("d1"))
    ]


async def test_walk_names_everything_below_and_follows_no_link(target: FileTarget) -> None:
    assert pairs(await target.files.walk(".")) == expected_below(target.home)
    assert pairs(await target.files.walk("d1/deep")) == expected_below(target.home / "d1" / "deep")


PATTERNS = [
    "*", "*.py", "*/*.py", "d1/*.py", "**/*.py", "d1/**", "*/", ".*", ".git/*", "d?/d*/[a-b].*",
    "to_d1/*.py", "t*/*.txt", "**/.h*", "./*.py", ".*/*.txt",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_glob_finds_what_pythons_glob_finds(target: FileTarget, pattern: str) -> None:
    found = await target.files.glob(pattern, root="~")
    expected = sorted(python_glob.glob(pattern, root_dir=target.home, recursive=True))
    if "**" in pattern:  # Python follows links below **, this does not
        expected = [name for name in expected if not name.startswith(("to_d1/", "loop/"))]
    assert found == expected


async def test_glob_understands_absolute_and_home_patterns(target: FileTarget) -> None:
    assert await target.files.glob(f"{target.home}/*.txt", root="/nowhere") == [f"{target.home}/b.txt"]
    assert await target.files.glob("~/*.txt") == ["~/b.txt"]
    assert await target.files.glob("a.py") == ["a.py"]
    for pattern in ("nope", "nope/*", "a.py/x", "a.py/*"):
        assert await target.files.glob(pattern) == []


async def test_what_is_no_directory_is_refused(target: FileTarget) -> None:
    for action in (target.files.list_dir("nope"), target.files.walk("nope"), target.files.glob("*", root="nope")):
        with pytest.raises(FileNotFound):
            await action
    for action in (target.files.list_dir("a.py"), target.files.walk("a.py")):
        with pytest.raises(NotADirectory):
            await action


async def test_too_many_entries_are_an_error_and_not_a_short_answer(target: FileTarget) -> None:
    count = len(expected_below(target.home))
    assert len(await target.files.walk(".", max_entries=count)) == count
    with pytest.raises(FileError, match=f"more than {count - 1} entries"):
        await target.files.walk(".", max_entries=count - 1)
    with pytest.raises(FileError, match="more than 2 entries"):
        await target.files.glob("**/*.py", max_entries=2)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("flavour", [DASH, BUSYBOX], ids=lambda flavour: flavour.name)
async def test_a_large_tree_is_listed_whole_and_removed_whole(flavour: Flavour, single: bool, tmp_path: Path) -> None:
    async with open_file_target(flavour, tmp_path) as target:
        many = target.home / "many"
        many.mkdir()
        for number in range(7000):
            (many / f"{number:05}-{'n' * 40}").touch()
        target.transport.single = single
        assert len(await target.files.list_dir("many")) == 7000
        assert len(await target.files.walk("many")) == 7000
        assert len(await target.files.glob("many/*7-*")) == 700
        await target.files.remove("many", recursive=True)
        assert not many.exists()


async def test_a_small_search_is_one_round_trip_on_the_held_shell(tmp_path: Path) -> None:
    async with open_file_target(DASH, tmp_path) as target:
        await target.files.write("d/x", b"1")
        await target.files.walk("d")
        await target.files.remove("d", recursive=True)
        assert target.transport.opened == 1


async def test_a_directory_that_may_not_be_entered_is_listed_without_its_content() -> None:
    async with unprivileged_target(DASH) as target:
        closed = target.home / "closed"
        closed.mkdir()
        (closed / "f").touch()
        (target.home / "open").touch()
        closed.chmod(0)
        assert pairs(await target.files.walk(".")) == [("closed", "dir"), ("open", "file")]
        assert await target.files.glob("**") == ["closed", "open"]
        closed.chmod(0o700)
