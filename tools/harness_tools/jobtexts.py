"""A piece of a job's output as text: whole characters, and no secret cut in two. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Position", "continued", "parse_position", "shown_length"]

CONTEXT = 2 << 10
"""Bytes of the line before a piece that are looked at again, for a secret that began there."""
_POSITION = re.compile(r"([0-9]{1,15})(?:\+([0-9]{1,15}))?")
_ASKS = re.compile(r"[?:>#$%\])][ \t]*\Z")
"""The end of a line that waits for an answer."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far the two streams of a job were read, in bytes. Written ``120``, or ``120+45`` with standard error."""

    stdout: int = 0
    stderr: int = 0

    def __str__(self) -> str:
        return f"{self.stdout}+{self.stderr}" if self.stderr else str(self.stdout)

    def later(self, other: Position) -> Position:
        """The later one of each stream."""
        return Position(max(self.stdout, other.stdout), max(self.stderr, other.stderr))


def parse_position(text: str) -> Position:
    """Read one.

    Raises:
        ValueError: it is none.
    """
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        raise ValueError("it is a position that an answer gave, such as 120 or 120+45; 0 is the beginning")
    return Position(int(match[1]), int(match[2] or 0))


def shown_length(data: bytes, complete: Callable[[str], int], *, ended: bool) -> int:
    """How many bytes of a piece can be shown now, when more may follow: whole characters, and no part of a secret.

    Args:
        complete: how many characters of a text can be shown, as :meth:`~harness.toolkit.Redactor.complete` says.
        ended: nothing follows.
    """
    if ended:
        return len(data)
    data = data[: whole_characters(data)]
    text = data.decode("utf-8", "surrogateescape")
    if _ASKS.search(text):
        return len(data)
    return len(text[: complete(text)].encode("utf-8", "surrogateescape"))


def whole_characters(data: bytes) -> int:
    """The length without the beginning of a character at the end that the rest is missing of."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)


def line_before(data: bytes) -> bytes:
    """The line that has begun at the end of a piece, as far as it is looked at again."""
    return data[max(data.rfind(b"\n") + 1, len(data) - CONTEXT) :]


def continued(before: bytes, data: bytes, redact: Callable[[str], str]) -> str:
    """A piece, redacted as what it is: the continuation of a line that was shown already."""
    text = data.decode("utf-8", "surrogateescape")
    if not before:
        return redact(text)
    start = before.decode("utf-8", "surrogateescape")
    whole, old = redact(start + text), redact(start)
    alike = next((at for at, pair in enumerate(zip(whole, old, strict=False)) if pair[0] != pair[1]), len(old))
    return whole[alike:]
