"""Jobs by exec, for a container that cannot store job records, or for a user that only the engine can switch to.

Each command is a separate exec, and its output is stored in this process, not on the target: the job ends with the
harness process, and no other process can access it. Every result says so.

The shell reads its order from the first line of its input, so that the environment and the command do not appear in
process lists, and the command may be longer than an argument.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

import anyio

from harness.backend import Jobs
from harness.command import Command
from harness.errors import (
    ConnectionLost,
    FileError,
    JobNotFound,
    UnsupportedOperation,
)
from harness.results import Job, JobOutput, ShellResult, Status
from harness.system.account import owner_name
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import wait_within

from ..posix.jobs.launch import MISSING, cwd_error, signal_name
from ..posix.jobs.output import HeadTail, StoredOutput, cut_kept, with_output
from ..posix.jobs.standard_input import pieces
from ..posix.jobs.termination import ended_on_error
from ..posix.supervised_process import ENDED, ENDED_BEFORE, ENDING, SupervisedProcess
from .transport import ContainerTransport

__all__ = ["NOT_KEPT", "ExecJobs", "order_line"]

NOT_KEPT = "the job's output is stored in this harness process, not on the target; the job ends with it"
SURVIVED = "the command was killed, but some of its processes may still be running"
MAX_OUTPUT_BYTES = 8 << 20
"""Bytes of each stream of a job that are stored: head and tail."""
MAX_JOBS = 200
STREAM_CLOSE_TIMEOUT = 2.0
"""Seconds that child processes may keep the streams open after the command's exit."""

_START = 'hx_nl="\n"; IFS= read -r hx_line; eval "$hx_line"; unset hx_nl hx_line; eval "$hx_cmd"'
_CHECK_DIRECTORY = 'cd -- "$1" >/dev/null 2>&1 || { [ -e "$1" ] || exit 97; [ -d "$1" ] || exit 98; exit 99; }'


def order_line(command: Command, job_id: str) -> bytes:
    """Return the order that makes the shell run a command."""
    words = [f"export {name}={shlex.quote(value)}" for name, value in (*command.env, ("HARNESS_JOB", job_id))]
    if command.cwd:
        words.append(f"CDPATH= cd -- {shlex.quote(command.cwd)}")
    words.append(f"hx_cmd={shlex.quote(command.command)}")
    text = "; ".join(words).replace("\n", "'\"$hx_nl\"'")  # a newline is always between single quotes here
    return text.encode("utf-8", "surrogateescape") + b"\n"


@dataclass(slots=True)
class _ExecJob:
    """The state of one exec job."""

    job_id: str
    command: Command
    process: SupervisedProcess
    started: float = field(default_factory=time.time)
    ended: float | None = None
    status: Status = Status.RUNNING
    exit_code: int | None = None
    stdout: HeadTail = field(default_factory=lambda: HeadTail(MAX_OUTPUT_BYTES))
    stderr: HeadTail = field(default_factory=lambda: HeadTail(MAX_OUTPUT_BYTES))
    ending: Status | None = None
    """The final status once the job is being terminated, if it is proved that no process of it is left."""
    is_gone: bool = False
    """True once that is proved."""
    killing: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while the job is being terminated; it ends afterwards."""
    error: Exception | None = None
    """The exception of a caller's callback."""
    done: anyio.Event = field(default_factory=anyio.Event)
    more: anyio.Event = field(default_factory=anyio.Event)


