"""What ``.gitignore`` files exclude, as git reads them: byte by byte. Pure.

The files of a directory and of those above it apply, up to the nearest directory that is a repository. The last
matching pattern decides, and the nearest file is read first; everything in an excluded directory is excluded.

Texts represent bytes here, each as the character of its number. Names are matched one by one, each by an expression
without backtracking across its stars, so every line takes bounded time.
"""

from __future__ import annotations

import posixpath
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from .wildcards import ANY_TEXT, name_expression, names_match

__all__ = ["IGNORE_LIMIT", "NUL", "IgnoreRule", "Ignored", "bytewise", "parse_ignore"]

IGNORE_LIMIT = 64 << 10
"""Maximum bytes of one ``.gitignore`` that are read."""
NUL = "\x01"
"""Replaces NUL in texts of the target; it ends the line."""


# -- The pattern of one line.


Names = tuple[re.Pattern[str] | None, ...]
"""One expression for each name of a path; None matches any number of names, also none."""
_NAMES = "**"
"""Stars that are a whole name."""
_PRINTABLE = string.ascii_letters + string.digits + string.punctuation
_CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": _PRINTABLE,
    "lower": string.ascii_lowercase,
    "print": f" {_PRINTABLE}",
    "punct": string.punctuation,
    "space": " \t\n\r",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
_BYTES = frozenset(map(chr, range(1, 256)))


def bytewise(text: str) -> str:
    """Return a text as its bytes, each as the character of its number."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _last_name(pattern: str) -> Names | None:
    """Compile a pattern of last names; None if it matches nothing."""
    pieces = _pieces(pattern)
    return None if pieces is None else (_expression(pieces),)


def _anchored_names(pattern: str) -> tuple[Names, ...]:
    """Compile a pattern of paths, in each way that it can be read; empty if it matches nothing."""
    found = (_names(reading) for reading in _readings(pattern))
    return tuple(names for names in found if names)


def _readings(pattern: str) -> Iterator[str]:
    """Yield the readings of ``**`` after letters, in the first name with a wildcard: it may match directories."""
    special = re.search(r"[*?[\\]", pattern)
    stars = re.compile(r"(?<=[^/])\*\*+(/|\Z)").match(pattern, special.start()) if special else None
    if special is None or stars is None:
        yield pattern
        return
    before, after = pattern[: special.start()], pattern[stars.end() :]
    yield f"{before}*/**{stars[1]}{after}"
    if not stars[1]:
        yield f"{before}*"
    elif after.startswith("**"):
        yield from _readings(f"{before}{after}")
    else:
        yield f"{before}{after}"


def _names(pattern: str) -> Names | None:
    pieces = _pieces(pattern)
    if pieces is None:
        return None
    names = [list(name) for is_slash, name in groupby(pieces, "/".__eq__) if not is_slash]
    if len(names) <= pieces.count("/"):
        return None  # one name is empty
    found = [None if name == [_NAMES] else _expression(name) for name in names]
    return (*found, _expression([ANY_TEXT])) if found[-1] is None else tuple(found)


def _expression(pieces: Sequence[str]) -> re.Pattern[str]:
    return re.compile(name_expression(ANY_TEXT if piece == _NAMES else piece for piece in pieces))


def _pieces(pattern: str) -> list[str] | None:
    """Return an expression for each part, ``/`` at the end of a name; None if the pattern matches nothing."""
    found, at = [], 0
    while at < len(pattern):
        piece, at = _piece(pattern, at)
        if not piece:
            return None
        found.append(piece)
    return found


def _piece(pattern: str, at: int) -> tuple[str, int]:
    """Return the part that starts there, empty if it invalidates the pattern, and where the next one starts."""
    char = pattern[at]
    if char == "[":
        return _brackets(pattern, at + 1)
    if char == "*":
        end = at + len(pattern[at:]) - len(pattern[at:].lstrip("*"))
        is_name = end > at + 1 and pattern[at - 1 : at] in ("", "/") and pattern[end : end + 1] in ("", "/")
        return _NAMES if is_name else ANY_TEXT, end
    if char == "?":
        return ".", at + 1
    at += char == "\\"
    return re.escape(pattern[at : at + 1]), at + 1


class _Members(NamedTuple):
    """Some characters in brackets, the start of a possible range, and where the next member starts."""

    values: str
    low: str
    end: int


def _brackets(pattern: str, at: int) -> tuple[str, int]:
    """Return brackets as one expression, and where they end; empty if they do not end."""
    others = pattern[at : at + 1] in ("!", "^")
    at += others
    values, low, is_first = set("/") if others else set(), "", True
    while is_first or pattern[at : at + 1] != "]":
        found = _members(pattern, at, low)
        if found is None:
            return "", at
        values.update(found.values)
        is_first, low, at = False, found.low, found.end
    chosen = _BYTES - values if others else values - {"/"}
    return _one_of(chosen), at + 1


def _members(pattern: str, at: int, low: str) -> _Members | None:
    """Parse a member; None if the pattern ends, or names an unknown class."""
    char, following = pattern[at : at + 1], pattern[at + 1 : at + 2]
    if char == "[" and following == ":":
        end = pattern.find("]", at + 2)
        if end < 0:
            return None
        if end > at + 2 and pattern[end - 1] == ":":
            known = _CLASSES.get(pattern[at + 2 : end - 1])
            return None if known is None else _Members(known, "", end + 1)
    if char == "-" and low and following not in ("", "]"):
        high, end = _escaped(pattern, at + 1)
        return _Members("".join(map(chr, range(ord(low), ord(high) + 1))), "", end) if high else None
    char, end = _escaped(pattern, at)
    return _Members(char, char, end) if char else None


def _escaped(pattern: str, at: int) -> tuple[str, int]:
    at += pattern[at : at + 1] == "\\"
    return pattern[at : at + 1], at + 1


def _one_of(values: set[str] | frozenset[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(values)))}]" if values else "(?!)"


# -- Lines and files.


_SPECIAL = frozenset("*?[\\")


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line; its ``readings`` are matched with the path below the file's directory, or only with the last name."""

    readings: tuple[Names, ...]
    anchored: bool
    keeps: bool
    directories_only: bool
    first: str | None = None
    """The first name, if it is not a pattern."""

    def matches(self, names: Sequence[str], *, is_dir: bool) -> bool:
        """Return whether the rule matches a path below the file's directory."""
        if self.directories_only and not is_dir:
            return False
        compared = names if self.anchored else names[-1:]
        return any(names_match(reading, compared) for reading in self.readings)


