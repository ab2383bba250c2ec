"""Gaps in a pane's stream, after a lost connection or a pause: the missed output is read from the pane's log."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress

import anyio

from harness.errors import HarnessError
from harness.results import Status
from harness.system.background_tasks import BackgroundTasks

from ...posix.jobs.launch import Outcome, recorded
from ...posix.state_directory import JobStore
from ..channel.control_connection import ControlConnection
from ..jobs.pane_job import PaneJob
from ..jobs.unstarted_commands import drop_slot, take_slot
from ..naming import PaneRow
from ..pane.foreground import SHELLS, inspect, terminal_of
from ..pane.keyboard import release
from ..pane.pane_log import TAIL, LogReader, log_end_script, start_mark, take_up_script
from ..pane.pane_state import Pane, Phase
from ..setup import pane_files_missing, state_question

__all__ = ["StreamGaps"]

CHUNK = 1 << 20
RECHECK = 10.0
"""Seconds without output after which the end of a job is looked up in its record."""
RETRY = 1.0
LOG_LAG = 2.0
"""Maximum seconds by which the log may lag behind the exit file."""
SCREEN_INTERVAL = 1.0
"""Seconds between the screens that watchers get of a pane whose output tmux does not send."""
START_GRACE = 1.0
"""Maximum seconds for a typed job to start."""
LOG_INCOMPLETE = "the log of this command is incomplete"
LOG_REMOVED = "the log of pane {!r} was removed; the output of earlier commands in it is lost"


class StreamGaps:
    """A reader of the logs of all panes whose stream has, or may have, a gap."""

    def __init__(self, link: ControlConnection, store: JobStore, tasks: BackgroundTasks) -> None:
        self._link = link
        self._store = store
        self._tasks = tasks
        self._catching_up: dict[str, anyio.CancelScope] = {}
        self._stopped: set[str] = set()
        """The ids of the panes, also of unknown ones, whose output tmux does not send, as this process fell behind."""

    async def attach(self, row: PaneRow, kind: str, add: Callable[[Pane], None]) -> Pane:
        """Add a pane whose stream this process has not read yet, with the state that the end of its log shows."""
        reply = await self._link.shell.call(take_up_script(self._link.setup.log_dir(row.uid)))
        nonce, number, pid, gone = (*reply.text.split("\n"), "", "", "")[:4]
        if reply.exit_code != 0 or not nonce:
            state = (await self._link.client.request(state_question(row.pane_id)))[-1].text
            raise pane_files_missing(row.name, state, self._link.setup, self._link.target)
        pane = Pane(row.pane_id, row.window_id, row.name, row.uid, kind, nonce, self._link.setup.scope)
        pane.learn_log(int(number or 0), 0)
        own = int(pid) if pid.removeprefix("-").isdecimal() else 0
        pane.learn_shell(abs(own))
        if gone:
            await self._begin_log(pane)
        pane.pause()
        add(pane)
        await self.reattach(pane)
        pane.news = LOG_REMOVED.format(row.name) if gone else ""
        if not self._link.setup.here:
            pane.wrapper = f"{row.pid}:{row.tty}"
        if row.busy.isdecimal() and not await self._release_ended(pane, row.busy):
            pane.learn_phase("running", int(row.busy))
        elif await self._untold(pane, row, own, bool(gone)):
            pane.learn_phase(await self._phase_of(pane, row))
        return pane

    async def _untold(self, pane: Pane, row: PaneRow, own: int, gone: bool) -> bool:
        """Return whether the log lacks the last marker, or has none.

        It was full or is new, or an operator's ``pipe-pane`` replaced it, or another program replaced the shell.
        """
        if pane.phase == "starting":
            return gone or pane.log_offset > TAIL or (own > 0 and pane.log_number > 0)
        if self._link.setup.here:
            return False
        if pane.phase == "running":
            return own != 0 and (not pane.running or await self._store.settle(str(pane.running)))
        return own < 0 or row.foreground.lstrip("-") not in SHELLS

    async def _phase_of(self, pane: Pane, row: PaneRow) -> Phase:
        """Return the phase of the pane's shell without a marker; a nested shell must not be mistaken for it."""
        own, by_hand = pane.shells[0].pid, pane.phase == "running" and not pane.running
        if not own:
            return "prompt" if row.foreground.lstrip("-") in SHELLS else "running"
        front = await inspect(self._link.shells, row.tty, row.pid)
        ready = front.editing if by_hand else front.may_be_prompt  # an operator's command may read lines itself
        return "prompt" if front.is_own(own) and ready else "running"

    async def _begin_log(self, pane: Pane) -> None:
        """Start a new log, as the one that tmux writes to was deleted."""
        pane.learn_log(pane.log_number + 1, 0)
        log = self._link.setup.log_command(pane.uid, pane.log_number)
        await self._link.client.request(("pipe-pane", "-t", pane.pane_id, log))

    async def _release_ended(self, pane: Pane, holder: str) -> bool:
        """Release a pane whose holder's job has ended, as the holder may have exited; return whether it did."""
        if not await self._store.settle(holder):
            if await self._starts(pane):
                return False
            await self._store.settle(holder, pane.at_prompt)
        await self._link.client.request(*release(pane.pane_id, pane.place, holder))
        return True

    @staticmethod
    async def _starts(pane: Pane) -> bool:
        """Return whether the pane starts a command within a moment; otherwise its shell has run its last job."""
        return await pane.wait_until(lambda: pane.phase != "prompt", START_GRACE)

    def paused(self, pane_id: str, pane: Pane | None) -> None:
        """Handle that tmux stopped to send a pane's output, as this process fell behind: read it from the log.

        tmux sends it again when the log has been read. Until then it delays no answer of tmux to other requests. The
        output of an unknown pane is not sent again before the pane is added.
        """
        self._stopped.add(pane_id)
        if pane is not None:
            self._read_stopped(pane)

    def added(self, pane: Pane) -> None:
        """Handle a new pane, whose output tmux may have stopped to send before."""
        if pane.pane_id in self._stopped:
            self._read_stopped(pane)

    def _read_stopped(self, pane: Pane) -> None:
        pane.pause()
        for job in pane.jobs:
            job.touch()
        if pane.pane_id not in self._catching_up:
            self._tasks.start_soon(self.catch_up, pane)

    def lost(self) -> None:
        """Handle the end of the client: the next one is sent the output of all panes."""
        self._stopped.clear()

    async def _send_again(self, pane: Pane) -> None:
        """Let tmux send a pane's output again, and watchers get a new screen, as they missed some of it."""

        def is_sent(_: object) -> None:
            self._stopped.discard(pane.pane_id)
            pane.lose_step()

        await self._link.client.request(("refresh-client", "-A", f"{pane.pane_id}:continue"), on_answer=is_sent)

    def stop_catching_up(self, pane: Pane) -> None:
        scope = self._catching_up.pop(pane.pane_id, None)
        if scope is not None:
            scope.cancel()

    async def catch_up(self, pane: Pane) -> None:
        """Read the log until the stream has caught up; a later call for the pane replaces an earlier one."""
        self.stop_catching_up(pane)
        with anyio.CancelScope() as scope:
            self._catching_up[pane.pane_id] = scope
            while pane.paused and not pane.gone:
                try:
                    await (self.reattach(pane) if pane.job is None else self._follow_log(pane, pane.job))
                except HarnessError:  # the connection was lost again
                    await anyio.sleep(RETRY)
        if self._catching_up.get(pane.pane_id) is scope:
            del self._catching_up[pane.pane_id]
        if pane.gone:
            self._stopped.discard(pane.pane_id)

    async def _follow_log(self, pane: Pane, job: PaneJob) -> None:
        """Read a job's part of the log again from its start, and as it grows, until the job has ended."""
        job.read_again()
        pane.restart_scan()
        reader = LogReader(start_mark(job.nonce, job.number), job.offset)
        shown = anyio.current_time()
        while job in pane.jobs and not pane.gone:  # even if it is finished for its caller, as it may still run
            active = job.active
            chunk = await self._read_log(job.log, reader.position)
            if chunk:
                pane.scan(reader.feed(chunk))
                if pane.pane_id in self._stopped and anyio.current_time() - shown > SCREEN_INTERVAL:
                    shown = anyio.current_time()
                    pane.lose_step()
            elif pane.pane_id in self._stopped:
                await self._send_again(pane)  # its output shows when there is more to read
            elif not await self._ended_elsewhere(pane, job, reader):
                with anyio.move_on_after(RECHECK):
                    await active.wait()
        pane.learn_log(pane.log_number, reader.position)

    async def reattach(self, pane: Pane) -> None:
        """Set the state of a pane without a job of this process from the end of the log, and then the stream."""
        async with pane.reattaching:
            if pane.paused:  # else another task has done it
                await self._reattach(pane)

    async def _reattach(self, pane: Pane) -> None:
        start = pane.log_offset
        while True:
            if pane.pane_id in self._stopped:
                await self._send_again(pane)
            size, tail = await self._log_end(pane, start)
            if pane.pane_id not in self._stopped:
                break
        if pane.job is None:
            pane.settle(tail, size)
            if pane.phase != "prompt":
                self._tasks.start_soon(self._read_late, pane, start)
        elif pane.pane_id not in self._catching_up:  # a job was dispatched meanwhile, and its log must be followed
            self._tasks.start_soon(self.catch_up, pane)

    async def _read_late(self, pane: Pane, start: int) -> None:
        """Read the end of the log again if it grows while the stream is silent.

        The program that writes the log may lag behind the stream: what tmux did not send may not have been in it yet.
        """
        known = pane.log_offset
        with anyio.move_on_after(LOG_LAG), suppress(HarnessError):
            while pane.phase != "prompt":
                await anyio.sleep(LOG_LAG / 20)
                size, tail = await self._log_end(pane, start)
                if pane.paused or pane.gone or pane.jobs or pane.log_offset != known:
                    return  # what the stream brings decides
                if size > known:
                    news = pane.news  # the tail repeats what was reported
                    pane.settle(tail, size)
                    pane.news, known = news, size

    async def _log_end(self, pane: Pane, start: int) -> tuple[int, bytes]:
        """Return the size and the end of the log; the stream has then delivered all that the log contained."""
        reply = await self._link.shell.call(log_end_script(f"{self._link.setup.root}/{pane.log}", start))
        size, _, tail = reply.stdout.partition(b"\n")
        await self._link.client.request(("display-message", "-p", ""))
        return int(size.strip() or 0), tail

    async def _read_log(self, log: str, position: int) -> bytes:
        path = shlex.quote(f"{self._link.setup.root}/{log}")
        reply = await self._link.shell.call(f"tail -c +{position + 1} {path} | head -c {CHUNK}")
        return reply.stdout

    async def _ended_elsewhere(self, pane: Pane, job: PaneJob, reader: LogReader) -> bool:
        """Finish a job from its record if the log has no end marker, as it may be full; return whether it ended."""
        record = b""
        with anyio.move_on_after(LOG_LAG):
            while True:
                record = (await self._link.shells.call(self._store.reading(job.job_id, "exit"))).stdout
                if not record.endswith(b"\n"):
                    return not reader.found and await self._was_not_started(pane, job)
                if await self._read_log(job.log, reader.position):
                    return False
                await anyio.sleep(LOG_LAG / 20)
        if not record:
            return False  # the target was too slow: ask again
        outcome = recorded(record.decode("utf-8", "replace"), job.proof) or Outcome(Status.UNKNOWN)
        pane.learn_phase("prompt")
        pane.end_job(job, outcome.status, outcome.exit_code, notice=LOG_INCOMPLETE, cwd=pane.cwd or None)
        return True

    async def _was_not_started(self, pane: Pane, job: PaneJob) -> bool:
        """Check whether a job was not started, as the connection was lost while it was typed.

        An option of the pane names it if its keys may have been typed. If they were dropped with the client, the unread
        slot is withdrawn. Or its shell saw that it was cancelled, and the marker is in the unread part of the log.
        """
        if await self._called_off(job):
            pane.withdraw_job(job)
            return True
        if not job.doubtful:  # it can still be sent through this client; only its own client's exit proves otherwise
            return False
        where = ("display-message", "-p", "-t", pane.pane_id, "#{@harness_typed}")
        blocks = await self._link.client.request(where)
        if blocks[-1].text == job.job_id and not await self._taken_back(pane, job):
            return False
        free = release(pane.pane_id, pane.place, job.job_id)  # others cannot learn of its end from a record
        await self._link.client.request(*free)
        pane.withdraw_job(job, "connection lost before the command was sent; it did not run")
        return True

    async def _taken_back(self, pane: Pane, job: PaneJob) -> bool:
        """Withdraw a job that its shell at the prompt has not read, so that later keys find nothing to run."""
        if job.nonce != pane.shells[0].nonce:
            return False
        terminal = await terminal_of(pane, self._link.client.request, here=self._link.setup.here)
        front = await inspect(self._link.shells, *terminal)
        if not (front.wants_input and front.is_own(pane.shells[0].pid)):
            return False
        shell, slot = self._link.shells, f"{self._link.setup.pane_dir(pane.uid)}/next"
        return await take_slot(shell, slot, job.job_id) and await drop_slot(shell, slot, job.job_id)

    async def _called_off(self, job: PaneJob) -> bool:
        return bool((await self._link.shells.call(f"{self._store.is_cancelled(job.job_id)} && echo off")).stdout)