class ExecJobs(Jobs):
    """Jobs by exec only; their ids start with ``d`` and are valid in this process only."""

    def __init__(self, transport: ContainerTransport, tasks: BackgroundTasks) -> None:
        self._transport = transport
        self._tasks = tasks
        self._jobs: dict[str, _ExecJob] = {}
        self._count = 0
        self._owner = owner_name()

    async def run(self, command: Command) -> ShellResult:
        transport = self._transport if command.user is None else self._transport.as_user(command.user)
        if command.cwd:
            await self._check_directory(transport, command.cwd)
        self._count += 1
        job_id = f"d{self._count}"
        process = await transport.open_process(["sh", "-c", _START, "sh"])
        job = self._jobs[job_id] = _ExecJob(job_id, command, process)
        command.announce(job_id)
        self._forget_old()
        self._tasks.start_soon(self._drive, job)
        self._tasks.start_soon(self._feed, job, order_line(command, job_id))
        if not command.wait:
            return self._result(job, command.max_output)
        return await self._finish(job)

    async def _check_directory(self, transport: ContainerTransport, cwd: str) -> None:
        async with await transport.open_process(["sh", "-c", _CHECK_DIRECTORY, "sh", cwd]) as process:
            code = await process.wait()
        if code in (97, 98, 99):
            raise cwd_error(code - 97 + MISSING, cwd, transport.target)

    def _forget_old(self) -> None:
        ended = [job_id for job_id, job in self._jobs.items() if job.done.is_set()]
        for job_id in ended[: max(0, len(self._jobs) - MAX_JOBS)]:
            del self._jobs[job_id]

    # -- one job

    async def _feed(self, job: _ExecJob, order: bytes) -> None:
        try:
            await job.process.send(order)
            async with aclosing(pieces(job.command.stdin or b"")) as chunks:
                async for data in chunks:
                    await job.process.send(data)
            await job.process.send_eof()
        except BrokenPipeError:
            return  # it exited without reading; its status gives the reason
        except FileError as error:  # the command must not take a read error for the end of its input
            job.error = error
            await self._kill(job, Status.INTERRUPTED)

    async def _drive(self, job: _ExecJob) -> None:
        """Collect the streams and wait for the exit; then close the process even if its streams are still open."""
        async with job.process, anyio.create_task_group() as tasks:
            out, err = anyio.Event(), anyio.Event()
            tasks.start_soon(self._collect, job, job.process.receive, job.stdout, job.command.on_output, out)
            errors = job.command.on_stderr or job.command.on_output
            tasks.start_soon(self._collect, job, job.process.receive_stderr, job.stderr, errors, err)
            try:
                job.exit_code = await job.process.wait()
                job.status = Status.COMPLETED
            except ConnectionLost:
                job.status = Status.UNKNOWN
            for end in (out, err):
                await wait_within(STREAM_CLOSE_TIMEOUT, end.wait)
            tasks.cancel_scope.cancel()
        async with job.killing:  # the exit of the shell does not prove that of the processes that it started
            self._end(job)

    def _end(self, job: _ExecJob) -> None:
        if job.ending is not None:
            job.status = job.ending if job.is_gone else Status.UNKNOWN
            job.exit_code = job.exit_code if job.status is Status.INTERRUPTED else None
        job.ended = time.time()
        job.done.set()
        job.more.set()

    async def _collect(
        self,
        job: _ExecJob,
        receive: Callable[[], Awaitable[bytes]],
        kept: HeadTail,
        callback: Callable[[bytes], None] | None,
        end: anyio.Event,
    ) -> None:
        while data := await receive():
            kept.feed(data)
            more, job.more = job.more, anyio.Event()
            more.set()
            if callback is not None and job.error is None:
                self._report(job, callback, data)
        end.set()

    def _report(self, job: _ExecJob, callback: Callable[[bytes], None], data: bytes) -> None:
        try:
            callback(data)
        except Exception as error:  # raised again where the caller waits
            job.error = error
            self._tasks.start_soon(self._kill, job, Status.INTERRUPTED)

    async def _finish(self, job: _ExecJob) -> ShellResult:
        command = job.command
        async with ended_on_error(partial(self._kill, job, Status.INTERRUPTED)):
            with anyio.move_on_after(command.timeout):
                await job.done.wait()
            if not job.done.is_set() and command.on_timeout == "kill":
                await self._kill(job, Status.TIMED_OUT)
        if job.error is not None:
            raise job.error
        return self._result(job, command.max_output)

    async def _kill(self, job: _ExecJob, why: Status, *ladder: tuple[str, float]) -> None:
        """End its process group, and what descends from it, unless the command has ended."""
        ended_before = False
        async with job.killing:
            if not job.done.is_set():
                known, job.ending = job.ending, job.ending or (why if job.status is Status.RUNNING else None)
                code = await job.process.end((*ladder, *ENDING), tree=True)
                job.is_gone = code == ENDED
                ended_before = code == ENDED_BEFORE and known is None
                if ended_before:  # its status is on the way, possibly after output that a slow callback receives
                    job.ending = None
        if ended_before:
            await self._until_quiet(job)
        await job.process.aclose()
        await job.done.wait()

    async def _until_quiet(self, job: _ExecJob) -> None:
        """Wait until the job has ended, or none of its output has arrived for some time."""
        while not job.done.is_set():
            if not await wait_within(STREAM_CLOSE_TIMEOUT, job.more.wait):
                return

    def _result(self, job: _ExecJob, limit: int) -> ShellResult:
        result = ShellResult(
            command=job.command.command,
            status=job.status,
            exit_code=job.exit_code,
            duration=(job.ended or time.time()) - job.started,
            cwd=job.command.cwd,
            job_id=job.job_id,
            notices=(NOT_KEPT, *((SURVIVED,) if job.status is Status.UNKNOWN and job.ending is not None else ())),
        )
        return with_output(
            result, StoredOutput(*(cut_kept(stream.kept(), limit) for stream in (job.stdout, job.stderr)))
        )

    # -- by id

    def knows(self, job_id: str) -> bool:
        """Return True for a job of this process."""
        return job_id in self._jobs

    def _find(self, job_id: str) -> _ExecJob:
        if job_id not in self._jobs:
            raise JobNotFound(f"no job {job_id}", target=self._transport.target, hint=NOT_KEPT)
        return self._jobs[job_id]

    async def list(self) -> list[Job]:
        return [self._job(job) for job in self._jobs.values()]

    async def get(self, job_id: str) -> Job:
        return self._job(self._find(job_id))

    def _job(self, job: _ExecJob) -> Job:
        return Job(
            job_id=job.job_id,
            command=job.command.command,
            status=job.status,
            exit_code=job.exit_code,
            started=job.started,
            ended=job.ended,
            owner=self._owner,
            cwd=job.command.cwd,
            helper=job.command.helper,
        )

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        job = self._find(job_id)
        with anyio.move_on_after(timeout):
            await job.done.wait()
        return self._result(job, max_output)

    async def read(self, job_id: str, stdout: int, stderr: int, limit: int, wait: float) -> JobOutput:
        job = self._find(job_id)
        with anyio.move_on_after(wait):
            while not (job.done.is_set() or job.stdout.size > stdout or job.stderr.size > stderr):
                await job.more.wait()
        starts = ((job.stdout, stdout), (job.stderr, stderr))
        return JobOutput(self._job(job), *(stream.part(start, limit) for stream, start in starts))

    async def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        job = self._find(job_id)
        while True:
            more, done = job.more, job.done.is_set()
            kept = job.stdout.kept()
            if kept.omitted and offset < kept.size:
                raise UnsupportedOperation(
                    f"the output of job {job_id} exceeds what this process stores",
                    target=self._transport.target,
                    hint=NOT_KEPT,
                )
            if data := kept.data[offset:]:
                offset += len(data)
                yield data
            elif done:
                break
            else:
                await more.wait()
        if rest := job.stderr.kept().data[offset - job.stdout.kept().size :]:
            yield rest

    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        job = self._find(job_id)
        name = signal_name(signal)
        await self._kill(job, Status.INTERRUPTED, (name, grace))
        return self._job(job)

    async def clean(self) -> int:
        ended = [job_id for job_id, job in self._jobs.items() if job.done.is_set()]
        for job_id in ended:
            del self._jobs[job_id]
        return len(ended)
