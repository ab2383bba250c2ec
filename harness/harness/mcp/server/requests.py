"""The requests of a client that are still being answered, on standard input or in an HTTP session."""

from __future__ import annotations

import contextvars
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.shared.message import ServerMessageMetadata, SessionMessage

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

__all__ = [
    "DUPLICATE_ID_MESSAGE",
    "PendingRequests",
    "TrackedRequests",
    "TrackedResponses",
    "request_id_of",
    "unheard_of",
    "with_unheard",
]


# -- The requests of one client that are still being answered: no two at once have the same id.
#
# Nobody could tell the answers of two such requests apart: one of them would get the output of another command.


DUPLICATE_ID_MESSAGE = "a request with this id is still being answered; nothing was run"


class PendingRequests:
    """The ids of its requests that have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def begin(self, request_id: str) -> bool:
        """Take an id; False when a request with it is still being answered."""
        if request_id in self._ids:
            return False
        self._ids.add(request_id)
        return True

    def end(self, request_id: str) -> None:
        """It was answered, or refused before it was begun."""
        self._ids.discard(request_id)


# -- The requests of one HTTP session that are still being answered, and whether anybody still listens for the answer.
#
# No two at once have the same id.
#
# The transport finds the connection for an answer by the id alone. Of two requests with one id the later would get
# the earlier one's answer: the output of another command. A client that was started anew and goes on with its old
# session counts from the beginning again, while what it had asked for still runs.


DISCONNECT_EVENT_KEY = "harness.unheard"
"""Under this name the scope of a request has what is set when its connection has ended before its answer."""


def request_id_of(body: bytes) -> str | None:
    """The id of the request in a body, as the transport keeps it; None when it holds none. Pure."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    number = found.get("id") if isinstance(found, dict) and "method" in found else None
    return str(number) if isinstance(number, str | int) else None


def with_unheard(scope: Mapping[str, Any], unheard: anyio.Event) -> dict[str, Any]:
    """The scope of a request, with what is set when nobody listens for its answer any more."""
    return {**scope, DISCONNECT_EVENT_KEY: unheard}


def unheard_of(request: Any) -> anyio.Event | None:
    """What is set when nobody listens for the answer to this request; None where the transport does not say."""
    return getattr(request, "scope", {}).get(DISCONNECT_EVENT_KEY)


class TrackedResponses:
    """A stream of answers, each of which ends its request once it has found its connection.

    The transport takes one message after the other. So an answer has found its connection when the next message is
    taken: one for a request that there is not, which the transport drops.
    """

    def __init__(self, outgoing: WriteStream[SessionMessage], answering: PendingRequests) -> None:
        self._outgoing = outgoing
        self._answering = answering
        self._nothing = SessionMessage(
            types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message"),
            ServerMessageMetadata(related_request_id=secrets.token_hex(16)),
        )

    async def send(self, item: SessionMessage, /) -> None:
        """Hand one on."""
        await self._outgoing.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError) and item.message.id is not None:
            await self.answered(item.message.id)

    async def answered(self, request_id: types.RequestId) -> None:
        """The answer to a request was handed on just now, by whomever."""
        await self._outgoing.send(self._nothing)
        self._answering.end(str(request_id))

    async def aclose(self) -> None:
        """Close the stream behind it."""
        await self._outgoing.aclose()

    async def __aenter__(self) -> TrackedResponses:
        await self._outgoing.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        return await self._outgoing.__aexit__(kind, error, where)


class TrackedRequests:
    """A stream of requests. One that was cancelled is answered by the transport alone, and ended all the same."""

    def __init__(self, incoming: ReadStream[SessionMessage | Exception], answers: TrackedResponses) -> None:
        self._incoming = incoming
        self._answers = answers

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of whoever sent the last message, for who handles it."""
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next one."""
        return self._seen(await self._incoming.receive())

    def __aiter__(self) -> TrackedRequests:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._seen(await self._incoming.__anext__())

    def _seen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCRequest):
            metadata = item.metadata
            if isinstance(metadata, ServerMessageMetadata) and (answer := metadata.on_request_unanswered) is not None:
                metadata.on_request_unanswered = partial(self._cancelled, answer, item.message.id)
        return item

    async def _cancelled(self, answer: Callable[[], Awaitable[None]], request_id: types.RequestId) -> None:
        await answer()
        await self._answers.answered(request_id)

    async def aclose(self) -> None:
        """Close the stream behind it."""
        await self._incoming.aclose()

    async def __aenter__(self) -> TrackedRequests:
        await self._incoming.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        return await self._incoming.__aexit__(kind, error, where)
