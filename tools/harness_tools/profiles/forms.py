"""How profiles write results: data of a result as text or JSON, cut as each product cuts it."""

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


# -- Results as JSON texts, for profiles whose tools answer in JSON; what is too long loses items, and says how many.


LIMIT = 50 << 10
"""Characters of a result."""
SHORTEST = 64
"""What is shorter is not shortened."""
CUTS = 64
"""How often a result is shortened, at most."""


def picked(found: Mapping[str, Json], always: Iterable[str], others: Iterable[str] = ()) -> dict[str, Json]:
    """Members that are always there, and those of the others that say something. Pure."""
    kept = {name: found[name] for name in always if name in found}
    return kept | {name: found[name] for name in others if _says_something(found.get(name))}


def _says_something(value: Json) -> bool:
    return any(map(_says_something, value.values())) if isinstance(value, dict) else bool(value)


def as_json(value: Json, *, indent: int | None = None) -> RenderedResult:
    """The value as text, and as data. Pure."""
    fitted = _fitted(value, indent)
    return RenderedResult(json_text(fitted, indent), data=fitted)


def json_text(value: Json, indent: int | None = None) -> str:
    """The value as JSON, however long it is. Pure."""
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=None if indent else (",", ":"))


def _fitted(value: Json, indent: int | None) -> Json:
    """The value, or a copy whose longest lists and texts are shorter; ``left_out`` says of what how much is missing."""
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
    """A list, an object or a text that can be shortened: what holds it under which key, and how long it is as JSON."""

    path: str
    holder: Any
    key: Any
    size: int


def _shorten(place: _Shortenable, excess: int) -> int:
    """Take away what is too much from its end; how many items or characters that is."""
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


# -- What the profiles' forms of results are made of: a result's data, read carefully, and texts cut in the seeds'
# ways.
#
# A result without the data that a form needs (a refusal, an error, a command that goes on) has no form of its own.


_WIDER = re.compile(r"(?: \(no_default_excludes \w+ them\)|, or raise max_results)(?=\]$)")
ALONE: JsonObject = {"tty": False, "stdin": ""}
"""Of commands whose streams are apart from each other, and to which nobody types: they find the end of their input."""
_NO_REASON = "refused by the approver"
_NO_NEWS = ("[no match ", "[no file matches ", "[not searched: ")


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's outcome. ``exit_code`` is None unless it came to an end of its own."""

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
        """It came to an end of its own."""
        return self.exit_code is not None and self.status not in ("timed_out", "interrupted", "running")


def facts(result: ToolResult) -> Mapping[str, Json]:
    """A result's data as an object; empty when there is none."""
    return result.data if isinstance(result.data, dict) else {}


def items(found: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
    """The objects of a list."""
    listed = found.get(name)
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def text_of(found: Mapping[str, Json], name: str) -> str:
    """A text; empty when there is none."""
    value = found.get(name)
    return value if isinstance(value, str) else ""


def ran(result: ToolResult) -> CommandResult | None:
    """The outcome of the command that a result is of; None when it is of none."""
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
    """What was read of a file, and the note in brackets about what was not; each may be empty."""
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
    """What a search has found: without the arguments that a profile does not have, and ``nothing`` for no match."""
    if result.is_error:
        return None
    lines = result.text.split("\n")
    first = next((number for number in range(len(lines), 0, -1) if not lines[number - 1].startswith("[")), 0)
    notes = [_WIDER.sub("", line) for line in lines[first:]]
    if facts(result).get("count") != 0:
        return RenderedResult("\n".join([*lines[:first], *notes]))
    return RenderedResult(joined(nothing, *(note for note in notes if not note.startswith(_NO_NEWS))))


def denied_by_user(result: ToolResult, words: str) -> RenderedResult | None:
    """That a person, and no rule, has refused the call: in the profile's words, and the person's own."""
    if result.error_code != "denied" or not str(result.metadata.get("decided_by", "")).startswith("operator"):
        return None
    reason = result.text.removeprefix("not allowed: ")
    return RenderedResult(words if reason == _NO_REASON else f"{words} {reason}", is_error=True)


def available_skills(tool: Tool[Any]) -> str:
    """The skills by name and what they are for, at the end of a description: a model does not ask for them."""
    return tool.there_are if isinstance(tool, Skill) else ""


def head(text: str, limit: int, mark: str) -> str:
    """The first ``limit`` characters, and the mark when that is not all."""
    return text if len(text) <= limit else text[:limit] + mark


def tail(text: str, limit: int, mark: str) -> str:
    """The last ``limit`` characters; ``{}`` in the mark before them is how many are missing."""
    return text if len(text) <= limit else mark.format(len(text) - limit) + text[-limit:]


def joined(*parts: str) -> str:
    """The parts that are not empty, each on lines of its own."""
    return "\n".join(part.removesuffix("\n") for part in parts if part)
