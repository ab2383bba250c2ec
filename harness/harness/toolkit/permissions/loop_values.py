"""Loops over words that are in the text: each command in the body is judged with each value of the variable. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from .shelltypes import Found, Redirect, Word

__all__ = ["unrolled"]

MAX_VALUES = 24
"""Values with which one command is judged; a loop with more is judged as one over unknown words."""
_PIECE = re.compile(
    r"(?P<quote>\")|\$(?:(?P<name>[A-Za-z_]\w*)(?!:)|\{(?P<braced>[A-Za-z_]\w*)\})"  # zsh changes $f:h
    r"|[\w./:@%+,=-]+|(?P<glob>\*|\?)|~(?=/)| "
)
_GLOB = re.compile(r"[*?\[\\]")
_SPLITS = re.compile(r"\s")


def unrolled(found: Found, *, changed: Sequence[str]) -> Iterator[Found]:
    """The command with each of the values that the variables of the loops around it have, or as it is.

    Args:
        changed: variables that something else sets, too.
    """
    values = {name: words for name, words in found.loops if name not in changed and all(map(_seen, words))}
    used = [name for name in values if any(name in _names(word) for word in _words(found))]
    if not used or not 0 < prod(len(values[name]) for name in used) <= MAX_VALUES:
        yield found
        return
    for combination in product(*(values[name] for name in used)):
        yield _with(found, dict(zip(used, combination, strict=True)))


def _seen(word: Word) -> bool:
    """It stands in the text, but for the names of files that match it."""
    return word.known or word.pattern or word.plain


def _words(found: Found) -> Iterator[Word]:
    yield from found.words
    yield from (word for _, word in found.assigned)
    yield from (item.word for item in found.redirects if item.word is not None)


def _names(word: Word) -> set[str]:
    return set() if word.known else {match["name"] or match["braced"] or "" for match in _PIECE.finditer(word.raw)}


def _with(found: Found, values: Mapping[str, Word]) -> Found:
    return replace(
        found,
        words=tuple(_put(word, values) for word in found.words),
        assigned=tuple((name, _put(word, values)) for name, word in found.assigned),
        redirects=tuple(_redirect(item, values) for item in found.redirects),
    )


def _redirect(item: Redirect, values: Mapping[str, Word]) -> Redirect:
    return item if item.word is None else replace(item, word=_put(item.word, values))


def _may_stand(value: Word, is_quoted: bool) -> bool:
    """Whether the value stands there as it is: ``~+`` was a directory, and an unquoted one with blanks is split."""
    is_split = not is_quoted and not value.plain and _SPLITS.search(value.text) is not None
    return bool(value.text) and not is_split and not re.match(r"~[^/]", value.raw)


def _put(word: Word, values: Mapping[str, Word]) -> Word:
    """The word with values in it; as it is when something else in it is unknown, or a shell would split it."""
    if word.known or not _names(word) & set(values):
        return word
    text, is_quoted, is_pattern, at = "", False, False, 0
    while at < len(word.raw):
        piece = _PIECE.match(word.raw, at)
        if piece is None:
            return word
        at = piece.end()
        name = piece["name"] or piece["braced"]
        if piece["quote"]:
            is_quoted = not is_quoted
        elif name is None:
            is_pattern = is_pattern or (piece["glob"] is not None and not is_quoted)
            text += piece[0]
        else:
            value = values.get(name)
            if value is None or not _may_stand(value, is_quoted):
                return word
            if value.plain and word.raw.strip('"') in (f"${name}", f"${{{name}}}"):
                return replace(value, raw=word.raw, spread=False)
            is_pattern = is_pattern or value.pattern or value.plain
            is_pattern = is_pattern or (not is_quoted and _GLOB.search(value.text) is not None)
            text += "*" if value.plain else value.text
    if not is_pattern:
        return Word(word.raw, text, lead=text)
    first = _GLOB.search(text)
    return Word(word.raw, text, known=False, lead=text[: first.start()] if first else text, pattern=True)
