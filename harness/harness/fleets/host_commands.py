"""What is asked of one host: to run a command, to wait for its job, or to end it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import anyio

from ..command import DEFAULT_MAX_OUTPUT, observe_jobs
from ..context import ExecutionContext
from ..errors import HarnessError, JobNotFound, KeyInUse
from ..keyed_commands import MAX_KEY_BYTES, is_same_command
from ..results import Job, ShellResult, Status
from .starting import HostNotStarted

__all__ = ["CommandCall", "HostCommand", "OnJob", "OnOutput", "RunCancelled", "host_key"]

CANCELLED = ": cancelled by harness fleet cancel"
"""The command that takes the key of a host that must not start any more."""
ANSWER_TIMEOUT = 2.0
"""Seconds for an interrupted host to report its result; an unresponsive one must not delay the end for long."""
NOTICE = "interrupted, but the end of the command is not confirmed; check it with: harness jobs show {}"
OnOutput = Callable[[str, bytes], None]
"""Called with a host's name and a chunk of its output."""
OnJob = Callable[[str, ExecutionContext, str], None]
"""Called with a host's name, its context and the ID of the job that its command is about to get."""


def host_key(token: str, host: str) -> str:
    """Return the key of a command on a host.

    Args:
        token: What no other command has.
        host: The host's name.
    """
    key = f"fleet/{token}/{host}"
    if len(key.encode("utf-8", "surrogateescape")) <= MAX_KEY_BYTES:
        return key
    return f"fleet/{token}/{sha256(host.encode('utf-8', 'surrogateescape')).hexdigest()}"


class RunCancelled(HarnessError):
    """The command of a run did not start on a host, and never will."""


@dataclass(frozen=True, slots=True)
class HostCommand:
    """A command of one host, and what is asked about it.

    ``options`` are further arguments of :meth:`ExecutionContext.run_shell`. With a ``key``, ``start`` runs the command
    or waits for the job that did, ``wait`` does not start it, and ``cancel`` ends it or lets it never start.
    """

    command: str
    key: str | None = None
    stdin: bytes | str | Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    action: Literal["start", "wait", "cancel"] = "start"

    @property
    def max_output(self) -> int:
        """The maximum number of bytes of output in the result."""
        return int(self.options.get("max_output", DEFAULT_MAX_OUTPUT))

    async def ask(
        self,
        context: ExecutionContext,
        *,
        on_output: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> ShellResult:
        """Return the result of the command on a host.

        Args:
            context: The host.
            on_output: As for :meth:`ExecutionContext.run_shell`, like ``on_stderr``.

        Raises:
            RunCancelled: The command was cancelled before it started.
            HostNotStarted: The host has no job to wait for.
        """
        if self.action == "cancel":
            return await self._cancel(context)
        if self.action == "wait" and await self._job(context) is None:
            raise HostNotStarted("not started: the host has no job of this run")
        try:
            return await context.run_shell(
                self.command,
                key=self.key,
                stdin=self.stdin,
                on_output=on_output,
                on_stderr=on_stderr,
                **self.options,
            )
        except KeyInUse:
            await self._check_cancelled(context)
            raise  # of another command: only a key that the user has chosen

    async def _job(self, context: ExecutionContext) -> Job | None:
        assert self.key is not None
        return await context.job_with_key(self.key)

    async def _check_cancelled(self, context: ExecutionContext) -> Job | None:
        """Return the job that has the key.

        Raises:
            RunCancelled: It is the one that keeps the command from starting.
        """
        job = await self._job(context)
        if job is not None and job.command == CANCELLED:
            raise RunCancelled("not started: the run was cancelled")
        return job

    async def _cancel(self, context: ExecutionContext) -> ShellResult:
        """End the job; if it has not started, it never will.

        Raises:
            RunCancelled: It had not started.
        """
        try:
            await context.run_shell(CANCELLED, key=self.key, tty=False)
        except KeyInUse:
            job = await self._check_cancelled(context)
            if job is None or not is_same_command(job.command, self.command):  # another command, which is not the run's
                raise
            if job.status is Status.RUNNING:
                await context.kill(job.job_id)
            return await context.wait(job.job_id, timeout=1.0)
        raise RunCancelled("not started: the run was cancelled")


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A call that asks each host for the result of a command.

    ``command_for`` returns what is asked of a host, by its name; ``on_output`` and ``on_stderr`` get the output, and
    ``on_job`` the job, where the command is started by this process.
    """

    command_for: Callable[[str], HostCommand]
    on_output: OnOutput | None = None
    on_stderr: OnOutput | None = None
    on_job: OnJob | None = None

    async def __call__(self, name: str, context: ExecutionContext) -> ShellResult:
        """Return the result of a host's command."""
        with nullcontext() if self.on_job is None else observe_jobs(partial(self.on_job, name, context)):
            return await self.command_for(name).ask(
                context,
                on_output=self.on_output and partial(self.on_output, name),
                on_stderr=self.on_stderr and partial(self.on_stderr, name),
            )

    async def result_of_interrupted(self, name: str, context: ExecutionContext, job_id: str | None) -> ShellResult:
        """Return the result so far of a host's command that was cancelled, as :func:`result_of_interrupted`."""
        asked = self.command_for(name)
        return await _result_of_interrupted(context, job_id, command=asked.command, max_output=asked.max_output)


async def _result_of_interrupted(
    context: ExecutionContext, job_id: str | None, *, command: str, max_output: int
) -> ShellResult:
    """Return the result so far of a command that was cancelled.

    Args:
        context: The host.
        job_id: The command's job; None if it was not sent.
        command: The command.
        max_output: Maximum bytes of the output.

    Returns:
        The result, mostly ``interrupted``; ``unknown`` if the host does not answer, ``running`` if it was not ended.

    Raises:
        HostNotStarted: The command was not sent.
    """
    found: ShellResult | None = None
    if job_id is None:
        raise HostNotStarted("not started: interrupted")
    try:
        with anyio.move_on_after(ANSWER_TIMEOUT):
            found = await context.wait(job_id, timeout=0, max_output=max_output)
    except JobNotFound:
        raise HostNotStarted("not started: interrupted") from None
    except HarnessError:
        pass
    return found or ShellResult(command, Status.UNKNOWN, job_id=job_id, notices=(NOTICE.format(job_id),))
