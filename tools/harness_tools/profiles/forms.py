"""Formatting results for tool profiles: as text or JSON, truncated as each product does."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from harness.toolkit import Json, JsonObject, Tool, ToolResult
from harness.toolkit.tool_profiles import RenderedResult

from ..interaction.skills import Skill

__all__ = [
    "ALONE",
    "LIMIT",
    "CommandResult",
    "as_json",
    "available_skills",
    "denied_by_user",
    "facts",
    "file_text",
    "head",
    "items",
    "joined",
    "json_text",
    "picked",
    "ran",
    "searched",
    "tail",
    "text_of",
]


# -- Results as JSON, for profiles whose tools return JSON; results that are too long lose items, and count them.


LIMIT = 50 << 10
"""Maximum characters of a result."""
SHORTEST = 64
"""Shorter items are not truncated."""
CUTS = 64
"""Maximum number of truncations of a result."""


def picked(found: Mapping[str, Json], always: Iterable[str], others: Iterable[str] = ()) -> dict[str, Json]:
    """Return the members in ``always``, and those in ``others`` that are not empty. Pure."""
    kept = {name: found[name] for name in always if name in found}
    return kept | {name: found[name] for name in others if _says_something(found.get(name))}


def _says_something(value: Json) -> bool:
    return any(map(_says_something, value.values())) if isinstance(value, dict) else bool(value)


def as_json(value: Json, *, indent: int | None = None) -> RenderedResult:
    """Return the value as text, and as data. Pure."""
    fitted = _fitted(value, indent)
    return RenderedResult(json_text(fitted, indent), data=fitted)


def json_text(value: Json, indent: int | None = None) -> str:
    """Return the value as JSON, without a limit. Pure."""
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=None if indent else (",", ":"))


def _fitted(value: Json, indent: int | None) -> Json:
    """Return the value, or a copy with truncated lists and texts; ``left_out`` counts the omitted items by path."""
    if len(json_text(value, indent)) <= LIMIT:
        return value
    whole: dict[str, Any] = copy.deepcopy(value) if isinstance(value, dict) else {"result": copy.deepcopy(value)}
    missing: dict[str, Json] = {}
    for _ in range(CUTS):
        excess = len(json_text({**whole, "left_out": missing}, indent)) - LIMIT
        longest = max(_places(whole, "", indent), key=lambda place: place.size, default=None)
        if excess <= 0 or longest is None:
            break
        missing[longest.path] = _number(missing.get(longest.path)) + _shorten(longest, excess)
    while whole and len(json_text({**whole, "left_out": missing}, indent)) > LIMIT:
        fewer = dict(islice(whole.items(), len(whole) * 9 // 10))
        missing["members"] = _number(missing.get("members")) + len(whole) - len(fewer)
        whole = fewer
    return {**whole, "left_out": missing}


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True, slots=True)
class _Shortenable:
    """A list, an object or a text that can be truncated: its container and key, and its length as JSON."""

    path: str
    holder: Any
    key: Any
    size: int


def _shorten(place: _Shortenable, excess: int) -> int:
    """Truncate an item by the excess, and return the number of removed items or characters."""
    item = place.holder[place.key]
    keep = min(len(item) - 1, int(len(item) * max(0.0, 1 - 1.1 * excess / place.size)))
    place.holder[place.key] = dict(islice(item.items(), keep)) if isinstance(item, dict) else item[:keep]
    return len(item) - keep


def _places(value: Any, path: str, indent: int | None) -> Iterator[_Shortenable]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        where = f"{path}.{key}" if path else str(key)
        if isinstance(item, list | dict | str) and item and (size := len(json_text(item, indent))) >= SHORTEST:
            yield _Shortenable(where, value, key, size)
        yield from _places(item, where, indent)


# -- Reading the data of results, and truncating texts like the original products.
#
# A result without the required data (a refusal, an error, a running command) has no format of its own.


_WIDER = re.compile(r"(?: \(no_default_excludes \w+ them\)|, or raise max_results)(?=\]$)")
ALONE: JsonObject = {"tty": False, "stdin": ""}
"""For commands with separate streams, and with empty standard input."""
_NO_REASON = "refused by the approver"
_NO_NEWS = ("[no match ", "[no file matches ", "[not searched: ")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's outcome; ``exit_code`` is None unless the command exited by itself."""

    status: str
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float = 0.0
    job_id: str = ""
    pane: str = ""
    notices: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the command exited by itself."""
        return self.exit_code is not None and self.status not in ("timed_out", "interrupted", "running")


def facts(result: ToolResult) -> Mapping[str, Json]:
    """Return a result's data as an object; empty without one."""
    return result.data if isinstance(result.data, dict) else {}


