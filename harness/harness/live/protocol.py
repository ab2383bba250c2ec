"""The messages between a harness process and its dashboards: JSON lines of limited length over a Unix socket.

A process sends :class:`Hello`. To a client that sends :class:`Watch` it sends the state of each session,
:class:`Complete`, and from then on what changes. A client sends :class:`Authorize` before it asks for an action, and
opens a connection for each stream, so that a slow reader of one delays no other. Kinds and fields that a side does not
know are ignored, so that processes and dashboards of different versions understand each other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from ..errors import HarnessError

__all__ = [
    "MAX_LINE_BYTES",
    "PROTOCOL_VERSION",
    "Authorize",
    "Complete",
    "Goodbye",
    "Hello",
    "LineBuffer",
    "Message",
    "ProtocolError",
    "Reply",
    "Request",
    "SessionChanged",
    "SessionEnded",
    "StopStream",
    "StreamEnded",
    "StreamItem",
    "Watch",
    "decode",
    "encode",
]

PROTOCOL_VERSION = 1
"""Changed only when one side could misunderstand the other; new kinds and fields do not change it."""
MAX_LINE_BYTES = 1 << 20
"""Maximum bytes of a message."""


class ProtocolError(HarnessError):
    """The other side sent what is not a message."""


@dataclass(frozen=True, slots=True)
class Message:
    """Base of messages; ``kind`` is their name on the wire."""

    kind: ClassVar[str]


# -- From the process.


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """The first message: the process, and the challenge for :class:`Authorize`."""

    kind: ClassVar[str] = "hello"
    version: int
    process: Mapping[str, Any]
    challenge: str


@dataclass(frozen=True, slots=True)
class SessionChanged(Message):
    """The fields of a session's state that have changed; all of them the first time."""

    kind: ClassVar[str] = "session"
    session: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SessionEnded(Message):
    """A session was closed."""

    kind: ClassVar[str] = "session_ended"
    session: str


@dataclass(frozen=True, slots=True)
class Complete(Message):
    """The state of every session has been sent."""

    kind: ClassVar[str] = "complete"


@dataclass(frozen=True, slots=True)
class Reply(Message):
    """The answer to a request: its result, or why it failed."""

    kind: ClassVar[str] = "reply"
    request: int
    ok: bool
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class StreamItem(Message):
    """A piece of the stream that a request started."""

    kind: ClassVar[str] = "item"
    request: int
    item: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamEnded(Message):
    """The end of a stream; ``reason`` is empty if there is nothing more to send."""

    kind: ClassVar[str] = "stream_ended"
    request: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Goodbye(Message):
    """Why the process closes the connection; the client may connect again if it still runs."""

    kind: ClassVar[str] = "goodbye"
    reason: str


# -- From the client.


@dataclass(frozen=True, slots=True)
class Watch(Message):
    """Ask for the state of the sessions, now and whenever it changes."""

    kind: ClassVar[str] = "watch"


@dataclass(frozen=True, slots=True)
class Authorize(Message):
    """Prove that the client may act (:mod:`.access_token`); ``name`` is who acts, for the audit log."""

    kind: ClassVar[str] = "authorize"
    request: int
    name: str
    proof: str


@dataclass(frozen=True, slots=True)
class Request(Message):
    """Ask a session for an action or a stream; ``name`` is who asks, if that is not who was authorized."""

    kind: ClassVar[str] = "request"
    request: int
    session: str
    action: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, slots=True)
class StopStream(Message):
    """End the stream that a request started."""

    kind: ClassVar[str] = "stop"
    request: int


# -- Lines.


KINDS: Mapping[str, type[Message]] = {
    found.kind: found
    for found in (
        *(Hello, SessionChanged, SessionEnded, Complete, Reply, StreamItem, StreamEnded, Goodbye),
        *(Watch, Authorize, Request, StopStream),
    )
}
TYPES = {"int": int, "str": str, "bool": bool, "Mapping[str, Any]": dict}
"""The types of fields, by their annotation."""


def encode(message: Message) -> bytes:
    """Return the line of a message.

    Raises:
        ProtocolError: It is too long.
    """
    document = {"kind": message.kind, **asdict(message)}
    line = json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"a message of kind {message.kind} would have {len(line)} bytes")
    return line


def decode(line: bytes) -> Message | None:
    """Return the message of a line; None for one of an unknown kind.

    Raises:
        ProtocolError: It is not a message.
    """
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise ProtocolError("a line is not JSON") from None
    if not isinstance(document, dict):
        raise ProtocolError("a line is not a JSON object")
    known = KINDS.get(str(document.get("kind")))
    return None if known is None else _built(known, document)


def _built(known: type[Message], document: Mapping[str, Any]) -> Message:
    values = {one.name: document[one.name] for one in fields(known) if one.name in document}
    for one in fields(known):
        if one.name in values and type(values[one.name]) is not TYPES[str(one.type)]:
            raise ProtocolError(f"the field {one.name} of a message of kind {known.kind} has another type")
    try:
        return known(**values)
    except TypeError:
        raise ProtocolError(f"a message of kind {known.kind} lacks a field") from None


class LineBuffer:
    """Splits received bytes into lines, with a limit on what is kept of an unfinished one."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes, and return the lines that are complete.

        Raises:
            ProtocolError: A line is too long.
        """
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        if len(rest) > MAX_LINE_BYTES or any(len(line) > MAX_LINE_BYTES for line in lines):
            raise ProtocolError(f"a line has more than {MAX_LINE_BYTES} bytes")
        self._rest = rest
        return [bytes(line) for line in lines]
