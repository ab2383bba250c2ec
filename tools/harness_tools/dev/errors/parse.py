"""From the output of a build, a linter or tests to the list of what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from .ansi import without_escapes
from .blocks import arrow, go_panic, kotlin, pretty, rust_panic, stylish
from .jsons import json_line, json_list
from .model import Log, Problem, Reader, Severity, log_of
from .others import annotation, cmake, sentence, shell
from .places import bare, colon, linker, maven, paren
from .pythons import pytest, summary, syntax, traceback
from .stacks import stack

__all__ = ["ALIASES", "Format", "Report", "parse"]

KEPT = 5_000
"""Complaints that are kept; all are counted."""

Format = Literal[
    "go", "gcc", "rust", "tsc", "eslint", "dotnet", "python", "pytest", "mypy", "ruff", "flake8", "kotlin", "javac"
]
ALIASES: Mapping[str, Format] = {
    "golang": "go",
    "clang": "gcc",
    "g++": "gcc",
    "rustc": "rust",
    "cargo": "rust",
    "clippy": "rust",
    "typescript": "tsc",
    "msbuild": "dotnet",
    "csharp": "dotnet",
    "c#": "dotnet",
    "traceback": "python",
    "java": "javac",
    "maven": "javac",
    "gradle": "kotlin",
}
READERS: tuple[Reader, ...] = (
    json_line, annotation, pytest, traceback, syntax, stack, arrow, rust_panic, go_panic, stylish, pretty, kotlin,
    maven, paren, summary, linker, cmake, colon, shell, sentence, bare,
)  # fmt: skip
"""All of them, the most certain first: a log may hold the output of several programs."""
BY_FORMAT: Mapping[Format, tuple[Reader, ...]] = {
    "go": (go_panic, colon, bare),
    "gcc": (linker, paren, colon, bare),
    "rust": (json_line, arrow, rust_panic, colon, bare),
    "tsc": (pretty, paren, bare),
    "eslint": (stylish, colon),
    "dotnet": (paren, stack, bare),
    "python": (traceback, syntax),
    "pytest": (pytest, traceback, summary, syntax),
    "mypy": (json_line, colon),
    "ruff": (json_line, arrow, colon, bare),
    "flake8": (colon,),
    "kotlin": (kotlin, maven, stack, colon),
    "javac": (maven, stack, colon, bare),
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. ``total`` counts each complaint once, ``repeated`` the others; ``problems`` are the first."""

    problems: tuple[Problem, ...]
    format: str
    total: int
    repeated: int
    counts: Mapping[Severity, int]
    files: int


def parse(text: str, hint: Format | None = None) -> Report:
    """What is wrong, in the order of the text, each once. Pure; time and memory grow as the text does.

    Args:
        hint: whose output it is; without it every line is taken for what it looks like, so that a log of several
            programs is read, too.
    """
    clean = without_escapes(text)
    return _report(chain(json_list(clean), _read(log_of(clean), BY_FORMAT[hint] if hint else READERS)), hint)


def _read(log: Log, readers: Sequence[Reader]) -> Iterator[Problem]:
    at = 0
    while at < len(log.lines):
        upto = at + 1
        for reader in readers if log.lines[at].strip() else ():
            found = reader(log, at)
            if found is not None:
                yield from (problem for problem in found.problems if problem.message)
                upto = max(upto, found.upto)
                break
        at = upto


def _report(problems: Iterator[Problem], hint: Format | None) -> Report:
    seen: set[tuple[str, int, int, str]] = set()
    kept: list[Problem] = []
    formats: Counter[str] = Counter()
    counts: Counter[Severity] = Counter()
    repeated = 0
    for problem in problems:
        key = (problem.file, problem.line, problem.col, problem.message)
        if key in seen:
            repeated += 1
            continue
        seen.add(key)
        formats[problem.format] += 1
        counts[problem.severity] += 1
        if len(kept) < KEPT:
            kept.append(problem)
    files = len({key[0] for key in seen if key[0]})
    if formats["ruff"]:  # its short form is that of flake8
        formats["ruff"] += formats.pop("flake8", 0)
    found = [name for name, _ in formats.most_common() if name != "unknown"]
    form = hint or (found[0] if found else "unknown")
    return Report(tuple(kept), form, len(seen), repeated, counts, files)


assert set(BY_FORMAT) == set(get_args(Format))
