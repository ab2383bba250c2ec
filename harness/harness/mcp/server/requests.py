"""The pending requests of a client, over stdio or in an HTTP session."""

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


# -- The pending requests of one client, whose ids must be unique: replies to two requests with the same id could not
# be told apart, and one would get the output of another command.


DUPLICATE_ID_MESSAGE = "a request with this id is still being answered; nothing was run"


class PendingRequests:
    """The ids of a client's pending requests."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def begin(self, request_id: str) -> bool:
        """Add an id; return False if a request with it is pending."""
        if request_id in self._ids:
            return False
        self._ids.add(request_id)
        return True

    def end(self, request_id: str) -> None:
        """Remove the id of a request that was answered or refused."""
        self._ids.discard(request_id)


# -- The pending requests of one HTTP session, and whether their clients are still connected
#
# The transport finds the connection for a reply by the request's id alone: of two requests with the same id, the later
# would get the reply to the earlier one. A client that restarts within its old session counts its ids from the start
# again while its earlier requests may still be running.


DISCONNECT_EVENT_KEY = "harness.unheard"
"""The key in a request's ASGI scope of the event that is set when its connection ends before the reply."""


def request_id_of(body: bytes) -> str | None:
    """Return the id of the request in a body, in the transport's form, or None. Pure."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    number = found.get("id") if isinstance(found, dict) and "method" in found else None
    return str(number) if isinstance(number, str | int) else None


def with_unheard(scope: Mapping[str, Any], unheard: anyio.Event) -> dict[str, Any]:
    """Return the scope of a request with the event that is set when its client has disconnected."""
    return {**scope, DISCONNECT_EVENT_KEY: unheard}


def unheard_of(request: Any) -> anyio.Event | None:
    """Return the event that is set when the client of a request has disconnected; None if the transport has none."""
    return getattr(request, "scope", {}).get(DISCONNECT_EVENT_KEY)


class TrackedResponses:
    """A stream of replies, each of which ends its request once the transport has found its connection.

    The transport handles one message after the other. So a reply has found its connection when the transport takes
    the next message, which is sent for that purpose: it belongs to no request, and the transport drops it.
    """

    def __init__(self, outgoing: WriteStream[SessionMessage], answering: PendingRequests) -> None:
        self._outgoing = outgoing
        self._answering = answering
        self._nothing = SessionMessage(
            types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message"),
            ServerMessageMetadata(related_request_id=secrets.token_hex(16)),
        )

    async def send(self, item: SessionMessage, /) -> None:
        """Pass a message on."""
        await self._outgoing.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError) and item.message.id is not None:
            await self.answered(item.message.id)

    async def answered(self, request_id: types.RequestId) -> None:
        """End a request whose reply was just passed on."""
        await self._outgoing.send(self._nothing)
        self._answering.end(str(request_id))

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._outgoing.aclose()

    async def __aenter__(self) -> TrackedResponses:
        await self._outgoing.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        return await self._outgoing.__aexit__(kind, error, where)


class TrackedRequests:
    """A stream of requests; a cancelled one, which only the transport answers, is ended as well."""

    def __init__(self, incoming: ReadStream[SessionMessage | Exception], answers: TrackedResponses) -> None:
        self._incoming = incoming
        self._answers = answers

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the sender of the last message, for its handler."""
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
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
        """Close the underlying stream."""
        await self._incoming.aclose()

    async def __aenter__(self) -> TrackedRequests:
        await self._incoming.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        return await self._incoming.__aexit__(kind, error, where)
