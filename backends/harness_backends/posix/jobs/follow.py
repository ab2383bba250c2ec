"""Following a job: its growing output, and its exit."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import anyio

from harness.command import Command, LiveView, OutputCallback
from harness.errors import ConnectError, ConnectionLost, OutputDropped, UnsupportedOperation
from harness.results import Status
from harness.system.background_tasks import BackgroundTasks, open_task_group
from harness.transport import Process, Transport

from ..pane_jobs.pane_log_output import (
    LOG_LAG_TIMEOUT,
    PaneLog,
    PaneOutput,
    follow_trailing_output,
    lacks_end,
    next_piece,
    read_log,
)
from ..persistent_shell import PendingReply, PersistentShell, ShellReply, open_held_shell
from ..state_directory import JobRecord, JobStore, RemoteLogStore, pane_uid
from . import shell_library
from .launch import run_in_background
from .log_limit import READER
from .output import (
    INLINE,
    VIEW_REST,
    HeadTail,
    StoredStream,
    ThrottledStream,
    output_script,
    parse_output,
    read_gap,
    read_kept,
)
from .table import JobTable, StoredJob
from .termination import CallbackError

__all__ = ["JobExitWatch", "JobFollower", "callbacks_of"]


# -- Exits of jobs that were left running, reported by their pending replies without polling.


@dataclass(slots=True)
class _PendingExit:
    """A pending exit; ``received``: the reply arrived, otherwise the connection was lost."""

    event: anyio.Event = field(default_factory=anyio.Event)
    received: bool = False


class JobExitWatch:
    """A watch over the jobs that this process started and left running."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._ends: dict[str, _PendingExit] = {}

    def expect(self, job_id: str, ticket: PendingReply) -> None:
        """Register the pending reply that reports a job's exit."""
        end = self._ends[job_id] = _PendingExit()
        self._tasks.start_soon(self._wait, job_id, ticket, end)

    async def _wait(self, job_id: str, ticket: PendingReply, end: _PendingExit) -> None:
        with suppress(ConnectionLost):  # the target is queried instead
            await ticket.reply()
            end.received = True
        del self._ends[job_id]
        end.event.set()

    def tells(self, job_id: str) -> bool:
        """Return True if the job's exit is pending and will be reported."""
        return job_id in self._ends

    async def wait(self, job_id: str, seconds: float) -> bool:
        """Wait until the job's exit is reported, can no longer be, or the timeout; return True if it was."""
        end = self._ends.get(job_id)
        if end is None:
            return False
        with anyio.move_on_after(seconds):
            await end.event.wait()
        return end.received


# -- Following a job's output live: a reader on the target waits for it, without polling over the connection.


# hx_await FILE: on a slow machine the reader may start before the job has created its file.
# Messages of tail about a file are not output of the job, and are discarded.
_AWAIT = (
    READER
    + r"""
hx_await() {
  hx_n=0
  until [ -e "$1" ] || [ "$hx_n" -ge 600 ]; do
    hx_n=$((hx_n + 1))
    sleep 0.1 || sleep 1
  done </dev/null >/dev/null 2>&1
}
umask 077
"""
)

# $1 and $2: files to follow, from bytes $3 and $4 on; $5 state directory. Exits at the end of its input, i.e. with the
# connection, or when the limiter has killed the readers. By KILL: mksh's handler swallows a TERM that arrives before
# the child has become tail, and a remaining tail keeps the stream open.
_FOLLOW_BOTH = (
    _AWAIT
    + r"""
hx_root=$5
hx_await "$1"; hx_await "$2"
[ -r "$1" ] && [ -r "$2" ] || exit
exec 3<"$1" 4<"$2" 5<&0 </dev/null
if hx_reads "$1" $$ && hx_reads "$2" $$ && hx_all_from "$1" $(($3 - 1)) && hx_all_from "$2" $(($4 - 1)); then
  tail -c "+$3" -f -- "$1" 3<&3 4<&- 5<&- 2>/dev/null & a=$!
  tail -c "+$4" -f -- "$2" 4<&4 3<&- 5<&- >&2 2>/dev/null & b=$!
  ( exec >/dev/null 2>&1 3<&- 4<&-; cat <&5; kill -KILL $a $b ) & c=$!
  hx_reads "$1" $a; hx_reads "$2" $b
  hx_read "$1" $$ "$2" $$
  exec 3<&- 4<&- 5<&- >/dev/null 2>&1
  wait $a $b
  kill -KILL $c
  hx_read_on "$1" $a; hx_read_on "$2" $b
else
  hx_read "$1" $$ "$2" $$
fi
"""
)

