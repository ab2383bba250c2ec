"""The channel to one server: its messages as lines, its end with the reason, and what it writes to stderr."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

__all__ = [
    "LineSplitter",
    "OversizedMessage",
    "ServerConnection",
    "ServerLog",
    "plain",
    "request_of",
]


# -- What a server writes to its stderr: into our log, bounded, and its end for the message about its death.


LINE = 500
"""Characters of a line."""
LINES = 1_000
"""Lines of one run of a server that go into the log."""
KEPT = 5
SECRET = 8
"""Characters that a value must have to be taken out wherever it stands."""
SPECIAL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[\U000e0000-\U000e0fff]"
)

logger = logging.getLogger("harness.mcp.servers")


def plain(text: str) -> str:
    """A text without what changes a terminal or cannot be seen. Pure."""
    return SPECIAL.sub("", text)


class ServerLog:
    """Takes bytes as they come. ``secrets`` are texts that are never written."""

    def __init__(self, name: str, secrets: Sequence[str] = ()) -> None:
        self._name = name
        self._secrets = tuple(secret for secret in secrets if len(secret) >= SECRET)
        self._last: deque[str] = deque(maxlen=KEPT)
        self._rest = b""
        self._lines = 0

    def feed(self, chunk: bytes) -> None:
        """Some bytes of stderr."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[: 4 * LINE]
        for line in lines:
            self.note(line.decode(errors="replace"))

    def note(self, text: str) -> None:
        """One line, cut and without secrets."""
        line = self._shown(text)
        if not line:
            return
        self._last.append(line)
        self._lines += 1
        if self._lines <= LINES:
            logger.info("%s: %s", self._name, line)
        elif self._lines == LINES + 1:
            logger.warning("%s: more than %d lines; the rest is left out", self._name, LINES)

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return plain(text)[:LINE].strip()

    @property
    def last(self) -> str:
        """The last lines as one, empty when there was none."""
        unfinished = self._shown(self._rest.decode(errors="replace"))
        lines = [*self._last, *([unfinished] if unfinished else [])]
        return " / ".join(lines[-2:])


# -- The way to one server while it lasts: two streams of messages, and its end with the reason.


@dataclass(slots=True)
class ServerConnection:
    """What a session of the protocol works on. The streams carry the library's type of a message."""

    read: Any
    """Where the session receives."""
    write: Any
    """Where the session sends."""
    close: Callable[[], object]
    """Lets the session see the end of what it receives."""
    log: ServerLog
    ended: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""

    def end(self, reason: str) -> None:
        """Say that it has ended; the first reason stays. Whoever waits for an answer learns of it."""
        if self.ended.is_set():
            return
        self.reason = reason
        self.ended.set()
        self.close()


# -- A stream of bytes as messages, one a line, none of them longer than is allowed. Pure.


ENDS = 512
"""Bytes of the beginning and of the end of a long message that are kept, to find out what it answers."""
_ID = rb'(?P<id>-?\d{1,15}|"[A-Za-z0-9_.:/+=@ -]{1,200}")'
_BEFORE = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*|"method"\s*:\s*"[^"\\]{1,200}"\s*,\s*){0,2}'
FIRST_ID = re.compile(rb"\s*\{\s*" + _BEFORE + rb'"id"\s*:\s*' + _ID + rb"\s*,")
LAST_ID = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_KIND = re.compile(rb'[{,]\s*"(result|error|method)"\s*:')


@dataclass(frozen=True, slots=True)
class OversizedMessage:
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

    def feed(self, chunk: bytes) -> list[bytes | OversizedMessage]:
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

    def _take(self) -> bytes | OversizedMessage:
        whole = self._size <= self.limit
        line = b"".join(self._parts) if whole else self._too_long()
        self._parts, self._size, self._head, self._tail = [], 0, b"", b""
        return line

    def _too_long(self) -> OversizedMessage:
        kind = _KIND.search(self._head)
        is_reply = kind is not None and kind[1] != b"method"
        return OversizedMessage(self._size, request_of(self._head, self._tail), is_reply)
