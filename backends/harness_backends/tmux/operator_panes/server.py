"""The tmux server that this process's terminal belongs to, asked by one tmux process for each request."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.errors import TerminalError, UnsupportedOperation
from harness.system.child_process import run_program
from harness.target import Target
from harness.withheld_environment import child_env

from ..version import MIN_VERSION, TmuxVersion

__all__ = ["OperatorPane", "OperatorServer", "find_operator_server", "parse_rows"]

REPLY_TIMEOUT = 20.0
MAX_REPLY_BYTES = 16 << 20
MAX_ERROR_BYTES = 4 << 10

STATE_FORMAT = "#{pid}@#{start_time}@#{pane_pid}@#{pane_dead}@#{pane_input_off}"
"""What tells a pane with its first process from every later one of its id; it changes when keys would be dropped."""
_FIELDS = (
    "pane_id",
    "pane_pid",
    "pane_dead",
    "pane_input_off",
    "window_index",
    "pane_index",
    "pane_active",
    "pane_width",
    "pane_height",
    "pane_tty",
    "@harness_pane_id",
    "session_name",
    "pane_current_command",
    "pane_current_path",
)
"""Fields with free text come last, as they may contain a tab or a newline."""
_OFF = ("", "0")
_PANE_ID = re.compile(r"%\d+")
_STATE = re.compile(r"[\d@]+")


@dataclass(frozen=True, slots=True)
class OperatorPane:
    """One pane of the server; ``state`` is its :data:`STATE_FORMAT`."""

    state: str
    pane_id: str
    pid: int
    is_dead: bool
    is_locked: bool
    window: int
    index: int
    is_active: bool
    width: int
    height: int
    tty: str
    is_managed: bool
    """True for a pane that a harness created in this server."""
    session: str
    foreground: str
    cwd: str

    @property
    def name(self) -> str:
        """Its place: ``work:1.0``."""
        return f"{self.session}:{self.window}.{self.index}"

    @property
    def unchanged(self) -> str:
        """A format, true while the pane has the same first process and accepts keys as now."""
        return f"#{{==:{STATE_FORMAT},{self.state}}}"


def rows_format(token: str) -> str:
    """Return the format of a line for :func:`parse_rows`."""
    return "\t".join((token, STATE_FORMAT, *(f"#{{{name}}}" for name in _FIELDS)))


def parse_rows(text: str, token: str) -> list[OperatorPane]:
    """Return the panes; lines without the token are parts of a name or a path. Pure."""
    rows = []
    for line in text.split("\n"):
        values = line.split("\t", len(_FIELDS) + 1)
        if values[0] != token or len(values) < len(_FIELDS) + 1:
            continue
        state, pane_id, pid, dead, locked, window, index, active, width, height, tty, managed, session = values[1:14]
        command, path = (*values[14:], "")[:2]
        if not (_PANE_ID.fullmatch(pane_id) and _STATE.fullmatch(state)) or not all(
            map(str.isdecimal, (pid, window, index, width, height))
        ):
            continue
        rows.append(
            OperatorPane(
                state=state,
                pane_id=pane_id,
                pid=int(pid),
                is_dead=dead not in _OFF,
                is_locked=locked not in _OFF,
                window=int(window),
                index=int(index),
                is_active=active == "1",
                width=int(width),
                height=int(height),
                tty=tty,
                is_managed=managed == pane_id,
                session=session,
                foreground=command,
                cwd=path,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class OperatorServer:
    """A running tmux server that harness did not start; nothing about it is changed."""

    socket: str
    identity: str
    """The server's process ID and start time."""
    own_pane: str
    """The pane of this process."""
    version: TmuxVersion
    target: Target

    async def panes(self) -> list[OperatorPane]:
        """Return all panes; one in a window of several sessions is listed with each of its names."""
        token = secrets.token_hex(8)
        text = await self.run(("list-panes", "-a", "-F", rows_format(token)))
        return [row for row in parse_rows(text, token) if row.state.startswith(f"{self.identity}@")]

    async def active_clients(self) -> list[tuple[str, int]]:
        """Return the pane that each operator's client shows as active, and the Unix time of its last key."""
        token = secrets.token_hex(8)
        fields = ("client_control_mode", "client_readonly", "client_activity", "pane_id")
        text = await self.run(("list-clients", "-F", "\t".join((token, *(f"#{{{name}}}" for name in fields)))))
        rows = (line.split("\t") for line in text.split("\n"))
        return [
            (row[4], int(row[3]))
            for row in rows
            if row[0] == token and len(row) == len(fields) + 1 and row[1] in _OFF and row[3].isdecimal()
        ]

    async def run(self, *commands: tuple[str, ...], data: bytes | None = None) -> str:
        """Run commands in one step of the server as far as each is ready, and return what they print.

        Raises:
            TerminalError: tmux refused one, or did not answer.
        """
        return await run_tmux(self.socket, commands, self.target, data)


