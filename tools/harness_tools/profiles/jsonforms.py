"""Results as JSON texts, for profiles whose tools answer in JSON; what is too long loses items, and says how many."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from harness.toolkit import Json
from harness.toolkit.profiles import Shown

__all__ = ["LIMIT", "as_json", "json_text", "picked"]

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


def as_json(value: Json, *, indent: int | None = None) -> Shown:
    """The value as text, and as data. Pure."""
    fitted = _fitted(value, indent)
    return Shown(json_text(fitted, indent), data=fitted)


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
class _Place:
    """A list, an object or a text that can be shortened: what holds it under which key, and how long it is as JSON."""

    path: str
    holder: Any
    key: Any
    size: int


def _shorten(place: _Place, excess: int) -> int:
    """Take away what is too much from its end; how many items or characters that is."""
    item = place.holder[place.key]
    keep = min(len(item) - 1, int(len(item) * max(0.0, 1 - 1.1 * excess / place.size)))
    place.holder[place.key] = dict(islice(item.items(), keep)) if isinstance(item, dict) else item[:keep]
    return len(item) - keep


def _places(value: Any, path: str, indent: int | None) -> Iterator[_Place]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        where = f"{path}.{key}" if path else str(key)
        if isinstance(item, list | dict | str) and item and (size := len(json_text(item, indent))) >= SHORTEST:
            yield _Place(where, value, key, size)
        yield from _places(item, where, indent)
