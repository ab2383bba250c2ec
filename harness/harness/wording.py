"""Parts of texts: counts with their nouns, and texts of others on one line or with invisible characters escaped."""

from __future__ import annotations

import re

__all__ = ["counted", "escape_invisible", "shorten", "single_line"]

_ENTRIES = re.compile(r"[^aeiou]y\Z")


def counted(number: float, one: str, several: str = "") -> str:
    """Return a number with its noun: ``1 line``, ``2 lines``, ``3 entries``, ``4 matches``."""
    if number == 1:
        return f"1 {one}"
    ending = one[:-1] + "ies" if _ENTRIES.search(one) else one + ("es" if one.endswith("ch") else "s")
    return f"{number:g} {several or ending}" if isinstance(number, float) else f"{number} {several or ending}"


def shorten(text: str, limit: int) -> str:
    """Return a text cut to a number of characters, with the number of those that were cut off."""
    left = len(text) - limit
    return text if left <= 0 else f"{text[:limit]} … {counted(left, 'more character')}"


def single_line(text: str) -> str:
    """Return a text on one line: spaces replace control, formatting and unpaired surrogate characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def escape_invisible(text: str, keep: str = "") -> str:
    """Return a text with what cannot be seen escaped, except for the characters of ``keep``."""
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)
