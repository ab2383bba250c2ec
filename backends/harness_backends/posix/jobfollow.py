"""Following a job's output live. A reader on the target waits for it; nothing is polled over the link."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial

import anyio

from harness.command import Command, LiveView, OutputCallback
from harness.errors import ConnectError, ConnectionLost, UnsupportedOperation
from harness.results import Status
from harness.target import Target
from harness.transport import Process, Transport

from ..local import LocalTransport
from . import joboutput, jobscript, jobshell
from .jobends import JobEnds
from .joboutput import HeadTail, Kept
from .jobtable import JobTable, KeptJob
from .jobview import VIEW_REST, ViewedStream
from .panelog import LAG, PaneLog, PaneOutput, late_bytes, read_log
from .shell import HeldShell, Reply, open_held_shell
from .state import JobRecord, JobStore, LogPlace, pane_uid

__all__ = ["CallbackError", "JobFollower", "callbacks_of"]

# hx_tail FILE FIRST: from that byte on, as it grows. On a slow machine it may be there before the file: the job is only
# being started. What tail says of it is no output of the job.
_TAIL = r"""
hx_tail() {
  hx_n=0
  until [ -e "$1" ] || [ "$hx_n" -ge 600 ]; do
    hx_n=$((hx_n + 1))
    sleep 0.1 || sleep 1
  done </dev/null >/dev/null 2>&1
  exec tail -c "+$2" -f -- "$1"
}
"""

# $1 and $2: files to follow, from bytes $3 and $4 on. Ends with its input, that is with the link. By KILL: mksh's own
# handler swallows a TERM that comes before the child has become tail, and a tail that is left holds the stream open.
_FOLLOW_BOTH = (
    _TAIL
    + r"""
hx_tail "$1" "$3" 2>/dev/null & a=$!
hx_tail "$2" "$4" >&2 2>/dev/null & b=$!
cat >/dev/null
exec 2>/dev/null
kill -KILL $a $b
"""
)

# $1 file, $2 first byte, $3 job, $4 state directory, $5 tmux socket, $6 pane.
# Ends by itself when the job has ended, or with its input.
_FOLLOW_JOB = (
    "hx_root=$4; hx_jobs=$4/jobs; hx_boot=; { read -r hx_boot </proc/sys/kernel/random/boot_id; } 2>/dev/null\n"
    + jobshell.WATCH
    + _TAIL
    + r"""
