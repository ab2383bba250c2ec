"""Characters that make a command look like another one: hidden ones, spaces that are none, letters of other scripts."""

from __future__ import annotations

import unicodedata

__all__ = ["describe", "hidden_character", "strange_letter"]

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Mc", "Me"})
"""Control, format (zero width, bidi), surrogates, private use, unassigned, separators, marks on other letters."""
_PLAIN = frozenset("\t\n ")
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800")
"""Fillers and the empty braille pattern: letters and symbols that show nothing."""


def describe(character: str) -> str:
    """``U+200B ZERO WIDTH SPACE``."""
    return f"U+{ord(character):04X} {unicodedata.name(character, 'a control or unnamed character')}"


def hidden_character(text: str) -> str:
    """The first character that people do not see as what it is, described; empty when there is none."""
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
    """The first character that is neither ASCII nor a letter of Western Latin, described; empty when there is none.

    Letters of other scripts look like ASCII ones (a Cyrillic A), so a person may approve what is not written.
    """
    if text.isascii():
        return ""
    for character in text:
        if character > "\u017f" or (character > "\x7f" and not character.isalpha()) or character in "ªº":
            return describe(character)
    return ""
