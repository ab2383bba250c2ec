"""The managed panes of a session: found by their options, made within limits, caught up after a gap."""

from __future__ import annotations

import shlex

import anyio
from anyio.abc import TaskGroup

from harness.errors import ConnectionLost, JobNotFound, PaneBusy, PaneGone, TerminalError
from harness.results import PaneInfo, SessionInfo, Status

from ..posix.markers import MarkerScanner
from ..posix.shell import HeldShell
from ..posix.state import JobRecord, JobStore, parse_record
from .job import PaneJob
from .keyboard import type_text
from .link import Link
from .naming import DEFAULT_PANE, PANE_FORMAT, PaneRow, parse_panes
from .output import OutputCollector
from .pane import Pane
from .setup import NewPane, pane_files, pane_options

__all__ = ["PaneTable"]

TAIL = 1 << 16
CHUNK = 1 << 20
RECHECK = 2.0
LONG_TEXT = 4000


class PaneTable:
    """Knows the managed panes of one session."""

    def __init__(self, link: Link, shell: HeldShell, store: JobStore, login_shell: str, tasks: TaskGroup) -> None:
        self._link = link
        self._shell = shell
        self._store = store
        self._login_shell = login_shell
        self._tasks = tasks
        self._creating = anyio.Lock()
        self._notices: dict[str, list[str]] = {}
        self._new: dict[str, NewPane] = {}
        self.by_id: dict[str, Pane] = {}
        self.kept = {DEFAULT_PANE}
        """The names of panes that are made anew when they are lost."""

    def by_name(self, name: str) -> Pane | None:
        """A live pane by our name for it, or by tmux's id."""
        return next((pane for pane in self.by_id.values() if name in (pane.name, pane.pane_id)), None)

    def take_notices(self, pane: Pane) -> list[str]:
        """What the next caller must be told about a pane."""
        return self._notices.pop(pane.name, [])

    def new_pane(self, name: str, cwd: str | None) -> NewPane:
        """Names and secrets for a pane that is about to be made."""
        token = self._link.token()
        return NewPane(name, token[:12], self._link.token(), self._login_shell, cwd or "")

    # -- finding

    async def rows(self) -> list[PaneRow]:
        """The managed panes as tmux has them now."""
        command = ("list-panes", "-s", "-t", f"={self._link.setup.session}", "-F", PANE_FORMAT)
        blocks = await self._link.request(command)
        return parse_panes(blocks[-1].text)

    def info(self, row: PaneRow) -> PaneInfo:
        """A row as callers see it."""
        return PaneInfo(
            name=row.name,
            pane_id=row.pane_id,
            session=self._link.setup.session,
            default=row.name == DEFAULT_PANE,
            width=row.width,
            height=row.height,
            foreground=row.foreground,
            cwd=row.cwd,
            busy=f"job {row.busy}" if row.busy else "",
        )

    async def refresh(self) -> None:
        """Take up panes that we do not know yet, and let go of those that are gone."""
        rows = {row.pane_id: row for row in await self.rows()}
        for pane in list(self.by_id.values()):
            if pane.pane_id not in rows or rows[pane.pane_id].uid != pane.uid:
                self._drop(pane)
        for row in rows.values():
            if row.pane_id not in self.by_id:
                await self._take_up(row)

    async def _take_up(self, row: PaneRow) -> Pane:
        folder = shlex.quote(self._link.setup.pane_dir(row.uid))
        script = (
            f"cd {folder} || exit 1; cat nonce; n=0; while [ -e log.$((n + 1)) ]; do n=$((n + 1)); done; "
            f"echo $n $(wc -c <log.$n); tail -c {TAIL} log.$n"
        )
        reply = await self._shell.call(script)
        nonce, _, rest = reply.stdout.partition(b"\n")
        numbers, _, tail = rest.partition(b"\n")
        if reply.exit_code != 0 and not nonce:
            raise TerminalError(
                f"the files of pane {row.name!r} are gone",
                target=self._link.transport.target,
                hint=f"tmux -L {self._link.setup.config.tmux_socket} kill-window -t {row.window_id}",
            )
        kind = self._login_shell.rpartition("/")[2].replace("busybox", "ash")
        pane = Pane(row.pane_id, row.window_id, row.name, row.uid, kind, nonce.decode())
        number, size = (numbers.split() + [b"0", b"0"])[:2]
        pane.log_number, pane.log_offset = int(number), int(size)
        self.by_id[row.pane_id] = pane
        for piece in MarkerScanner(pane.shell.nonce).feed(tail):
            if not isinstance(piece, bytes):
                pane.apply(piece)
        pane.restarted = None
        return pane

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
                f"there is no managed pane {name!r}",
                target=self._link.transport.target,
                hint="harness panes lists them",
            )
        return await self.create(name, None)

    async def background(self, cwd: str | None) -> Pane:
        """A free pane for a command that nobody waits for: an idle ``bg-N``, or a new one."""
        start = cwd
        default = self.by_name(DEFAULT_PANE)
        if start is None and default is not None:
            start = default.cwd or None
        for number in range(1, self._link.setup.config.max_panes + 1):
            pane = self.by_name(f"bg-{number}")
            if pane is None:
                return await self.create(f"bg-{number}", start)
            if pane.phase == "prompt" and not pane.jobs and not pane.lock.statistics().locked:
                return pane
        raise PaneBusy("every background pane is busy", target=self._link.transport.target)

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
                raise TerminalError(f"there is a pane {name!r} already", target=self._link.transport.target)
            if len(rows) >= limit:
                raise PaneBusy(
                    f"the limit of {limit} managed panes is reached",
                    target=self._link.transport.target,
                    hint="kill one (harness panes kill NAME), or raise max_panes",
                )
            return await self._create(self.new_pane(name, cwd))

    async def _create(self, new: NewPane) -> Pane:
        setup = self._link.setup
        await self._shell.call(f"umask 077\n{pane_files(setup, new)}")
        mask = (await self._shell.call('echo "$hx_umask"')).text.strip() or "022"
        session = f"={setup.session}:"
        where = ("-c", new.cwd) if new.cwd else ()
        command = f"umask {mask}; {setup.pane_command(new)}"
        blocks = await self._link.request(
            ("new-window", "-d", "-t", session, "-n", new.name, *where, "-P", "-F", "#{window_id} #{pane_id}", command)
        )
        window, pane_id = blocks[-1].text.split()
        pane = Pane(
            pane_id, window, new.name, new.uid, new.shell.rpartition("/")[2].replace("busybox", "ash"), new.nonce
        )
        self.by_id[pane_id] = pane
        await self._link.request(*pane_options(setup, new, window))
        return pane

    def window_closed(self, window: str) -> None:
        """tmux says that a window is gone."""
        for pane in list(self.by_id.values()):
            if pane.window_id == window:
                self._drop(pane)

    def _drop(self, pane: Pane) -> None:
        self.by_id.pop(pane.pane_id, None)
        notice = f"pane {pane.name!r} ({pane.pane_id}) was closed"
        self._notices.setdefault(pane.name, []).append(f"{notice}; this is a new one with a fresh shell")
        pane.lose(Status.UNKNOWN, f"{notice} while the command ran")

    async def sessions(self) -> list[SessionInfo]:
        """The managed sessions of the server."""
        fields = "#{session_name}\t#{session_attached}\t#{@harness}"
        blocks = await self._link.request(("list-sessions", "-F", fields))
        found = []
        for line in blocks[-1].text.splitlines():
            name, attached, ours = line.split("\t")
            if ours == "1":
                rows = await self._link.request(("list-panes", "-s", "-t", f"={name}", "-F", PANE_FORMAT))
                panes = tuple(self.info(row) for row in parse_panes(rows[-1].text))
                found.append(SessionInfo(name, int(attached), panes, default=name == self._link.setup.session))
        return found

    async def create_session(self, name: str) -> SessionInfo:
        """Another managed session, within the limit."""
        from dataclasses import replace

        from .setup import setup_script

        sessions = await self.sessions()
        limit = self._link.setup.config.max_sessions
        if any(session.name == name for session in sessions):
            raise TerminalError(f"there is a session {name!r} already", target=self._link.transport.target)
        if len(sessions) >= limit:
            raise TerminalError(
                f"the limit of {limit} managed sessions is reached",
                target=self._link.transport.target,
                hint="kill one, or raise max_sessions",
            )
        other = replace(self._link.setup, session=name)
        await self._shell.call(setup_script(other, self.new_pane(DEFAULT_PANE, None)))
        return next(session for session in await self.sessions() if session.name == name)

    async def kill_session(self, name: str) -> None:
        """End another managed session."""
        if name == self._link.setup.session:
            raise TerminalError("the session in use is protected", target=self._link.transport.target)
        if not any(session.name == name for session in await self.sessions()):
            raise PaneGone(f"there is no managed session {name!r}", target=self._link.transport.target)
        await self._link.request(("kill-session", "-t", f"={name}"))

    # -- catching up

    async def reattached(self, created: bool) -> None:
        """The link is back: find what is left, and read from the logs what the stream missed."""
        await self.refresh()
        for pane in list(self.by_id.values()):
            pane.paused = True
            self._tasks.start_soon(self._catch_up, pane)

    async def resume(self, pane: Pane) -> None:
        """tmux stopped sending a pane's output because we lagged behind: go on, and read what was left out."""
        try:
            await self._link.request(("refresh-client", "-A", f"{pane.pane_id}:continue"))
            await self._catch_up(pane)
        except ConnectionLost:
            return  # the reconnect catches up

    async def _catch_up(self, pane: Pane) -> None:
        job = pane.job
        if job is None:
            await self._take_up_again(pane)
            return
        job.collector = OutputCollector(job.command.max_output, job.command.on_output, skip=job.collector.total)
        job.started = False
        pane.restart_scan()
        position = job.offset
        while not job.done.is_set() and not pane.gone:
            active = job.active
            chunk = await self._read_log(job.log, position)
            if chunk:
                position += len(chunk)
                pane.scan(chunk)
            elif not await self._ended_elsewhere(pane, job):
                with anyio.move_on_after(RECHECK):
                    await active.wait()
        pane.log_offset = position
        pane.paused = False
        pane.restart_scan()

    async def _take_up_again(self, pane: Pane) -> None:
        log = shlex.quote(f"{self._store.root}/{pane.log}")
        reply = await self._shell.call(f"wc -c <{log}; tail -c {TAIL} {log}")
        size, _, tail = reply.stdout.partition(b"\n")
        pane.log_offset = int(size.strip() or 0)
        pane.paused = False
        pane.restart_scan()
        pane.scan(tail)

    async def _read_log(self, log: str, position: int) -> bytes:
        path = shlex.quote(f"{self._store.root}/{log}")
        reply = await self._shell.call(f"tail -c +{position + 1} {path} | head -c {CHUNK}")
        return reply.stdout

    async def _ended_elsewhere(self, pane: Pane, job: PaneJob) -> bool:
        """The log holds no end: perhaps it was full, and the shell's own record has the exit code."""
        reply = await self._shell.call(f"cat {shlex.quote(self._store.path(job.job_id, 'exit'))} 2>/dev/null")
        if not reply.stdout.endswith(b"\n"):
            return False
        job.notices.append("the log of this command is incomplete")
        if job in pane.jobs:
            pane.jobs.remove(job)
        pane.phase, pane.running = "prompt", 0
        job.finish(Status.COMPLETED, int(reply.stdout.split()[0]), pane.cwd or None)
        return True

    async def record(self, job_id: str) -> JobRecord:
        """The target's record of a job."""
        reply = await self._shell.call(f"cat {shlex.quote(self._store.path(job_id, 'cmd'))} 2>/dev/null")
        record = parse_record(reply.text)
        if record is None:
            raise JobNotFound(f"no job {job_id}", target=self._link.transport.target, hint="harness jobs lists them")
        return record

    async def literal(self, pane: Pane, text: str) -> list[tuple[str, ...]]:
        """The commands that type a text of any length."""
        if len(text) <= LONG_TEXT and "\n" not in text:
            return type_text(pane.pane_id, text)
        buffer = f"hxk{pane.pane_id[1:]}"
        return [("set-buffer", "-b", buffer, text), ("paste-buffer", "-d", "-r", "-b", buffer, "-t", pane.pane_id)]