async def run_tmux(socket: str, commands: Iterable[tuple[str, ...]], target: Target, data: bytes | None = None) -> str:
    """Run commands of the server at a socket: see :meth:`OperatorServer.run`."""
    words: list[str] = []
    for command in commands:
        words += [*([";"] if words else []), *(f"{word[:-1]}\\;" if word.endswith(";") else word for word in command)]
    try:
        done = await run_program(
            ["tmux", "-u", "-S", socket, *words],
            data=data,
            env=child_env(),
            timeout=REPLY_TIMEOUT,
            stdout_limit=MAX_REPLY_BYTES,
            stderr_limit=MAX_ERROR_BYTES,
        )
    except OSError as error:
        raise UnsupportedOperation(
            f"tmux cannot be started: {(error.strerror or 'error').lower()}", target=target, hint="install tmux"
        ) from None
    if done.code is None:
        raise TerminalError(f"tmux did not answer within {REPLY_TIMEOUT:g} s; it may have run", target=target)
    if done.code != 0:
        why = " ".join(done.stderr.decode("utf-8", "replace").split()) or f"exit code {done.code}"
        raise TerminalError(f"tmux: {why}", target=target)
    return done.stdout.decode("utf-8", "surrogateescape")


async def find_operator_server(target: Target, environ: Mapping[str, str], own_socket: str) -> OperatorServer:
    """Return the tmux server of this process's terminal.

    Args:
        target: This machine.
        environ: The environment with ``TMUX`` and ``TMUX_PANE``.
        own_socket: The name of harness's tmux server.

    Raises:
        UnsupportedOperation: This process does not run in a pane, or in one of harness's server, or tmux is too old.
        TerminalError: The server does not answer, or is not the one in which this process was started.
    """
    socket, pid, own_pane = _of_environment(environ)
    if not (socket and _PANE_ID.fullmatch(own_pane)):
        raise UnsupportedOperation(
            "--tmux current needs a terminal inside tmux", target=target, hint="start tmux, and run harness in a pane"
        )
    if os.path.basename(socket) == own_socket:
        raise UnsupportedOperation(
            "this is a pane of harness's own tmux server, and not of an operator's",
            target=target,
            hint="use --tmux current in your own tmux",
        )
    token = secrets.token_hex(8)
    try:
        said = await run_tmux(
            socket, [("display-message", "-p", f"{token}\t#{{pid}}@#{{start_time}}\t#{{version}}")], target
        )
    except TerminalError as error:
        hint = "open a new terminal in your tmux; if it was upgraded while it runs, restart it"
        raise TerminalError(f"your tmux server cannot be used: {error.message}", target=target, hint=hint) from None
    _, identity, said_version = (*said.strip("\n").split("\t"), "", "")[:3]
    if identity.partition("@")[0] != pid:
        raise TerminalError(
            "your tmux server was restarted after this terminal was opened",
            target=target,
            hint="open a new terminal in your tmux",
        )
    version = TmuxVersion.parse(said_version)
    if version is None or version < MIN_VERSION or not identity.partition("@")[2]:
        raise UnsupportedOperation(
            f"your tmux server is too old ({said_version or 'unknown version'}), {MIN_VERSION} or newer is required",
            target=target,
            hint="upgrade tmux and restart its server",
        )
    return OperatorServer(socket, identity, own_pane, version, target)


def _of_environment(environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the socket, the server's process ID and this process's pane, as tmux tells them to its programs."""
    socket, pid, _ = (*environ.get("TMUX", "").rsplit(",", 2), "", "")[:3]
    return socket, pid, environ.get("TMUX_PANE", "")
