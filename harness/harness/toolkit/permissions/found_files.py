"""The files that ``find`` passes on to another program: what is known of their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .shelltypes import Word

__all__ = ["found_file", "lists_null_separated"]

_PLAIN_NAMES = re.compile(r"\*\.(?:log|md|html|css|js|ts|py|rb|go|rs|c|h|cc|cpp|java|php|service|timer|socket)")
"""Kinds of files that no pattern of secrets speaks of."""
_TESTS = frozenset(
    [
        *(
            "-name",
            "-iname",
            "-type",
            "-path",
            "-ipath",
            "-size",
            "-mtime",
            "-mmin",
            "-atime",
            "-ctime",
            "-amin",
            "-cmin",
        ),
        *("-newer", "-newermt", "-maxdepth", "-mindepth", "-user", "-group", "-perm", "-uid", "-gid"),
    ]
)
_FLAGS = frozenset({"-xdev", "-mount", "-print", "-print0", "-empty", "-daystart", "-readable"})
_RUNS = frozenset({"-exec", "-execdir"})
_ACTIONS = frozenset({*_RUNS, "-print", "-print0"})


def found_file(words: Sequence[Word]) -> Word:
    """What stands for a file that ``find`` with these words finds: a path below what it searches, never an option.

    When its tests, which stand before what it does, find plain files of a kind that holds no secrets, and it follows
    no links, it counts as a known file.
    """
    return Word("{}", "{}", known=False, lead="./", pattern=_finds_plain_files(words))


def lists_null_separated(words: Sequence[Word]) -> bool:
    """Whether a command is a ``find`` that prints nothing but paths, each with a NUL behind it."""
    texts = [word.text for word in words]
    printed = {text for text in texts if text.startswith(("-print", "-ls", "-fprint", "-fls"))}
    roots = _roots(words)
    fine = all(word.operand or (word.pattern and bool(word.lead)) for word in roots)
    return texts[:1] == ["find"] and printed == {"-print0"} and fine and not _RUNS & set(texts)


def _roots(words: Sequence[Word]) -> list[Word]:
    end = next((at for at, word in enumerate(words[1:], 1) if word.text[:1] in ("-", "(", "!")), len(words))
    return list(words[1:end])


def _finds_plain_files(words: Sequence[Word]) -> bool:
    rest = iter(words[1 + len(_roots(words)) :])
    given: list[tuple[str, str]] = []
    before: list[tuple[str, str]] | None = None
    for word in rest:
        if not word.known:
            return False
        if before is None and word.text in _ACTIONS:
            before = list(given)  # a test behind an action does not keep it from what it is for
        if word.text in _RUNS:
            any(end.text in (";", "+") for end in rest)  # goes on behind it
        elif word.text in _TESTS and (value := next(rest, None)) is not None and value.known:
            given.append((word.text, value.text))
        elif word.text not in _FLAGS:
            return False
    tests = given if before is None else before
    named = any(test in ("-name", "-iname") and _PLAIN_NAMES.fullmatch(value) for test, value in tests)
    return named and ("-type", "f") in tests
