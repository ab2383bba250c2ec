"""What a question does not show: what looks like a secret. It must not be what would run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..redaction import MARK
from .claims import Claim

__all__ = ["ADVICE", "unseen"]

RUNS: Final = frozenset(" \t\r\n\"'`$;&|<>(){}[]\\")
"""What may end a word of a command, or begin another command. Of a path, also ``/``."""
ADVICE: Final = "keep the secret in a file or a variable, and write the rest apart from it"


def unseen(claims: Sequence[Claim], redact: Callable[[str], str]) -> str:
    """Why nobody who sees the redacted texts knows what would be done; empty when they do.

    A text can be written so that a command in it looks like a part of a password.
    """
    for claim in claims:
        shown = redact(claim.shown)
        if shown != claim.shown and not claim.secret and _may_matter(claim, shown):
            hidden = sum(map(len, _hidden(claim.shown, shown)))
            count = f"{hidden} character{'' if hidden == 1 else 's'}"
            return f"{count} of it, hidden as a secret, may be more than a secret, so nobody can see what it would do"
    return ""


def _may_matter(claim: Claim, shown: str) -> bool:
    if claim.kind == "url":
        return False
    matters = RUNS | {"/"} if claim.is_path else RUNS
    if any(matters & set(part) for part in _hidden(claim.shown, shown)):
        return True
    return claim.kind == "command" and _programs(claim.shown) != _programs(shown)


def _hidden(text: str, shown: str) -> Iterator[str]:
    """The parts in the place of which the marks are; together they are right also where their ends are not."""
    first, *rest = shown.split(MARK)
    at = len(first) if text.startswith(first) else 0
    for number, piece in enumerate(rest, 1):
        end = len(text) - len(piece) if number == len(rest) else text.find(piece, at)
        if end < at:
            yield text[at:]
            return
        yield text[at:end]
        at = end + len(piece)


def _programs(text: str) -> tuple[str, ...]:
    from .shelljudge import judge_command  # the parser is loaded with the first command

    return tuple(command.argv[0] if command.argv else "" for command in judge_command(text).commands)