def parse_ignore(text: str) -> tuple[IgnoreRule, ...]:
    """Return the rules of a file, in order; like git, it ignores invalid patterns."""
    lines = (_rule(line) for line in bytewise(text.removeprefix("\ufeff")).split("\n"))
    return tuple(rule for rule in lines if rule is not None)


def _rule(line: str) -> IgnoreRule | None:
    text = _trimmed(line.removesuffix("\r").partition(NUL)[0])
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[keeps:]
    directories_only = text.endswith("/")
    text = text[:-1] if directories_only else text
    if "/" not in text:
        last = _last_name(text)
        return IgnoreRule((last,), False, keeps, directories_only) if text and last else None
    text = text.removeprefix("/")
    readings = _anchored_names(text)
    first = text.partition("/")[0]
    plain = None if _SPECIAL & set(first) else first
    return IgnoreRule(readings, True, keeps, directories_only, plain) if readings else None


def _trimmed(line: str) -> str:
    """Return the line without trailing spaces, except one after a backslash."""
    text = line.rstrip(" ")
    return f"{text} " if text != line and (len(text) - len(text.rstrip("\\"))) % 2 else text


@dataclass(frozen=True, slots=True)
class _RuleIndex:
    """The rules of one file, indexed by how they start, because few of many rules can match a name.

    ``by_last`` are the rules of last names, and ``any_last`` matches what one of them matches; ``by_first`` are those
    of paths that start with a plain name; ``others`` are the rest. All are numbers of rules.
    """

    rules: tuple[IgnoreRule, ...]
    by_last: tuple[int, ...]
    any_last: re.Pattern[str] | None
    by_first: Mapping[str, Sequence[int]]
    others: tuple[int, ...]

    @classmethod
    def of(cls, rules: Sequence[IgnoreRule]) -> _RuleIndex:
        by_first: dict[str, list[int]] = {}
        others = []
        for number, rule in enumerate(rules):
            if rule.anchored and rule.first is not None:
                by_first.setdefault(rule.first, []).append(number)
            elif rule.anchored:
                others.append(number)
        by_last = tuple(number for number, rule in enumerate(rules) if not rule.anchored)
        last = (name.pattern for number in by_last for name in rules[number].readings[0] if name is not None)
        any_last = re.compile("|".join(last)) if by_last else None
        return cls(tuple(rules), by_last, any_last, by_first, tuple(others))

    def verdict(self, names: Sequence[str], *, is_dir: bool) -> bool | None:
        """Return whether the last matching rule excludes a path; None if no rule matches."""
        near = [*self.by_first.get(names[0], ()), *self.others]
        if self.any_last is not None and self.any_last.match(names[-1]):
            near += self.by_last
        for number in sorted(near, reverse=True):
            if self.rules[number].matches(names, is_dir=is_dir):
                return not self.rules[number].keeps
        return None


