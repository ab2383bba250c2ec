"""Commands with a key: on one target, a key has one job, however many processes ask for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import anyio

from .backend import Jobs, NotStarted, Reservation
from .command import Command, check_text
from .errors import ConnectionLost, JobNotFound, KeyInUse, UnsupportedOperation
from .results import Job, JobOutput, ShellResult, Status
from .target import Target

__all__ = ["MAX_KEY_BYTES", "check_key", "is_same_command", "run_once"]

MAX_KEY_BYTES = 200
ATTEMPTS = 20
"""How often a job that did not start after all is replaced; each time another process has interfered."""
LONG = 100_000
"""Characters of a command beyond which a target may return only its beginning."""
PATIENCE, STEP = 2.0, 0.1
"""Seconds that another call with the key has to start its command, and between two looks."""
AT_ONCE = 0.001
"""Seconds to wait for the result of a job that the caller does not wait for."""


class StoredJobs(Protocol):
    """What this module needs of an ``ExecutionContext``."""

    @property
    def target(self) -> Target: ...

    async def job(self, job_id: str) -> Job: ...

    async def wait(self, job_id: str, *, timeout: float, max_output: int) -> ShellResult: ...

    async def read_job(self, job_id: str, *, stdout: int, stderr: int, wait: float) -> JobOutput: ...


def check_key(key: str) -> str:
    """Return the key if it is valid.

    Raises:
        ValueError: It is empty or too long, or contains a NUL.
    """
    if not 0 < len(check_text(key, "key").encode("utf-8", "surrogateescape")) <= MAX_KEY_BYTES:
        raise ValueError(f"a key must have 1 to {MAX_KEY_BYTES} bytes")
    return key


async def run_once(
    context: StoredJobs, jobs: Jobs, run: Callable[[Command], Awaitable[ShellResult]], command: Command
) -> ShellResult:
    """Run a command with a key, or return the result of the job that was started with this key before.

    Args:
        context: The context of the caller, for the job of an earlier call.
        jobs: The target's jobs.
        run: Runs a command whose job ID is reserved.
        command: The command, with its ``key``.

    Raises:
        KeyInUse: The key was used for another command.
        UnsupportedOperation: The target cannot store keys.
    """
    assert command.key is not None
    for _ in range(ATTEMPTS):
        reserved = await _reserve(jobs, command.key)
        try:
            if reserved.state == "started":
                return await _result_of(context, reserved.job_id, command)
            return await run(replace(command, job_id=reserved.job_id))
        except (NotStarted, JobNotFound):
            continue
    raise ConnectionLost(
        f"the command with the key {command.key!r} did not start: other processes withdrew it {ATTEMPTS} times",
        hint="check whether other programs remove files in harness's state directory on the target",
    )


async def _reserve(jobs: Jobs, key: str) -> Reservation:
    """Reserve the key; give a pending call some time to start, and withdraw it if it does not."""
    waited, withdraw = 0.0, ""
    while True:
        reserved = await jobs.reserve(key, withdraw if waited >= PATIENCE else None)
        if reserved.state != "pending":
            return reserved
        if reserved.job_id != withdraw:
            waited, withdraw = 0.0, reserved.job_id
        await anyio.sleep(STEP)  # the other process cannot signal it
        waited += STEP


async def _result_of(context: StoredJobs, job_id: str, command: Command) -> ShellResult:
    """Wait for the job of an earlier call, within the time limit of this one."""
    job = await context.job(job_id)
    if not is_same_command(job.command, command.command):
        raise KeyInUse(
            f"the key {command.key!r} was used for another command, by job {job_id}, so nothing ran",
            target=context.target,
            hint="use a new key for a new command",
        )
    command.announce(job_id)
    limit = command.timeout if command.wait else AT_ONCE
    began = anyio.current_time()
    if command.on_output is not None and command.wait:
        await _pass_on(context, job_id, command, limit)
    rest = max(AT_ONCE, limit - (anyio.current_time() - began))
    result = await context.wait(job_id, timeout=rest, max_output=command.max_output)
    return replace(result, notices=(*result.notices, f"this is job {job_id}, which an earlier call started"))


def is_same_command(stored: str, given: str) -> bool:
    """Return whether a job's command is the given one, as far as the target returned it."""
    stored, given = stored.rstrip("\n"), given.rstrip("\n")
    return stored == given or (len(stored) > LONG and given.startswith(stored))


async def _pass_on(context: StoredJobs, job_id: str, command: Command, limit: float) -> None:
    """Pass the job's output to the callbacks, from its beginning, until it ends or the time is up."""
    assert command.on_output is not None
    on_stderr = command.on_stderr or command.on_output
    until = anyio.current_time() + limit
    out = err = 0
    while True:
        left = max(0.0, until - anyio.current_time())
        try:
            part = await context.read_job(job_id, stdout=out, stderr=err, wait=left)
        except UnsupportedOperation:
            return  # the output is stored where it cannot be read from here; the result says so
        for callback, stream in ((command.on_output, part.stdout), (on_stderr, part.stderr)):
            if stream.data:
                callback(stream.data)
        out, err = part.stdout.end, part.stderr.end
        if not left or not (part.stdout.data or part.stderr.data or part.job.status is Status.RUNNING):
            return
