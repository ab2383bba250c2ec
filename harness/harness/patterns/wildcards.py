"""Wildcard patterns of names and paths, in three dialects. Pure.

- Rules (:func:`matches`): in paths ``*`` and ``?`` match within one name, ``**`` matches any number of names (also
  none), and a pattern without a ``/`` matches the last name. In URLs a ``*`` in the host does not match beyond the
  host. Elsewhere ``*`` matches any text.
- Globs of targets (:func:`glob_names`): as ``glob.glob(recursive=True)`` reads them. A name that starts with a dot
  matches only a component that starts with a dot.
- Path patterns (:class:`PathPattern`): ``*``, ``?`` and ``[...]`` within one name, ``**`` for any number of
  directories, ``{a,b}``, and a backslash before a literal character.

Every pattern takes bounded time: names are matched one by one, each by an expression without backtracking across its
stars.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Literal, Protocol

__all__ = [
    "ALTERNATIVES",
    "ANY_TEXT",
    "Kind",
    "NameMatcher",
    "PathPattern",
    "expand_braces",
    "glob_names",
    "has_wildcard",
    "literal_prefix",
    "matches",
    "name_expression",
    "name_matcher",
    "names_match",
    "rough_name",
]

ANY_NAMES = "**"
ANY_TEXT = ".*"
"""The piece of an expression for any number of characters."""


# -- Names of a path, one by one.


class NameMatcher(Protocol):
    """Matches one name, as a compiled expression does."""

    def match(self, name: str, /) -> object:
        """Return something true if the name matches."""


class _Literal(str):
    """A name without wildcards."""

    __slots__ = ()
    match = str.__eq__


def names_match(patterns: Sequence[NameMatcher | None], names: Sequence[str], *, visible_only: bool = False) -> bool:
    """Return whether names match patterns, where None matches any number of names, also none.

    Args:
        visible_only: Whether None matches only names without a leading dot.
    """
    wild = patterns.count(None)
    if wild > 1:
        return _places_match(patterns, names, visible_only=visible_only)
    if not wild:
        return len(names) == len(patterns) and _all_match(patterns, names)
    before = patterns.index(None)
    after = len(names) - (len(patterns) - before - 1)
    if after < before or not _all_match(patterns[before + 1 :], names[after:]):
        return False
    if visible_only and "/." in f"/{'/'.join(names[before:after])}":
        return False
    return _all_match(patterns[:before], names[:before])


def _all_match(patterns: Sequence[NameMatcher | None], names: Sequence[str]) -> bool:
    for pattern, name in zip(patterns, names, strict=True):  # all() takes three times as long
        if pattern is not None and not pattern.match(name):
            return False
    return True


def _places_match(patterns: Sequence[NameMatcher | None], names: Sequence[str], *, visible_only: bool = False) -> bool:
    """Match any patterns, tracking all positions instead of backtracking."""
    places = _skipped({0}, patterns)
    for name in names:
        following = set()
        for place in places:
            if place == len(patterns):
                continue
            pattern = patterns[place]
            if pattern is None:
                if not (visible_only and name.startswith(".")):
                    following.add(place)
            elif pattern.match(name):
                following.add(place + 1)
        places = _skipped(following, patterns)
        if not places:
            return False
    return len(patterns) in places


def _skipped(places: set[int], patterns: Sequence[NameMatcher | None]) -> set[int]:
    found = set()
    for place in places:
        at = place
        found.add(at)
        while at < len(patterns) and patterns[at] is None:
            at += 1
            found.add(at)
    return found


def name_expression(pieces: Iterable[str]) -> str:
    """Join the pieces of a name's expression so that it matches without backtracking.

    Text between two stars matches at its first occurrence, because no later one could do better.
    """
    fixed = [""]
    for piece in pieces:
        if piece == ANY_TEXT:
            fixed.append("")
        else:
            fixed[-1] += piece
    first, *others = fixed
    inner = "".join(f"(?>.*?{part})" for part in others[:-1])
    last = f".*{others[-1]}" if others else ""
    return f"(?s:{first}{inner}{last})\\Z"


# -- Patterns of rules.


Kind = Literal["path", "text", "url"]
_WILD = re.compile(r"[*?\[]")


def has_wildcard(pattern: str) -> bool:
    """Return whether the pattern contains wildcards."""
    return _WILD.search(pattern) is not None


def literal_prefix(pattern: str) -> str:
    """Return the part of the pattern before its first wildcard."""
    found = _WILD.search(pattern)
    return pattern[: found.start()] if found else pattern


def matches(pattern: str, text: str, kind: Kind = "text") -> bool:
    """Return whether the pattern of a rule matches the whole text."""
    if kind == "url":
        return _url_matches(pattern, text)
    if kind == "text":
        return bool(_compiled(pattern).match(text))
    names = text.rstrip("/").split("/")
    return names_match(_rule_names(pattern), names if "/" in pattern else names[-1:])


@lru_cache(maxsize=32_768)
def _compiled(pattern: str) -> NameMatcher:
    return re.compile(fnmatch.translate(pattern)) if has_wildcard(pattern) else _Literal(pattern)


@lru_cache(maxsize=32_768)
def _rule_names(pattern: str) -> tuple[NameMatcher | None, ...]:
    if "/" not in pattern:
        return (_compiled(pattern),)
    names = _without_repeated_stars(pattern.rstrip("/").split("/"))
    return tuple(None if name == ANY_NAMES else _compiled(name) for name in names)


def _without_repeated_stars(names: Sequence[str]) -> list[str]:
    return [name for number, name in enumerate(names) if name != ANY_NAMES or names[number - 1 : number] != [name]]


def _url_matches(pattern: str, url: str) -> bool:
    wanted, given = _url_parts(pattern, "/"), _url_parts(url, "/\\?#")
    return all(_compiled(one).match(other) for one, other in zip(wanted, given, strict=True))


def _url_parts(url: str, ends: str) -> tuple[str, str, str]:
    """Return scheme, authority, and the rest from one of ``ends`` on; browsers accept a backslash there."""
    scheme, _, rest = url.partition("://")
    host = re.split(f"[{re.escape(ends)}]", rest, maxsplit=1)[0]
    return scheme.lower(), host.lower(), rest[len(host) :] or "/"


# -- Globs of targets.


_VISIBLE_NAME = re.compile(r"(?s:[^.].*)\Z")


def glob_names(components: Sequence[str]) -> tuple[tuple[NameMatcher | None, ...], ...]:
    """Compile the components of a glob, in each way that it can be read; match only visible names for None.

    The last component is empty in a pattern of directories, as the last name of ``a/`` is.
    """
    *leading, last = components
    names = [None if part == ANY_NAMES else _glob_name(part) for part in leading]
    if last == ANY_NAMES:
        return (*names, _Literal("")), (*names, None, _VISIBLE_NAME)
    return ((*names, _glob_name(last)),)


def _glob_name(component: str) -> NameMatcher:
    if not component:
        return _Literal("")
    pieces, at = [], 0
    while at < len(component):
        end = _class_end(component, at)
        if end:
            pieces.append(_class(component[at + 1 : end]))
            at = end
        else:
            pieces.append({"*": ANY_TEXT, "?": "."}.get(component[at], re.escape(component[at])))
        at += 1
    names = r"(?!\.\.?\Z)" if component.startswith(".") else r"(?=[^.])"
    return re.compile(names + name_expression(pieces))


def _class_end(component: str, start: int) -> int:
    """Return the index of the ``]`` that closes a class, or 0."""
    if component[start] != "[":
        return 0
    return max(0, component.find("]", start + 2 + (component[start + 1 : start + 2] == "!")))


def _class(body: str) -> str:
    is_negated = body.startswith("!")
    members = "".join(_ranges(body[is_negated:]))
    if not members:
        return "." if is_negated else "(?!)"
    return f"[{'^' if is_negated else ''}{members}]"


def _ranges(body: str) -> Iterator[str]:
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            if body[at] <= body[at + 2]:
                yield f"{re.escape(body[at])}-{re.escape(body[at + 2])}"
            at += 3
        else:
            yield re.escape(body[at])
            at += 1


# -- Path patterns.


ALTERNATIVES = 200
"""Maximum number of patterns that braces may expand to."""
_MAGIC = frozenset("*?[\\")
_PLAIN = re.compile(r"[A-Za-z0-9._@%+=,-]+|\*+")


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Expand braces, also nested ones; an unbalanced brace is a literal character.

    Raises:
        ValueError: There are too many expansions.
    """
    found, waiting = [], [pattern]
    while waiting:
        text = waiting.pop()
        parts = _first_group(text)
        if parts is None:
            found.append(text)
        else:
            before, choices, after = parts
            waiting += [f"{before}{choice}{after}" for choice in reversed(choices)]
        if len(found) + len(waiting) > ALTERNATIVES:
            raise ValueError(f"the braces expand to more than {ALTERNATIVES} patterns")
    return tuple(dict.fromkeys(found))


