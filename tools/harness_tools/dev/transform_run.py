"""What the steps of a ``transform`` pipeline do with JSON values. Pure, and bounded in what it makes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from harness.toolkit import Json

from .fitted import dumps
from .transform_steps import Count, Filter, Flatten, Format, GroupBy, SortBy, Step

__all__ = ["StepError", "parse_json", "run_steps", "text_of", "value_at"]

MADE = 16 << 20
"""Characters that one ``format`` may make."""


class StepError(Exception):
    """A step cannot do its work; the message names it."""


class _Group(dict[str, Any]):
    """A group as ``group_by`` makes it: ``flatten`` knows it from an object that only looks like one."""


# -- values


def parse_json(text: str) -> Json:
    """One JSON value, or one in each line, which make a list.

    Raises:
        ValueError: it is neither.
    """
    try:
        return _parsed(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
        return _lines(text, error)


def _parsed(text: str) -> Json:
    try:
        value: Json = json.loads(text, parse_constant=_no_json, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _lines(text: str, whole: json.JSONDecodeError) -> Json:
    found: list[Json] = []
    for line in text.split("\n"):
        if line.strip():
            try:
                found.append(_parsed(line))
            except ValueError:
                raise whole from None
    return found


def _no_json(word: str) -> Json:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is more than a number can be")
    return value


def value_at(item: Json, path: str) -> Json:
    """What is at ``a.b`` of an item, or at ``a.0`` of a list; None when there is nothing. A name with dots wins."""
    rest = path.removeprefix(".")
    while True:
        if isinstance(item, dict) and rest in item:
            return item[rest]
        name, dot, rest = rest.partition(".")
        item = _member(item, name)
        if item is None or not dot:
            return item


def _member(item: Json, name: str) -> Json:
    if isinstance(item, dict):
        return item.get(name)
    if isinstance(item, list) and name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < len(item):
        return item[int(name)]
    return None


def text_of(value: Json) -> str:
    """A value as a text: null is nothing, 2.0 is 2, lists and objects are JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return dumps(value)


# -- steps


def run_steps(value: Json, steps: Sequence[Step]) -> Json:
    """The value after all steps.

    Raises:
        StepError: a step cannot do its work.
    """
    for number, step in enumerate(steps, 1):
        try:
            value = _apply(value, step)
        except (ValueError, RecursionError) as error:
            raise StepError(f"step {number} ({step.op}): {error}") from error
    return value


def _apply(value: Json, step: Step) -> Json:
    if isinstance(step, Count) and step.key is None:
        return len(value) if isinstance(value, list | dict) else 1
    return _WORK[type(step)](_items(value), step)


def _items(value: Json) -> list[Json]:
    if isinstance(value, list):
        return value
    keys = f" with the keys {', '.join(list(value)[:20])[:500] or 'none'}" if isinstance(value, dict) else ""
    raise ValueError(f"it needs a list, and the data is {_kind(value)}{keys}")


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    names = {str: "a text", bool: "a truth value", int: "a number", float: "a number", dict: "an object"}
    return next(name for kind, name in names.items() if isinstance(value, kind))


def _group_by(items: list[Json], step: GroupBy) -> Json:
    groups: dict[str, list[Json]] = {}
    for item in items:
        groups.setdefault(text_of(value_at(item, step.key)), []).append(item)
    return [_Group(key=key, items=members) for key, members in groups.items()]


def _sort_by(items: list[Json], step: SortBy) -> Json:
    return sorted(items, key=lambda item: _rank(value_at(item, step.key)), reverse=step.desc)


def _rank(value: Json) -> tuple[int, float, str]:
    if value is None:
        return 0, 0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 1, value, ""
    return 2, 0, text_of(value)


def _filter(items: list[Json], step: Filter) -> Json:
    return [item for item in items if _holds(value_at(item, step.key), step)]


def _holds(value: Json, step: Filter) -> bool:
    if step.exists is not None:
        return (value is not None) == step.exists
    if step.eq is not None:
        return text_of(value) == step.eq
    if step.neq is not None:
        return text_of(value) != step.neq
    wanted = step.contains or ""
    return any(text_of(member) == wanted for member in value) if isinstance(value, list) else wanted in text_of(value)


def _count(items: list[Json], step: Count) -> Json:
    counts: dict[str, int] = {}
    for item in items:
        key = text_of(value_at(item, step.key or ""))
        counts[key] = counts.get(key, 0) + 1
    return [{"key": key, "count": count} for key, count in counts.items()]


def _flatten(items: list[Json], step: Flatten) -> Json:
    flat: list[Json] = []
    for item in items:
        if isinstance(item, _Group):
            flat += item["items"]
        elif isinstance(item, list):
            flat += item
        else:
            flat.append(item)
    return flat


def _format(items: list[Json], step: Format) -> Json:
    pieces = _pieces(step.template)
    made: list[Json] = []
    room = MADE
    for item in items:
        line, room = _rendered(pieces, item, room)
        made.append(line)
    return made


def _rendered(pieces: Sequence[tuple[bool, str]], item: Json, room: int) -> tuple[str, int]:
    """One line, and the room that is left."""
    texts = []
    known: dict[str, str] = {}
    for is_field, text in pieces:
        if is_field and text not in known:
            known[text] = text_of(value_at(item, text))
        texts.append(known[text] if is_field else text)
        room -= len(texts[-1])
        if room < 0:
            raise ValueError(f"it would make more than {MADE} characters")
    return "".join(texts), room


def _pieces(template: str) -> list[tuple[bool, str]]:
    """A template as fields (True) and texts."""
    found: list[tuple[bool, str]] = []
    at = 0
    while at < len(template):
        two, one = template[at : at + 2], template[at]
        end = template.find("}", at) if one == "{" and two != "{{" else -1
        if two in ("{{", "}}"):
            found.append((False, one))
            at += 2
        elif end > 0:
            found.append((True, template[at + 1 : end]))
            at = end + 1
        else:
            plain = _plain_end(template, at + 1)
            found.append((False, template[at:plain]))
            at = plain
    return found


def _plain_end(template: str, at: int) -> int:
    """Where the text ends: at the next brace."""
    ends = [end for end in (template.find("{", at), template.find("}", at)) if end >= 0]
    return min(ends, default=len(template))


_WORK: dict[type[Any], Callable[[list[Json], Any], Json]] = {
    GroupBy: _group_by,
    SortBy: _sort_by,
    Filter: _filter,
    Count: _count,
    Flatten: _flatten,
    Format: _format,
}
