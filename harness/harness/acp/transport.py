"""Standard input and output as the transport of the agent: one JSON object per line.

The SDK's own transport skips what is not JSON, and ends at JSON that is not an object. Here, such a line gets the
error reply that JSON-RPC defines, and the next one is read.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ..mcp.client.channel import LineSplitter, OversizedMessage
from ..system.protocol_stdio import Wire, read_some, write_all

__all__ = ["MAX_MESSAGE_BYTES", "StdioTransport", "message_in", "open_transport"]

MAX_MESSAGE_BYTES = 16 << 20
"""Maximum size of one message; a longer one is refused, and the next one is read."""
FLUSH_TIMEOUT = 2.0
"""Maximum seconds to write the last messages when the agent ends."""
NOTIFICATIONS = frozenset({"session/cancel"})
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
log = logging.getLogger("harness.acp")

Message = dict[str, Any]


def message_in(line: bytes | OversizedMessage) -> tuple[Message | None, Message | None]:
    """Return the message in a line, or the error reply to it; neither for an invalid reply. Pure."""
    if isinstance(line, OversizedMessage):
        reason = f"a message of {line.size} bytes is too long; the maximum is {MAX_MESSAGE_BYTES}"
        return None, _refusal(INVALID_REQUEST, reason, line.request)
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None, _refusal(PARSE_ERROR, "invalid JSON")
    if not isinstance(found, dict):
        return None, _refusal(INVALID_REQUEST, "not a JSON-RPC 2.0 message")
    return _request(found) if "method" in found else (_reply(found), None)


def _request(found: Message) -> tuple[Message | None, Message | None]:
    number = found.get("id")
    valid = number is None or (isinstance(number, int | str) and not isinstance(number, bool))
    if isinstance(found["method"], str) and valid:
        if "id" not in found and found["method"] not in NOTIFICATIONS:
            log.info("a notification that has no meaning here: %.100r", found["method"])
            return None, None
        return found, None
    return None, _refusal(INVALID_REQUEST, "not a JSON-RPC 2.0 request", number if valid else None)


def _reply(found: Message) -> Message | None:
    """Return a reply that the SDK can take; None if it answers no request."""
    if not isinstance(found.get("id"), int):
        log.info("a reply with an ID that no request had")
        return None
    if "error" in found and not isinstance(found["error"], dict):
        found["error"] = {"code": INVALID_REQUEST, "message": "the reply is not valid in the protocol"}
    return found


def _refusal(code: int, reason: str, number: object = None) -> Message:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": reason}}


class StdioTransport:
    """The transport of one client, as the SDK uses it; created by :func:`open_transport`."""

    def __init__(self, wire: Wire, outgoing: MemoryObjectSendStream[Message]) -> None:
        self._wire = wire
        self._outgoing = outgoing
        self._splitter = LineSplitter(MAX_MESSAGE_BYTES)
        self._lines: deque[bytes | OversizedMessage] = deque()
        self._reading = anyio.CancelScope()

    async def send(self, message: Message) -> None:
        """Pass a message to the writer.

        Raises:
            ConnectionError: The client no longer reads.
        """
        try:
            await self._outgoing.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionError("the client has disconnected") from None

    async def receive(self) -> Message | None:
        """Return the next message; None when the client has disconnected."""
        with self._reading, suppress(ConnectionError):
            while True:
                while self._lines:
                    if (message := await self._taken(self._lines.popleft())) is not None:
                        return message
                if not (chunk := await read_some(self._wire.incoming)):
                    return None
                self._lines.extend(self._splitter.feed(chunk))
        return None

    async def _taken(self, line: bytes | OversizedMessage) -> Message | None:
        if isinstance(line, bytes) and not line.strip():
            return None
        message, refusal = message_in(line)
        if refusal is not None:
            await self.send(refusal)
        return message

    def end(self) -> None:
        """Let :meth:`receive` return None from now on."""
        self._reading.cancel()

    async def close(self) -> None:
        """Do nothing: :func:`open_transport` closes it."""


@asynccontextmanager
async def open_transport(wire: Wire) -> AsyncIterator[StdioTransport]:
    """Open the transport; what was sent before the end is written, unless the client does not read."""
    outgoing, messages = anyio.create_memory_object_stream[Message](0)
    transport, written = StdioTransport(wire, outgoing), anyio.Event()
    writing = anyio.CancelScope(shield=True)  # a message is never written in part

    async def write() -> None:
        with writing:
            await _write_messages(wire.outgoing, messages)
        written.set()
        transport.end()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        try:
            yield transport
        finally:
            outgoing.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(FLUSH_TIMEOUT):
                await written.wait()
            writing.cancel()


async def _write_messages(descriptor: int, messages: MemoryObjectReceiveStream[Message]) -> None:
    async with messages:
        async for message in messages:
            try:
                await write_all(descriptor, json.dumps(message).encode() + b"\n")
            except OSError as error:
                log.info("cannot write to the client: %s", error)
                return
