"""The sessions of a tmux server, and where tmux runs for a target."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio

from harness.backend import Capabilities
from harness.config import Config
from harness.errors import PaneGone, TerminalError, UnsupportedOperation
from harness.results import PaneInfo, SessionInfo
from harness.target import Target
from harness.terminal import Sessions
from harness.transport import Transport
from harness.withheld_environment import child_env

from ..posix.persistent_shell import PersistentShell, ShellReply, open_held_shell
from ..posix.state_directory import JobStore, RemoteLogStore, open_job_store
from .naming import DEFAULT_PANE, PANE_FORMAT, check_name, listed, pane_info, parse_panes, target_label
from .setup import SESSION_FORMAT, NewPane, Setup, pane_shell, session_refusal, setup_script, shells_script
from .version import MIN_VERSION, TmuxVersion, require

__all__ = [
    "SessionTable",
    "new_pane",
    "open_sessions",
    "open_tmux_location",
]


# -- Where tmux runs: on the target, or on this machine with the panes' shells on the target.


TERMINAL_TIMEOUT = 20.0
"""Seconds to wait for the check whether a target provides terminals; after that the session's first prompt shows it."""


@dataclass(frozen=True, slots=True)
class TmuxLocation:
    """The machine that tmux runs on, and a notice for the first caller, which may be empty."""

    transport: Transport
    shell: PersistentShell
    setup: Setup
    notice: str = ""


@asynccontextmanager
async def open_tmux_location(
    transport: Transport,
    shell: PersistentShell,
    store: JobStore,
    capabilities: Capabilities,
    config: Config,
    session: str,
    local: Callable[[], Transport],
) -> AsyncIterator[TmuxLocation]:
    """Choose where tmux runs, by ``config.tmux_host`` and the target's capabilities; ``local`` makes a transport to
    this machine.

    Raises:
        UnsupportedOperation: tmux is unusable where it should run.
    """
    version = TmuxVersion.parse(capabilities.tmux_version)
    missing = version is None or version < MIN_VERSION
    if config.tmux_host == "target" or (config.tmux_host == "auto" and not missing) or transport.describe() == "local":
        version = require(capabilities.tmux_version, transport.target)
        yield TmuxLocation(transport, shell, Setup(store.root, session, version, config))
        return
    notice = ""
    if config.tmux_host == "auto":
        found = f"tmux {version} on the target is too old" if version else "tmux is not installed on the target"
        notice = f"{found}: the session is on this machine, with its shell on the target; it ends with the connection"
    async with _here(local()) as (local_transport, local_shell, root, here):
        label = target_label(transport.target, transport.identity)
        name = session_here(session, label)
        known = await local_shell.call(f"tmux -L {shlex.quote(config.tmux_socket)} has-session -t ={name} 2>/dev/null")
        if known.exit_code != 0:
            await _require_terminal(transport)
        logs = RemoteLogStore(local_transport, local_shell, root, f"{socket.gethostname()}:{root}")
        setup = Setup(root, name, here, config, store.root, transport.interactive_argv, host=logs.name, label=label)
        store.log_places[logs.name] = logs
        try:
            yield TmuxLocation(local_transport, local_shell, setup, notice)
        finally:
            del store.log_places[logs.name]


async def _require_terminal(transport: Transport) -> None:
    """Check that the target provides terminals: start a program as a pane does, and check its standard input.

    Raises:
        UnsupportedOperation: it does not.
    """
    ours, theirs = os.openpty()
    try:
        argv = transport.interactive_argv(["sh", "-c", "[ -t 0 ] && echo terminal || echo none"])
        with anyio.move_on_after(TERMINAL_TIMEOUT):
            done = await anyio.run_process(
                argv, stdin=theirs, stderr=subprocess.PIPE, check=False, start_new_session=True, env=child_env()
            )
            said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].strip()
            if done.stdout.split()[-1:] == [b"none"] or "PTY allocation request failed" in said:
                raise UnsupportedOperation(
                    f"the target gives no terminal{f' ({said})' if said else ''}, and a session on this machine needs"
                    " one for each of its shells",
                    target=transport.target,
                    hint='have its SSH server allow one (PermitTTY yes), use tmux on the target (tmux_host = "target"),'
                    " or leave --tmux out",
                )
    finally:
        os.close(ours)
        os.close(theirs)


