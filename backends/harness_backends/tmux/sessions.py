"""The managed sessions of the tmux server: listed, made within the limit, ended, whether or not one is attached."""

from __future__ import annotations

import secrets
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from harness.backend import Capabilities
from harness.config import Config
from harness.errors import PaneGone, TerminalError
from harness.results import PaneInfo, SessionInfo
from harness.target import Target
from harness.terminal import Sessions
from harness.transport import Transport

from ..posix.shell import HeldShell, Reply
from ..posix.state import JobStore
from .naming import DEFAULT_PANE, PANE_FORMAT, check_name, listed, pane_info, parse_panes
from .paneshell import pane_shell
from .refusals import session_refusal
from .setup import SESSION_FORMAT, NewPane, Setup, setup_script, shells_script
from .where import session_here, tmux_place

__all__ = ["SessionTable", "new_pane", "open_sessions", "parse_sessions", "sessions_script"]


def new_pane(name: str, shell: str, cwd: str | None) -> NewPane:
    """Names and secrets for a pane that is about to be made."""
    return NewPane(name, secrets.token_hex(6), secrets.token_hex(10), shell, cwd or "")


def sessions_script(setup: Setup) -> str:
    """Print the sessions, their clients and their panes, as :func:`parse_sessions` reads them."""
    questions = (
        ("list-sessions", "-F", f"session {SESSION_FORMAT}"),
        ("list-clients", "-F", "client #{client_control_mode}:#{session_name}"),
        ("list-panes", "-a", "-F", f"pane #{{session_name}}:{PANE_FORMAT}"),
    )
    return "".join(f"{setup.tmux} {shlex.join(question)} </dev/null 2>/dev/null\n" for question in questions)


def parse_sessions(text: str, setup: Setup) -> list[SessionInfo]:
    """The managed sessions of the setup's target; ``attached`` counts people, not the clients of harness."""
    names: list[str] = []
    renamed: set[str] = set()
    people: Counter[str] = Counter()
    panes: dict[str, list[PaneInfo]] = {}
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        head, _, tail = rest.partition(":")
        if kind == "session" and head == "1":
            label, made_as, name = tail.split(":", 2)
            if label == setup.label:
                names.append(name)
                renamed |= {name} if made_as == setup.session != name else set()
        elif kind == "client":
            people[tail] += head != "1"
        elif kind == "pane":
            panes.setdefault(head, []).extend(pane_info(row, head) for row in parse_panes(tail))
    used = {setup.session} if setup.session in names else renamed
    return [SessionInfo(name, people[name], tuple(panes.get(name, ())), name in used) for name in names]


@dataclass(frozen=True, slots=True)
class SessionTable(Sessions):
    """Knows the sessions that carry our option. ``shells`` is where the shells of their panes run."""

    setup: Setup
    shell: HeldShell
    shells: HeldShell
    login_shell: str
    target: Target

    async def list(self) -> list[SessionInfo]:
        return parse_sessions((await self.shell.call(sessions_script(self.setup))).text, self.setup)

    async def create(self, name: str) -> SessionInfo:
        full = self._full_name(check_name(name, "session"))
        if any(session.name == full for session in await self.list()):
            raise TerminalError(f"there is a session {name!r} already", target=self.target)
        pane = new_pane(DEFAULT_PANE, self.login_shell, self.setup.config.cwd)
        other = replace(self.setup, session=full, create=True)
        if other.here:
            await self.shells.call(shells_script(other, pane))
        await self._made(other, await self.shell.call(setup_script(other, pane)))
        return self._found(full, await self.list())

    async def _made(self, setup: Setup, reply: Reply) -> None:
        fields = dict(line.partition("=")[::2] for line in reply.text.splitlines())
        refused = session_refusal(fields, setup, self.target, reply.stderr)
        if refused is not None:
            raise refused
        if "created" not in fields:
            shown = fields["session"].partition(":")[2]
            raise TerminalError(
                f"there is a session {setup.session!r} already, which somebody renamed {shown!r}", target=self.target
            )

    async def kill(self, name: str) -> None:
        sessions = await self.list()
        wanted = name if any(session.name == name for session in sessions) else self._full_name(name)
        exact = shlex.quote(f"={self._found(wanted, sessions).name}")
        tmux = self.setup.tmux
        reply = await self.shell.call(
            f"{tmux} kill-session -t {exact} </dev/null; ! {tmux} has-session -t {exact} </dev/null 2>/dev/null"
        )
        if reply.exit_code != 0:
            why = reply.stderr.decode("utf-8", "replace").strip() or "no reason given"
            raise TerminalError(f"session {name!r} could not be ended: {why}", target=self.target)

    def _full_name(self, name: str) -> str:
        return session_here(name, self.setup.label) if self.setup.here else name

    def _found(self, name: str, sessions: Sequence[SessionInfo]) -> SessionInfo:
        for session in sessions:
            if session.name == name:
                return session
        known = listed(session.name for session in sessions)
        raise PaneGone(f"there is no tmux session {name!r}; {known}", target=self.target)


@asynccontextmanager
async def open_sessions(
    transport: Transport,
    shell: HeldShell,
    store: JobStore,
    capabilities: Capabilities,
    config: Config,
    session: str,
) -> AsyncIterator[Sessions]:
    """The managed sessions; none is attached or made. ``session`` is the one that counts as the default.

    Raises:
        UnsupportedOperation: there is no usable tmux.
    """
    async with tmux_place(transport, shell, store, capabilities, config, session) as place:
        login_shell = pane_shell(config.shell, capabilities)
        yield SessionTable(place.setup, place.shell, shell, login_shell, transport.target)
