"""A server that is a local program: its process, and messages over its pipes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ...errors import ConfigError, ConnectError
from ...system.background_tasks import open_background_tasks
from ...system.child_process import ChildProcess, start_child
from .channel import LineSplitter, OversizedMessage, ServerConnection, ServerLog
from .configuration import ServerConfig, StdioLaunch

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

__all__ = [
    "TOO_LARGE",
    "Launch",
    "child_environment",
    "locate",
    "open_child",
    "open_stdio",
]


# -- The process of a server: its environment, and its end together with everything that it started


INHERITED = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
"""The variables that a server inherits, besides those that start with LC_."""
CLOSE_GRACE = 2.0
TERM_GRACE = 2.0
KILL_GRACE = 2.0


@dataclass(frozen=True, slots=True)
class Launch:
    """The parameters of a process; ``command`` starts with the absolute path of the program."""

    command: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: str | None = None


def child_environment(environ: Mapping[str, str], extras: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server: a few usual variables, and those of its settings. Pure."""
    kept = {name: value for name, value in environ.items() if name in INHERITED or name.startswith("LC_")}
    return {name: value for name, value in kept.items() if not value.startswith("()")} | dict(extras)


def locate(program: str, search: str, cwd: str | None, pin: str, where: str) -> str:
    """Return the path of a program; with a ``pin``, its real path, if its file has that digest.

    Reads files: use it in a thread.

    Raises:
        ConfigError: unknown program, or it is not the pinned one.
    """
    name = os.path.join(cwd or os.getcwd(), program) if os.sep in program else program
    found = shutil.which(name, path=search)
    if found is None:
        raise ConfigError(f"{where}: program {program!r} not found or not executable")
    path = os.path.abspath(found)
    if not pin:
        return path
    path = os.path.realpath(path)
    digest = _digest(path, where)
    if digest != pin:
        raise ConfigError(
            f"{where}: {path} is not the pinned program: its SHA-256 is {digest}",
            hint="find out what changed it; set program_sha256 to the new digest to allow it",
        )
    return path


def _digest(path: str, where: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {(error.strerror or str(error)).lower()}") from error


@asynccontextmanager
async def open_child(launch: Launch, where: str) -> AsyncIterator[ChildProcess]:
    """Start a process; it and its process group are ended when the block is left.

    Raises:
        ConnectError: it could not be started.
    """
    try:
        child = await start_child(launch.command, env=launch.environ, cwd=launch.cwd)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConnectError(f"{where}: {launch.command[0]} could not be started: {reason.lower()}") from error
    try:
        yield child
    finally:
        await _end(child)


async def _end(child: ChildProcess) -> None:
    await child.end(close_grace=CLOSE_GRACE, term_grace=TERM_GRACE, kill_grace=KILL_GRACE, kills_group=True)


# -- Messages over the pipes of a local server: JSON, one message per line


GARBAGE_LIMIT = 1_000
"""Maximum lines that are not messages."""
TOO_LARGE = -32_099
"""The code of the error that replaces an oversized reply."""
LAST_WORDS = 0.5
"""Seconds to read the rest of a server's output after its exit, and to notice its exit after the end of its output."""


@asynccontextmanager
async def open_stdio(
    config: ServerConfig, launch: StdioLaunch, environ: Mapping[str, str]
) -> AsyncIterator[ServerConnection]:
    """Start the server and open its streams; it is ended with everything that it started when the block is left.

    Raises:
        ConfigError: the program is missing or not the pinned one, or a value of its environment is missing.
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
    path = locate(os.path.expanduser(program), env.get("PATH", os.defpath), cwd, launch.program_sha256, where)
    return Launch((path, *arguments), env, cwd)


@asynccontextmanager
async def _bridge(child: ChildProcess, config: ServerConfig, log: ServerLog) -> AsyncIterator[ServerConnection]:
    """Connect the pipes to the streams of the protocol session."""
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    link = ServerConnection(read, write, incoming.close, log)
    silent = anyio.Event()
    async with open_background_tasks() as tasks, incoming, read, write, outgoing:
        tasks.start_soon(_read, child, incoming, link, config, silent)
        tasks.start_soon(_write, child, outgoing, link, config.timeout)
        tasks.start_soon(_log, child, log)
        tasks.start_soon(_watch, child, link, silent)
        try:
            yield link
        finally:
            link.end("it was closed")
            await _end(child)


async def _read(
    child: ChildProcess, incoming: Any, link: ServerConnection, config: ServerConfig, silent: anyio.Event
) -> None:
    splitter, garbage = LineSplitter(config.max_message_bytes), 0
    while chunk := await child.stdout.read():
        for line in splitter.feed(chunk):
            message = _message(line, config)
            if message is not None:
                await _deliver(incoming, message)
            elif isinstance(line, OversizedMessage):
                link.end(f"it sent a message of {line.size} bytes; the limit is {config.max_message_bytes}")
            elif line.strip():
                garbage += 1
                link.log.note("it wrote a line that is not a message to its output")
            if garbage > GARBAGE_LIMIT:
                link.end("its output is not MCP")
                return
    silent.set()


async def _deliver(incoming: Any, message: SessionMessage) -> None:
    try:
        await incoming.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the session is closed; reading continues so that the server does not block while it exits


def _message(line: bytes | OversizedMessage, config: ServerConfig) -> SessionMessage | None:
    """Return a protocol message, or None for anything else."""
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    if isinstance(line, OversizedMessage):
        if not isinstance(line.request, int) or not line.is_reply:
            return None
        text = f"its answer has {line.size} bytes, and {config.max_message_bytes} are allowed"
        error = ErrorData(code=TOO_LARGE, message=text)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=line.request, error=error))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError):
        return None


async def _write(child: ChildProcess, outgoing: Any, link: ServerConnection, limit: float) -> None:
    async for message in outgoing:
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        written = False
        try:
            with anyio.move_on_after(limit):
                await child.stdin.write(text.encode() + b"\n")
                written = True
        except OSError:
            with anyio.move_on_after(LAST_WORDS):
                await link.ended.wait()  # if the server exited, that is the better reason
        if not written:  # after a partial write, the server could not parse further messages
            link.end("it does not read its input")
            return


async def _log(child: ChildProcess, log: ServerLog) -> None:
    while chunk := await child.stderr.read():
        log.feed(chunk)


async def _watch(child: ChildProcess, link: ServerConnection, silent: anyio.Event) -> None:
    """End the connection after the process's exit, even if processes that it started hold its pipes open.

    A message that it wrote before its exit is still received.
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