def items(found: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
    """Return the objects of a list."""
    listed = found.get(name)
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def text_of(found: Mapping[str, Json], name: str) -> str:
    """Return a text; empty without one."""
    value = found.get(name)
    return value if isinstance(value, str) else ""


def ran(result: ToolResult) -> CommandResult | None:
    """Return the command's outcome in a result; None for other results."""
    found = facts(result)
    status, code, seconds = found.get("status"), found.get("exit_code"), found.get("seconds")
    if not isinstance(status, str) or "stdout" not in found:
        return None
    notices = found.get("notices")
    return CommandResult(
        status=status,
        exit_code=code if isinstance(code, int) else None,
        stdout=text_of(found, "stdout"),
        stderr=text_of(found, "stderr"),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        job_id=text_of(found, "job_id"),
        pane=text_of(found, "pane"),
        notices=tuple(str(notice) for notice in notices) if isinstance(notices, list) else (),
    )


def file_text(result: ToolResult) -> tuple[str, str]:
    """Return the part of a file, and the note in brackets about the rest; each may be empty."""
    found, text = facts(result), result.text
    size, note = found.get("size"), text_of(found, "note")
    if size == 0:
        return "", ""
    start, end = found.get("from_byte"), found.get("to_byte")
    if isinstance(start, int) and isinstance(end, int) and (start or end != size):
        text, _, rest = text.rpartition("\n[bytes ")
        return text, f"[bytes {rest}"
    return (text.removesuffix(note), note) if note else (text, "")


def searched(result: ToolResult, nothing: str) -> RenderedResult | None:
    """Return search results without hints to arguments that a profile lacks, and ``nothing`` for no match."""
    if result.is_error:
        return None
    lines = result.text.split("\n")
    first = next((number for number in range(len(lines), 0, -1) if not lines[number - 1].startswith("[")), 0)
    notes = [_WIDER.sub("", line) for line in lines[first:]]
    if facts(result).get("count") != 0:
        return RenderedResult("\n".join([*lines[:first], *notes]))
    return RenderedResult(joined(nothing, *(note for note in notes if not note.startswith(_NO_NEWS))))


def denied_by_user(result: ToolResult, words: str) -> RenderedResult | None:
    """Return a refusal by the operator instead of a rule, in the profile's words, with the operator's reason."""
    if result.error_code != "denied" or not str(result.metadata.get("decided_by", "")).startswith("operator"):
        return None
    reason = result.text.removeprefix("not allowed: ")
    return RenderedResult(words if reason == _NO_REASON else f"{words} {reason}", is_error=True)


def available_skills(tool: Tool[Any]) -> str:
    """Return the skills for the end of a description, because a model does not ask for them."""
    return tool.there_are if isinstance(tool, Skill) else ""


def head(text: str, limit: int, mark: str) -> str:
    """Return the first ``limit`` characters, and the mark if that is not everything."""
    return text if len(text) <= limit else text[:limit] + mark


def tail(text: str, limit: int, mark: str) -> str:
    """Return the last ``limit`` characters after the mark, in which ``{}`` is the number of omitted ones."""
    return text if len(text) <= limit else mark.format(len(text) - limit) + text[-limit:]


def joined(*parts: str) -> str:
    """Join the non-empty parts, each on separate lines."""
    return "\n".join(part.removesuffix("\n") for part in parts if part)
