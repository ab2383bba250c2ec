"""Patterns of rules. Pure.

In paths ``*`` and ``?`` match within one name, ``**`` matches any number of names (also none), and a pattern without a
``/`` matches the last name. In URLs a ``*`` in the host does not match beyond the host. Elsewhere ``*`` matches any
text. Matching takes bounded time.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

__all__ = ["Kind", "has_wildcard", "literal_prefix", "matches"]

Kind = Literal["path", "text", "url"]
WILD = re.compile(r"[*?\[]")
ANY_NAMES = "**"


def has_wildcard(pattern: str) -> bool:
    """Return whether the pattern contains wildcards."""
    return WILD.search(pattern) is not None


def literal_prefix(pattern: str) -> str:
    """Return the part of the pattern before its first wildcard."""
    found = WILD.search(pattern)
    return pattern[: found.start()] if found else pattern


def matches(pattern: str, text: str, kind: Kind = "text") -> bool:
    """Return whether the pattern matches the whole text."""
    if kind == "path":
        return _path_matches(pattern, text)
    if kind == "url":
        return _url_matches(pattern, text)
    return _compiled(pattern).match(text) is not None


@lru_cache(maxsize=32_768)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


def _path_matches(pattern: str, path: str) -> bool:
    if "/" not in pattern:
        return _compiled(pattern).match(path.rstrip("/").rpartition("/")[2]) is not None
    return _names_match(_names(pattern), path.rstrip("/").split("/"))


@lru_cache(maxsize=32_768)
def _names(pattern: str) -> tuple[str, ...]:
    names = pattern.rstrip("/").split("/")
    return tuple(name for number, name in enumerate(names) if name != ANY_NAMES or names[number - 1 : number] != [name])


def _names_match(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Match name by name, keeping all possible pattern positions; the steps are bounded by the product of lengths."""
    places = _skipped({0}, patterns)
    for name in names:
        following = {place for place in places if place < len(patterns) and patterns[place] == ANY_NAMES}
        following |= {
            place + 1
            for place in places
            if place < len(patterns) and patterns[place] != ANY_NAMES and _compiled(patterns[place]).match(name)
        }
        places = _skipped(following, patterns)
        if not places:
            return False
    return len(patterns) in places


def _skipped(places: set[int], patterns: Sequence[str]) -> set[int]:
    """Add the positions after a ``**`` that matches no name."""
    return places | {place + 1 for place in places if place < len(patterns) and patterns[place] == ANY_NAMES}


def _url_matches(pattern: str, url: str) -> bool:
    wanted, given = _url_parts(pattern, "/"), _url_parts(url, "/\\?#")
    return all(_compiled(one).match(other) for one, other in zip(wanted, given, strict=True))


def _url_parts(url: str, ends: str) -> tuple[str, str, str]:
    """Return scheme, authority, and the rest from one of ``ends`` on; browsers accept a backslash there."""
    scheme, _, rest = url.partition("://")
    host = re.split(f"[{re.escape(ends)}]", rest, maxsplit=1)[0]
    return scheme.lower(), host.lower(), rest[len(host) :] or "/"
