"""The managed panes of a session in fallback mode, queried again before each use."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio

from harness.errors import HarnessError, PaneBusy, PaneGone, ShellNotReady, TerminalError
from harness.results import PaneInfo

from ..channel.single_commands import SingleCommands, until_script
from ..naming import DEFAULT_PANE, PANE_FORMAT, PaneRow, first_named, listed, pane_info, parse_panes
from ..pane.pane_state import NestedShell, Pane
from ..sessions import new_pane
from ..setup import (
    NewPane,
    log_files,
    pane_files,
    pane_files_missing,
    renamed,
    session_refusal,
    setup_script,
    state_question,
    window_commands,
    window_removal,
)
from .job_output import PaneFacts, facts_script, parse_facts

__all__ = ["FallbackPane", "FallbackPaneTable"]


@dataclass(slots=True)
class FallbackPane:
    """A pane as last queried; ``pane`` contains its names, its nonce and this process's unfinished job."""

    pane: Pane
    row: PaneRow
    facts: PaneFacts = field(default_factory=PaneFacts)
    shell_pid: int = 0
    """The process id of the shell that ran this process's last command."""


class FallbackPaneTable:
    """The managed panes of a session, found or created by name."""

    def __init__(self, tmux: SingleCommands, login_shell: str) -> None:
        self.tmux = tmux
        self.setup = tmux.setup
        """Uses the session's current name, as each command is a new client and the id may become another session's."""
        self.login_shell = login_shell
        self.kept = {DEFAULT_PANE}
        """The names of panes that are recreated if they were closed."""
        self._known: dict[str, FallbackPane] = {}
        self._creating = anyio.Lock()
        self._notices: dict[str, list[str]] = {}

    def add_notice(self, name: str, notice: str) -> None:
        """Add a notice for the next caller on a pane."""
        self._notices.setdefault(name, []).append(notice)

    def take_notices(self, name: str) -> list[str]:
        """Return the notices for the next caller on a pane, and clear them."""
        return self._notices.pop(name, [])

    # -- the session

    async def open(self) -> bool:
        """Create the session if it does not exist, and return whether it was created.

        Raises:
            PaneGone, TerminalError: the session is not available.
        """
        pane = new_pane(DEFAULT_PANE, self.login_shell, self.tmux.setup.config.cwd)
        reply = await self.tmux.shell.call(setup_script(self.tmux.setup, pane))
        fields = dict(line.partition("=")[::2] for line in reply.text.splitlines())
        refused = session_refusal(fields, self.tmux.setup, self.tmux.transport.target, reply.stderr)
        if refused is not None:
            raise refused
        shown = fields.get("session", "").partition(":")[2]
        if shown not in (self.setup.name, self.setup.session):
            self.add_notice(DEFAULT_PANE, renamed(self.setup.session, shown))
        self.setup = replace(self.setup, session_id=f"={shown}", shown=shown)
        return "created" in fields

    async def rows(self) -> list[PaneRow]:
        """Return the managed panes; recreate a session that no longer exists, with a notice."""
        try:
            return await self._rows()
        except TerminalError:
            if await self.open():
                self.add_notice(DEFAULT_PANE, "the session no longer existed; this is a new one with a new shell")
            return await self._rows()

    async def _rows(self) -> list[PaneRow]:
        blocks = await self.tmux.request(("list-panes", "-s", "-t", self.setup.exact, "-F", PANE_FORMAT))
        return parse_panes(blocks[-1].text)

    async def infos(self) -> list[PaneInfo]:
        """Return the managed panes for callers."""
        return [pane_info(row, self.setup.name) for row in await self.rows()]

    # -- one pane

    async def find(self, name: str) -> FallbackPane:
        """Find a managed pane by name or id; create it if it is missing and its name is in ``kept``.

        Raises:
            PaneGone: it does not exist, and its name is not in ``kept``.
        """
        rows = await self.rows()
        row = next((row for row in rows if name in (row.name, row.pane_id)), None)
        if row is not None:
            return self._take(row)
        if name not in self.kept:
            raise PaneGone(
                f"managed pane {name!r} does not exist; {listed(row.name for row in rows)}",
                target=self.tmux.transport.target,
            )
        if any(known.pane.name == name for known in self._known.values()):
            self.add_notice(name, f"pane {name!r} was closed; this is a new one with a new shell")
        return await self.create(name, None)

    def _take(self, row: PaneRow) -> FallbackPane:
        known = self._known.get(row.uid)
        if known is None:
            kind = self.login_shell.rpartition("/")[2].replace("busybox", "ash")
            pane = Pane(row.pane_id, row.window_id, row.name, row.uid, kind, "-", self.setup.scope)
            known = FallbackPane(pane, row)
            self._known[row.uid] = known
        self._found(known, row)
        return known

    @staticmethod
    def _found(known: FallbackPane, row: PaneRow) -> None:
        known.row, known.pane.wrapper = row, f"{row.pid}:{row.tty}"

    async def background(self, cwd: str | None) -> FallbackPane:
        """Return a free pane for a background command: an idle ``bg-N``, or a new one."""
        rows = {row.name: row for row in await self.rows()}
        default = rows.get(DEFAULT_PANE)
        for number in range(1, self.tmux.setup.config.max_panes + 1):
            row = rows.get(f"bg-{number}")
            if row is None:
                return await self.create(f"bg-{number}", cwd or (await self._directory(default) if default else None))
            known = self._take(row)
            if not row.busy and not known.pane.jobs and not known.pane.lock.statistics().locked:
                return known
        raise PaneBusy("all background panes are busy", target=self.tmux.transport.target)

    async def _directory(self, row: PaneRow) -> str | None:
        """Return the directory of a pane's shell; until that has started, tmux reports its server's instead."""
        setup = self.tmux.setup
        if setup.here:  # tmux reports a directory of another machine
            return None
        begun = await self.tmux.shell.call(f"[ -s {shlex.quote(setup.pane_dir(row.uid))}/pid ]")
        return row.cwd if begun.exit_code == 0 else None

    async def create(self, name: str, cwd: str | None) -> FallbackPane:
        """Create a window with one managed pane.

        Raises:
            TerminalError: the limit is reached, or the name is in use.
        """
        async with self._creating:
            rows = await self.rows()
            same = next((row for row in rows if row.name == name), None)
            if same is not None and name in self.kept:
                return self._take(same)
            self._check_new(name, rows)
            new = new_pane(name, self.login_shell, cwd or self.setup.config.cwd)
            await self._create(new)
            rows = await self.rows()
            for row in rows:
                if row.uid == new.uid:
                    return await self._alone(row, rows)
            raise TerminalError(
                f"tmux did not create pane {name!r}",
                target=self.tmux.transport.target,
                hint="check with: harness doctor",
            )

    async def _alone(self, made: PaneRow, rows: list[PaneRow]) -> FallbackPane:
        """Remove a new pane if another harness created one with its name, or up to the limit, at the same moment."""
        first = first_named(rows, made.name) or made
        if first.uid == made.uid and len(rows) <= self.tmux.setup.config.max_panes:
            return self._take(made)
        await self.tmux.request(("kill-pane", "-t", made.pane_id))
        if first.uid != made.uid and made.name in self.kept:
            return self._take(first)
        self._check_new(made.name, [row for row in rows if row.uid != made.uid])
        raise AssertionError("a pane is given up for one of its name, or for the limit")

    def _check_new(self, name: str, rows: list[PaneRow]) -> None:
        limit = self.tmux.setup.config.max_panes
        if any(row.name == name for row in rows):
            raise TerminalError(f"pane {name!r} already exists", target=self.tmux.transport.target)
        if len(rows) >= limit:
            raise PaneBusy(
                f"the limit of {limit} managed panes is reached",
                target=self.tmux.transport.target,
                hint="kill one (harness panes kill NAME), or raise max_panes",
            )

    async def _create(self, new: NewPane) -> None:
        setup = self.setup
        reply = await self.tmux.shell.call(
            f'umask 077\n{pane_files(setup, new)}{log_files(setup, new)}echo "$hx_umask"'
        )
        try:
            await self.tmux.request(*window_commands(setup, new, reply.text.strip(), "#{window_id}"))
        except TerminalError:
            with suppress(HarnessError):
                await self.tmux.request(window_removal(setup, new))
            raise

    async def kill(self, known: FallbackPane) -> None:
        """Kill a pane and its processes."""
        await self.tmux.request(("kill-pane", "-t", known.row.pane_id))

    # -- its shell

    async def refresh(self, known: FallbackPane) -> None:
        """Query a pane's state again.

        Raises:
            PaneGone: it was closed.
        """
        row = next((row for row in await self.rows() if row.uid == known.row.uid), None)
        if row is None:
            name = known.pane.name
            self.add_notice(name, f"pane {name!r} was closed; this is a new one with a new shell")
            del self._known[known.row.uid]
            raise PaneGone(
                f"pane {known.pane.name!r} was closed before the command was typed", target=self.tmux.transport.target
            )
        self._found(known, row)

    async def look(self, known: FallbackPane) -> None:
        """Wait for the pane's shell to start, then read the pane's files.

        Raises:
            ShellNotReady: it did not start in ``prompt_timeout`` seconds.
            TerminalError: the pane's files were deleted.
        """
        folder, limit = self.tmux.setup.pane_dir(known.row.uid), self.tmux.setup.config.prompt_timeout
        script = facts_script(folder, self.tmux.setup.tmux, known.row.pane_id)
        facts = parse_facts((await self.tmux.shell.call(script)).text)
        if facts is not None and not facts.pid:
            started = until_script("[ ! -e starting ] && [ -s pid ]", limit)
            await self.tmux.beside(f"cd {shlex.quote(folder)} && {started}", limit + 1)
            facts = parse_facts((await self.tmux.shell.call(script)).text)
        if facts is None:
            state = (await self.tmux.request(state_question(known.row.pane_id)))[-1].text
            raise pane_files_missing(known.row.name, state, self.setup, self.tmux.transport.target)
        if not facts.pid:
            raise ShellNotReady(
                f"the shell in pane {known.row.name!r} did not start within {limit:g} s",
                target=self.tmux.transport.target,
                hint="attach and check the screen; a start-up file of the shell may be waiting for input",
            )
        known.facts = facts
        known.pane.log_number = facts.log_number
        known.pane.shells[0] = NestedShell(facts.nonce, known.pane.shell.kind, files=True, pid=facts.pid)