exec 3<&0 </dev/null
hx_tail "$1" "$2" 3<&- 2>/dev/null & hx_tail=$!
( exec >/dev/null 2>&1; cat <&3; kill -KILL $hx_tail $$ ) & hx_guard=$!
until hx_wait "$3" 3600 "$5" "$6"; [ $? != 8 ]; do :; done 2>/dev/null
exec 2>/dev/null
kill -KILL "$hx_guard" "$hx_tail"
"""
)


FOREVER = 10 * 365 * 86400.0
LOOK_FOR = 300.0
"""Seconds of silence after which it is looked whether a job, whose end we are told of, is still there."""
LOOK_AGAIN = 5.0
"""Seconds of silence after which it is asked whether a job whose log is elsewhere still runs."""


Callbacks = tuple[OutputCallback, OutputCallback]
"""For standard output and for standard error."""


class CallbackError(Exception):
    """``on_output`` raised; the cause says what."""


class JobFollower:
    """Reads the kept output of jobs as it grows."""

    def __init__(
        self,
        transport: Transport,
        shell: HeldShell,
        store: JobStore,
        table: JobTable,
        socket: str,
        clock: Callable[[], float],
        ends: JobEnds,
    ) -> None:
        """``clock`` is the target's time; ``socket`` is its tmux's."""
        self._ends = ends
        self._socket = socket
        self._clock = clock
        self._transport = transport
        self._shell = shell
        self._store = store
        self._table = table

    # -- while run() waits

    async def during(
        self, job_id: str, reply: Callable[[], Awaitable[Reply]], callbacks: Callbacks, delivered: list[int]
    ) -> Reply:
        """Wait for ``reply`` and call back with output meanwhile; ``delivered`` counts it for each stream.

        Raises:
            CallbackError: the callback raised.
        """
        try:
            process = await self._transport.open_process(self._both(job_id, delivered))
        except (ConnectError, UnsupportedOperation):
            return await reply()  # no second channel: everything is delivered at the end
        failures: list[CallbackError] = []
        lost: ConnectionLost | None = None
        async with process, anyio.create_task_group() as tasks:
            for number, receive in enumerate((process.receive, process.receive_stderr)):
                tasks.start_soon(
                    self._pass_on, receive, callbacks[number], delivered, number, failures, tasks.cancel_scope
                )
            try:
                result = await reply()
            except ConnectionLost as error:  # out of the task group as itself
                lost = error
            tasks.cancel_scope.cancel()
        if failures:
            raise failures[0]
        if lost is not None:
            raise lost
        return result

    def _both(self, job_id: str, delivered: list[int]) -> list[str]:
        out, err = self._store.path(job_id, "out"), self._store.path(job_id, "err")
        return ["sh", "-c", _FOLLOW_BOTH, "sh", out, err, str(delivered[0] + 1), str(delivered[1] + 1)]

    @staticmethod
    async def _pass_on(
        receive: Callable[[], Awaitable[bytes]],
        callback: OutputCallback,
        delivered: list[int],
        number: int,
        failures: list[CallbackError],
        scope: anyio.CancelScope,
    ) -> None:
        if isinstance(callback, LiveView):
            await show(receive, callback, delivered, number, failures)
            if failures:
                scope.cancel()
            return
        while data := await receive():
            delivered[number] += len(data)
            if not call_back(callback, data, failures):
                scope.cancel()
                return

    async def deliver_rest(
        self, job_id: str, callbacks: Callbacks | None, delivered: list[int], reply: Reply | None
    ) -> None:
        """Call back with what has not been delivered yet; the job has ended."""
        if callbacks is None:
            return
        failures: list[CallbackError] = []
        for number, suffix in enumerate(("out", "err")):
            whole = (reply.stdout, reply.stderr)[number] if reply else None
            view = callbacks[number]
            if isinstance(view, LiveView) and (whole is None or len(whole) > joboutput.INLINE):
                await self._pass_over(view, job_id, suffix, delivered, number)
            async for data in self._rest(job_id, suffix, whole, delivered[number]):
                delivered[number] += len(data)
                if not call_back(callbacks[number], data, failures):
                    raise failures[0]

    async def _pass_over(self, view: LiveView, job_id: str, suffix: str, delivered: list[int], number: int) -> None:
        """Let the view go on near the end of what is kept."""
        start = await self._size(self._store.path(job_id, suffix)) - VIEW_REST
        if start > delivered[number]:
            view.skipped(start - delivered[number])
            delivered[number] = start

    async def _rest(self, job_id: str, suffix: str, whole: bytes | None, start: int) -> AsyncIterator[bytes]:
        if whole is not None and len(whole) <= joboutput.INLINE:
            if whole[start:]:
                yield whole[start:]
            return
        async for data in joboutput.read_range(self._transport, self._shell, self._store.path(job_id, suffix), start):
            yield data

    # -- follow()

    async def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes]:
        """A job's output from byte ``offset`` until it ends; then its standard error."""
        kept = await self._table.find(job_id)
        live = kept.job.status is Status.RUNNING
        if kept.record.kind == "pane" and not await self.has_streams(job_id):
            async for data in self._follow_pane(kept, PaneLog(kept.record), offset, live=live):
                yield data
            return
        position = 0
        for suffix in ("out", "err"):
            path, start = self._store.path(job_id, suffix), max(0, offset - position)
            async for data in self._follow_file(path, start, kept.record if live and suffix == "out" else None):
                start += len(data)
                yield data
            position += await self._size(path)

    async def has_streams(self, job_id: str) -> bool:
        """True when the job's streams are kept as files of their own."""
        return (await self._shell.call(f'[ -e "$hx_jobs/{job_id}.out" ]')).exit_code == 0

    async def _size(self, path: str) -> int:
        reply = await self._shell.call(joboutput.output_script(path, "/dev/null", 0))
        return joboutput.parse_output(reply).stdout.size

    async def _follow_file(self, path: str, start: int, live: JobRecord | None) -> AsyncGenerator[bytes]:
        """A file from ``start``; while that job runs as it grows, then what is left of it."""
        if live is not None:
            async for data in self._live(path, start, live):
                start += len(data)
                yield data
        async for data in joboutput.read_range(self._transport, self._shell, path, start):
            yield data

    async def _live(self, path: str, start: int, record: JobRecord) -> AsyncGenerator[bytes]:
        words = (path, str(start + 1), record.job_id, self._store.root, self._socket, pane_uid(record))
        try:
            process = await self._transport.open_process(["sh", "-c", _FOLLOW_JOB, "sh", *words])
        except (ConnectError, UnsupportedOperation):  # no second channel
            await self.wait(record, FOREVER)
            return
        async with process:
            while data := await process.receive():
                yield data

    async def wait(self, record: JobRecord, seconds: float) -> None:
        """Wait until the job has ended or is gone, or the time is over: for its reply, where one is to come.

        One that says nothing for long may have lost who would reply: it is looked for then.
        """
        deadline = anyio.current_time() + seconds
        while self._ends.tells(record.job_id) and (left := deadline - anyio.current_time()) > 0:
            if await self._ends.wait(record.job_id, min(left, LOOK_FOR)):
                return
            if self._ends.tells(record.job_id) and deadline - anyio.current_time() > 0:
                reply = await self._shell.call(f"hx_going {record.job_id} || echo gone")
                if reply.stdout:
                    return
        if (left := deadline - anyio.current_time()) > 0:
            await self._wait_there(record, left)

    async def _wait_there(self, record: JobRecord, seconds: float) -> None:
        script = (
            f"hx_wait {record.job_id} {int(seconds) + 1} {shlex.quote(self._socket)} {shlex.quote(pane_uid(record))}"
        )
        ticket = await self._shell.submit(jobscript.background_line(script))
        try:
            with anyio.move_on_after(seconds):
                await ticket.reply()
        finally:
            ticket.forget()

    async def pane_part(self, kept: KeptJob, log: PaneLog, offset: int, *, live: bool) -> AsyncGenerator[bytes]:
        """What a pane's job wrote from byte ``offset`` on: so far, or with ``live`` until it ends.

        Args:
            log: a new one.

        Raises:
            UnsupportedOperation: the log of its pane is kept where it cannot be read from here.
        """
        async for data in self._follow_pane(kept, log, offset, live=live):
            yield data

    async def _follow_pane(self, kept: KeptJob, log: PaneLog, offset: int, *, live: bool) -> AsyncIterator[bytes]:
        """The output of a pane's job is a part of the pane's log; ``offset`` counts in the output."""
        skip = offset
        async with aclosing(self._pane_log(kept, live=live)) as chunks:
            async for chunk in chunks:
                data = log.feed(chunk)
                fresh, skip = data[skip:], max(0, skip - len(data))
                if fresh:
                    yield fresh
                if log.ended:
                    return
        if rest := log.flush()[skip:]:
            yield rest

    async def _pane_log(self, kept: KeptJob, *, live: bool) -> AsyncGenerator[bytes]:
        """A pane's log from a job's offset on, for as long as the job's end may still come to it."""
        record = kept.record
        if not self.can_read(record):
            raise UnsupportedOperation(
                f"the output of job {record.job_id} is kept where its tmux runs, {record.host.partition(':')[0]}",
                target=self._transport.target,
                hint="ask from there, with --tmux",
            )
        async with self._log_place(record.host) as place:
            path, start = f"{place.root}/{record.log}", record.offset or 0
            for read in (partial(self._live_log, kept, live=live), read_log, partial(self._late, kept, live=live)):
                async with aclosing(read(place, path, start)) as chunks:
                    async for data in chunks:
                        start += len(data)
                        yield data

    async def _live_log(
        self, kept: KeptJob, place: LogPlace, path: str, start: int, *, live: bool
    ) -> AsyncGenerator[bytes]:
        """The log as it grows while the job runs."""
        if not live:
            return
        if not kept.record.host:
            async with aclosing(self._live(path, start, kept.record)) as chunks:
                async for data in chunks:
                    yield data
            return
        async with await place.transport.open_process(["tail", "-c", f"+{start + 1}", "-f", "--", path]) as process:
            while data := await self._next(process, kept.record):
                yield data

    async def _late(
        self, kept: KeptJob, place: LogPlace, path: str, start: int, *, live: bool
    ) -> AsyncGenerator[bytes]:
        """What the job wrote last, when the log is behind the record of its exit code."""
        job = (await self._table.find(kept.job.job_id)).job if live else kept.job
        if job.ended is None:
            return
        async with aclosing(late_bytes(place, path, start, LAG - (self._clock() - job.ended))) as chunks:
            async for data in chunks:
                yield data

    def can_read(self, record: JobRecord) -> bool:
        """The log of a pane's job is on the target, or on this machine."""
        return not record.host or record.host in self._store.log_places or is_here(record.host)

    async def has_log(self, record: JobRecord) -> bool:
        """Whether the log of a pane's job is there; it has to be one that can be read."""
        async with self._log_place(record.host) as place:
            return (await place.shell.call(f"[ -e {shlex.quote(f'{place.root}/{record.log}')} ]")).exit_code == 0

    @asynccontextmanager
    async def _log_place(self, name: str) -> AsyncIterator[LogPlace]:
        ours = LogPlace(self._transport, self._shell, self._store.root, "")
        known = self._store.log_places.get(name) if name else ours
        if known is not None:
            yield known
            return
        here = LocalTransport(Target.parse("local:"))
        async with open_held_shell(here) as shell:
            yield LogPlace(here, shell, name.partition(":")[2], name)

    async def _next(self, process: Process, record: JobRecord) -> bytes:
        """What comes next; nothing when the job runs no more."""
        while True:
            with anyio.move_on_after(LOOK_AGAIN):
                return await process.receive()
            if (await self._table.find(record.job_id)).job.status is not Status.RUNNING:
                return b""

    async def pane_output(self, kept: KeptJob, limit: int) -> PaneOutput:
        """Head and tail of what a pane's job has written so far; nothing where its log cannot be read."""
        if not self.can_read(kept.record):
            return PaneOutput(Kept(), whole=True)
        log, output = PaneLog(kept.record), HeadTail(limit)
        async for data in self._follow_pane(kept, log, 0, live=False):
            output.feed(data)
        return PaneOutput(output.kept(), whole=log.ended or kept.job.ended is None)


