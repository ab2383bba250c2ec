"""Parsing the output of a build, a linter or tests into a list of problems."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

from .blocks import (
    annotation,
    arrow,
    cmake,
    go_panic,
    kotlin,
    pretty,
    pytest,
    rust_panic,
    sentence,
    shell,
    stylish,
    summary,
    syntax,
    traceback,
)
from .location_formats import bare, colon, linker, maven, paren, stack
from .problem import Log, ParsedProblem, Problem, Reader, Severity, log_of, severity_of, without_escapes

__all__ = [
    "ALIASES",
    "Format",
    "Report",
    "parse",
]


# -- JSON output: eslint and ruff as one list, mypy, ruff, rustc and cargo as one object per line.


LINE = 1 << 20
"""Maximum characters of one line of JSON."""


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def json_list(text: str) -> tuple[Problem, ...]:
    """Parse the problems of a text that is one JSON list of eslint or ruff; empty if it is not."""
    start = text.find("[")
    if start < 0 or text[:start].strip():
        return ()
    found = _loaded(text)
    items = found if isinstance(found, list) else []
    return tuple(problem for item in items if isinstance(item, dict) for problem in _of_item(item))


def _of_item(item: dict[str, Any]) -> Iterator[Problem]:
    if isinstance(item.get("messages"), list):
        yield from _eslint(_text(item.get("filePath")), item["messages"])
    elif (problem := _ruff(item)) is not None:
        yield problem


def _ruff(found: dict[str, Any]) -> Problem | None:
    where = found.get("location")
    if not isinstance(where, dict) or "filename" not in found:
        return None
    place = (_text(found["filename"]), _number(where.get("row")), _number(where.get("column")))
    return Problem(*place, _text(found.get("code")), "error", _text(found.get("message")), "ruff")


def _eslint(file: str, messages: Iterable[Any]) -> Iterator[Problem]:
    for one in messages:
        if isinstance(one, dict):
            place = (file, _number(one.get("line")), _number(one.get("column")))
            severity = severity_of("warning" if one.get("severity") == 1 else "error")
            yield Problem(*place, _text(one.get("ruleId")), severity, _text(one.get("message")), "eslint")


def json_line(log: Log, at: int) -> ParsedProblem | None:
    """Parse one JSON object in a line, of mypy, ruff, rustc or cargo."""
    raw = log.raw[at]
    if raw[:1] != "{" or len(raw) > LINE or not raw.rstrip().endswith("}"):
        return None
    found = _loaded(raw)
    for read in _KINDS:
        problem = read(found) if isinstance(found, dict) else None
        if problem is not None:
            return ParsedProblem((problem,), at + 1)
    return None


def _mypy(found: dict[str, Any]) -> Problem | None:
    if not {"file", "line", "message", "severity"} <= found.keys():
        return None
    place = (_text(found["file"]), _number(found["line"]), _number(found.get("column")) + 1)
    code, message = _text(found.get("code")), _text(found["message"])
    return Problem(*place, code, severity_of(_text(found["severity"])), message, "mypy")


def _rustc(found: dict[str, Any]) -> Problem | None:
    inner = found.get("message")
    found = inner if isinstance(inner, dict) else found  # cargo wraps it into another object
    if not isinstance(found.get("spans"), list) or found.get("level") not in ("error", "warning"):
        return None
    spans = [span for span in found["spans"] if isinstance(span, dict) and span.get("is_primary")]
    if not spans:
        return None
    place = (
        _text(spans[0].get("file_name")),
        _number(spans[0].get("line_start")),
        _number(spans[0].get("column_start")),
    )
    code = found.get("code")
    name = _text(code.get("code")) if isinstance(code, dict) else ""
    return Problem(*place, name, severity_of(found["level"]), _text(found.get("message")), "rust")


_KINDS: tuple[Callable[[dict[str, Any]], Problem | None], ...] = (_mypy, _ruff, _rustc)


# -- Parsing a whole output.


KEPT = 5_000
"""Maximum problems that are kept; all are counted."""

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
"""All parsers, the most specific first: a log may contain the output of several programs."""
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
    """The parsed problems; ``total`` counts each once, ``repeated`` the duplicates; ``problems`` are the first ones."""

    problems: tuple[Problem, ...]
    format: str
    total: int
    repeated: int
    counts: Mapping[Severity, int]
    files: int


def parse(text: str, hint: Format | None = None) -> Report:
    """Return the problems in the order of the text, each once. Pure, in linear time and memory.

    Args:
        hint: The format; without it every line is parsed by its appearance, so that logs of several programs work.
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
    if formats["ruff"]:  # its short format equals flake8's
        formats["ruff"] += formats.pop("flake8", 0)
    found = [name for name, _ in formats.most_common() if name != "unknown"]
    form = hint or (found[0] if found else "unknown")
    return Report(tuple(kept), form, len(seen), repeated, counts, files)


assert set(BY_FORMAT) == set(get_args(Format))