# $1 file, $2 first byte, $3 job, $4 state directory, $5 tmux socket, $6 pane. Exits when the job has ended, at the end
# of its input, or when the limiter has killed the reader.
_FOLLOW_JOB = (
    "hx_root=$4; hx_jobs=$4/jobs; hx_boot=; { read -r hx_boot </proc/sys/kernel/random/boot_id; } 2>/dev/null\n"
    + shell_library.WATCH
    + _AWAIT
    + r"""
exec 4<&0 </dev/null
hx_await "$1"
[ -r "$1" ] || exit
exec 3<"$1"
if hx_reads "$1" $$ && hx_all_from "$1" $(($2 - 1)); then
  tail -c "+$2" -f -- "$1" 3<&3 4<&- 2>/dev/null & hx_tail=$!
  ( exec >/dev/null 2>&1 3<&-; cat <&4; kill -KILL $hx_tail ) & hx_input=$!
  ( exec >/dev/null 2>&1 3<&- 4<&-
    until hx_wait "$3" 3600 "$5" "$6"; [ $? != 8 ]; do :; done
    kill -KILL $hx_tail ) & hx_end=$!
  hx_reads "$1" $hx_tail
  hx_read "$1" $$
  exec 3<&- 4<&- >/dev/null 2>&1
  wait $hx_tail
  kill -KILL $hx_input $hx_end
  hx_read "$1" $hx_tail
else
  hx_read "$1" $$
fi
"""
)


STREAMS = ("out", "err")
NO_TIMEOUT = 10 * 365 * 86400.0
LOOK_FOR = 300.0
"""Seconds of silence after which a job with a pending exit report is checked."""
POLL_INTERVAL = 5.0
"""Seconds of silence after which a job whose log is on another machine is checked."""


T = TypeVar("T")

Callbacks = tuple[OutputCallback, OutputCallback]
"""The callbacks for standard output and for standard error."""


