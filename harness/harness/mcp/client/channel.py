"""The connection to one MCP server: its messages as lines, the reason for its end, and its stderr."""

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


# -- A server's stderr: bounded, into harness's log, and its last lines into error messages


LINE = 500
"""Maximum characters of a line."""
LINES = 1_000
"""Maximum logged lines of one run of a server."""
KEPT = 5
SECRET = 8
"""Minimum characters of a value that is redacted."""
SPECIAL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[\U000e0000-\U000e0fff]"
)

logger = logging.getLogger("harness.mcp.servers")


def plain(text: str) -> str:
    """Return the text without control characters and invisible characters. Pure."""
    return SPECIAL.sub("", text)


class ServerLog:
    """Logs the stderr of a server; ``secrets`` are redacted."""

    def __init__(self, name: str, secrets: Sequence[str] = ()) -> None:
        self._name = name
        self._secrets = tuple(secret for secret in secrets if len(secret) >= SECRET)
        self._last: deque[str] = deque(maxlen=KEPT)
        self._rest = b""
        self._lines = 0

    def feed(self, chunk: bytes) -> None:
        """Add bytes of stderr."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[: 4 * LINE]
        for line in lines:
            self.note(line.decode(errors="replace"))

    def note(self, text: str) -> None:
        """Log one line, truncated and redacted."""
        line = self._shown(text)
        if not line:
            return
        self._last.append(line)
        self._lines += 1
        if self._lines <= LINES:
            logger.info("%s: %s", self._name, line)
        elif self._lines == LINES + 1:
            logger.warning("%s: more than %d lines; the rest is omitted", self._name, LINES)

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return plain(text)[:LINE].strip()

    @property
    def last(self) -> str:
        """The last lines as one; empty if there are none."""
        unfinished = self._shown(self._rest.decode(errors="replace"))
        lines = [*self._last, *([unfinished] if unfinished else [])]
        return " / ".join(lines[-2:])


# -- The connection to one server: two streams of messages, and the reason for its end


@dataclass(slots=True)
class ServerConnection:
    """The transport of a protocol session; its streams carry the library's type of messages."""

    read: Any
    """The stream from which the session receives."""
    write: Any
    """The stream to which the session sends."""
    close: Callable[[], object]
    """Ends the session's receiving stream."""
    log: ServerLog
    ended: anyio.Event = field(default_factory=anyio.Event)
    reason: str = ""

    def end(self, reason: str) -> None:
        """Mark the connection as ended; the first reason is kept. Pending requests fail."""
        if self.ended.is_set():
            return
        self.reason = reason
        self.ended.set()
        self.close()


# -- Splitting a stream of bytes into messages, one per line, with a maximum size. Pure.


ENDS = 512
"""Bytes that are kept from the start and the end of an oversized message, to find its id."""
_ID = rb'(?P<id>-?\d{1,15}|"[A-Za-z0-9_.:/+=@ -]{1,200}")'
_BEFORE = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*|"method"\s*:\s*"[^"\\]{1,200}"\s*,\s*){0,2}'
FIRST_ID = re.compile(rb"\s*\{\s*" + _BEFORE + rb'"id"\s*:\s*' + _ID + rb"\s*,")
LAST_ID = re.compile(rb',\s*"id"\s*:\s*' + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_KIND = re.compile(rb'[{,]\s*"(result|error|method)"\s*:')


@dataclass(frozen=True, slots=True)
class OversizedMessage:
    """A dropped message: its size in bytes, and its id if that is known.

    ``is_reply``: it answers a request; otherwise it is a request, or its kind is unknown.
    """

    size: int
    request: int | str | None
    is_reply: bool = False


def request_of(head: bytes, tail: bytes) -> int | str | None:
    """Return the id of a message from its start and its end; None if it is not found."""
    found = FIRST_ID.match(head) or LAST_ID.search(tail)
    if found is None:
        return None
    text = found["id"].decode("ascii")
    return text[1:-1] if text.startswith('"') else int(text)


@dataclass(slots=True)
class LineSplitter:
    """Splits chunks into lines; of lines longer than ``limit`` bytes, it keeps only the start and the end."""

    limit: int
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _head: bytes = b""
    _tail: bytes = b""

    def feed(self, chunk: bytes) -> list[bytes | OversizedMessage]:
        """Return the lines that end in this chunk, without their newlines."""
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
