"""``rsync`` of this machine and of a target, over the connection that harness has to the target.

``rsync`` starts a program to reach the other side. It is given a small one that passes its pipes and its arguments
through a Unix socket to this process, which starts them on the target. So there is no second login, every kind of
target is reached, and no shell reads the arguments. The socket is in a private directory that only this user can enter.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import anyio
from anyio import to_thread
from anyio.abc import SocketStream, UNIXSocketStream

from ..context import ExecutionContext, backend_of
from ..errors import ConnectError, ConnectionLost, HarnessError, UnsupportedOperation
from ..system.background_tasks import open_background_tasks
from ..system.child_process import start_child
from ..system.descriptor_stream import DescriptorStream
from ..transport import Process, Transport

__all__ = ["RsyncRun", "check_rsync", "path_for_rsync", "run_rsync"]

HOST = "target"
"""The name of the target in the arguments of rsync."""
MAX_REQUEST_BYTES = 4 << 20
CHUNK = 256 << 10
FAILED = 255
"""The exit code of the program for a lost connection, as that of ssh."""
MAX_PARENT_BYTES = 70
END_GRACE = 5.0
MAX_PAUSE = 10.0

PROGRAM = """\
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(sys.argv[1])
    request = json.dumps(sys.argv[3:]).encode() + b"\\n"
    sent = socket.send_fds(connection, [request], [0, 1])
    connection.sendall(request[sent:])
    code = int(connection.makefile("rb").readline())
except (OSError, ValueError) as error:
    sys.exit(f"the connection of harness is closed: {error}")