def _first_group(text: str) -> tuple[str, list[str], str] | None:
    """Return the text before, the choices in, and the text after the first complete group with a comma."""
    stack: list[tuple[int, list[int]]] = []
    best: tuple[int, int, list[int]] | None = None
    for at, char in _unescaped(text):
        if char == "{":
            stack.append((at, []))
        elif char == "," and stack:
            stack[-1][1].append(at)
        elif char == "}" and stack:
            start, commas = stack.pop()
            if commas and (best is None or start < best[0]):
                best = (start, at, commas)
    if best is None:
        return None
    start, end, commas = best
    edges = [start, *commas, end]
    choices = [text[left + 1 : right] for left, right in pairwise(edges)]
    return text[:start], choices, text[end + 1 :]


def _unescaped(text: str) -> Iterator[tuple[int, str]]:
    """Yield the characters that are neither escaped by a backslash nor in brackets."""
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == "[" and (end := _bracket_end(text, at)):
            at = end
            continue
        yield at, text[at]
        at += 1


def _bracket_end(text: str, start: int) -> int:
    """Return the position after the brackets that start at ``start``; 0 if they are not closed."""
    at = start + 1
    at += text[at : at + 1] in ("!", "^")
    at += text[at : at + 1] == "]"
    end = text.find("]", at)
    return end + 1 if end >= 0 and "/" not in text[start:end] else 0