@dataclass(frozen=True, slots=True)
class _Level:
    """An ignore file that applies to a directory: names are taken from ``depth`` on, after those in ``between``."""

    index: _RuleIndex
    depth: int
    between: tuple[str, ...] = ()


@dataclass(slots=True)
class Ignored:
    """What is excluded below one directory, the top.

    Args:
        rules: By directory relative to the top: ``""`` is the top, ``a/b`` below it; absolute for those above it.
        repositories: Directories below the top that are repositories, and ``""`` if the top is one.
        above: By directory above the top, the names that lead from it to the top.
    """

    rules: Mapping[str, Sequence[IgnoreRule]]
    repositories: frozenset[str] = frozenset()
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[str, bool] = field(default_factory=dict)
    _levels: dict[str, tuple[_Level, ...]] = field(default_factory=dict)
    _indexes: dict[str, _RuleIndex] = field(default_factory=dict)

    def leaves_out(self, path: str, *, is_dir: bool = False) -> bool:
        """Return whether a file or a directory is excluded, by its path below the top."""
        if not self.rules:
            return False
        if is_dir:
            return self._directory(path)
        return self._directory(posixpath.dirname(path)) or self._decided(path, is_dir=False)

    def _directory(self, path: str) -> bool:
        waiting = []
        while path and path not in self._known:
            waiting.append(path)
            path = posixpath.dirname(path)
        out = self._known.get(path, False)
        for directory in reversed(waiting):
            out = self._known[directory] = out or self._decided(directory, is_dir=True)
        return out

    def _decided(self, path: str, *, is_dir: bool) -> bool:
        names = bytewise(path).split("/")
        for level in self._levels_in(posixpath.dirname(path)):
            verdict = level.index.verdict([*level.between, *names[level.depth :]], is_dir=is_dir)
            if verdict is not None:
                return verdict
        return False

    def _levels_in(self, directory: str) -> tuple[_Level, ...]:
        """Return the ignore files that apply to a directory, the nearest first."""
        if directory not in self._levels:
            self._levels[directory] = tuple(self._found_levels(directory))
        return self._levels[directory]

    def _found_levels(self, directory: str) -> Iterator[_Level]:
        names = directory.split("/") if directory else []
        for depth in range(len(names), -1, -1):
            at = "/".join(names[:depth])
            if at in self.rules:
                yield _Level(self._index(at), depth)
            if at in self.repositories:
                return
        for at, between in sorted(self.above.items(), key=lambda item: len(item[1])):
            yield _Level(self._index(at), 0, tuple(map(bytewise, between)))

    def _index(self, directory: str) -> _RuleIndex:
        if directory not in self._indexes:
            self._indexes[directory] = _RuleIndex.of(self.rules[directory])
        return self._indexes[directory]
