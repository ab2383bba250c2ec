"""Glob patterns as ``glob.glob(recursive=True)`` reads them: as an expression and a plan for the target. Pure.

``*``, ``?`` and ``[...]`` stay within one name; ``**`` as a whole component is any number of directories. A name that
begins with a dot matches only a component that begins with a dot. A pattern with ``**`` follows no links; any other one
does, as a shell would.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.results import DirEntry

__all__ = ["GlobPlan", "plan_glob"]

_MAGIC = re.compile(r"[*?[]")
_SIMPLE = re.compile(r"[A-Za-z0-9_.-]+")
_VISIBLE = r"(?!\.)"
_NO_DOTS = r"(?!\.\.?(?:/|\Z))"
_PRESENT = r"(?=[^/])"


@dataclass(frozen=True, slots=True)
class GlobPlan:
    """How to answer one pattern: look below ``prefix`` and keep what ``expression`` matches.

    ``prefix`` is the literal beginning, with its ``/``. ``expression`` is None for a pattern without magic.
    ``expansion`` is a pattern that a shell expands to at least what matches, None when only a search of everything
    below will do; ``hidden`` tells whether that search must look at names that begin with a dot.
    """

    prefix: str
    expression: re.Pattern[str] | None
    expansion: str | None
    hidden: bool
    directories_only: bool

    @property
    def shape(self) -> str:
        """The library's name for the search."""
        if self.expansion is not None:
            return "expand"
        return "search" if self.hidden else "visible"

    @property
    def includes_prefix(self) -> bool:
        """True when the literal beginning is itself a result, as ``a/`` is of ``a/**``."""
        return bool(self.prefix and self.expression and self.expression.fullmatch(""))

    def match(self, entry: DirEntry) -> list[str]:
        """The results that one entry gives: usually none or its path."""
        assert self.expression is not None
        found = []
        if not self.directories_only and self.expression.fullmatch(entry.name):
            found.append(self.prefix + entry.name)
        if entry.type == "dir" and self.expression.fullmatch(entry.name + "/"):
            found.append(self.prefix + entry.name + "/")
        return found


def plan_glob(pattern: str) -> GlobPlan:
    """Read a pattern.

    Raises:
        ValueError: it is empty, or has ``..`` behind a wildcard.
    """
    if not pattern:
        raise ValueError("the glob pattern is empty")
    parts = pattern.split("/")
    first = next((index for index, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    prefix = "/".join(parts[:first]) + ("/" if 0 < first < len(parts) else "")
    rest = [part for part in parts[first:-1] if part not in ("", ".")] + (parts[-1:] if first < len(parts) else [])
    if ".." in rest:
        raise ValueError(f"{pattern!r}: '..' may not follow a wildcard")
    if not rest:
        return GlobPlan(pattern, None, None, False, pattern.endswith("/"))
    names = [part for part in rest if part]
    return GlobPlan(
        prefix,
        re.compile(_expression(rest), re.DOTALL),
        None if "**" in names else "/".join(map(_expansion, names)),
        any(part.startswith(".") for part in names),
        not rest[-1],
    )


def _expansion(part: str) -> str:
    if _SIMPLE.fullmatch(part):
        return part
    return ".*" if part.startswith(".") else "*"


def _expression(parts: list[str]) -> str:
    *leading, last = parts
    text = "".join(_directories() if part == "**" else _component(part) + "/" for part in leading)
    if last == "**":
        return text + f"(?:{_directories()}{_VISIBLE}[^/]+)?"
    return text + (_component(last) if last else "")


def _directories() -> str:
    return f"(?:{_VISIBLE}[^/]+/)*"


def _component(part: str) -> str:
    text = _PRESENT + (_NO_DOTS if part.startswith(".") else _VISIBLE)
    index = 0
    while index < len(part):
        end = _class_end(part, index)
        if end:
            text += _class(part[index + 1 : end])
            index = end
        else:
            text += {"*": "[^/]*", "?": "[^/]"}.get(part[index], re.escape(part[index]))
        index += 1
    return text


def _class_end(part: str, start: int) -> int:
    """The index of the ``]`` that closes a class, or 0."""
    if part[start] != "[":
        return 0
    body = start + 1
    if part[body : body + 1] == "!":
        body += 1
    return max(0, part.find("]", body + 1))


def _class(body: str) -> str:
    negated = body.startswith("!")
    members = "".join(_ranges(body[negated:]))
    if not members:
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{members}]"


def _ranges(body: str) -> list[str]:
    found = []
    index = 0
    while index < len(body):
        if body[index + 1 : index + 2] == "-" and index + 2 < len(body):
            if body[index] <= body[index + 2]:
                found.append(f"{re.escape(body[index])}-{re.escape(body[index + 2])}")
            index += 3
        else:
            found.append(re.escape(body[index]))
            index += 1
    return found
