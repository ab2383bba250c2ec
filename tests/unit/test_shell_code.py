"""Shell code for targets, read as text: what a shell that we cannot start here would do differently."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness_backends

CODE = Path(harness_backends.__file__).parent
ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
WORD = re.compile(
    r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\((?:\([^()]*(?:\([^()]*\)[^()]*)*\)|[^()]*)\)|\$\{[^}]*\}|\\.|[^\s;&|()'"\\])+|[;&|()]"""
)


def chained(line: str) -> Iterator[str]:
    """The assignments of a line that use one to their left in the same command."""
    before: list[str] = []
    for word in WORD.findall(line):
        found = ASSIGNMENT.fullmatch(word)
        if found is None:
            before = []
            continue
        value = re.sub(r"'[^']*'", "", found["value"])
        if any(re.search(rf"\$\{{?#?{name}(?!\w)", value) for name in before):
            yield word
        before.append(found["name"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=1 b=$a", ["b=$a"]),
        ("x=${x%b} x=${x#a}", ["x=${x#a}"]),
        ("a=$(($(wc -c <f)-b)) n=${a:-0}", ["n=${a:-0}"]),
        ("a=1; b=$a", []),
        ("a=1 b='$a'", []),
        ("a=1 command $a", []),
        ("ab=1 b=$abc", []),
    ],
)
def test_chained_assignments_are_found(line: str, expected: list[str]) -> None:
    assert list(chained(line)) == expected


def test_no_assignment_uses_another_one_of_its_command() -> None:
    """FreeBSD's sh expands all assignments of a command before it makes the first one; POSIX leaves this open."""
    files = [path for path in CODE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) > 100
    found = [
        f"{path.relative_to(CODE)}:{number}: {word}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for word in chained(line)
    ]
    assert not found
