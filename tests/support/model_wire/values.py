"""What a scripted model answers, in no provider's words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import anyio
import anyio.to_thread

__all__ = [
    "Answer",
    "Call",
    "Cut",
    "Failure",
    "FailureKind",
    "Gate",
    "Piece",
    "Raw",
    "Reasoning",
    "ReportedUsage",
    "Stop",
    "Text",
    "When",
    "pieces_of",
]

FailureKind = Literal["auth", "quota", "rate_limit", "overloaded", "context_length", "bad_request", "server", "missing"]
Finish = Literal["", "length", "content_filter"]

STATUS: Mapping[FailureKind, int] = {
    "auth": 401,
    "quota": 429,
    "rate_limit": 429,
    "overloaded": 529,
    "context_length": 400,
    "bad_request": 400,
    "server": 500,
    "missing": 404,
}


@dataclass(frozen=True)
class Text:
    """Some of the answer; streamed in pieces of ``size`` characters."""

    text: str
    size: int = 12


@dataclass(frozen=True)
class Reasoning:
    """Some of the thinking before the answer."""

    text: str
    size: int = 12


@dataclass(frozen=True)
class Call:
    """A call of a tool. ``arguments`` as text are sent as they are, so that they can be broken JSON.

    Without ``id`` the server gives one.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        """The arguments as they stand on the wire."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)

    @property
    def value(self) -> Any:
        """The arguments where a protocol has no text for them."""
        try:
            return json.loads(self.text)
        except ValueError:
            return {"broken": self.text}


@dataclass(frozen=True)
class Cut:
    """The connection ends here."""


@dataclass(frozen=True)
class Stop:
    """The stream ends here, properly as HTTP goes, but without the end of the answer."""


@dataclass(frozen=True)
class Raw:
    """Bytes put on the wire as they are, within the stream."""

    data: bytes


class Gate:
    """The answer goes no further until the test opens it.

    ``await gate.reached()`` returns when all before it has been sent; ``gate.open()`` lets the rest through.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.was_reached = threading.Event()
        self.is_open = threading.Event()

    def open(self) -> None:
        """Let the rest of the answer through."""
        self.is_open.set()

    async def reached(self, timeout: float = 60) -> None:
        """Wait until all before the gate has been sent."""
        with anyio.fail_after(timeout):
            await anyio.to_thread.run_sync(self.was_reached.wait, abandon_on_cancel=True)


@dataclass(frozen=True)
class Failure:
    """An error in the provider's own form. Among the pieces of an :class:`Answer` it comes within the stream.

    ``status`` 0 is the usual one of the kind. ``headers`` may hold Retry-After; ``body`` replaces the provider's form.
    """

    kind: FailureKind
    message: str = ""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None

    @property
    def code(self) -> int:
        """The HTTP status."""
        return self.status or STATUS[self.kind]


@dataclass(frozen=True)
class ReportedUsage:
    """Tokens. ``input`` is all of the input, with what came from the cache or went into it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


Piece = Text | Reasoning | Call | Gate | Cut | Stop | Raw | Failure


@dataclass(frozen=True)
class Answer:
    """An answer of these pieces in this order; none at all is an empty answer.

    ``finish`` is why it ended, when not by itself. ``usage`` None is made up from the sizes.
    """

    pieces: tuple[Piece, ...] = ()
    finish: Finish = ""
    usage: ReportedUsage | None = None

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls in it."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Call))

    @property
    def size(self) -> int:
        """Its characters."""
        return sum(len(piece.text) for piece in self.pieces if isinstance(piece, Text | Reasoning | Call))

    def numbered(self, first: int) -> Answer:
        """The same, with an id for each call that has none."""
        pieces = tuple(
            replace(piece, id=f"call_{first}_{place}") if isinstance(piece, Call) and not piece.id else piece
            for place, piece in enumerate(self.pieces)
        )
        return replace(self, pieces=pieces)


@dataclass(frozen=True)
class When:
    """A reply for the first request whose JSON holds this text, whatever was asked before it."""

    text: str
    reply: Answer | Failure


def pieces_of(piece: Text | Reasoning | Call) -> Iterator[str]:
    """What is streamed of it, one after the other."""
    size = 12 if isinstance(piece, Call) else piece.size
    for start in range(0, len(piece.text), size):
        yield piece.text[start : start + size]