class JobFollower:
    """A reader of jobs' stored output as it grows."""

    def __init__(
        self,
        transport: Transport,
        shell: PersistentShell,
        store: JobStore,
        table: JobTable,
        socket: str,
        clock: Callable[[], float],
        ends: JobExitWatch,
        local: Callable[[], Transport],
    ) -> None:
        """``clock`` returns the target's time; ``socket`` is its tmux socket; ``local`` opens this machine."""
        self._local = local
        self._ends = ends
        self._socket = socket
        self._clock = clock
        self._transport = transport
        self._shell = shell
        self._store = store
        self._table = table

    # -- while run() waits

    async def during(
        self,
        job_id: str,
        reply: Callable[[], Awaitable[ShellReply]],
        callbacks: Callbacks | None,
        delivered: list[int],
        received: tuple[HeadTail, HeadTail],
    ) -> ShellReply:
        """Wait for ``reply`` and pass output to callbacks meanwhile; ``delivered`` counts it for each stream.

        ``received`` stores the output; without callbacks, only as much as it keeps.

        Raises:
            CallbackError: a callback raised an exception.
            OutputDropped: bytes that a callback has not received were dropped.
        """
        async with open_task_group() as tasks:
            if callbacks is None:
                tasks.start_soon(self._receive_head, job_id, received)
            else:
                tasks.start_soon(self._deliver_live, job_id, callbacks, delivered, received)
            result = await reply()
            tasks.cancel_scope.cancel()
        return result

    async def _receive_head(self, job_id: str, received: tuple[HeadTail, HeadTail]) -> None:
        """Store output as it arrives, up to the limit of ``received``."""
        out, err = (self._store.path(job_id, suffix) for suffix in STREAMS)
        argv = ["sh", "-c", _FOLLOW_BOTH, "sh", out, err, "1", "1", self._store.root]
        with suppress(ConnectError, ConnectionLost, UnsupportedOperation):  # no second channel: nothing is stored
            async with await self._transport.open_process(argv) as process, anyio.create_task_group() as tasks:
                for number, stream in enumerate((process.receive, process.receive_stderr)):
                    tasks.start_soon(_store_head, stream, received[number])

    async def _deliver_live(
        self,
        job_id: str,
        callbacks: Callbacks,
        delivered: list[int],
        received: tuple[HeadTail, HeadTail],
    ) -> None:
        """Pass output to callbacks as it arrives; raises like :meth:`during`."""
        out, err = (self._store.path(job_id, suffix) for suffix in STREAMS)
        try:
            while True:
                first = map(str, (delivered[0] + 1, delivered[1] + 1))
                argv = ["sh", "-c", _FOLLOW_BOTH, "sh", out, err, *first, self._store.root]
                async with await self._transport.open_process(argv) as process, open_task_group() as tasks:
                    for number, stream in enumerate((process.receive, process.receive_stderr)):
                        receive = partial(_receive, stream, received[number])
                        tasks.start_soon(_pass_on, receive, callbacks[number], delivered, number)
                if not await self._pass_gaps(job_id, callbacks, delivered):
                    return
        except (ConnectError, ConnectionLost, UnsupportedOperation):
            return  # no second channel: all output is delivered at the end

    async def _pass_gaps(self, job_id: str, callbacks: Callbacks, delivered: list[int]) -> bool:
        """Report dropped bytes after the readers were killed; return False if there are none.

        Raises:
            OutputDropped: the callback is not a live view, so it must not miss bytes; it got all bytes before them.
        """
        found = False
        for number, suffix in enumerate(STREAMS):
            gap = await read_gap(self._shell, self._store.path(job_id, suffix))
            if gap.size and gap.end > delivered[number]:
                found = True
                view = callbacks[number]
                if isinstance(view, LiveView):
                    invoke_callback(view.skipped, gap.end - delivered[number])
                    delivered[number] = gap.end
                else:
                    await self._deliver_kept(view, job_id, number, None, delivered)
        return found

    async def deliver_rest(
        self, job_id: str, callbacks: Callbacks | None, delivered: list[int], reply: ShellReply | None
    ) -> None:
        """Pass the undelivered rest of an ended job's output to its callbacks."""
        if callbacks is None:
            return
        for number, suffix in enumerate(STREAMS):
            whole = (reply.stdout, reply.stderr)[number] if reply else None
            view = callbacks[number]
            if isinstance(view, LiveView) and (whole is None or len(whole) > INLINE):
                await self._pass_over(view, job_id, suffix, delivered, number)
            await self._deliver_kept(view, job_id, number, whole, delivered)

    async def _deliver_kept(
        self, callback: OutputCallback, job_id: str, number: int, whole: bytes | None, delivered: list[int]
    ) -> None:
        """Pass the undelivered stored output of one stream to its callback; a live view skips dropped bytes."""
        while True:
            try:
                async for data in self._rest(job_id, STREAMS[number], whole, delivered[number]):
                    delivered[number] += len(data)
                    invoke_callback(callback, data)
            except OutputDropped as error:
                if not isinstance(callback, LiveView):
                    raise
                invoke_callback(callback.skipped, error.end - error.start)
                delivered[number] = error.end
            else:
                return

    async def _pass_over(self, view: LiveView, job_id: str, suffix: str, delivered: list[int], number: int) -> None:
        """Skip to the last :data:`VIEW_REST` bytes for a live view."""
        start = await self._size(self._store.path(job_id, suffix)) - VIEW_REST
        if start > delivered[number]:
            invoke_callback(view.skipped, start - delivered[number])
            delivered[number] = start

    async def _rest(self, job_id: str, suffix: str, whole: bytes | None, start: int) -> AsyncIterator[bytes]:
        if whole is not None and len(whole) <= INLINE:
            if whole[start:]:
                yield whole[start:]
            return
        async for data in read_kept(self._transport, self._shell, self._store.path(job_id, suffix), start):
            yield data

    # -- follow()

    async def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes]:
        """Yield a job's output from byte ``offset`` until it ends, then its standard error."""
        kept = await self._table.find(job_id)
        live = kept.job.status is Status.RUNNING
        if kept.record.kind == "pane" and not await self.has_streams(job_id):
            log, end = log_of(kept), offset
            async for data in self._follow_pane(kept, log, offset, live=live):
                end += len(data)
                yield data
            await self._check_end(kept, log, end, live=live)
            return
        position = 0
        for suffix in STREAMS:
            path, start = self._store.path(job_id, suffix), max(0, offset - position)
            try:
                async for data in self._follow_file(path, start, kept.record if live and suffix == "out" else None):
                    start += len(data)
                    yield data
            except OutputDropped as gap:
                raise self.dropped(job_id, position + gap.start, position + gap.end) from None
            position += await self._size(path)

    async def _check_end(self, kept: StoredJob, log: PaneLog, end: int, *, live: bool) -> None:
        """Check that the log contained the output up to the job's end; ``end`` bytes were read or skipped."""
        if log.ended or (await self._table.find(kept.job.job_id) if live else kept).job.ended is None:
            return
        size = await self._recorded_size(kept)
        if not size or end < size:
            raise OutputDropped(lacks_end(end), start=end, end=max(end, size), target=self._transport.target)

    async def _recorded_size(self, kept: StoredJob) -> int:
        """Return the size of a job's output if harness recorded that the log was too short for it, else 0."""
        path = shlex.quote(self._store.path(kept.job.job_id, "size"))
        text = (await self._shell.call(f"cat {path} 2>/dev/null")).text.strip()
        return int(text) if text.isdecimal() else 0

    def dropped(self, job_id: str, start: int, end: int) -> OutputDropped:
        """Return the error about dropped bytes of a job's output."""
        return OutputDropped(
            f"bytes {start} to {end} of the output of job {job_id} were dropped:"
            " it exceeded job_log_max_bytes before it was read",
            start=start,
            end=end,
            target=self._transport.target,
            hint=f"show the stored output and the exit code with: harness jobs wait {job_id}",
        )

    async def has_streams(self, job_id: str) -> bool:
        """Return True if the job's streams are stored in their own files."""
        return (await self._shell.call(f'[ -e "$hx_jobs/{job_id}.out" ]')).exit_code == 0

    async def _size(self, path: str) -> int:
        reply = await self._shell.call(output_script(path, "/dev/null", 0))
        return parse_output(reply).stdout.size

    async def _follow_file(self, path: str, start: int, live: JobRecord | None) -> AsyncGenerator[bytes]:
        """Yield a file from ``start``: live while the job ``live`` runs, then its stored rest."""
        if live is not None:
            async for data in self._live(path, start, live):
                start += len(data)
                yield data
        async for data in read_kept(self._transport, self._shell, path, start):
            yield data

    async def _live(self, path: str, start: int, record: JobRecord) -> AsyncGenerator[bytes]:
        words = (path, str(start + 1), record.job_id, self._store.root, self._socket, pane_uid(record))
        try:
            process = await self._transport.open_process(["sh", "-c", _FOLLOW_JOB, "sh", *words])
        except (ConnectError, UnsupportedOperation):  # no second channel
            await self.wait(record, NO_TIMEOUT)
            return
        async with process:
            while data := await process.receive():
                yield data

    async def wait(self, record: JobRecord, seconds: float) -> None:
        """Wait until the job has ended or disappeared, or the timeout, by its pending reply if there is one.

        After :data:`LOOK_FOR` without a reply the job is checked, as its keeper may have been killed.
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
        await run_in_background(self._shell, script, seconds)

    async def pane_part(self, kept: StoredJob, log: PaneLog, offset: int, *, live: bool) -> AsyncGenerator[bytes]:
        """Yield a pane job's output from byte ``offset``: so far, or with ``live`` until it ends.

        Args:
            log: an unused log filter.

        Raises:
            UnsupportedOperation: the pane's log is on a machine that cannot be read from here.
        """
        async for data in self._follow_pane(kept, log, offset, live=live):
            yield data

    async def _follow_pane(self, kept: StoredJob, log: PaneLog, offset: int, *, live: bool) -> AsyncIterator[bytes]:
        """Yield a pane job's output, which is part of the pane's log; ``offset`` counts in the output."""
        skip = offset
        async with aclosing(self._pane_log(kept, log, live=live)) as chunks:
            async for chunk in chunks:
                data = log.feed(chunk)
                fresh, skip = data[skip:], max(0, skip - len(data))
                if fresh:
                    yield fresh
                if log.ended:
                    return
        if rest := log.flush(cut=live or kept.job.ended is not None)[skip:]:
            yield rest

    async def _pane_log(self, kept: StoredJob, log: PaneLog, *, live: bool) -> AsyncGenerator[bytes]:
        """Yield a pane's log from a job's offset, as long as the job's output may still arrive.

        If ``log`` finds no start of the job there, another harness had just begun the next piece, which follows then.
        """
        record = kept.record
        if not self.can_read(record):
            raise UnsupportedOperation(
                f"the output of job {record.job_id} is stored where its tmux runs, {record.host.partition(':')[0]}",
                target=self._transport.target,
                hint="run harness on that machine, with --tmux",
            )
        async with self._log_place(record.host) as place:
            path, start = f"{place.root}/{record.log}", record.offset or 0
            for read in (partial(self._live_log, kept, live=live), read_log, partial(self._late, kept, live=live)):
                async with aclosing(read(place, path, start)) as chunks:
                    async for data in chunks:
                        start += len(data)
                        yield data
                if read is not read_log or log.begun:
                    continue
                following, size = next_piece(path), 0
                async with aclosing(read_log(place, following, 0)) as chunks:
                    async for data in chunks:
                        size += len(data)
                        yield data
                if log.begun:
                    path, start = following, size

    async def _live_log(
        self, kept: StoredJob, place: RemoteLogStore, path: str, start: int, *, live: bool
    ) -> AsyncGenerator[bytes]:
        """Yield the growing log while the job runs."""
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
        self, kept: StoredJob, place: RemoteLogStore, path: str, start: int, *, live: bool
    ) -> AsyncGenerator[bytes]:
        """Yield the job's last output, which may reach the log after the record of its exit code."""
        job = (await self._table.find(kept.job.job_id)).job if live else kept.job
        if job.ended is None:
            return
        async with aclosing(
            follow_trailing_output(place, path, start, LOG_LAG_TIMEOUT - (self._clock() - job.ended))
        ) as chunks:
            async for data in chunks:
                yield data

    def can_read(self, record: JobRecord) -> bool:
        """Return True if the log of a pane's job is on a machine that can be read."""
        return not record.host or record.host in self._store.log_places or is_here(record.host)

    @asynccontextmanager
    async def _log_place(self, name: str) -> AsyncIterator[RemoteLogStore]:
        ours = RemoteLogStore(self._transport, self._shell, self._store.root, "")
        known = self._store.log_places.get(name) if name else ours
        if known is not None:
            yield known
            return
        here = self._local()
        async with open_held_shell(here) as shell:
            yield RemoteLogStore(here, shell, name.partition(":")[2], name)

    async def _next(self, process: Process, record: JobRecord) -> bytes:
        """Read the next data; return nothing once the job has ended."""
        while True:
            with anyio.move_on_after(POLL_INTERVAL):
                return await process.receive()
            if (await self._table.find(record.job_id)).job.status is not Status.RUNNING:
                return b""

    async def pane_output(self, kept: StoredJob, limit: int) -> PaneOutput:
        """Return head and tail of a pane job's output so far; nothing if its log cannot be read."""
        if not self.can_read(kept.record):
            return PaneOutput(StoredStream(), whole=True)
        log, output = log_of(kept), HeadTail(limit)
        async for data in self._follow_pane(kept, log, 0, live=False):
            output.feed(data)
        found = output.kept()
        if log.ended or kept.job.ended is None:
            return PaneOutput(found, whole=True)
        size = await self._recorded_size(kept) or found.size + 1  # unknown size: at least one byte is missing
        return PaneOutput(replace(found, size=max(found.size, size)), whole=False, end=found.size)


