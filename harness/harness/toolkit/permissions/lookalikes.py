"""Texts that are not what they seem: invisible characters, and letters of one script that pass for those of another."""

from __future__ import annotations

import unicodedata

__all__ = ["fold", "odd_characters"]

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
"""Scripts whose letters look like each other."""


def fold(text: str) -> str:
    """The text as the most forgiving file system compares names: without case, width and invisible characters. Pure."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf").casefold()


def odd_characters(text: str) -> str:
    """What a reader could not see in the text, as a phrase; empty when it is what it seems. Pure.

    Line breaks and tabs are seen. A name wholly in another script is no trick; one word of two scripts is.
    """
    if text.isascii() and text.isprintable():
        return ""
    hidden = [char for char in text if unicodedata.category(char) in INVISIBLE and char not in "\n\t"]
    if hidden:
        return f"it holds the invisible character {_name(hidden[0])}"
    wide = [char for char in text if not char.isascii() and unicodedata.normalize("NFKC", char).isascii()]
    if wide:
        return f"it holds {_name(wide[0])}, which looks like {unicodedata.normalize('NFKC', wide[0])!r}"
    mixed = next((word for word in _words(text) if len(_scripts(word)) > 1), "")
    return f"{mixed!r} mixes letters of {' and '.join(sorted(_scripts(mixed)))}" if mixed else ""


def _words(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text).split()


def _scripts(word: str) -> set[str]:
    names = {unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()}
    return names & set(SCRIPTS)


def _name(char: str) -> str:
    return f"U+{ord(char):04X}"
