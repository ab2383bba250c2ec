"""Texts that are not what they seem: invisible characters, and letters that pass for those of another script."""

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


# -- Characters that make a command look like another one: hidden ones, spaces that are none, letters of other
# scripts.


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


# -- Texts that are not what they seem: invisible characters, and letters of one script that pass for those of
# another.


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
