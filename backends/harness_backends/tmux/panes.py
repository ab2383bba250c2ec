"""The managed panes of a session: find, create within limits, and recover after a gap in the stream."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace

import anyio

from harness.errors import HarnessError, JobNotFound, PaneBusy, PaneGone, TargetGone, TerminalError
from harness.results import PaneInfo, Status
from harness.system.background_tasks import BackgroundTasks

from ..posix.jobs.launch import Outcome, recorded
from ..posix.persistent_shell import PersistentShell
from ..posix.state_directory import JobRecord, JobStore, parse_record
from .control import ControlClient
from .foreground import SHELLS, inspect, terminal_of
from .job import PaneJob
from .keyboard import release
from .link import ControlConnection
from .logs import TAIL, LogReader, log_end_script, start_mark, take_up_script
from .naming import DEFAULT_PANE, PANE_FORMAT, PaneRow, first_named, listed, pane_info, parse_panes
from .pane import Pane, Phase
from .sessions import new_pane
from .setup import (
    NewPane,
    log_files,
    pane_files,
    pane_files_missing,
    renamed,
    state_question,
    window_commands,
    window_removal,
)
from .unstarted_commands import drop_slot, take_slot

__all__ = ["PaneTable"]

CHUNK = 1 << 20
RECHECK = 10.0
"""Seconds after which a silent job's end is looked for where the stream should have told of it."""
RETRY = 1.0
LOG_LAG = 2.0
"""How long the log may be behind the file that holds the exit code."""
START_GRACE = 1.0
"""How long a typed job may take to start."""


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
        self.kept = {DEFAULT_PANE}
        """The names of panes that are recreated if they were closed."""

    def by_name(self, name: str) -> Pane | None:
        """A live pane by our name for it, or by tmux's id."""
        return next((pane for pane in self.by_id.values() if name in (pane.name, pane.pane_id)), None)

    def tell_name(self) -> None:
        """Say that a person has given the session another name."""
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
        """Names and secrets for a pane that is about to be made."""
        return new_pane(name, self.login_shell, cwd or self._link.setup.config.cwd)

    # -- finding

    async def rows(self, client: ControlClient | None = None) -> list[PaneRow]:
        """The managed panes as tmux has them now."""
        asked = self._listing()
        try:
            blocks = await (client.request(asked) if client else self._link.ask(asked))
        except TerminalError:
            if client is not None or (asked == self._listing() and not await self._link.ended()):
                raise
            await self._link.ready()  # the session ended with its last pane, and is made anew
            blocks = await self._link.ask(self._listing())
        return parse_panes(blocks[-1].text)

    def _listing(self) -> tuple[str, ...]:
        return "list-panes", "-s", "-t", self._link.setup.exact, "-F", PANE_FORMAT

    def info(self, row: PaneRow) -> PaneInfo:
        """A row as callers see it."""
        return pane_info(row, self._link.setup.name)

    async def refresh(self, client: ControlClient | None = None) -> None:
        """Take up panes that we do not know yet, and let go of those that are gone."""
        for row in await self._reconcile(client):
            if row.pane_id not in self.by_id:
                await self._attach_pane(row)

    async def _reconcile(self, client: ControlClient | None) -> list[PaneRow]:
        """Let go of the panes that are gone, and learn in which window the others are now."""
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
        """tmux says that something happened to a window: a person may have closed or moved panes.

        Args:
            closed: the window that is said to be closed, which may be linked to two sessions and still be in ours.
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
            with suppress(HarnessError):  # the link is down: the reconnect looks
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
        """The last mark in the log is not the last that was written, or it has none.

        It was full, or has just begun; or an operator's ``pipe-pane`` took its place, or a program that of the shell.
        """
        if pane.phase == "starting":
            return gone or pane.log_offset > TAIL or (own > 0 and pane.log_number > 0)
        if self._link.setup.here:
            return False
        if pane.phase == "running":
            return own != 0 and (not pane.running or await self._store.settle(str(pane.running)))
        return own < 0 or row.foreground.lstrip("-") not in SHELLS

    async def _phase_of(self, pane: Pane, row: PaneRow) -> Phase:
        """What the pane's shell does, where no mark tells: a shell inside it must not be taken for it."""
        own, by_hand = pane.shells[0].pid, pane.phase == "running" and not pane.running
        if not own:
            return "prompt" if row.foreground.lstrip("-") in SHELLS else "running"
        front = await inspect(self._shell, row.tty, row.pid)
        ready = front.editing if by_hand else front.may_be_prompt  # a command of an operator's may read lines itself
        return "prompt" if front.is_own(own) and ready else "running"

    async def _begin_log(self, pane: Pane) -> None:
        """Somebody has removed the log that tmux writes to."""
        pane.log_number += 1
        log = self._link.setup.log_command(pane.uid, pane.log_number)
        await self._link.client.request(("pipe-pane", "-t", pane.pane_id, log))
        self.add_notice(
            pane.name, f"the log of pane {pane.name!r} was removed; the output of earlier commands in it is lost"
        )

    async def _release_ended(self, pane: Pane, holder: str) -> bool:
        """Give the pane back for a holder whose job has ended and who did not do so itself: it may be dead."""
        if not await self._store.settle(holder):
            if await self._starts(pane):
                return False
            await self._store.settle(holder, pane.at_prompt)
        await self._link.client.request(*release(pane.pane_id, pane.place, holder))
        return True

    @staticmethod
    async def _starts(pane: Pane) -> bool:
        """The pane runs something, or does so within a moment; a shell that stays at its prompt ran its last job."""
        with anyio.move_on_after(START_GRACE):
            while pane.phase == "prompt" and not pane.gone:
                await pane.changed.wait()
        return pane.phase != "prompt"

    async def find(self, name: str) -> Pane:
        """A managed pane by name or id; a kept one is made when it is missing.

        Raises:
            PaneGone: there is none, and it is not a kept one.
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
        """A free pane for a command that nobody waits for: an idle ``bg-N``, or a new one; no other caller gets it.

        ``tried`` are those that turned out to be another harness's.
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
        """A pane that runs nothing, made when it is missing; None when it is busy."""
        pane = self.by_name(name)
        if pane is None:
            with suppress(PaneExists):  # by another harness, a moment ago
                return await self.create(name, cwd)
            return None
        free = pane.phase in ("prompt", "ended") and not pane.jobs and not pane.lock.statistics().locked
        return pane if free else None

    # -- making and ending

    async def create(self, name: str, cwd: str | None) -> Pane:
        """A new window with one managed pane.

        Raises:
            TerminalError: the limit is reached, or the name is taken.
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
        """Give a new pane up when another harness has made one at the same moment, and neither saw the other's."""
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
        return pane

    async def end(self, pane: Pane) -> None:
        """End a pane and what runs in it; what a person has beside it in its window stays."""
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
        """The link is gone: what the stream brings from here on has a hole before it."""
        for pane in self.by_id.values():
            pane.pause()

    def target_gone(self, error: TargetGone) -> None:
        """Nothing that ran there runs any more: nobody waits for it."""
        for pane in list(self.by_id.values()):
            del self.by_id[pane.pane_id]
            self.add_notice(
                pane.name, f"{error.message}, and pane {pane.name!r} with it; this is a new one with a new shell"
            )
            pane.lose(Status.UNKNOWN, f"{error.message} while the command ran")

    async def reattached(self, created: bool) -> None:
        """The link is back: find what is left, and read from the logs what the stream missed."""
        with suppress(TerminalError):  # a pane without its files: whoever asks for it is told
            await self.refresh(self._link.client)
        for pane in [pane for pane in self.by_id.values() if pane.paused]:
            if pane.job is None:
                self._stop_catching_up(pane)
                await self._reattach_pane(pane)
            else:
                self._tasks.start_soon(self._catch_up, pane)

    async def resume(self, pane: Pane) -> None:
        """tmux stopped sending a pane's output because we lagged behind: go on, and read what was left out."""
        self._stop_catching_up(pane)
        try:
            await self._link.client.request(("refresh-client", "-A", f"{pane.pane_id}:continue"))
        except HarnessError:
            return  # the pane has gone, or the reconnect catches up
        pane.pause()
        await self._catch_up(pane)

    def _stop_catching_up(self, pane: Pane) -> None:
        scope = self._catching_up.pop(pane.pane_id, None)
        if scope is not None:
            scope.cancel()

    async def _catch_up(self, pane: Pane) -> None:
        """Read until stream and log are one again. One at a time for a pane: a later one replaces an earlier one."""
        self._stop_catching_up(pane)
        with anyio.CancelScope() as scope:
            self._catching_up[pane.pane_id] = scope
            while pane.paused and not pane.gone:
                try:
                    await (self._reattach_pane(pane) if pane.job is None else self._follow_log(pane, pane.job))
                except HarnessError:  # the link is down once more
                    await anyio.sleep(RETRY)
        if self._catching_up.get(pane.pane_id) is scope:
            del self._catching_up[pane.pane_id]

    async def _follow_log(self, pane: Pane, job: PaneJob) -> None:
        """Read a job's part of the log again, and then as it grows, until the job has ended."""
        job.read_again()
        job.started = False
        pane.restart_scan()
        reader = LogReader(start_mark(job.nonce, job.number), job.offset)
        while job in pane.jobs and not pane.gone:  # also when it was given up: it may still run, and end
            active = job.active
            chunk = await self._read_log(job.log, reader.position)
            if chunk:
                pane.scan(reader.feed(chunk))
            elif not await self._ended_elsewhere(pane, job, reader):
                with anyio.move_on_after(RECHECK):
                    await active.wait()
        pane.log_offset = reader.position

    async def _reattach_pane(self, pane: Pane) -> None:
        """No job of ours runs in the pane: its state is what the end of the log tells, and then the stream."""
        reply = await self._link.shell.call(log_end_script(f"{self._link.setup.root}/{pane.log}", pane.log_offset))
        size, _, tail = reply.stdout.partition(b"\n")
        # What the log held then has come through the stream once an answer does, so nothing is missed or counted twice.
        await self._link.client.request(("display-message", "-p", ""))
        if pane.job is None:
            pane.settle(tail, int(size.strip() or 0))
        elif pane.pane_id not in self._catching_up:  # a job was dispatched meanwhile, and needs somebody who reads on
            self._tasks.start_soon(self._catch_up, pane)

    async def _read_log(self, log: str, position: int) -> bytes:
        path = shlex.quote(f"{self._link.setup.root}/{log}")
        reply = await self._link.shell.call(f"tail -c +{position + 1} {path} | head -c {CHUNK}")
        return reply.stdout

    async def _ended_elsewhere(self, pane: Pane, job: PaneJob, reader: LogReader) -> bool:
        """The log holds no end: perhaps it was full, and the shell's own record has the exit code."""
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
            return False  # the target was too slow to say: ask again
        job.notices.append("the log of this command is incomplete")
        self._let_go(pane, job)
        pane.phase, pane.running = "prompt", 0
        outcome = recorded(record.decode("utf-8", "replace"), job.proof) or Outcome(Status.UNKNOWN)
        job.finish(outcome.status, outcome.exit_code, pane.cwd or None)
        return True

    async def _was_not_started(self, pane: Pane, job: PaneJob) -> bool:
        """The link was lost while the job was being typed: the pane's window names it if its keys may be there.

        They may be lost with the client, too: then what its shell has not read is taken back. Or its shell was told
        that it was called off, and that mark is in the part of the log that was not read.
        """
        if await self._called_off(job):
            self._let_go(pane, job)
            job.withdraw()
            return True
        if not job.doubtful:  # it is still to be sent, through this client: only the end of its own client proves it
            return False
        where = ("display-message", "-p", "-t", pane.pane_id, "#{@harness_typed}")
        blocks = await self._link.client.request(where)
        if blocks[-1].text == job.job_id and not await self._taken_back(pane, job):
            return False
        free = release(pane.pane_id, pane.place, job.job_id)  # no record will tell others of its end
        await self._link.client.request(*free)
        self._let_go(pane, job)
        job.notices.append("connection lost before the command was sent; it did not run")
        job.withdraw()
        return True

    async def _taken_back(self, pane: Pane, job: PaneJob) -> bool:
        """The shell reads its keyboard and has not read the job: keys that come after this find nothing to run."""
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
        """The target's record of a job."""
        reply = await self._shell.call(f"cat {shlex.quote(self._store.path(job_id, 'cmd'))} 2>/dev/null")
        record = parse_record(reply.text)
        if record is None:
            raise JobNotFound(
                f"no job {job_id}", target=self._link.target, hint="list the stored jobs with: harness jobs"
            )
        return record

    async def has_ended(self, job_id: str) -> bool:
        """Whether the target has an exit code of a job."""
        reply = await self._shell.call(f"test -s {shlex.quote(self._store.path(job_id, 'exit'))}")
        return reply.exit_code == 0
