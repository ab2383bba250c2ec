"""A scripted backend in memory, for tests of what is built on harness: no process, no network, no clock.

>>> backend = MemoryBackend({"uptime": Reply("up 3 days\\n"), "false": Reply(exit_code=1)})
>>> ctx = memory_context(backend)  # an ExecutionContext like any other, without a terminal

Files are a tree in memory. ``backend.received`` holds every command that was run, in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from ..backend import Backend, Capabilities, Jobs
from ..command import Command
from ..config import Config
from ..context import ExecutionContext
from ..errors import JobNotFound, UnsupportedOperation
from ..results import Job, ShellResult, Status
from ..target import Hop, Target
from ..terminal import Terminal
from ..transport import Process, Transport
from ._memory_files import MemoryFiles

__all__ = ["MemoryBackend", "Reply", "memory_context"]

HOME = "/home/user"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a scripted command does. ``exit_code`` counts when the status is one that has a code."""

    stdout: str | bytes = b""
    stderr: str | bytes = b""
    exit_code: int = 0
    status: Status = Status.COMPLETED


Script = Mapping[str, Reply] | Callable[[Command], Reply]
NOT_SCRIPTED = Reply(stderr="sh: not in the script of this test\n", exit_code=127)


class MemoryBackend(Backend):
    """A target that does what its script says. Commands that are not in it end with code 127.

    Args:
        script: replies by command text, or a function that gives the reply to a command.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.target = Target((Hop("memory", "here"),))
        self.transport = _NoTransport(self.target)
        self.capabilities = Capabilities(user="user", uid=1000, home=HOME, shell="/bin/sh", system="memory")
        self.files = MemoryFiles(HOME)
        self.received: list[Command] = []
        self.jobs = _MemoryJobs(self.target, self._reply)
        self._script = script or {}

    def _reply(self, command: Command) -> Reply:
        self.received.append(command)
        if callable(self._script):
            return self._script(command)
        return self._script.get(command.command, NOT_SCRIPTED)

    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        raise UnsupportedOperation("a backend in memory has no terminal", target=self.target, hint="use tmux=False")


def memory_context(backend: MemoryBackend) -> ExecutionContext:
    """A context on the backend; it needs no closing."""
    return ExecutionContext(backend, None, Config())


class _MemoryJobs(Jobs):
    """Jobs that end at once. One that was not waited for is reported as running by ``run``, and has ended after it."""

    def __init__(self, target: Target, reply: Callable[[Command], Reply]) -> None:
        self._target = target
        self._reply = reply
        self._results: dict[str, ShellResult] = {}
        self._helpers: set[str] = set()

    async def run(self, command: Command) -> ShellResult:
        reply = self._reply(command)
        job_id = str(len(self._results) + 1)
        stdout, stderr = _bytes(reply.stdout), _bytes(reply.stderr)
        ended = reply.status in (Status.COMPLETED, Status.SHELL_EXITED)
        result = ShellResult(
            command.command, reply.status, reply.exit_code if ended else None, stdout, stderr, job_id=job_id
        )
        self._results[job_id] = result
        if command.helper:
            self._helpers.add(job_id)
        if not command.wait:
            return replace(result, status=Status.RUNNING, exit_code=None, stdout_bytes=b"", stderr_bytes=b"")
        if command.on_output is not None and stdout:
            command.on_output(stdout)
        return _cut(result, command.max_output)

    async def list(self) -> list[Job]:
        return [self._job(job_id) for job_id in self._results]

    async def get(self, job_id: str) -> Job:
        return self._job(job_id)

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        return _cut(self._find(job_id), max_output)

    async def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        result = self._find(job_id)
        rest = (result.stdout_bytes + result.stderr_bytes)[offset:]
        if rest:
            yield rest

    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        result = self._find(job_id)
        if result.status is Status.RUNNING:
            self._results[job_id] = replace(result, status=Status.INTERRUPTED)
        return self._job(job_id)

    async def clean(self) -> int:
        return 0

    def _job(self, job_id: str) -> Job:
        found = self._find(job_id)
        return Job(job_id, found.command, found.status, found.exit_code, helper=job_id in self._helpers)

    def _find(self, job_id: str) -> ShellResult:
        if job_id not in self._results:
            raise JobNotFound(f"no job {job_id!r}", target=self._target)
        return self._results[job_id]


class _NoTransport(Transport):
    """There are no processes in memory."""

    def __init__(self, target: Target) -> None:
        self.target = target

    async def open_process(self, argv: Sequence[str]) -> Process:
        raise UnsupportedOperation("a backend in memory starts no processes", target=self.target)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def describe(self) -> str:
        return "memory"


def _bytes(output: str | bytes) -> bytes:
    return output.encode("utf-8", "surrogateescape") if isinstance(output, str) else output


def _cut(result: ShellResult, max_output: int) -> ShellResult:
    """Head and tail of the output, as a target returns them."""
    data = result.stdout_bytes
    if len(data) <= max_output:
        return result
    head, tail = max_output - max_output // 2, max_output // 2
    kept = data[:head] + (data[-tail:] if tail else b"")
    return replace(result, stdout_bytes=kept, truncated=len(data) - len(kept))
