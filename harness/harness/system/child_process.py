"""Programs of this machine, each in a session of its own: their pipes, and the end of their process group."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from subprocess import DEVNULL
from typing import NamedTuple

import anyio
from anyio.abc import Process

from .descriptor_stream import DescriptorStream, open_pipe

__all__ = ["ChildProcess", "ProgramOutput", "run_program", "start_child"]

logger = logging.getLogger(__name__)


# -- A process, and its end.


class ChildProcess:
    """A process in its own session; its pipes can be closed while a process that it started holds the other ends."""

    def __init__(self, process: Process, pipes: Sequence[DescriptorStream], files: ExitStack) -> None:
        self._process = process
        self._files = files
        self._ended = False
        self.stdin, self.stdout, self.stderr = pipes

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its process group and session."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its return code; None while it is running, negative for a signal."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait for its exit and return its return code, even if other processes still hold its pipes."""
        return await self._process.wait()

    def signal_group(self, number: int) -> None:
        """Send a signal to all processes of its group that this user may signal."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def end(
        self, *, close_grace: float = 0.0, term_grace: float, kill_grace: float, kills_group: bool = False
    ) -> None:
        """End the process and close its pipes. Bounded, never cancelled.

        Args:
            close_grace: Seconds to wait after its input is closed.
            term_grace: Seconds to wait after SIGTERM.
            kill_grace: Seconds to wait after SIGKILL.
            kills_group: Whether to kill also what it left running in its process group.
        """
        if self._ended:  # the id of its group may have been reused
            return
        with anyio.CancelScope(shield=True):
            self.stdin.close()
            if close_grace:
                await self._exited_within(close_grace)
            if self.returncode is None:
                self.signal_group(signal.SIGTERM)
                await self._exited_within(term_grace)
            if self.returncode is None or kills_group:
                self.signal_group(signal.SIGKILL)
                await self._exited_within(kill_grace)
        self._ended = True
        self.close_pipes()

    async def _exited_within(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.wait()

    def close_pipes(self) -> None:
        """Close this process's ends of its pipes."""
        self._files.close()


async def start_child(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    has_input: bool = True,
    pass_fds: Sequence[int] = (),
) -> ChildProcess:
    """Start a process with three pipes; the caller ends it.

    Args:
        argv: The program and its arguments.
        env: Its complete environment; None inherits this process's.
        cwd: Its directory.
        has_input: Whether its standard input is a pipe, not empty.
        pass_fds: Further descriptors that it inherits.

    Raises:
        OSError: It could not be started.
        ValueError: An argument contains NUL.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        pipes = [open_pipe(ours, theirs, reading=reading) for reading in (False, True, True)]
        stdin, stdout, stderr = (child for _, child in pipes)
        with anyio.CancelScope(shield=True):  # a cancel in between would leak a started process
            process = await anyio.open_process(
                list(argv),
                stdin=stdin if has_input else DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        return ChildProcess(process, [pipe for pipe, _ in pipes], ours.pop_all())


# -- A program that runs to its end, such as a hook or a key command of the operator.


OUTPUT_GRACE = 0.25
"""Seconds that output may continue after the program has exited: a process that it started may keep the pipe open."""
KILL_GRACE = 2.0
"""Seconds that killed processes may take to exit."""


class ProgramOutput(NamedTuple):
    """How a program ended: ``code`` is negative for a signal, None if it was killed here.

    Each output is at most one byte longer than its limit.
    """

    code: int | None
    stdout: bytes
    stderr: bytes


@dataclass(slots=True)
class _Output:
    """One output: what was read, up to one byte more than the limit."""

    stream: DescriptorStream
    limit: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def is_over_limit(self) -> bool:
        return len(self.data) > self.limit

    async def read(self) -> None:
        """Read to the end; drop what exceeds the limit."""
        while chunk := await self.stream.read():
            self._keep(chunk)

    async def read_until_over_limit(self, scope: anyio.CancelScope) -> None:
        """Read to the end, but cancel a scope once the limit is exceeded."""
        while not self.is_over_limit and (chunk := await self.stream.read()):
            self._keep(chunk)
        if self.is_over_limit:
            scope.cancel()

    def read_rest(self) -> bytes:
        """Return everything received, including what has not been read yet."""
        while not self.is_over_limit and (chunk := self.stream.read_available()):
            self._keep(chunk)
        return bytes(self.data)

    def _keep(self, chunk: bytes) -> None:
        self.data += chunk[: self.limit + 1 - len(self.data)]


async def run_program(
    argv: Sequence[str],
    *,
    data: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float,
    stdout_limit: int,
    stderr_limit: int,
    kills_over_limit: bool = False,
    kills_group: bool = False,
) -> ProgramOutput:
    """Run a program in its own session, without harness's terminal; it has ended before this returns or raises.

    Args:
        argv: The program and its arguments.
        data: Its standard input; None is empty.
        env: Its complete environment; None inherits this process's.
        timeout: Seconds after which the program and its process group are killed.
        stdout_limit: Maximum bytes of its output; more are dropped.
        stderr_limit: Maximum bytes of its error output; more are dropped.
        kills_over_limit: Whether more output than ``stdout_limit`` kills it.
        kills_group: Whether what it leaves running in its process group is killed, too.

    Raises:
        OSError: It could not be started.
        ValueError: An argument contains NUL.
    """
    code: int | None = None
    with ExitStack() as files, ExitStack() as theirs:
        life, held = open_pipe(files, theirs, reading=True)  # without data: it ends when all processes have exited
        child = await start_child(argv, env=env, has_input=data is not None, pass_fds=(held,) if kills_group else ())
        files.callback(child.close_pipes)
        theirs.close()
        stdout, stderr = _Output(child.stdout, stdout_limit), _Output(child.stderr, stderr_limit)
        try:
            with anyio.move_on_after(timeout):
                async with anyio.create_task_group() as tasks:
                    if kills_over_limit:
                        tasks.start_soon(stdout.read_until_over_limit, tasks.cancel_scope)
                    else:
                        tasks.start_soon(stdout.read)
                    tasks.start_soon(stderr.read)
                    tasks.start_soon(_send, child.stdin, data or b"")
                    code = await child.wait()
                    tasks.cancel_scope.deadline = anyio.current_time() + OUTPUT_GRACE
        finally:
            await _kill(child, life, argv[0], kills_group=kills_group)
        return ProgramOutput(code, stdout.read_rest(), stderr.read_rest())


async def _send(stdin: DescriptorStream, data: bytes) -> None:
    with suppress(BrokenPipeError):  # it does not read its input
        await stdin.write(data)
    stdin.close()


async def _kill(child: ChildProcess, life: DescriptorStream, name: str, *, kills_group: bool) -> None:
    """Kill the program if it runs, or its group, and wait for the end."""
    if child.returncode is None or kills_group:
        child.signal_group(signal.SIGKILL)
    with anyio.move_on_after(KILL_GRACE, shield=True) as scope:
        await child.wait()
        while await life.read():
            pass
    if scope.cancelled_caught:
        logger.warning("%s left a process running outside of its process group (process id: %d)", name, child.pid)
