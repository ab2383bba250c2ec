"""Complaints that are JSON already: eslint and ruff in one list, mypy, ruff, rustc and cargo in one object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .model import Log, Problem, Read, severity_of

__all__ = ["json_line", "json_list"]

LINE = 1 << 20
"""Characters of one line of JSON."""


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
    """The complaints of a text that is one JSON list of eslint or ruff; empty when it is not."""
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


def json_line(log: Log, at: int) -> Read | None:
    """One object in a line, of mypy, ruff, rustc or cargo."""
    raw = log.raw[at]
    if raw[:1] != "{" or len(raw) > LINE or not raw.rstrip().endswith("}"):
        return None
    found = _loaded(raw)
    for read in _KINDS:
        problem = read(found) if isinstance(found, dict) else None
        if problem is not None:
            return Read((problem,), at + 1)
    return None


def _mypy(found: dict[str, Any]) -> Problem | None:
    if not {"file", "line", "message", "severity"} <= found.keys():
        return None
    place = (_text(found["file"]), _number(found["line"]), _number(found.get("column")) + 1)
    code, message = _text(found.get("code")), _text(found["message"])
    return Problem(*place, code, severity_of(_text(found["severity"])), message, "mypy")


def _rustc(found: dict[str, Any]) -> Problem | None:
    inner = found.get("message")
    found = inner if isinstance(inner, dict) else found  # cargo puts it into an object of its own
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