def name_matcher(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of one name; a backslash escapes the next character."""
    plain, at = [], 0
    while at < len(pattern):
        if pattern[at] == "\\" and at + 1 < len(pattern):
            plain.append(_letter(pattern[at + 1]))
            at += 2
        elif pattern[at] == "[" and (end := _bracket_end(pattern, at)):
            inside = pattern[at + 1 : end - 1]
            plain.append(f"[!{inside[1:]}]" if inside[0] == "^" else f"[{inside}]")
            at = end
        else:
            plain.append("[[]" if pattern[at] == "[" else pattern[at])
            at += 1
    return re.compile(fnmatch.translate("".join(plain)))


def _letter(char: str) -> str:
    return f"[{char}]" if char in "*?[" else char


def rough_name(pattern: str) -> str:
    """Return a pattern that ``find``, ``rg`` and shells read alike and that matches at least as much."""
    at, kept = 0, []
    while at < len(pattern):
        if pattern[at] == "[" and (end := _bracket_end(pattern, at)):
            kept.append("*")
            at = end
        elif pattern[at] != "\\" and (match := _PLAIN.match(pattern, at)):
            kept.append(match[0])
            at = match.end()
        else:
            kept.append("*")
            at += 1
    return re.sub(r"\*+", "*", "".join(kept))


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern of relative paths; without ``/`` it may match the last name only."""

    alternatives: tuple[tuple[re.Pattern[str] | None, ...], ...]
    rough_names: tuple[str, ...]
    """Patterns of last names that match at least as much."""
    hidden: bool
    """Whether a component starts with a dot, so that hidden names must be listed."""
    only_name: bool = False
    visible_only: bool = False
    anywhere: bool = False
    """Whether it matches only last names, in any directory, and ``rough_names`` match exactly the same."""
    start: tuple[str, ...] = ()
    """The directories that each matching path starts with."""

    @classmethod
    def parse(cls, pattern: str, *, only_name: bool = False, visible_only: bool = False) -> PathPattern:
        """Parse a pattern.

        Args:
            only_name: A pattern without ``/`` matches the last name, in any directory.
            visible_only: A name with a leading dot matches only a component with a leading dot.

        Raises:
            ValueError: The braces expand to too many patterns, or the pattern is empty.
        """
        parts = [_components(text) for text in expand_braces(pattern)]
        if not all(parts):
            raise ValueError("the pattern is empty")
        named = only_name and "/" not in pattern
        return cls(
            tuple(tuple(_component(name, visible_only=visible_only) for name in names) for names in parts),
            tuple(dict.fromkeys(rough_name(names[-1]) for names in parts)),
            any(_dotted(name) for names in parts for name in names),
            named,
            visible_only,
            all(names[:-1] == [ANY_NAMES] and rough_name(names[-1]) == names[-1] for names in parts),
            () if named else _common_start(parts),
        )

    @property
    def depth(self) -> int | None:
        """The maximum number of names of a matching path; None is any number."""
        if self.only_name or any(None in names for names in self.alternatives):
            return None
        return max(map(len, self.alternatives))

    def matches(self, path: str) -> bool:
        """Return whether a path, relative and without ``./``, matches."""
        names = path.split("/")
        if self.only_name:
            names = names[-1:]
        return any(names_match(found, names, visible_only=self.visible_only) for found in self.alternatives)


def _common_start(patterns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the first names, without the last one, that are the same in all patterns and contain no wildcards."""
    steps = zip(*(names[:-1] for names in patterns), strict=False)
    same = takewhile(lambda names: len(set(names)) == 1 and not _MAGIC & set(names[0]), steps)
    return tuple(names[0] for names in same)


def _dotted(name: str) -> bool:
    return name.startswith((".", "\\."))


def _component(name: str, *, visible_only: bool) -> re.Pattern[str] | None:
    if name == ANY_NAMES:
        return None
    found = name_matcher(name)
    return re.compile(rf"(?!\.){found.pattern}") if visible_only and not _dotted(name) else found


def _components(pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError(".. leads out of the directory; use the parent directory as the path")
    if names[-1:] == [ANY_NAMES]:
        names.append("*")  # the entries below, not the directory itself
    return _without_repeated_stars(names)
