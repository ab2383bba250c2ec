"""Option grammars: which options a program has, which of them take a value, and where its operands begin.

A grammar is written as words: ``-lah`` are flags, ``-nu=`` take a value, ``-f:`` takes the path of a file that is read,
``-i?`` may have one attached, ``-#`` is a number (``head -5``); ``--all``, ``--lines=``, ``--file:``, ``--color?``
are the same for long ones. With ``one_dash`` a whole word behind one dash is one name (``find -name``). ``own`` is for
programs that do not read several letters behind one dash as others do: these are flags, or one letter and a number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from .shelltypes import Word

__all__ = ["Grammar", "Options", "grammar", "loose_values", "parse_options"]

_KINDS = "=:?"
_LIKE_OPTION = re.compile(r"--?[A-Za-z]")
"""What a program might not take for the value of an option before it."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The options of one program, each with its kind: none, ``=``, ``:`` or ``?``."""

    known: dict[str, str]
    numbers: bool = False
    one_dash: bool = False
    own: bool = False


@dataclass(slots=True)
class Options:
    """A command's words, told apart. ``reason`` is set when they cannot be."""

    given: list[tuple[str, Word | None]] = field(default_factory=list)
    operands: list[Word] = field(default_factory=list)
    paths: list[Word] = field(default_factory=list)
    reason: str = ""

    def has(self, *names: str) -> bool:
        """One of these options is given."""
        return any(name in names for name, _ in self.given)

    def value(self, *names: str) -> Word | None:
        """The last value of one of these options."""
        return next((word for name, word in reversed(self.given) if name in names), None)


@lru_cache(maxsize=512)
def grammar(spec: str, *, one_dash: bool = False, own: bool = False) -> Grammar:
    """Read a grammar as the docstring of this module says."""
    known: dict[str, str] = {}
    for token in spec.split():
        kind = token[-1] if token[-1] in _KINDS else ""
        name = token.removesuffix(kind) if kind else token
        if name.startswith("--") or one_dash:
            known[name] = kind
        else:
            known.update({f"-{letter}": kind for letter in name[1:]})
    return Grammar(known, numbers=known.pop("-#", None) is not None, one_dash=one_dash, own=own)


def parse_options(
    words: Sequence[Word], options: Grammar, *, permute: bool = True, loose: bool = False, patterns: bool = False
) -> Options:
    """Tell options from operands.

    Args:
        patterns: wildcards count as operands: that no name which matches them begins with ``-`` is found out elsewhere.
        permute: options may stand behind operands, as GNU programs take them; else the first operand ends them.
        loose: none of the program's options does harm: words that are only known at run time count as operands, and
            the value of an option may look like one.
    """
    taken = Options()
    rest = list(words)
    while rest and not taken.reason:
        word = rest.pop(0)
        if word.known and word.text == "--":
            taken.operands += rest
            break
        if not word.known and not word.operand:
            if not loose and not (patterns and word.pattern and not word.lead):
                taken.reason = f"what {word.raw} becomes is only known at run time"
            taken.operands.append(word)
        elif word.operand or word.text in ("", "-"):
            taken.operands.append(word)
            if not permute:
                taken.operands += rest
                break
        else:
            _option(word, rest, options, taken, loose)
    return taken


def _option(word: Word, rest: list[Word], options: Grammar, taken: Options, loose: bool) -> None:
    text = word.text
    if options.numbers and text[1:].isdigit() and text.isascii():
        taken.given.append(("-#", Word.of(text[1:])))
    elif text.startswith("--") or options.one_dash:
        name, equals, value = text.partition("=")
        _take(name, Word.of(value) if equals else None, rest, options, taken, loose)
    else:
        _cluster(text[1:], rest, options, taken, loose)


def _cluster(letters: str, rest: list[Word], options: Grammar, taken: Options, loose: bool) -> None:
    given = ""
    while letters and not taken.reason:
        name, letters = f"-{letters[0]}", letters[1:]
        kind = options.known.get(name)
        if options.own and kind and ((letters and not letters.isdigit()) or given):
            taken.reason = f"{name} among other letters, which this program reads in a way of its own"
            return
        if kind in ("=", ":", "?") and letters:
            _take(name, Word.of(letters), rest, options, taken, loose)
            return
        _take(name, None, rest, options, taken, loose)
        given += name


def _take(name: str, value: Word | None, rest: list[Word], options: Grammar, taken: Options, loose: bool) -> None:
    kind = options.known.get(name)
    if kind is None or (kind == "" and value is not None):
        taken.reason = f"its option {name} is not on the list"
        return
    if kind in ("=", ":") and value is None:
        is_last = len(rest) == 1 and rest[0].plain  # when it becomes nothing, the value is missing, and that is all
        if (
            not rest
            or (rest[0].spread and not is_last)
            or (rest[0].known and not loose and _LIKE_OPTION.match(rest[0].text))
        ):
            taken.reason = f"the value of its option {name} is missing, an option, or only known at run time"
            return
        value = rest.pop(0)
    taken.given.append((name, value))
    if kind == ":" and value is not None:
        taken.paths.append(value)
        if value.text.startswith("="):  # some programs leave the = of -f=FILE out
            taken.paths.append(replace(value, text=value.text[1:]))


def loose_values(words: Sequence[str], names: str) -> list[str]:
    """The values of some options, written as ``-v --volume``; of a flag, what follows it. Pure.

    It takes more than there is: letters behind one dash may be a value, too.
    """
    wanted = names.split()
    found: list[str] = []
    for word, after in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            found += [value if equals else after] if name in wanted else []
        elif match := re.match(r"-[A-Za-z0-9]*", word):
            found += [word[at + 1 :].removeprefix("=") or after for at in _letters(match[0], wanted)]
    return found


def _letters(cluster: str, wanted: Sequence[str]) -> list[int]:
    return [at for at in range(1, len(cluster)) if f"-{cluster[at]}" in wanted]
