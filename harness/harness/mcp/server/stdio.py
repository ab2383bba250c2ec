"""Standard input and output as the transport of the MCP server: one JSON message per line, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from ...system.protocol_stdio import Wire, read_some, write_all
from ..client.channel import LineSplitter, OversizedMessage
from .messages import (
    INVALID_REQUEST,
    MAX_MESSAGE,
    WITH_BATCHES,
    Batch,
    BatchAnswer,
    Batches,
    Refusal,
    Refused,
    batch_of,
    encode_batch,
    encode_message,
    parse_message,
    refusal,
)
from .requests import DUPLICATE_ID_MESSAGE, PendingRequests

__all__ = ["stdio_streams"]

FLUSH_LIMIT = 2.0
"""Maximum seconds to write the last messages when the server ends."""

Incoming = SessionMessage | Exception
log = logging.getLogger("harness.mcp")


@asynccontextmanager
async def stdio_streams(
    wire: Wire,
) -> AsyncIterator[tuple[ObjectReceiveStream[Incoming], ObjectSendStream[SessionMessage]]]:
    """Open the streams of incoming and outgoing messages; the first ends when the client disconnects."""
    into, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    finished, conversation = anyio.Event(), _Conversation()

    async def write() -> None:
        with writing:
            await _write_all(wire.outgoing, out_of, conversation)
        finished.set()
        reading.cancel()  # the client no longer reads replies

    async def read() -> None:
        with into, reading:
            await _read_all(wire.incoming, into, outgoing.clone(), conversation)

    reading = anyio.CancelScope()
    writing = anyio.CancelScope(shield=True)  # after a signal, the last replies are still sent
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        tasks.start_soon(read)
        try:
            yield incoming, outgoing
        finally:
            reading.cancel()
            incoming.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(FLUSH_LIMIT):
                await outgoing.aclose()
                await finished.wait()
            writing.cancel()
            tasks.cancel_scope.cancel()


@dataclass(slots=True)
class _Conversation:
    """The state of a client's requests: pending ones, batches, and the negotiated revision."""

    answering: PendingRequests = field(default_factory=PendingRequests)
    batches: Batches = field(default_factory=Batches)
    handshake: str | None = None
    """The id of the pending request that negotiates the revision."""
    revision: str = ""


async def _read_all(
    descriptor: int,
    into: MemoryObjectSendStream[Incoming],
    answers: MemoryObjectSendStream[SessionMessage],
    conversation: _Conversation,
) -> None:
    splitter = LineSplitter(MAX_MESSAGE)
    async with answers:
        reader = _Reader(into, answers, conversation)
        while chunk := await read_some(descriptor):
            for line in splitter.feed(chunk):
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server is ending
                    await reader.take(line)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Passes a client's messages on, and refuses lines without a valid message."""

    into: MemoryObjectSendStream[Incoming]
    answers: MemoryObjectSendStream[SessionMessage]
    conversation: _Conversation

    async def take(self, line: bytes | OversizedMessage) -> None:
        """Handle a line."""
        if isinstance(line, bytes) and not line.strip():
            return
        items = batch_of(line)
        if items:
            await self._take_batch(items)
            return
        message = self._accepted(parse_message(line))
        if isinstance(message, Refusal):
            await self.answers.send(SessionMessage(message.answer))
        else:
            await self.into.send(message)

    async def _take_batch(self, items: list[bytes]) -> None:
        if self.conversation.revision not in WITH_BATCHES:
            text = f"a batch: only revision {', '.join(WITH_BATCHES)} of the protocol has them; nothing was run"
            await self.answers.send(SessionMessage(refusal(INVALID_REQUEST, text).answer))
            return
        batch, messages = Batch(), []
        for item in items:
            message = self._accepted(parse_message(item), in_batch=True)
            if isinstance(message, Refusal):
                batch.answers.append(message.answer)
                continue
            messages.append(message)
            if isinstance(message.message, types.JSONRPCRequest):
                batch.waiting.add(str(message.message.id))
        self.conversation.batches.add(batch)
        if batch.message is not None:
            await self.answers.send(batch.message)
        for message in messages:
            await self.into.send(message)

    def _accepted(self, message: types.JSONRPCMessage | Refusal, *, in_batch: bool = False) -> SessionMessage | Refusal:
        """Return the message for the server, or a refusal if a request with its id is pending."""
        if isinstance(message, Refusal):
            return message
        if not isinstance(message, types.JSONRPCRequest):
            return SessionMessage(message)
        if in_batch and message.method == "initialize":
            return refusal(INVALID_REQUEST, "initialize is not part of a batch", message.id)
        if not self.conversation.answering.begin(str(message.id)):
            return refusal(INVALID_REQUEST, DUPLICATE_ID_MESSAGE, message.id)
        if message.method == "initialize":
            self.conversation.handshake = str(message.id)
        return SessionMessage(message, self._until_cancelled(str(message.id)))

    def _until_cancelled(self, request_id: str) -> ServerMessageMetadata:
        """Return metadata that frees the id of a cancelled request, which gets no reply."""

        async def cancelled() -> None:
            self.conversation.answering.end(request_id)
            rest = self.conversation.batches.dropped(request_id)
            if rest is not None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await self.answers.send(rest)

        return ServerMessageMetadata(on_request_unanswered=cancelled)


async def _write_all(
    descriptor: int, messages: MemoryObjectReceiveStream[SessionMessage], conversation: _Conversation
) -> None:
    async with messages:
        async for message in messages:
            data = _line_of(message, conversation)
            try:
                await write_all(descriptor, data)
            except OSError as error:
                log.info("cannot write to the client: %s", error)
                return


def _line_of(item: SessionMessage, conversation: _Conversation) -> bytes:
    """Return the line for a message; empty for a reply that waits for the others of its batch."""
    if isinstance(item, BatchAnswer):
        return encode_batch(item.answers)
    message = item.message
    if isinstance(message, Refused) or not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
        return encode_message(message)
    request_id = str(message.id)
    conversation.answering.end(request_id)
    if request_id == conversation.handshake and isinstance(message, types.JSONRPCResponse):
        conversation.handshake = None
        conversation.revision = str(message.result.get("protocolVersion", ""))
    in_batch, batch = conversation.batches.answered(request_id, message)
    if not in_batch:
        return encode_message(message)
    return encode_batch(batch.answers) if batch is not None else b""