def is_here(host: str) -> bool:
    """Whether a record's host is this machine, and what it kept is still there."""
    name, _, root = host.partition(":")
    return name == socket.gethostname() and os.path.isdir(root)


def callbacks_of(command: Command) -> Callbacks | None:
    """Who gets the output of a command; None when nobody asked."""
    if command.on_output is None and command.on_stderr is None:
        return None
    out = command.on_output or _ignore
    return out, command.on_stderr or out


def _ignore(data: bytes) -> None:
    pass


async def show(
    receive: Callable[[], Awaitable[bytes]],
    view: LiveView,
    delivered: list[int],
    number: int,
    failures: list[CallbackError],
) -> None:
    """Show what comes, until nothing more does; what the view raises is kept, and ends it."""
    stream = ViewedStream(view, delivered, number)

    async def shown() -> None:
        try:
            await stream.show()
        except Exception as error:
            failures.append(_failure(error))
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shown)
        await stream.read(receive)
        tasks.cancel_scope.cancel()


def _failure(error: Exception) -> CallbackError:
    failure = CallbackError()
    failure.__cause__ = error
    return failure


def call_back(callback: OutputCallback, data: bytes, failures: list[CallbackError]) -> bool:
    """Call the caller's function; what it raises is kept, to be raised where the caller waits."""
    try:
        callback(data)
    except Exception as error:
        failures.append(_failure(error))
        return False
    return True
