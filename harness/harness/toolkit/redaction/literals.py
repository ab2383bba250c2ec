"""Finds out which of many literals occur in a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

__all__ = ["Literals", "SearchedText", "lowered"]

_LETTERS = bytes(byte if byte < 128 and chr(byte).isalpha() else ord(" ") for byte in range(256))
_RUN = re.compile("[A-Za-z]+")


class Literals:
    """Literals that are searched together.

    Args:
        literals: The literals.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self._literals = tuple(dict.fromkeys(literals))

    def __iter__(self) -> Iterator[str]:
        return iter(self._literals)

    @cached_property
    def with_letters(self) -> tuple[tuple[bytes, str], ...]:
        """Each literal, and its longest run of letters in lower case."""
        return tuple((_letters(literal), literal) for literal in self._literals)


def _letters(literal: str) -> bytes:
    return max(_RUN.findall(literal), key=len, default="").lower().encode()


class SearchedText:
    """A text, and which literals are in it.

    A text has few different words, compared to its length: it is only searched for literals with letters of one.
    """

    __slots__ = ("_words", "low", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.low = lowered(text)
        """The text in lower case with unchanged positions."""
        self._words = b" ".join(set(self.low.encode("utf-8", "surrogatepass").translate(_LETTERS).split()))

    def found(self, literals: Literals) -> list[str]:
        """Return the literals that the text contains."""
        words, text = self._words, self.text
        return [literal for letters, literal in literals.with_letters if letters in words and literal in text]

    def found_lowered(self, literals: Literals) -> list[str]:
        """Return the literals, which are in lower case, that the text in lower case contains."""
        words, low = self._words, self.low
        return [literal for letters, literal in literals.with_letters if letters in words and literal in low]


def lowered(text: str) -> str:
    """Return the text in lower case with unchanged positions."""
    low = text.lower()
    return low if len(low) == len(text) else text.replace("\u0130", "I").lower()
