"""One walk as two: the same names as from one ``find``, whatever they are and whichever shell asks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness_tools.search.entries import entries_script, read_entries
from harness_tools.search.tree_scripts import (
    MAX_DIRECTORIES,
    MAX_EXPRESSION_BYTES,
    MIN_DIRECTORIES,
    TreeQuery,
    find_expression,
    parallel_find,
)

pytestmark = pytest.mark.usefixtures("needs_process")

STRANGE = ["a b", "new\nline", "quo'te", 'dou"ble', "$(touch hurt)", "`x`", "-dash", "*", "[a", "back\\", ".hid", "ü"]
SHELLS = [("dash", "sh"), ("bash", "sh"), ("zsh", "sh"), ("mksh", "sh")]
PRINTED = [("-type f", r"-printf 'f%p\0'")]


def printed(command: str, top: Path, program: str = "sh", name: str = "sh") -> list[bytes]:
    argv = [name, "-c", command]
    done = subprocess.run(argv, executable=shutil.which(program), cwd=top, capture_output=True, check=True, timeout=60)
    assert not done.stderr
    return sorted(done.stdout.split(b"\0"))


def grow(top: Path, names: list[str]) -> None:
    for name in names:
        (top / name / "deep").mkdir(parents=True)
        (top / name / "one.py").touch()
        (top / name / "deep" / "two.py").touch()
    (top / "here.py").touch()


@pytest.mark.parametrize("count", [0, 1, 2, 3, MIN_DIRECTORIES - 1, MIN_DIRECTORIES, MIN_DIRECTORIES + 1])
def test_it_finds_what_one_find_does(tmp_path: Path, count: int) -> None:
    grow(tmp_path, [f"d{number}" for number in range(count)])
    expression = find_expression(TreeQuery("."), PRINTED)
    found = printed(parallel_find(expression), tmp_path)
    assert found == printed(f"find . {expression}", tmp_path)
    assert len(found) == 2 * count + 2


@pytest.mark.parametrize(("program", "name"), SHELLS)
@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("above", ["", "few", "-strange 'few"])
def test_names_are_taken_as_they_are(tmp_path: Path, program: str, name: str, hidden: bool, above: str) -> None:
    top = tmp_path / above
    grow(top, [*STRANGE, "vendor", "s/vendor"])
    (top / "link").symlink_to("s")
    (top / "s" / ".gitignore").write_text("two*")
    expression = find_expression(TreeQuery(".", hidden=hidden), PRINTED)
    found = printed(parallel_find(expression), tmp_path, program, name)
    assert found == printed(f"find . {expression}", tmp_path)
    below = os.fsencode(f"{above}/" if above else "")
    assert {b"S./" + below + b"vendor", b"S./" + below + b"s/vendor", b"two*"} < set(found)
    assert not any(path.name == "hurt" for path in tmp_path.rglob("*"))


def test_what_is_left_out_is_not_looked_into_where_there_are_few(tmp_path: Path) -> None:
    grow(tmp_path, ["vendor/in", ".hidden/in", "seen/in", "seen/dist"])
    expression = find_expression(TreeQuery("."), PRINTED)
    found = printed(parallel_find(expression), tmp_path)
    assert found == printed(f"find . {expression}", tmp_path)
    assert [frame for frame in found if b"in/" in frame] == [b"f./seen/in/deep/two.py", b"f./seen/in/one.py"]


def test_an_expression_that_no_variable_can_hold_finds_all_the_same(tmp_path: Path) -> None:
    grow(tmp_path, ["a", "b", "c"])
    query = TreeQuery(str(tmp_path), rough_names=("one.py", *("x" * 700 + str(number) for number in range(99))))
    script = entries_script(query, "f")
    assert len(script) > MAX_EXPRESSION_BYTES + (32 << 10)
    done = subprocess.run(["sh"], input=script.encode(), capture_output=True, check=True, timeout=60)
    listing = read_entries(done.stdout, query)
    assert {entry.path for entry in listing.entries} == {"a/one.py", "b/one.py", "c/one.py"}
    assert listing.tree.unreadable == 0


def test_more_directories_than_are_dealt_out(tmp_path: Path) -> None:
    for number in range(MAX_DIRECTORIES + 1):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "one.py").touch()
    expression = find_expression(TreeQuery("."), PRINTED)
    assert printed(parallel_find(expression), tmp_path) == printed(f"find . {expression}", tmp_path)


def test_a_half_that_fills_its_pipe_comes_whole(tmp_path: Path) -> None:
    for directory in "abcd":
        for number in range(1_500):
            path = tmp_path / directory / f"{number:0100}.py"
            path.parent.mkdir(exist_ok=True)
            path.touch()
    query = TreeQuery(str(tmp_path))
    done = subprocess.run(["sh", "-c", entries_script(query, "f")], capture_output=True, check=True, timeout=60)
    assert len(done.stdout) > 4 * (64 << 10)
    listing = read_entries(done.stdout, query)
    assert len(listing.entries) == len({entry.path for entry in listing.entries}) == 6_000
    assert listing.tree.is_whole


def test_two_that_complain_are_counted_both(tmp_path: Path) -> None:
    grow(tmp_path, [f"d{number}" for number in range(MIN_DIRECTORIES)])
    query = TreeQuery(str(tmp_path))
    # a directory that nobody may read is no obstacle to root, one that is no longer there is to all: so it is said here
    script = entries_script(query, "f").replace("walk() { eval", "walk() { echo denied >&2; eval")
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, timeout=60)
    assert read_entries(done.stdout, query).tree.unreadable == 2
