"""Our standard input and output as the transport of a server: one JSON message a line, and nothing else.

While it runs, what anybody prints goes to standard error, and children find an empty input: a stray line on the wire
would end the conversation. Reading and writing wait for the descriptors in the event loop, never in a thread, so that
a signal ends the server also while its client says nothing or reads nothing.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError

from .answering import TAKEN, Answering
from .client_lines import LineSplitter, TooLong

__all__ = ["MAX_MESSAGE", "Refusal", "Wire", "claimed_stdio", "stdio_streams"]

MAX_MESSAGE = 16 << 20
"""Bytes of one message from the client; a longer one is refused and the next one read."""
READ = 64 << 10
FLUSH_LIMIT = 2.0
"""Seconds that the last messages may take when the server ends."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600

Incoming = SessionMessage | Exception
log = logging.getLogger("harness.mcp")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the sender of a line is told that holds no message."""

    answer: types.JSONRPCError


@dataclass(frozen=True, slots=True)
class Wire:
    """The descriptors that carry the protocol."""

    incoming: int
    outgoing: int


@contextmanager
def claimed_stdio() -> Iterator[Wire]:
    """Take standard input and output for the protocol alone, and give them back at the end."""
    wire = Wire(fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield wire
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # what was printed meanwhile belongs to standard error, too
        os.dup2(wire.incoming, 0)
        os.dup2(wire.outgoing, 1)
        os.close(wire.incoming)
        os.close(wire.outgoing)


@asynccontextmanager
async def stdio_streams(
    wire: Wire,
) -> AsyncIterator[tuple[ObjectReceiveStream[Incoming], ObjectSendStream[SessionMessage]]]:
    """The messages of a client, and a way to answer. The first stream ends when the client goes."""
    into, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    finished, answering = anyio.Event(), Answering()

    async def write() -> None:
        with writing:
            await _write_all(wire.outgoing, out_of, answering)
        finished.set()
        reading.cancel()  # nobody hears our answers any more

    async def read() -> None:
        with into, reading:
            await _read_all(wire.incoming, into, outgoing.clone(), answering)

    reading = anyio.CancelScope()
    writing = anyio.CancelScope(shield=True)  # a signal ends the server, and the last answers are still sent
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


async def _read_all(
    descriptor: int,
    into: MemoryObjectSendStream[Incoming],
    answers: MemoryObjectSendStream[SessionMessage],
    answering: Answering,
) -> None:
    splitter = LineSplitter(MAX_MESSAGE)
    async with answers:
        while chunk := await _read_some(descriptor):
            for line in splitter.feed(chunk):
                await _hand_on(line, into, answers, answering)


async def _hand_on(
    line: bytes | TooLong,
    into: MemoryObjectSendStream[Incoming],
    answers: MemoryObjectSendStream[SessionMessage],
    answering: Answering,
) -> None:
    if isinstance(line, bytes) and not line.strip():
        return
    message = parse_message(line)
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server is ending
        if isinstance(message, Refusal):
            await answers.send(SessionMessage(message.answer))
        elif not isinstance(message, types.JSONRPCRequest):
            await into.send(SessionMessage(message))
        elif answering.begin(str(message.id)):
            await into.send(SessionMessage(message, _until_cancelled(str(message.id), answering)))
        else:
            await answers.send(SessionMessage(_refusal(INVALID_REQUEST, TAKEN).answer))


def _until_cancelled(request_id: str, answering: Answering) -> ServerMessageMetadata:
    """One that is cancelled is never answered, and frees its id all the same."""

    async def cancelled() -> None:
        answering.end(request_id)

    return ServerMessageMetadata(on_request_unanswered=cancelled)


def parse_message(line: bytes | TooLong) -> types.JSONRPCMessage | Refusal:
    """A message, or what answers one that is none. Pure.

    A reply to a question of ours that is none becomes an error that says so: nobody waits for it any longer.
    """
    if isinstance(line, TooLong):
        return _refusal(INVALID_REQUEST, f"a message of {line.size} bytes is too long; {MAX_MESSAGE} are the most")
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return _refusal(PARSE_ERROR, "this is not JSON")
        log.debug("not a message: %d mistakes", error.error_count() if isinstance(error, ValidationError) else 1)
        return _none(found)


def _none(found: object) -> types.JSONRPCMessage | Refusal:
    """What becomes of JSON that is no message: who waits for an answer to it gets one."""
    values = found if isinstance(found, dict) else {}
    number = values.get("id")
    sender = number if isinstance(number, str | int) and not isinstance(number, bool) else None
    if sender is not None and "method" not in values and ("result" in values or "error" in values):
        return _refusal(INVALID_REQUEST, "the reply is none that the protocol knows", sender).answer
    if isinstance(sender, str) and not sender.isprintable():
        sender = None  # half a character cannot be sent back
    return _refusal(INVALID_REQUEST, "this is not a JSON-RPC 2.0 message", sender if "method" in values else None)


def _refusal(code: int, message: str, sender: str | int | None = None) -> Refusal:
    return Refusal(types.JSONRPCError(jsonrpc="2.0", id=sender, error=types.ErrorData(code=code, message=message)))


async def _write_all(
    descriptor: int, messages: MemoryObjectReceiveStream[SessionMessage], answering: Answering
) -> None:
    async with messages:
        async for message in messages:
            if isinstance(message.message, types.JSONRPCResponse | types.JSONRPCError):
                answering.end(str(message.message.id))
            try:
                await _write(descriptor, encode_message(message.message))
            except OSError as error:
                log.info("the client reads no more: %s", error)
                return


def encode_message(message: types.JSONRPCMessage) -> bytes:
    """One line. Pure."""
    if isinstance(message, types.JSONRPCError) and message.id is None:
        body = message.model_dump(by_alias=True, exclude_none=True) | {"id": None}  # JSON-RPC wants to see the null
        return json.dumps(body).encode() + b"\n"
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


async def _read_some(descriptor: int) -> bytes:
    """What has come; empty at the end of the input."""
    await _ready(anyio.wait_readable, descriptor)
    try:
        return os.read(descriptor, READ)
    except OSError as error:
        log.info("the client's messages cannot be read: %s", error)
        return b""


async def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        await _ready(anyio.wait_writable, descriptor)
        with suppress(BlockingIOError):
            view = view[os.write(descriptor, view[: select.PIPE_BUF]) :]  # so much never blocks a ready pipe


async def _ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await wait(descriptor)
    except PermissionError:  # a regular file, which epoll does not take and which never blocks
        await anyio.lowlevel.checkpoint()
