"""Detection of misleading texts: invisible characters, and letters that look like those of another script."""

from __future__ import annotations

import unicodedata

__all__ = [
    "describe",
    "fold",
    "hidden_character",
    "is_blank",
    "odd_characters",
    "strange_letter",
]


# -- Characters that make a command look like another one: hidden ones, unusual spaces, letters of other scripts.


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Mc", "Me"})
"""Control, format (zero width, bidi), surrogates, private use, unassigned, separators, combining marks."""
_PLAIN = frozenset("\t\n ")
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800")
"""Fillers and the empty braille pattern: letters and symbols that are invisible."""


def describe(character: str) -> str:
    """Return the code and name of a character: ``U+200B ZERO WIDTH SPACE``."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'a control or unnamed character')}"


def hidden_character(text: str) -> str:
    """Return a description of the first hidden or misleading character; empty without one."""
    if text.isascii() and text.isprintable():
        return ""
    for character in text:
        if character in _PLAIN:
            continue
        if unicodedata.category(character) in _HIDDEN and character != " ":
            return describe(character)
        if character in _INVISIBLE:
            return describe(character)
    return ""


def strange_letter(text: str) -> str:
    """Return a description of the first character that is not ASCII or a Western Latin letter; empty without one.

    Letters of other scripts can look like ASCII letters (a Cyrillic A), so an operator might approve another text.
    """
    if text.isascii():
        return ""
    for character in text:
        if character > "\u017f" or (character > "\x7f" and not character.isalpha()) or character in "ªº":
            return describe(character)
    return ""


# -- Misleading names: invisible characters, and letters of one script that look like those of another.


INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Letters and marks that are invisible."""
SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
"""Scripts with similar letters."""


def fold(text: str) -> str:
    """Return the text as the most lenient file system compares names: no case, width, invisible characters. Pure."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text)
    return "".join(char for char in plain if unicodedata.category(char) != "Cf").casefold()


def is_blank(char: str) -> bool:
    """Return whether a printable character is invisible or only changes how another one is drawn. Pure."""
    return char in BLANK or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def odd_characters(text: str) -> str:
    """Return why the text is misleading, as a phrase; empty if it is not. Pure.

    Line breaks and tabs are visible. A word entirely in another script is accepted; a word that mixes scripts is not.
    """
    if text.isascii() and text.isprintable():
        return ""
    hidden = [char for char in text if _is_hidden(char) and char not in "\n\t"]
    if hidden:
        return f"it contains the invisible character {_name(hidden[0])}"
    wide = [char for char in text if not char.isascii() and unicodedata.normalize("NFKC", char).isascii()]
    if wide:
        return f"it contains {_name(wide[0])}, which looks like {unicodedata.normalize('NFKC', wide[0])!r}"
    mixed = next((word for word in _words(text) if len(_scripts(word)) > 1), "")
    return f"{mixed!r} mixes letters of {' and '.join(sorted(_scripts(mixed)))}" if mixed else ""


def _is_hidden(char: str) -> bool:
    """Return whether a character is invisible; emoji variation selectors (U+FE0E, U+FE0F) are usual in names."""
    return unicodedata.category(char) in INVISIBLE or (is_blank(char) and char not in "\ufe0e\ufe0f")


def _words(text: str) -> list[str]:
    return "".join(char if char.isalnum() else " " for char in text).split()


def _scripts(word: str) -> set[str]:
    names = {unicodedata.name(char, "").partition(" ")[0] for char in word if char.isalpha()}
    return names & set(SCRIPTS)


def _name(char: str) -> str:
    return f"U+{ord(char):04X}"