def session_here(session: str, label: str) -> str:
    """Return the name of a session on this machine with shells on a target; each target has its own."""
    return f"{session}-{label}"


@asynccontextmanager
async def _here(local: Transport) -> AsyncIterator[tuple[Transport, PersistentShell, str, TmuxVersion]]:
    async with open_held_shell(local) as shell, open_job_store(shell) as store:
        text = (await shell.call("tmux -V")).text
        try:
            version = require(text, local.target)
        except UnsupportedOperation as error:
            raise UnsupportedOperation(
                f"{error.message}, and it was to run here", target=local.target, hint="install tmux on this machine"
            ) from None
        yield local, shell, store.root, version


# -- The managed sessions of the tmux server: list, create within the limit, kill, whether or not one is attached.


def new_pane(name: str, shell: str, cwd: str | None) -> NewPane:
    """Return names and secrets for a new pane."""
    return NewPane(name, secrets.token_hex(6), secrets.token_hex(10), shell, cwd or "")


def sessions_script(setup: Setup) -> str:
    """Return a script that prints the sessions, their clients and their panes for :func:`parse_sessions`."""
    questions = (
        ("list-sessions", "-F", f"session {SESSION_FORMAT}"),
        ("list-clients", "-F", "client #{client_control_mode}:#{session_name}"),
        ("list-panes", "-a", "-F", f"pane #{{session_name}}:{PANE_FORMAT}"),
    )
    return "".join(f"{setup.tmux} {shlex.join(question)} </dev/null 2>/dev/null\n" for question in questions)


def parse_sessions(text: str, setup: Setup) -> list[SessionInfo]:
    """Return the managed sessions of the setup's target; ``attached`` counts operators' clients only."""
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
    """The sessions with harness's option; ``shells`` runs where the shells of their panes run."""

    setup: Setup
    shell: PersistentShell
    shells: PersistentShell
    login_shell: str
    target: Target

    async def list(self) -> list[SessionInfo]:
        return parse_sessions((await self.shell.call(sessions_script(self.setup))).text, self.setup)

    async def create(self, name: str) -> SessionInfo:
        full = self._full_name(check_name(name, "session"))
        if any(session.name == full for session in await self.list()):
            raise TerminalError(f"session {name!r} already exists", target=self.target)
        pane = new_pane(DEFAULT_PANE, self.login_shell, self.setup.config.cwd)
        other = replace(self.setup, session=full, create=True)
        if other.here:
            await self.shells.call(shells_script(other, pane))
        await self._made(other, await self.shell.call(setup_script(other, pane)))
        return self._found(full, await self.list())

    async def _made(self, setup: Setup, reply: ShellReply) -> None:
        fields = dict(line.partition("=")[::2] for line in reply.text.splitlines())
        refused = session_refusal(fields, setup, self.target, reply.stderr)
        if refused is not None:
            raise refused
        if "created" not in fields:
            shown = fields["session"].partition(":")[2]
            raise TerminalError(f"session {setup.session!r} already exists, renamed to {shown!r}", target=self.target)

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
            raise TerminalError(f"session {name!r} could not be killed: {why}", target=self.target)

    def _full_name(self, name: str) -> str:
        return session_here(name, self.setup.label) if self.setup.here else name

    def _found(self, name: str, sessions: Sequence[SessionInfo]) -> SessionInfo:
        for session in sessions:
            if session.name == name:
                return session
        known = listed(session.name for session in sessions)
        raise PaneGone(f"tmux session {name!r} does not exist; {known}", target=self.target)


@asynccontextmanager
async def open_sessions(
    transport: Transport,
    shell: PersistentShell,
    store: JobStore,
    capabilities: Capabilities,
    config: Config,
    session: str,
    *,
    local: Callable[[], Transport],
) -> AsyncIterator[Sessions]:
    """Open the managed sessions without attaching or creating one; ``session`` is the default one.

    Raises:
        UnsupportedOperation: tmux is unusable.
    """
    async with open_tmux_location(transport, shell, store, capabilities, config, session, local) as place:
        login_shell = pane_shell(config.shell, capabilities)
        yield SessionTable(place.setup, place.shell, shell, login_shell, transport.target)
