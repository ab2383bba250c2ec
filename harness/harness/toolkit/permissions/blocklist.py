"""Commands that no mode and no answer lets through. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from .globs import matches

__all__ = ["BLOCKED", "blocked", "command_forms", "is_harness"]

BLOCKED = (
    "security find-*-password*",
    "security dump-keychain*",
    "secret-tool lookup*",
    "secret-tool search*",
)
"""What reads a keychain."""
DECISIONS = (
    ("permissions", "add"),
    ("permissions", "remove"),
    ("tools", "call", "--yes"),
    ("servers", "accept"),
    ("audit", "resolve"),
)
"""What only a person decides, as words of harness's command line: options may stand between them."""
RUNNERS = re.compile(r"(?:python|pypy)[\d.]*|uvx?|pipx|poetry|hatch|pdm")
OURS = re.compile(r"(?:.*/)?harness(?:\.[\w.]*)?")


def blocked(argv: Sequence[str], patterns: Iterable[str]) -> str:
    """Why a simple command is blocked: the pattern, or what it would destroy; empty when it is not."""
    if _removes_root(argv):
        return "it removes the whole file system"
    if decision := _decision(argv):
        return f"'harness {decision}' is blocked: only a person decides that"
    forms = command_forms(argv)
    return next((f"{pattern!r} is blocked" for pattern in patterns for form in forms if matches(pattern, form)), "")


def command_forms(argv: Sequence[str]) -> tuple[str, ...]:
    """A command as patterns see it: its words with one space between, and the same without the program's directory."""
    if not argv:
        return ()
    plain = [posixpath.basename(argv[0]), *argv[1:]]
    return tuple(dict.fromkeys((" ".join(argv), " ".join(plain))))


def is_harness(argv: Sequence[str]) -> bool:
    """Whether a simple command runs harness."""
    program = posixpath.basename(argv[0]) if argv else ""
    return program == "harness" or (bool(RUNNERS.fullmatch(program)) and any(map(OURS.fullmatch, argv)))


def _decision(argv: Sequence[str]) -> str:
    """What the command would decide in a person's place."""
    program = posixpath.basename(argv[0]) if argv else ""
    begin = 0 if program == "harness" else None
    if RUNNERS.fullmatch(program):
        begin = next((number for number, word in enumerate(argv) if OURS.fullmatch(word)), None)
    if begin is None:
        return ""
    return next((" ".join(words) for words in DECISIONS if _in_order(words, argv[begin + 1 :])), "")


def _in_order(words: Sequence[str], argv: Sequence[str]) -> bool:
    rest = iter(argv)
    return all(word in rest for word in words)


def _removes_root(argv: Sequence[str]) -> bool:
    if not argv or posixpath.basename(argv[0]) != "rm":
        return False
    ended = argv.index("--") if "--" in argv else len(argv)
    options = [word for word in argv[1:ended] if word.startswith("-")]
    operands = [word for word in argv[1:ended] if not word.startswith("-")] + list(argv[ended + 1 :])
    recursive = any(word == "--recursive" or (word[1:2] != "-" and {"r", "R"} & set(word)) for word in options)
    return recursive and any(_is_root(word) for word in operands)


def _is_root(word: str) -> bool:
    directory = word[:-1] if word.endswith("/*") else word
    return directory.startswith("/") and posixpath.normpath(directory).strip("/") == ""
