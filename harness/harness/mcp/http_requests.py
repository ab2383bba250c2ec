"""The requests of one HTTP session that are still being answered: no two at once have the same id.

The transport finds the connection for an answer by the id alone. Of two requests with one id the later would get the
earlier one's answer: the output of another command. A client that was started anew and goes on with its old session
counts from the beginning again, while what it had asked for still runs.
"""

from __future__ import annotations

import json
import secrets
from types import TracebackType
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.message import ServerMessageMetadata, SessionMessage

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import WriteStream

__all__ = ["Answering", "AnswersSeen", "request_id_of"]


def request_id_of(body: bytes) -> str | None:
    """The id of the request in a body, as the transport keeps it; None when it holds none. Pure."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    number = found.get("id") if isinstance(found, dict) and "method" in found else None
    return str(number) if isinstance(number, str | int) else None


class Answering:
    """The ids of a session's requests that have no answer yet. One that was cancelled gets none, and keeps its id."""

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


class AnswersSeen:
    """A stream of answers, each of which ends its request once it has found its connection.

    The transport takes one message after the other. So an answer has found its connection when the next message is
    taken: one for a request that there is not, which the transport drops.
    """

    def __init__(self, outgoing: WriteStream[SessionMessage], answering: Answering) -> None:
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
            await self._outgoing.send(self._nothing)
            self._answering.end(str(item.message.id))

    async def aclose(self) -> None:
        """Close the stream behind it."""
        await self._outgoing.aclose()

    async def __aenter__(self) -> AnswersSeen:
        await self._outgoing.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> bool | None:
        return await self._outgoing.__aexit__(kind, error, where)
