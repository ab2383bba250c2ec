"""A stream of bytes as messages, one a line, none of them longer than is allowed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["LineSplitter", "TooLong", "request_of"]

ENDS = 512
"""Bytes of the beginning and of the end of a long message that are kept, to find out what it answers."""
_ID = rb'(?P<id>-?\d{1,15}|"[A-Za-z0-9_.:/+=@ -]{1,200}")'
_BEFORE = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*|"method"\s*:\s*"[^"\\]{1,200}"\s*,\s*){0,2}'
FIRST_ID = re.compile(rb"\s*\{\s*" + _BEFORE + rb'"id"\s*:\s*' + _ID + rb"\s*,")
LAST_ID = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_KIND = re.compile(rb'[{,]\s*"(result|error|method)"\s*:')


@dataclass(frozen=True, slots=True)
class TooLong:
    """A message that was thrown away: its size in bytes, and its id where that can be seen.

    ``is_reply``: it answers a request; otherwise it is one, or that cannot be seen.
    """

    size: int
    request: int | str | None
    is_reply: bool = False


def request_of(head: bytes, tail: bytes) -> int | str | None:
    """The id of a message, from its two ends."""
    found = FIRST_ID.match(head) or LAST_ID.search(tail)
    if found is None:
        return None
    text = found["id"].decode("ascii")
    return text[1:-1] if text.startswith('"') else int(text)


@dataclass(slots=True)
class LineSplitter:
    """Cuts chunks into lines and holds at most ``limit`` bytes of one, and what is needed of a longer one."""

    limit: int
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _head: bytes = b""
    _tail: bytes = b""

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that end in this chunk, without their newlines."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for piece in ends:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self.limit:
            self._parts.append(piece)
            return
        if self._parts:
            kept = b"".join(self._parts)
            self._head, self._tail = kept[:ENDS], kept[-ENDS:]
            self._parts.clear()
        if len(self._head) < ENDS:
            self._head = (self._head + piece[:ENDS])[:ENDS]
        self._tail = (self._tail + piece[-ENDS:])[-ENDS:]

    def _take(self) -> bytes | TooLong:
        whole = self._size <= self.limit
        line = b"".join(self._parts) if whole else self._too_long()
        self._parts, self._size, self._head, self._tail = [], 0, b"", b""
        return line

    def _too_long(self) -> TooLong:
        kind = _KIND.search(self._head)
        is_reply = kind is not None and kind[1] != b"method"
        return TooLong(self._size, request_of(self._head, self._tail), is_reply)
