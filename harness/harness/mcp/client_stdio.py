"""Messages to and from a server that is a program on this machine: JSON, one message a line, over its pipes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ..tasks import background_tasks
from .client_config import ServerConfig, StdioLaunch
from .client_lines import LineSplitter, TooLong
from .client_link import Link
from .client_log import ServerLog
from .client_process import ChildProcess, Launch, child_environment, locate, open_child

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

__all__ = ["TOO_LARGE", "open_stdio"]

GARBAGE_LIMIT = 1_000
"""Lines that are no messages, until it is said that this is no server."""
TOO_LARGE = -32_099
"""The code of the error that stands for an answer that was too long."""
LAST_WORDS = 0.5
"""Seconds in which what a server wrote before its end is read, and its end is noticed after that of its output."""


@asynccontextmanager
async def open_stdio(config: ServerConfig, launch: StdioLaunch, environ: Mapping[str, str]) -> AsyncIterator[Link]:
    """Start the server and speak with it; it has ended, with all it started, when this is left.

    Raises:
        ConfigError: the program is not there, or not the pinned one, or a value of its environment is missing.
        ConnectError: it could not be started.
    """
    resolved = await anyio.to_thread.run_sync(_resolve, config, launch, environ)
    log = ServerLog(config.name, [resolved.environ[name] for name, _ in launch.env])
    async with open_child(resolved, f"server {config.name!r}") as child, _bridge(child, config, log) as link:
        yield link


def _resolve(config: ServerConfig, launch: StdioLaunch, environ: Mapping[str, str]) -> Launch:
    where = f"server {config.name!r}"
    extras = {name: value.resolve(environ, f"{where}: env.{name}") for name, value in launch.env}
    env = child_environment(environ, extras)
    program, *arguments = (word.resolve(environ, f"{where}: command") for word in launch.command)
    cwd = os.path.expanduser(launch.cwd) or None
    path = locate(os.path.expanduser(program), env.get("PATH", os.defpath), cwd, launch.pin, where)
    return Launch((path, *arguments), env, cwd)


@asynccontextmanager
async def _bridge(child: ChildProcess, config: ServerConfig, log: ServerLog) -> AsyncIterator[Link]:
    """Tasks between the pipes and the streams that the protocol's session works on."""
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    link = Link(read, write, incoming.close, log)
    silent = anyio.Event()
    async with background_tasks() as tasks, incoming, read, write, outgoing:
        tasks.start_soon(_read, child, incoming, link, config, silent)
        tasks.start_soon(_write, child, outgoing, link, config.timeout)
        tasks.start_soon(_log, child, log)
        tasks.start_soon(_watch, child, link, silent)
        try:
            yield link
        finally:
            link.end("it was closed")
            await child.aclose()


async def _read(child: ChildProcess, incoming: Any, link: Link, config: ServerConfig, silent: anyio.Event) -> None:
    splitter, garbage = LineSplitter(config.max_message), 0
    while chunk := await child.read():
        for line in splitter.feed(chunk):
            message = _message(line, config)
            if message is not None:
                await _deliver(incoming, message)
            elif isinstance(line, TooLong):
                link.end(f"it sent a message of {line.size} bytes, and {config.max_message} are allowed")
            elif line.strip():
                garbage += 1
                link.log.note("it wrote a line to its output that is no message")
            if garbage > GARBAGE_LIMIT:
                link.end("what it writes to its output is not the protocol")
                return
    silent.set()


async def _deliver(incoming: Any, message: SessionMessage) -> None:
    try:
        await incoming.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the session has gone; reading on keeps the server from blocking on its way out


def _message(line: bytes | TooLong, config: ServerConfig) -> SessionMessage | None:
    """A message of the protocol, or None for anything else."""
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    if isinstance(line, TooLong):
        if not isinstance(line.request, int) or not line.is_reply:
            return None
        text = f"its answer has {line.size} bytes, and {config.max_message} are allowed"
        error = ErrorData(code=TOO_LARGE, message=text)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=line.request, error=error))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _write(child: ChildProcess, outgoing: Any, link: Link, limit: float) -> None:
    async for message in outgoing:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        written = False
        try:
            with anyio.move_on_after(limit):
                await child.write(text.encode() + b"\n")
                written = True
        except OSError:
            with anyio.move_on_after(LAST_WORDS):
                await link.ended.wait()  # when it has ended, that is the better reason
        if not written:  # or in part: nothing that follows would be understood
            link.end("it does not read its input")
            return


async def _log(child: ChildProcess, log: ServerLog) -> None:
    while chunk := await child.read_errors():
        log.feed(chunk)


async def _watch(child: ChildProcess, link: Link, silent: anyio.Event) -> None:
    """Notice the end of the process itself, too: what it started may hold its pipes open.

    An answer that it wrote before it ended is still taken.
    """
    ended = anyio.Event()

    async def wait() -> None:
        await child.wait()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await _first(ended, silent)
        with anyio.move_on_after(LAST_WORDS):
            await ended.wait()
            await silent.wait()
        link.end(_end_of(child.returncode))
        tasks.cancel_scope.cancel()


async def _first(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)


def _end_of(code: int | None) -> str:
    if code is None:
        return "it closed its output"
    return f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
