"""Texts that are not what they seem: invisible characters, and letters of one script that pass for those of another."""

from __future__ import annotations

import unicodedata

__all__ = ["fold", "is_blank", "odd_characters"]

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Letters and marks that nobody sees."""
SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
"""Scripts whose letters look like each other."""


def fold(text: str) -> str:
    """The text as the most forgiving file system compares names: without case, width and invisible characters. Pure."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf").casefold()


def is_blank(char: str) -> bool:
    """Whether a printable character shows nothing, or only changes how another one is drawn. Pure."""
    return char in BLANK or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def odd_characters(text: str) -> str:
    """What a reader could not see in the text, as a phrase; empty when it is what it seems. Pure.

    Line breaks and tabs are seen. A name wholly in another script is no trick; one word of two scripts is.
    """
    if text.isascii() and text.isprintable():
        return ""
    hidden = [char for char in text if _is_hidden(char) and char not in "\n\t"]
    if hidden:
        return f"it holds the invisible character {_name(hidden[0])}"
    wide = [char for char in text if not char.isascii() and unicodedata.normalize("NFKC", char).isascii()]
    if wide:
        return f"it holds {_name(wide[0])}, which looks like {unicodedata.normalize('NFKC', wide[0])!r}"
    mixed = next((word for word in _words(text) if len(_scripts(word)) > 1), "")
    return f"{mixed!r} mixes letters of {' and '.join(sorted(_scripts(mixed)))}" if mixed else ""


def _is_hidden(char: str) -> bool:
    """Variants of pictures (U+FE0E, U+FE0F) are usual in names."""
    return unicodedata.category(char) in INVISIBLE or (is_blank(char) and char not in "\ufe0e\ufe0f")


def _words(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text).split()


def _scripts(word: str) -> set[str]:
    names = {unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()}
    return names & set(SCRIPTS)


def _name(char: str) -> str:
    return f"U+{ord(char):04X}"
