"""Change one member of a JSON text, and keep everything else of it: comments, order and indentation. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["JsonTextError", "read_json", "set_member"]

BLANKS = " \t\r\n"
DEFAULT_INDENT = "  "


class JsonTextError(ValueError):
    """The text is not JSON, or cannot be changed without losing something."""


# -- Reading: JSON, with comments and trailing commas if the program that owns the file takes them.


def read_json(text: str, *, comments: bool) -> Any:
    """Return the value of a JSON text; an empty text is an empty object.

    Args:
        text: The text.
        comments: Whether comments and trailing commas are allowed.

    Raises:
        JsonTextError: It is not valid, or an object has two members of one name, of which programs see only one.
    """
    plain = _without_comments(text) if comments else text
    if not plain.strip():
        return {}
    try:
        return json.loads(plain, object_pairs_hook=_unique)
    except RecursionError:
        raise JsonTextError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise JsonTextError(f"line {error.lineno}: {error.msg.lower()}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise JsonTextError(f"an object has two members {name!r}")
    return found


def _without_comments(text: str) -> str:
    """Return the text with blanks for comments and trailing commas, so that line numbers stay the same."""
    done = list(text)
    comma: int | None = None
    for start, end, kind in _tokens(text):
        if kind == "comment":
            done[start:end] = [char if char in "\r\n" else " " for char in text[start:end]]
            continue
        if kind in "}]" and comma is not None:
            done[comma] = " "
        comma = start if kind == "," else None
    return "".join(done)


def _tokens(text: str, at: int = 0) -> Iterator[tuple[int, int, str]]:
    """Return the start, the end and the kind of each token from a place on.

    The kind is ``string``, ``comment``, ``other``, or the token's only character.

    Raises:
        JsonTextError: A string or a comment does not end.
    """
    while at < len(text):
        char = text[at]
        if char in BLANKS:
            at += 1
            continue
        if char == '"':
            end, kind = _string_end(text, at), "string"
        elif text.startswith(("//", "/*"), at):
            end, kind = _comment_end(text, at), "comment"
        elif char in "{}[]:,":
            end, kind = at + 1, char
        else:
            end, kind = at + 1, "other"
            while end < len(text) and text[end] not in BLANKS + '"{}[]:,/':
                end += 1
        yield at, end, kind
        at = end


def _string_end(text: str, at: int) -> int:
    end = at + 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise JsonTextError("a string does not end")
    return end + 1


def _comment_end(text: str, at: int) -> int:
    if text.startswith("//", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    end = text.find("*/", at + 2)
    if end < 0:
        raise JsonTextError("a comment does not end")
    return end + 2


# -- Changing.


@dataclass(frozen=True, slots=True)
class _Object:
    """The place of an object: its braces, the places of its members' names and values, and whether a comma is last."""

    start: int
    end: int
    members: dict[str, tuple[int, int, int]]
    trailing_comma: bool


def set_member(text: str, path: Sequence[str], value: Any, *, comments: bool) -> str:
    """Return a JSON text in which one member has a value; objects on the way to it are created if missing.

    Args:
        text: The text, which may be empty.
        path: The names of the objects from the outermost one, then that of the member.
        value: The new value.
        comments: Whether comments and trailing commas are allowed.

    Raises:
        JsonTextError: The text is not valid, something on the way is not an object, or the change cannot be made.
    """
    before = read_json(text, comments=comments)
    wanted = _with_member(before, path, value)
    if not text.strip():
        return json.dumps(wanted, indent=len(DEFAULT_INDENT), ensure_ascii=False) + "\n"
    after = _changed(text, path, value) if before else _filled(text, wanted)
    if read_json(after, comments=comments) != wanted:
        raise JsonTextError("it cannot be changed reliably")
    return after


def _with_member(root: Any, path: Sequence[str], value: Any) -> Any:
    if not isinstance(root, dict):
        raise JsonTextError("it is not an object")
    name, *rest = path
    if not rest:
        return {**root, name: value}
    if not isinstance(below := root.get(name, {}), dict):
        raise JsonTextError(f"{name!r} is not an object")
    return {**root, name: _with_member(below, rest, value)}


def _filled(text: str, wanted: Any) -> str:
    """Return a text whose object is empty with its members; what surrounds the object is kept."""
    if not any(kind == "{" for _, _, kind in _tokens(text)):  # nothing but comments
        return text.rstrip() + _newline(text) + json.dumps(wanted, indent=2, ensure_ascii=False) + "\n"
    (name, value), *_ = wanted.items()
    return _inserted(text, _object_at(text, _first_brace(text)), name, value)


def _changed(text: str, path: Sequence[str], value: Any) -> str:
    place = _object_at(text, _first_brace(text))
    for number, name in enumerate(path):
        last = number == len(path) - 1
        if name not in place.members:
            nested = value
            for outer in reversed(path[number + 1 :]):
                nested = {outer: nested}
            return _inserted(text, place, name, nested)
        key, start, end = place.members[name]
        if last:
            return text[:start] + _shown(text, value, _line_indent(text, key)) + text[end:]
        place = _object_at(text, start)
    raise AssertionError("the path is empty")


def _first_brace(text: str) -> int:
    return next(start for start, _, kind in _tokens(text) if kind == "{")


def _object_at(text: str, brace: int) -> _Object:
    """Return the object that starts at a brace of a valid text."""
    members: dict[str, tuple[int, int, int]] = {}
    depth, name, key, start, last, comma = 0, "", -1, -1, -1, False
    for at, end, kind in _tokens(text, brace):
        if kind == "comment":
            continue
        if kind in "}]":
            depth -= 1
        if depth == 0 and kind == "}":
            if start >= 0:
                members[name] = (key, start, last)
            return _Object(brace, at, members, comma)
        if depth == 1 and kind == "," and start >= 0:
            members[name] = (key, start, last)
            key = start = -1
            comma = True
            continue
        comma = False
        if depth == 1 and key < 0 and kind == "string":
            name, key = json.loads(text[at:end]), at
        elif depth == 1 and key >= 0 and start < 0 and kind != ":":
            start = at
        if kind in "{[":
            depth += 1
        last = end
    raise JsonTextError("an object does not end")


def _inserted(text: str, place: _Object, name: str, value: Any) -> str:
    """Return the text with a new last member of an object."""
    newline = _newline(text)
    base = _line_indent(text, place.start)
    keys = [key for key, _, _ in place.members.values()]
    own_line = [key for key in keys if not text[text.rfind("\n", 0, key) + 1 : key].strip()]
    indent = _line_indent(text, own_line[0]) if own_line else base + _indent_unit(text)
    body = text[: place.end].rstrip(BLANKS)
    if place.members and not place.trailing_comma:
        end = max(end for _, _, end in place.members.values())
        body = f"{body[:end]},{body[end:]}"
    member = f"{json.dumps(name, ensure_ascii=False)}: {_shown(text, value, indent)}"
    comma = "," if place.trailing_comma else ""
    return f"{body}{newline}{indent}{member}{comma}{newline}{base}{text[place.end :]}"


def _shown(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_indent_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, at: int) -> str:
    """Return the blanks at the start of the line that has a place."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent_unit(text: str) -> str:
    """Return the indentation of the first member of the outermost object, if it is on a line of its own."""
    for key, _, _ in _object_at(text, _first_brace(text)).members.values():
        indent = _line_indent(text, key)
        if indent and not text[text.rfind("\n", 0, key) + 1 : key].strip():
            return indent
    return DEFAULT_INDENT