def log_of(kept: StoredJob) -> PaneLog:
    """Return the log filter of a job."""
    return PaneLog(kept.record, without_end=kept.job.status is Status.UNKNOWN)


def is_here(host: str) -> bool:
    """Return whether a record's host is this machine with an existing state directory."""
    name, _, root = host.partition(":")
    return name == socket.gethostname() and os.path.isdir(root)


def callbacks_of(command: Command) -> Callbacks | None:
    """Return the output callbacks of a command; None if it has none."""
    if command.on_output is None and command.on_stderr is None:
        return None
    out = command.on_output or _ignore
    return out, command.on_stderr or out


def _ignore(data: bytes) -> None:
    pass


async def _store_head(receive: Callable[[], Awaitable[bytes]], received: HeadTail) -> None:
    """Store a stream until its end, or until as much was received as is kept."""
    with suppress(ConnectionLost):
        while not received.is_full and await _receive(receive, received):
            pass


async def _receive(receive: Callable[[], Awaitable[bytes]], received: HeadTail) -> bytes:
    """Read the next bytes, and store them in ``received``."""
    data = await receive()
    received.feed(data)
    return data


async def _pass_on(
    receive: Callable[[], Awaitable[bytes]], callback: OutputCallback, delivered: list[int], number: int
) -> None:
    """Pass a stream to its callback until its end."""
    if isinstance(callback, LiveView):
        await _show(receive, callback, delivered, number)
        return
    while data := await receive():
        delivered[number] += len(data)
        invoke_callback(callback, data)


async def _show(receive: Callable[[], Awaitable[bytes]], view: LiveView, delivered: list[int], number: int) -> None:
    """Display a stream until its end, or until the view raises an exception."""
    stream = ThrottledStream(view, delivered, number)

    async def shown() -> None:
        try:
            await stream.show()
        except Exception as error:
            raise CallbackError(error) from None

    async with open_task_group() as tasks:
        tasks.start_soon(shown)
        await stream.read(receive)
        tasks.cancel_scope.cancel()


def invoke_callback(callback: Callable[[T], None], value: T) -> None:
    """Call a callback; raise its exception as :class:`.CallbackError`."""
    try:
        callback(value)
    except Exception as error:
        raise CallbackError(error) from None