sys.exit(code)
"""
"""The program that rsync starts instead of ``ssh``; its first argument after the socket is the name of the host."""


async def check_rsync(context: ExecutionContext) -> None:
    """Check that both sides have rsync.

    Raises:
        UnsupportedOperation: One has not; the hint is the remedy.
    """
    advice = "install it, or copy with 'harness cp -r'"
    if shutil.which("rsync") is None:
        raise UnsupportedOperation("rsync is not installed", target="this machine", hint=advice)
    if not (await context.run_helper("command -v rsync")).ok:
        raise UnsupportedOperation("rsync is not installed", target=context.target, hint=advice)


def path_for_rsync(path: str, home: str) -> str:
    """Return a path on the target as rsync takes it.

    Args:
        path: The path; a relative one starts at the login's home directory, as everywhere in harness.
        home: The home directory.

    Raises:
        ValueError: It starts with ``~user``, which no shell replaces here.
    """
    if path.startswith("~") and path != "~" and not path.startswith("~/"):
        raise ValueError(f"{path!r}: write the whole path, or ./{path} for a file with that name")
    if path.startswith("/"):
        return f"{HOST}:{path}"
    return f"{HOST}:{(home or '.').rstrip('/')}/{path.removeprefix('~').lstrip('/')}"


@dataclass(frozen=True, slots=True)
class RsyncRun:
    """What takes the output of rsync."""

    output: Callable[[bytes], None]
    """Takes standard output."""
    errors: Callable[[bytes], None]
    """Takes standard error, of this machine and of the target."""
    reconnecting: Callable[[HarnessError], None]
    """Takes a lost connection, after which rsync runs again."""


async def run_rsync(
    context: ExecutionContext, options: Sequence[str], paths: Sequence[str], run: RsyncRun, *, reconnect: float
) -> int:
    """Run rsync and return its exit code; after a lost connection, run it again.

    Args:
        context: The target.
        options: Options of rsync.
        paths: The sources and the destination; those on the target as :func:`path_for_rsync` returns them.
        run: Receives output.
        reconnect: Seconds to try to reconnect after a lost connection.

    Raises:
        ConnectionLost: The connection does not come back.
    """
    pause, started = 0.5, monotonic()
    async with _remote_shell(backend_of(context).transport, run) as (program, service):
        # --protect-args: rsync before 3.2.6 has no --secluded-args, and newer ones have both
        argv = ["rsync", *options, "--protect-args", f"--rsh={shlex.quote(program)}", "--", *paths]
        while True:
            service.lost, before = None, service.received
            code = await _run_once(argv, run)
            if code == 0 or service.lost is None:
                return code
            if service.received > before:
                pause, started = 0.5, monotonic()
            if monotonic() + pause > started + reconnect:
                raise service.lost
            run.reconnecting(service.lost)
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)


async def _run_once(argv: Sequence[str], run: RsyncRun) -> int:
    child = await start_child(argv, has_input=False)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_all, child.stdout.read, run.output)
            tasks.start_soon(_read_all, child.stderr.read, run.errors)
        return await child.wait()
    finally:
        await child.end(term_grace=END_GRACE, kill_grace=END_GRACE, kills_group=True)


# -- the program that rsync starts, and the service behind it


@asynccontextmanager
async def _remote_shell(transport: Transport, run: RsyncRun) -> AsyncIterator[tuple[str, _Service]]:
    """Serve a program that starts its arguments on the target while the context is open."""
    directory = Path(await to_thread.run_sync(_make_directory))
    service = _Service(transport, run)
    try:
        async with await anyio.create_unix_listener(directory / "s", mode=0o600) as listener:
            program = directory / "shell"
            words = [sys.executable, "-IS", "-c", PROGRAM, str(directory / "s")]
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o700)
            async with open_background_tasks() as tasks:
                tasks.start_soon(listener.serve, service.answer)
                yield str(program), service
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _make_directory() -> str:
    """Create a directory for a socket, whose path the kernel limits to 108 bytes, with mode 0700."""
    usual = tempfile.gettempdir()
    parent = usual if len(os.fsencode(usual)) < MAX_PARENT_BYTES else "/tmp"  # noqa: S108  # mkdtemp makes it private
    return tempfile.mkdtemp(prefix="harness-rsync-", dir=parent)


class _Service:
    """Starts what comes through the socket, and connects it with the pipes that come with it."""

    def __init__(self, transport: Transport, run: RsyncRun) -> None:
        self._transport = transport
        self._run = run
        self.lost: HarnessError | None = None
        self.received = 0
        """Bytes that came from the target."""

    async def answer(self, connection: SocketStream) -> None:
        """Serve one program; it ends on the target when its program here does."""
        assert isinstance(connection, UNIXSocketStream)
        pipes: list[DescriptorStream] = []
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
            async with connection:
                try:
                    request, descriptors = await connection.receive_fds(CHUNK, 2)
                    pipes = [DescriptorStream(number) for number in descriptors]
                    words = await _read_request(connection, request)
                    code = FAILED
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(_cancel_when_closed, connection, tasks.cancel_scope)
                        code = await self._serve(words, pipes)
                        tasks.cancel_scope.cancel()
                    await connection.send(b"%d\n" % code)
                finally:
                    for pipe in pipes:
                        pipe.close()

    async def _serve(self, words: list[str], pipes: Sequence[DescriptorStream]) -> int:
        try:
            if len(pipes) != 2:
                raise HarnessError("rsync passed no pipes")
            async with await self._transport.open_process(words) as process:
                return await self._relay(process, pipes[0], pipes[1])
        except (ConnectionLost, ConnectError) as error:
            self.lost = error
        except HarnessError as error:
            self._run.errors(f"{error}\n".encode())
        return FAILED

    async def _relay(self, process: Process, source: DescriptorStream, sink: DescriptorStream) -> int:
        has_reader = False
        errors_over = anyio.Event()

        async def read_errors() -> None:
            await _read_all(process.receive_stderr, self._run.errors)
            errors_over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_send_all, source, process)
            tasks.start_soon(read_errors)
            with suppress(BrokenPipeError):
                while data := await process.receive(CHUNK):
                    self.received += len(data)
                    await sink.write(data)
                has_reader = True
            sink.close()
            if has_reader:
                with anyio.move_on_after(END_GRACE):
                    await errors_over.wait()
            tasks.cancel_scope.cancel()
        return await process.wait() if has_reader else FAILED


async def _send_all(source: DescriptorStream, process: Process) -> None:
    with suppress(BrokenPipeError):
        while data := await source.read(CHUNK):
            await process.send(data)
        await process.send_eof()


async def _read_all(read: Callable[[], Awaitable[bytes]], take: Callable[[bytes], None]) -> None:
    while data := await read():
        take(data)


async def _read_request(connection: UNIXSocketStream, request: bytes) -> list[str]:
    """Return the words of a request, which is a line of JSON.

    Raises:
        HarnessError: It is not one.
    """
    while not request.endswith(b"\n"):
        if len(request) > MAX_REQUEST_BYTES:
            raise HarnessError("the arguments of rsync are too long")
        request += await connection.receive()
    return [str(word) for word in json.loads(request)]


async def _cancel_when_closed(connection: UNIXSocketStream, scope: anyio.CancelScope) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await connection.receive()
    scope.cancel()
