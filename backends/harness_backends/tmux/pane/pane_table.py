"""The managed panes of a session: find, create within limits, and kill."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import anyio

from harness.errors import HarnessError, JobNotFound, PaneBusy, PaneGone, TerminalError
from harness.results import PaneInfo, Status

from ...posix.state_directory import JobRecord, JobStore, parse_record
from ..channel.command_channel import CommandChannel, CommandClient
from ..channel.control_protocol import Block
from ..naming import DEFAULT_PANE, PANE_FORMAT, PaneRow, first_named, listed, pane_info, parse_panes
from ..sessions import new_pane
from ..setup import NewPane, log_files, pane_files, renamed, shell_kind, window_commands, window_removal
from ..sources.pane_source import PaneSource
from .pane_state import Pane

__all__ = ["PaneTable"]


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

    def __init__(self, link: CommandChannel, store: JobStore, login_shell: str, source: PaneSource) -> None:
        self._link = link
        self._store = store
        self._source = source
        self.login_shell = login_shell
        self._creating = anyio.Lock()
        self._attaching = anyio.Lock()
        self._notices: dict[str, list[str]] = {}
        self._reserved: set[str] = set()
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

    def default(self) -> NewPane:
        """Return names and secrets for a new default pane."""
        return self.new_pane(DEFAULT_PANE, None)

    # -- finding

    async def rows(self, client: CommandClient | None = None) -> list[PaneRow]:
        """Return the current managed panes."""
        asked, name = self._listing(), self._link.setup.name
        try:
            blocks = await (client.request(asked) if client else self._link.ask(asked))
        except TerminalError:
            if client is not None or not (asked != self._listing() or await self._link.restore(self.default)):
                raise
            if self._link.setup.name != name:
                self.tell_name()
            blocks = await self._link.ask(self._listing())
        return parse_panes(blocks[-1].text)

    def _listing(self) -> tuple[str, ...]:
        return "list-panes", "-s", "-t", self._link.setup.exact, "-F", PANE_FORMAT

    def info(self, row: PaneRow) -> PaneInfo:
        """Return a row for callers."""
        return pane_info(row, self._link.setup.name)

    async def refresh(self, client: CommandClient | None = None) -> None:
        """Add unknown panes, and remove those that were closed."""
        kind = shell_kind(self.login_shell)
        for row in await self.reconcile(client):
            if row.pane_id not in self.by_id:
                async with self._attaching:
                    await self._attach(row, kind)

    async def _attach(self, row: PaneRow, kind: str) -> None:
        """Add a pane of another process, once; no command is typed into it until its state is known."""
        if row.pane_id in self.by_id:  # another task has added it meanwhile
            return
        with ExitStack() as stack:

            def add(pane: Pane) -> None:
                pane.lock.acquire_nowait()
                stack.callback(pane.lock.release)
                self._add(pane)

            try:
                await self._source.attach(row, kind, add)
            except BaseException:  # its next user attaches it again
                pane = self.by_id.pop(row.pane_id, None)
                if pane is not None:
                    pane.lose(Status.UNKNOWN, "")
                raise

    def _add(self, pane: Pane) -> None:
        self.by_id[pane.pane_id] = pane
        self.on_pane(pane)

    async def update(self) -> None:
        """List the panes again unless tmux reports their changes."""
        if not self._link.notifies:
            await self.refresh()

    async def reconcile(self, client: CommandClient | None) -> list[PaneRow]:
        """Remove the panes that were closed, and update the others."""
        known = list(self.by_id.values())
        rows = {row.pane_id: row for row in await self.rows(client)}
        for pane in known:
            row = rows.get(pane.pane_id)
            if row is not None and row.uid == pane.uid:
                self._source.found(pane, row)
            elif self.by_id.get(pane.pane_id) is pane:
                await self._withdraw_unsent(pane)
                if self.by_id.get(pane.pane_id) is pane:
                    self._drop(pane)
        return list(rows.values())

    async def _withdraw_unsent(self, pane: Pane) -> None:
        """Withdraw the commands that did not reach a closed pane before the connection was lost.

        Their records are empty: they are written before a command is typed, and the lost client sends nothing more.
        """
        for job in [job for job in pane.jobs if job.doubtful and not job.started and len(pane.shells) == 1]:
            record = shlex.quote(self._store.path(job.job_id, "cmd"))
            with suppress(HarnessError):
                reply = await self._link.shells.call(f"[ -e {record} ] && [ ! -s {record} ] && echo unsent")
                if reply.stdout:
                    pane.withdraw_job(job)

    async def find(self, name: str) -> Pane:
        """Find a managed pane by name or id; create it if it is missing and its name is in ``kept``.

        Raises:
            PaneGone: it does not exist, and its name is not in ``kept``.
        """
        await self.update()
        pane = self.by_name(name)
        if pane is None and self._link.notifies:
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
        await self.update()
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
        return pane if self._source.is_free(pane) else None

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
        await self._link.shells.call(f"umask 077\n{pane_files(setup, new)}")
        reply = await self._link.shell.call(f'umask 077\n{log_files(setup, new)}echo "$hx_umask"')
        commands = window_commands(setup, new, reply.text.strip(), "#{window_id} #{pane_id}")
        made: list[Pane] = []

        def add(blocks: Sequence[Block]) -> None:  # before the output of its shell, which may come with the answer
            if not any(block.error for block in blocks):
                window, pane_id = blocks[0].text.split()
                made.append(Pane(pane_id, window, new.name, new.uid, shell_kind(new.shell), new.nonce, setup.scope))
                self._add(made[0])

        try:
            await self._link.request(*commands, on_answer=add)
        except TerminalError:
            with suppress(HarnessError):
                await self._link.request(window_removal(setup, new))
            raise
        return made[0]

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

    # -- records of jobs

    async def record(self, job_id: str) -> JobRecord:
        """Return the target's record of a job."""
        reply = await self._link.shells.call(f"cat {shlex.quote(self._store.path(job_id, 'cmd'))} 2>/dev/null")
        record = parse_record(reply.text)
        if record is None:
            raise JobNotFound(
                f"no job {job_id}", target=self._link.target, hint="list the stored jobs with: harness jobs"
            )
        return record

    async def has_ended(self, job_id: str) -> bool:
        """Return whether the target has an exit code of a job."""
        reply = await self._link.shells.call(f"test -s {shlex.quote(self._store.path(job_id, 'exit'))}")
        return reply.exit_code == 0
