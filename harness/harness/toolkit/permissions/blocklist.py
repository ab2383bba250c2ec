"""Commands that no mode and no answer lets through. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from .globs import matches

__all__ = ["BLOCKED", "blocked", "command_forms"]

BLOCKED = (
    "harness permissions add*",
    "harness permissions remove*",
    "security find-*-password*",
    "security dump-keychain*",
    "secret-tool lookup*",
    "secret-tool search*",
)
"""What gives an agent rights, or reads a keychain."""


def blocked(argv: Sequence[str], patterns: Iterable[str]) -> str:
    """Why a simple command is blocked: the pattern, or what it would destroy; empty when it is not."""
    if _removes_root(argv):
        return "it removes the whole file system"
    forms = command_forms(argv)
    return next((f"{pattern!r} is blocked" for pattern in patterns for form in forms if matches(pattern, form)), "")


def command_forms(argv: Sequence[str]) -> tuple[str, ...]:
    """A command as patterns see it: its words with one space between, and the same without the program's directory."""
    if not argv:
        return ()
    plain = [posixpath.basename(argv[0]), *argv[1:]]
    return tuple(dict.fromkeys((" ".join(argv), " ".join(plain))))


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
