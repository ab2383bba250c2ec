"""``rsync`` of this machine and of a target, over the connection that harness has to the target.

``rsync`` starts a program to reach the other side. It is given a small one (:mod:`..system.program_socket`) that passes
its pipes and its arguments to this process, which starts them on the target. So there is no second login, every kind of
target is reached, and no shell reads the arguments.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import anyio
from anyio.abc import UNIXSocketStream

from ..context import ExecutionContext, backend_of
from ..errors import ConnectError, ConnectionLost, HarnessError, UnsupportedOperation
from ..system.child_process import start_child
from ..system.descriptor_stream import DescriptorStream
from ..system.program_socket import cancel_when_closed, read_words, serve_program
from ..transport import Process, Transport

__all__ = ["RsyncRun", "check_rsync", "path_for_rsync", "run_rsync"]

HOST = "target"
"""The name of the target in the arguments of rsync."""
MAX_REQUEST_BYTES = 4 << 20
CHUNK = 256 << 10
FAILED = 255
"""The exit code of the program for a lost connection, as that of ssh."""
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
    service = _Service(backend_of(context).transport, run)
    async with serve_program("rsync", PROGRAM, service.answer) as program:
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


# -- the service behind the program that rsync starts


class _Service:
    """Starts what comes through the socket, and connects it with the pipes that come with it."""

    def __init__(self, transport: Transport, run: RsyncRun) -> None:
        self._transport = transport
        self._run = run
        self.lost: HarnessError | None = None
        self.received = 0
        """Bytes that came from the target."""

    async def answer(self, connection: UNIXSocketStream) -> None:
        """Serve one program; it ends on the target when its program here does."""
        pipes: list[DescriptorStream] = []
        try:
            request, descriptors = await connection.receive_fds(CHUNK, 2)
            pipes = [DescriptorStream(number) for number in descriptors]
            words = await read_words(connection, MAX_REQUEST_BYTES, request)
            code = FAILED
            async with cancel_when_closed(connection):
                code = await self._serve(words, pipes)
            await connection.send(b"%d\n" % code)
        except ValueError as error:
            self._run.errors(f"rsync: {error}\n".encode())
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
