"""The managed panes of a session: find, create within limits, and recover after a gap in the stream."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace

import anyio

from harness.errors import HarnessError, JobNotFound, PaneBusy, PaneGone, TargetGone, TerminalError
from harness.results import PaneInfo, Status
from harness.system.background_tasks import BackgroundTasks

from ...posix.jobs.launch import Outcome, recorded
from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import JobRecord, JobStore, parse_record
from ..channel.control_client import ControlClient
from ..channel.control_connection import ControlConnection
from ..jobs.pane_job import PaneJob
from ..jobs.unstarted_commands import drop_slot, take_slot
from ..naming import DEFAULT_PANE, PANE_FORMAT, PaneRow, first_named, listed, pane_info, parse_panes
from ..sessions import new_pane
from ..setup import (
    NewPane,
    log_files,
    pane_files,
    pane_files_missing,
    renamed,
    state_question,
    window_commands,
    window_removal,
)
from .foreground import SHELLS, inspect, terminal_of
from .keyboard import release
from .pane_log import TAIL, LogReader, log_end_script, start_mark, take_up_script
from .pane_state import Pane, Phase

__all__ = ["PaneTable"]

CHUNK = 1 << 20
RECHECK = 10.0
"""Seconds without output after which the end of a job is looked up in its record."""
RETRY = 1.0
LOG_LAG = 2.0
"""Maximum seconds by which the log may lag behind the exit file."""
START_GRACE = 1.0
"""Maximum seconds for a typed job to start."""


class PaneExists(TerminalError):
    """A pane of that name already exists."""


@contextmanager
def _holding(names: set[str], name: str) -> Iterator[None]:
    names.add(name)
    try:
        yield
    finally:
        names.discard(name)


class PaneTable:
    """The managed panes of one session."""

    def __init__(
        self, link: ControlConnection, shell: PersistentShell, store: JobStore, login_shell: str, tasks: BackgroundTasks
    ) -> None:
        self._link = link
        self._shell = shell
        self._store = store
        self.login_shell = login_shell
        self._tasks = tasks
        self._creating = anyio.Lock()
        self._news = self._looking = False
        self._notices: dict[str, list[str]] = {}
        self._reserved: set[str] = set()
        self._new: dict[str, NewPane] = {}
        self._catching_up: dict[str, anyio.CancelScope] = {}
        link.on_lost, link.on_gone = self.lost, self.target_gone
        self.by_id: dict[str, Pane] = {}
        self.on_pane: Callable[[Pane], None] = lambda _: None
        """Called for each pane that becomes known."""
        self.kept = {DEFAULT_PANE}
        """The names of panes that are recreated if they were closed."""

    def by_name(self, name: str) -> Pane | None:
        """Return an open pane by its managed name or tmux's id."""
        return next((pane for pane in self.by_id.values() if name in (pane.name, pane.pane_id)), None)

    def tell_name(self) -> None:
        """Add a notice if an operator has renamed the session."""
        setup = self._link.setup
        if setup.name != setup.session:
            self.add_notice(DEFAULT_PANE, renamed(setup.session, setup.name))

    def add_notice(self, name: str, notice: str) -> None:
        """Add a notice for the next caller on a pane."""
        self._notices.setdefault(name, []).append(notice)

    def take_notices(self, pane: Pane) -> list[str]:
        """Return the notices for the next caller on a pane, and clear them."""
        return self._notices.pop(pane.name, [])

    def new_pane(self, name: str, cwd: str | None) -> NewPane:
        """Return names and secrets for a new pane."""
        return new_pane(name, self.login_shell, cwd or self._link.setup.config.cwd)

    # -- finding

    async def rows(self, client: ControlClient | None = None) -> list[PaneRow]:
        """Return the current managed panes."""
        asked = self._listing()
        try:
            blocks = await (client.request(asked) if client else self._link.ask(asked))
        except TerminalError:
            if client is not None or (asked == self._listing() and not await self._link.ended()):
                raise
            await self._link.ready()  # the session ended with its last pane, and is recreated
            blocks = await self._link.ask(self._listing())
        return parse_panes(blocks[-1].text)

    def _listing(self) -> tuple[str, ...]:
        return "list-panes", "-s", "-t", self._link.setup.exact, "-F", PANE_FORMAT

    def info(self, row: PaneRow) -> PaneInfo:
        """Return a row for callers."""
        return pane_info(row, self._link.setup.name)

    async def refresh(self, client: ControlClient | None = None) -> None:
        """Add unknown panes, and remove those that were closed."""
        for row in await self._reconcile(client):
            if row.pane_id not in self.by_id:
                await self._attach_pane(row)

    async def _reconcile(self, client: ControlClient | None) -> list[PaneRow]:
        """Remove the panes that were closed, and update the windows of the others."""
        known = list(self.by_id.values())
        rows = {row.pane_id: row for row in await self.rows(client)}
        for pane in known:
            row = rows.get(pane.pane_id)
            if row is not None and row.uid == pane.uid:
                pane.found_in(row.window_id)
            elif self.by_id.get(pane.pane_id) is pane:
                self._drop(pane)
        return list(rows.values())

    def windows_changed(self, closed: str = "") -> None:
        """Handle a notification about a window, as an operator may have closed or moved panes.

        Args:
            closed: the window reported as closed, which may be linked to two sessions and still be in this one.
        """
        for pane in self.by_id.values():
            pane.in_doubt |= pane.window_id == closed
        self._news = True
        if not self._looking:
            self._looking = True
            self._tasks.start_soon(self._look)

    async def _look(self) -> None:
        while self._news:
            self._news = False
            with suppress(HarnessError):  # without a connection, the reconnect checks
                await self._reconcile(self._link.client)
        self._looking = False

    async def _attach_pane(self, row: PaneRow) -> Pane:
        reply = await self._link.shell.call(take_up_script(self._link.setup.log_dir(row.uid)))
        nonce, number, pid, gone = (*reply.text.split("\n"), "", "", "")[:4]
        if reply.exit_code != 0 or not nonce:
            state = (await self._link.client.request(state_question(row.pane_id)))[-1].text
            raise pane_files_missing(row.name, state, self._link.setup, self._link.target)
        kind = self.login_shell.rpartition("/")[2].replace("busybox", "ash")
        pane = Pane(row.pane_id, row.window_id, row.name, row.uid, kind, nonce, self._link.setup.scope)
        pane.log_number = int(number or 0)
        own = int(pid) if pid.removeprefix("-").isdecimal() else 0
        pane.shells[0] = replace(pane.shells[0], pid=abs(own))
        if gone:
            await self._begin_log(pane)
        pane.pause()
        self.by_id[row.pane_id] = pane
        self.on_pane(pane)
        await self._reattach_pane(pane)
        pane.news = ""
        if not self._link.setup.here:
            pane.wrapper = f"{row.pid}:{row.tty}"
        if row.busy.isdecimal() and not await self._release_ended(pane, row.busy):
            pane.phase, pane.running = "running", int(row.busy)
        elif await self._untold(pane, row, own, bool(gone)):
            pane.phase, pane.running = await self._phase_of(pane, row), 0
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
        front = await inspect(self._shell, row.tty, row.pid)
        ready = front.editing if by_hand else front.may_be_prompt  # an operator's command may read lines itself
        return "prompt" if front.is_own(own) and ready else "running"

    async def _begin_log(self, pane: Pane) -> None:
        """Start a new log, as the one that tmux writes to was deleted."""
        pane.log_number += 1
        log = self._link.setup.log_command(pane.uid, pane.log_number)
        await self._link.client.request(("pipe-pane", "-t", pane.pane_id, log))
        self.add_notice(
            pane.name, f"the log of pane {pane.name!r} was removed; the output of earlier commands in it is lost"
        )

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
        with anyio.move_on_after(START_GRACE):
            while pane.phase == "prompt" and not pane.gone:
                await pane.changed.wait()
        return pane.phase != "prompt"

    async def find(self, name: str) -> Pane:
        """Find a managed pane by name or id; create it if it is missing and its name is in ``kept``.

        Raises:
            PaneGone: it does not exist, and its name is not in ``kept``.
        """
        pane = self.by_name(name)
        if pane is None:
            await self.refresh()
            pane = self.by_name(name)
        if pane is not None:
            return pane
        if name not in self.kept:
            raise PaneGone(
                f"pane {name!r} does not exist in session {self._link.setup.name!r}; "
                + listed(pane.name for pane in self.by_id.values()),
                target=self._link.target,
                hint="list them with: harness panes",
            )
        return await self.create(name, None)

    @asynccontextmanager
    async def background(self, cwd: str | None, tried: Collection[str] = ()) -> AsyncIterator[Pane]:
        """Reserve a free pane for a background command: an idle ``bg-N``, or a new one.

        ``tried`` contains the panes that turned out to be held by another harness.
        """
        default = self.by_name(DEFAULT_PANE)
        start = cwd or (default.cwd if default is not None else "") or None
        for number in range(1, self._link.setup.config.max_panes + 1):
            name = f"bg-{number}"
            if name in self._reserved or name in tried:
                continue
            with _holding(self._reserved, name):
                pane = await self._idle(name, start)
                if pane is not None:
                    yield pane
                    return
        raise PaneBusy(
            "all background panes are busy",
            target=self._link.target,
            hint="wait for a job or kill one (harness jobs), or raise max_panes",
        )

    async def _idle(self, name: str, cwd: str | None) -> Pane | None:
        """Return an idle pane, created if it is missing; None if it is busy."""
        pane = self.by_name(name)
        if pane is None:
            with suppress(PaneExists):  # by another harness, a moment ago
                return await self.create(name, cwd)
            return None
        free = pane.phase in ("prompt", "ended") and not pane.jobs and not pane.lock.statistics().locked
        return pane if free else None

    # -- creating and killing

    async def create(self, name: str, cwd: str | None) -> Pane:
        """Create a window with one managed pane.

        Raises:
            TerminalError: the limit is reached, or the name is in use.
        """
        async with self._creating:
            rows = await self.rows()
            limit = self._link.setup.config.max_panes
            if any(row.name == name for row in rows):
                await self.refresh()
                pane = self.by_name(name)
                if pane is not None and name == DEFAULT_PANE:
                    return pane
                raise PaneExists(f"pane {name!r} already exists", target=self._link.target)
            if len(rows) >= limit:
                raise self._full(limit)
            pane = await self._create(self.new_pane(name, cwd))
            return await self._alone(pane, limit)

    def _full(self, limit: int) -> PaneBusy:
        return PaneBusy(
            f"the limit of {limit} managed panes is reached",
            target=self._link.target,
            hint="kill one (harness panes kill NAME), or raise max_panes",
        )

    async def _alone(self, made: Pane, limit: int) -> Pane:
        """Remove a new pane if another harness created one with its name, or up to the limit, at the same moment."""
        rows = await self.rows()
        first = first_named(rows, made.name)
        earlier = first is not None and first.uid != made.uid
        if not earlier and len(rows) <= limit:
            return made
        self.by_id.pop(made.pane_id, None)
        await self._link.request(("kill-pane", "-t", made.pane_id))
        if not earlier:
            raise self._full(limit)
        await self.refresh()
        pane = self.by_name(made.name)
        if pane is None or made.name not in self.kept:
            raise PaneExists(f"pane {made.name!r} already exists", target=self._link.target)
        return pane

    async def _create(self, new: NewPane) -> Pane:
        setup = self._link.setup
        await self._shell.call(f"umask 077\n{pane_files(setup, new)}")
        reply = await self._link.shell.call(f'umask 077\n{log_files(setup, new)}echo "$hx_umask"')
        commands = window_commands(setup, new, reply.text.strip(), "#{window_id} #{pane_id}")
        try:
            blocks = await self._link.request(*commands)
        except TerminalError:
            with suppress(HarnessError):
                await self._link.request(window_removal(setup, new))
            raise
        window, pane_id = blocks[0].text.split()
        kind = new.shell.rpartition("/")[2].replace("busybox", "ash")
        pane = Pane(pane_id, window, new.name, new.uid, kind, new.nonce, setup.scope)
        self.by_id[pane_id] = pane
        self.on_pane(pane)
        return pane

    async def end(self, pane: Pane) -> None:
        """Kill a pane and its processes; an operator's panes in the same window stay."""
        await self._link.request(("kill-pane", "-t", pane.pane_id))
        if self.by_id.get(pane.pane_id) is pane:
            self._drop(pane)

    def _drop(self, pane: Pane) -> None:
        self.by_id.pop(pane.pane_id, None)
        notice = f"pane {pane.name!r} ({pane.pane_id}) was closed, or removed from the session"
        self.add_notice(pane.name, f"{notice}; this is a new one with a new shell")
        pane.lose(Status.UNKNOWN, f"{notice} while the command ran")

    # -- catching up

    def lost(self) -> None:
        """Handle a lost connection: the stream has a gap before its next bytes."""
        for pane in self.by_id.values():
            pane.pause()

    def target_gone(self, error: TargetGone) -> None:
        """Handle the end of the target with all its processes: close the panes, so that their jobs end."""
        for pane in list(self.by_id.values()):
            del self.by_id[pane.pane_id]
            self.add_notice(
                pane.name, f"{error.message}, and pane {pane.name!r} with it; this is a new one with a new shell"
            )
            pane.lose(Status.UNKNOWN, f"{error.message} while the command ran")

    async def reattached(self, created: bool) -> None:
        """Handle a reconnect: find the remaining panes, and read the missed output from the logs."""
        with suppress(TerminalError):  # a pane without its files, which is reported on its next use
            await self.refresh(self._link.client)
        for pane in [pane for pane in self.by_id.values() if pane.paused]:
            if pane.job is None:
                self._stop_catching_up(pane)
                await self._reattach_pane(pane)
            else:
                self._tasks.start_soon(self._catch_up, pane)

    async def resume(self, pane: Pane) -> None:
        """Resume a pane's output after tmux paused it for lag, and read the omitted part from the log."""
        self._stop_catching_up(pane)
        try:
            await self._link.client.request(("refresh-client", "-A", f"{pane.pane_id}:continue"))
        except HarnessError:
            return  # the pane was closed, or the reconnect catches up
        pane.pause()
        await self._catch_up(pane)

    def _stop_catching_up(self, pane: Pane) -> None:
        scope = self._catching_up.pop(pane.pane_id, None)
        if scope is not None:
            scope.cancel()

    async def _catch_up(self, pane: Pane) -> None:
        """Read the log until the stream has caught up; a later call for the pane replaces an earlier one."""
        self._stop_catching_up(pane)
        with anyio.CancelScope() as scope:
            self._catching_up[pane.pane_id] = scope
            while pane.paused and not pane.gone:
                try:
                    await (self._reattach_pane(pane) if pane.job is None else self._follow_log(pane, pane.job))
                except HarnessError:  # the connection was lost again
                    await anyio.sleep(RETRY)
        if self._catching_up.get(pane.pane_id) is scope:
            del self._catching_up[pane.pane_id]

    async def _follow_log(self, pane: Pane, job: PaneJob) -> None:
        """Read a job's part of the log again from its start, and as it grows, until the job has ended."""
        job.read_again()
        job.started = False
        pane.restart_scan()
        reader = LogReader(start_mark(job.nonce, job.number), job.offset)
        while job in pane.jobs and not pane.gone:  # even if it is finished for its caller, as it may still run
            active = job.active
            chunk = await self._read_log(job.log, reader.position)
            if chunk:
                pane.scan(reader.feed(chunk))
            elif not await self._ended_elsewhere(pane, job, reader):
                with anyio.move_on_after(RECHECK):
                    await active.wait()
        pane.log_offset = reader.position

    async def _reattach_pane(self, pane: Pane) -> None:
        """Set the state of a pane without a job of this process from the end of the log, and then the stream."""
        reply = await self._link.shell.call(log_end_script(f"{self._link.setup.root}/{pane.log}", pane.log_offset))
        size, _, tail = reply.stdout.partition(b"\n")
        # When an answer arrives, the stream has delivered all that the log contained, so nothing is missed or repeated.
        await self._link.client.request(("display-message", "-p", ""))
        if pane.job is None:
            pane.settle(tail, int(size.strip() or 0))
        elif pane.pane_id not in self._catching_up:  # a job was dispatched meanwhile, and its log must be followed
            self._tasks.start_soon(self._catch_up, pane)

    async def _read_log(self, log: str, position: int) -> bytes:
        path = shlex.quote(f"{self._link.setup.root}/{log}")
        reply = await self._link.shell.call(f"tail -c +{position + 1} {path} | head -c {CHUNK}")
        return reply.stdout

    async def _ended_elsewhere(self, pane: Pane, job: PaneJob, reader: LogReader) -> bool:
        """Finish a job from its record if the log has no end marker, as it may be full; return whether it ended."""
        record = b""
        with anyio.move_on_after(LOG_LAG):
            while True:
                record = (await self._shell.call(self._store.reading(job.job_id, "exit"))).stdout
                if not record.endswith(b"\n"):
                    return not reader.found and await self._was_not_started(pane, job)
                if await self._read_log(job.log, reader.position):
                    return False
                await anyio.sleep(LOG_LAG / 20)
        if not record:
            return False  # the target was too slow: ask again
        job.notices.append("the log of this command is incomplete")
        self._let_go(pane, job)
        pane.phase, pane.running = "prompt", 0
        outcome = recorded(record.decode("utf-8", "replace"), job.proof) or Outcome(Status.UNKNOWN)
        job.finish_as_reported(outcome.status, outcome.exit_code, pane.cwd or None)
        return True

    async def _was_not_started(self, pane: Pane, job: PaneJob) -> bool:
        """Check whether a job was not started, as the connection was lost while it was typed.

        An option of the pane names it if its keys may have been typed. If they were dropped with the client, the unread
        slot is withdrawn. Or its shell saw that it was cancelled, and the marker is in the unread part of the log.
        """
        if await self._called_off(job):
            self._let_go(pane, job)
            job.withdraw()
            return True
        if not job.doubtful:  # it can still be sent through this client; only its own client's exit proves otherwise
            return False
        where = ("display-message", "-p", "-t", pane.pane_id, "#{@harness_typed}")
        blocks = await self._link.client.request(where)
        if blocks[-1].text == job.job_id and not await self._taken_back(pane, job):
            return False
        free = release(pane.pane_id, pane.place, job.job_id)  # others cannot learn of its end from a record
        await self._link.client.request(*free)
        self._let_go(pane, job)
        job.notices.append("connection lost before the command was sent; it did not run")
        job.withdraw()
        return True

    async def _taken_back(self, pane: Pane, job: PaneJob) -> bool:
        """Withdraw a job that its shell at the prompt has not read, so that later keys find nothing to run."""
        if job.nonce != pane.shells[0].nonce:
            return False
        terminal = await terminal_of(pane, self._link.client.request, here=self._link.setup.here)
        front = await inspect(self._shell, *terminal)
        if not (front.wants_input and front.is_own(pane.shells[0].pid)):
            return False
        slot = f"{self._link.setup.pane_dir(pane.uid)}/next"
        return await take_slot(self._shell, slot, job.job_id) and await drop_slot(self._shell, slot, job.job_id)

    async def _called_off(self, job: PaneJob) -> bool:
        return bool((await self._shell.call(f"{self._store.is_cancelled(job.job_id)} && echo off")).stdout)

    @staticmethod
    def _let_go(pane: Pane, job: PaneJob) -> None:
        if job in pane.jobs:
            pane.jobs.remove(job)

    async def record(self, job_id: str) -> JobRecord:
        """Return the target's record of a job."""
        reply = await self._shell.call(f"cat {shlex.quote(self._store.path(job_id, 'cmd'))} 2>/dev/null")
        record = parse_record(reply.text)
        if record is None:
            raise JobNotFound(
                f"no job {job_id}", target=self._link.target, hint="list the stored jobs with: harness jobs"
            )
        return record

    async def has_ended(self, job_id: str) -> bool:
        """Return whether the target has an exit code of a job."""
        reply = await self._shell.call(f"test -s {shlex.quote(self._store.path(job_id, 'exit'))}")
        return reply.exit_code == 0
