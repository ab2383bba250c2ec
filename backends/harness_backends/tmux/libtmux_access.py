"""libtmux on a target's tmux server: its unchanged objects, with a ``tmux`` program that runs on the target.

libtmux starts one ``tmux`` process per operation. Where tmux runs on another machine, libtmux is given a small program
as its ``tmux_bin`` (:mod:`harness.system.program_socket`): it passes its arguments to this process, which runs them
with the target's ``tmux``, and prints what that printed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from anyio.abc import UNIXSocketStream

from harness.errors import HarnessError, TerminalError, UnsupportedOperation
from harness.extras import install_extra
from harness.system.program_socket import cancel_when_closed, read_words, serve_program
from harness.transport import Transport

if TYPE_CHECKING:
    from .setup import Setup

__all__ = ["MAX_OUTPUT_BYTES", "MAX_REQUEST_BYTES", "open_libtmux"]

MAX_REQUEST_BYTES = 1 << 20
"""Maximum bytes of the arguments of one ``tmux`` command; tmux itself accepts 16 KiB."""
MAX_OUTPUT_BYTES = 64 << 20
"""Maximum bytes of one ``tmux`` command's output; a scrollback of 500,000 lines is smaller."""
MAX_RUNNING = 4
"""Maximum number of parallel commands, as each uses a channel of the connection."""

PROGRAM = """\
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps(sys.argv[2:]).encode() + b"\\n")
    reply = connection.makefile("rb")
    code, size = (int(word) for word in reply.readline().split())
except (OSError, ValueError) as error:
    sys.exit(f"the harness context is closed: {error}")
sys.stdout.buffer.write(reply.read(size))
sys.stderr.buffer.write(reply.read())
sys.stdout.flush()
sys.exit(code)
"""
"""The program that libtmux starts instead of ``tmux``.

The request is a line of JSON, and the connection stays open meanwhile; the reply is a line ``CODE SIZE``, SIZE bytes of
output, and the errors.
"""


@asynccontextmanager
async def open_libtmux(transport: Transport, setup: Setup, pane_id: str = "") -> AsyncIterator[Any]:
    """Open a ``libtmux.Session`` of the session in use, or a ``libtmux.Pane`` of one of its panes.

    Args:
        transport: the transport to the machine that tmux runs on.
        setup: the setup of the session.
        pane_id: tmux's id of a pane (``%3``); empty for the session.

    Raises:
        TerminalError: the session or the pane is closed.
        UnsupportedOperation: libtmux is not installed.
    """
    try:
        import libtmux
    except ImportError:
        hint = f"install it: {install_extra('libtmux')}"
        raise UnsupportedOperation("libtmux is not installed", target=transport.target, hint=hint) from None
    async with _tmux_program(transport) as program:
        server = libtmux.Server(socket_name=setup.config.tmux_socket, tmux_bin=program)
        try:
            found = await to_thread.run_sync(_find, server, setup, pane_id)
        except TerminalError as error:
            raise TerminalError(error.message, target=transport.target) from error
        yield found


def _find(server: Any, setup: Setup, pane_id: str) -> Any:
    """Find the session, or the pane, by the id that tmux gave it: names may change."""
    from libtmux.exc import LibTmuxException

    wanted = {"pane_id": pane_id} if pane_id else {"session_id": setup.session_id}
    try:
        found = (server.panes if pane_id else server.sessions).get(default=None, **wanted)
    except LibTmuxException as error:
        raise TerminalError(f"libtmux: {error}") from error
    if found is None:
        raise TerminalError(f"pane {pane_id} is closed" if pane_id else f"session {setup.name!r} is closed")
    return found


@asynccontextmanager
async def _tmux_program(transport: Transport) -> AsyncIterator[str | None]:
    """Serve a ``tmux`` program for another machine until the context exits; None if this machine's own is enough."""
    if transport.describe() == "local":
        yield None
        return
    async with serve_program("tmux", PROGRAM, _Service(transport).answer) as program:
        yield program


class _Service:
    """The server that runs the commands from the socket."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._running = anyio.Semaphore(MAX_RUNNING)

    async def answer(self, connection: UNIXSocketStream) -> None:
        """Run the one command of a connection; cancel it if the requesting program exits."""
        try:
            words = await read_words(connection, MAX_REQUEST_BYTES)
        except ValueError as error:
            await connection.send(b"1 0\n" + f"harness: {error}\n".encode())
            return
        async with cancel_when_closed(connection), self._running:
            await connection.send(await self._reply(words))

    async def _reply(self, words: list[str]) -> bytes:
        try:
            code, output, errors = await self._run(words)
        except HarnessError as error:
            code, output, errors = 1, b"", f"{error}\n".encode()
        except ValueError as error:
            code, output, errors = 1, b"", f"harness: {error}\n".encode()
        return b"%d %d\n" % (code, len(output)) + output + errors

    async def _run(self, words: list[str]) -> tuple[int, bytes, bytes]:
        async with await self._transport.open_process(["tmux", "-u", *words]) as process:
            await process.send_eof()
            errors = _Collector(process.receive_stderr)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(errors.run)
                output = _Collector(process.receive)
                await output.run()
            if output.is_full or errors.is_full:
                raise ValueError(f"tmux printed more than {MAX_OUTPUT_BYTES} bytes")
            return await process.wait(), bytes(output.data), bytes(errors.data)


class _Collector:
    """A reader of a stream to its end, or to the limit."""

    def __init__(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        self._receive = receive
        self.data = bytearray()

    @property
    def is_full(self) -> bool:
        """True if the limit was reached and the rest was not read."""
        return len(self.data) > MAX_OUTPUT_BYTES

    async def run(self) -> None:
        while not self.is_full and (data := await self._receive()):
            self.data += data
