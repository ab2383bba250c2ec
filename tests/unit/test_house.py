"""Rules of the house that no linter checks: sizes, reasons beside exceptions, nothing left for later."""

from __future__ import annotations

import ast
import os
import re
import statistics
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(path for top in ("harness", "backends", "tools") for path in (ROOT / top).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PROGRAMS = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]

FILE_LIMIT = 800
FUNCTION_LIMIT = 60
FUNCTION_P95 = 35
FUNCTION_MEDIAN = 10

EXCEPTION = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:|fmt:\s*(?:off|skip))(?P<rest>.*)")
REASON = re.compile(r"#\s*\w.*\w")
LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function's place, and its number of lines without the docstring."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node) is not None:
                lines -= (first.end_lineno or first.lineno) - first.lineno + 1
            yield f"{where(path, node.lineno)} {node.name}", lines


@cache
def comments(path: Path) -> list[tuple[int, str]]:
    with path.open("rb") as file:
        tokens = tokenize.tokenize(file.readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]


def test_files_stay_below_800_lines() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in PRODUCT + TESTS}
    assert {name: size for name, size in sizes.items() if size > FILE_LIMIT} == {}


def test_functions_stay_small() -> None:
    sizes = {name: lines for path in PRODUCT for name, lines in functions(path)}
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LIMIT} == {}
    assert statistics.median(sizes.values()) < FUNCTION_MEDIAN
    assert statistics.quantiles(sizes.values(), n=20)[-1] <= FUNCTION_P95


def test_every_exception_from_a_check_gives_its_reason() -> None:
    bare = [
        where(path, line)
        for path in PRODUCT + TESTS
        for line, comment in comments(path)
        if (match := EXCEPTION.match(comment)) and not match[1].startswith("fmt") and not REASON.search(match["rest"])
    ]
    assert bare == []


def test_nothing_is_left_for_later() -> None:
    notes = [where(path, line) for path in PRODUCT + TESTS for line, text in comments(path) if LATER.search(text)]
    assert notes == []


def test_no_group_is_repeated_possessively() -> None:
    """``re`` before 3.11.5 goes back into such a group where it must not (python/cpython#106052)."""
    found = [
        where(path, number)
        for path in PRODUCT
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\)(?:[*+?]|\{[0-9,]+\})\+(?![],])", line)
    ]
    assert found == []


def test_public_modules_list_what_they_export() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in PRODUCT
        if not path.name.startswith("_") and "cli" not in path.parts and "__all__" not in path.read_text()
    ]
    assert silent == []


def test_the_commands_people_type_are_executable_programs() -> None:
    for path in [*PROGRAMS, ROOT / ".ci" / "run"]:
        assert os.access(path, os.X_OK), path
        assert path.read_bytes().startswith((b"#!/usr/bin/env bash\n", b"#!/usr/bin/env python3\n")), path
