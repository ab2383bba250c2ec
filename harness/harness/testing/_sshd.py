"""The sessions of the embedded SSH server: real processes, on pipes or on a pseudo-terminal."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import asyncssh
from anyio.abc import Process, TaskGroup

from ..system.background_tasks import BackgroundTasks
from ._pty import Pty, on_terminal

__all__ = ["Account", "Host", "SessionServer"]

CHUNK = 65536
KILL_GRACE = 2.0

_log = logging.getLogger(__name__)
_ServerProcess = asyncssh.SSHServerProcess[bytes]
_Read = Callable[[], Awaitable[bytes]]
_Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Account:
    """Who may log in, and what a login gives. An empty password allows keys only."""

    user: str
    shell: str
    home: str
    env: Mapping[str, str]
    password: str = ""
    second_factor: str = ""
    max_sessions: int = 10


@dataclass(slots=True)
class Host:
    """What all connections share: the account, a task group for sessions, and the processes that run."""

    account: Account
    tasks: BackgroundTasks
    children: set[Process] = field(default_factory=set)
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)
    logins: int = 0

    def open_session(self, process: _ServerProcess) -> None:
        """Called by asyncssh when a client has asked for a command or a shell."""
        self.tasks.start_soon(self._serve, process)

    async def _serve(self, process: _ServerProcess) -> None:
        try:
            await (_serve_terminal if process.term_type is not None else _serve_pipes)(self, process)
        except* (OSError, asyncssh.Error, anyio.BrokenResourceError, anyio.ClosedResourceError) as errors:
            _log.info("session ended early: %s", errors.exceptions)
        finally:
            process.close()

    async def start(self, argv: list[str], env: Mapping[str, str], *, piped: bool) -> Process:
        """Start a session's process as the leader of its own session, and keep watch over it."""
        stream = subprocess.PIPE if piped else subprocess.DEVNULL
        child = await anyio.open_process(
            argv,
            stdin=stream,
            stdout=stream,
            stderr=stream,
            cwd=self.account.home,
            env=env,
            start_new_session=True,
        )
        self.children.add(child)
        self.tasks.start_soon(self._reap, child)
        return child

    async def _reap(self, child: Process) -> None:
        await child.wait()
        self.children.discard(child)

    async def end(self) -> None:
        """Kill the process groups of the sessions that still run; bounded."""
        with anyio.move_on_after(KILL_GRACE, shield=True):
            for child in list(self.children):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
            for child in list(self.children):
                await child.wait()


class SessionServer(asyncssh.SSHServer):
    """One connection: who may enter, and how many sessions it may hold."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._connection: asyncssh.SSHServerConnection | None = None
        self._sessions: set[_ServerProcess] = set()

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._host.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._host.connections.discard(self._connection)

    def auth_completed(self) -> None:
        self._host.logins += 1

    def password_auth_supported(self) -> bool:
        return bool(self._host.account.password) and not self._host.account.second_factor

    def validate_password(self, username: str, password: str) -> bool:
        return username == self._host.account.user and password == self._host.account.password

    def kbdint_auth_supported(self) -> bool:
        return bool(self._host.account.second_factor)

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        return "Login", "", "en", [("Password: ", False), ("Verification code: ", False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        account = self._host.account
        return username == account.user and list(responses) == [account.password, account.second_factor]

    def session_requested(self) -> _ServerProcess | bool:
        if len(self._sessions) >= self._host.account.max_sessions:
            return False
        session = _Session(self._host.open_session, self._sessions)
        self._sessions.add(session)
        return session


class _Session(asyncssh.SSHServerProcess[bytes]):
    """A session that counts as open from the moment it is granted until its channel is closed."""

    def __init__(self, factory: Callable[[_ServerProcess], None], open_sessions: set[_ServerProcess]) -> None:
        super().__init__(factory, None, 3, False)
        self._open_sessions = open_sessions

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_sessions.discard(self)
        super().connection_lost(exc)


async def _serve_pipes(host: Host, process: _ServerProcess) -> None:
    child = await host.start(_argv(host.account, process.command), _environment(host.account, process), piped=True)
    stdin, stdout, stderr = child.stdin, child.stdout, child.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    async with stdin, stdout, stderr, anyio.create_task_group() as session:
        session.start_soon(_cancel_when_closed, process, session)
        session.start_soon(_type, process, stdin.send, stdin.aclose, child, None)
        async with anyio.create_task_group() as outputs:
            outputs.start_soon(_show, stdout.receive, process.stdout)
            outputs.start_soon(_show, stderr.receive, process.stderr)
            await child.wait()
        _report(process, child)
        session.cancel_scope.cancel()


async def _serve_terminal(host: Host, process: _ServerProcess) -> None:
    width, height = process.term_size[:2]
    pty = Pty((width, height), process.term_modes)
    try:
        env = {**_environment(host.account, process), "TERM": process.term_type or "dumb", "SSH_TTY": pty.name}
        child = await host.start(on_terminal(pty.name, _argv(host.account, process.command)), env, piped=False)
        async with anyio.create_task_group() as session:
            session.start_soon(_cancel_when_closed, process, session)
            session.start_soon(_type, process, pty.write, _nothing, child, pty)
            async with anyio.create_task_group() as outputs:
                outputs.start_soon(_show, pty.read, process.stdout)
                await child.wait()
                pty.close_slave()
            _report(process, child)
            session.cancel_scope.cancel()
    finally:
        pty.close()


async def _cancel_when_closed(process: _ServerProcess, session: TaskGroup) -> None:
    await process.wait_closed()
    session.cancel_scope.cancel()


async def _show(read: _Read, writer: asyncssh.SSHWriter[bytes]) -> None:
    with suppress(anyio.EndOfStream):
        while data := await read():
            writer.write(data)
            await writer.drain()


async def _type(
    process: _ServerProcess, write: _Write, close: Callable[[], Awaitable[None]], child: Process, pty: Pty | None
) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        while (data := await _next_input(process, child, pty)) != b"":
            if data is not None:
                await write(data)
        await close()


async def _next_input(process: _ServerProcess, child: Process, pty: Pty | None) -> bytes | None:
    try:
        return await process.stdin.read(CHUNK)
    except asyncssh.TerminalSizeChanged as change:
        if pty is not None:
            pty.resize(change.width, change.height)
    except asyncssh.SignalReceived as received:
        with suppress(ProcessLookupError, KeyError):
            os.killpg(child.pid, signal.Signals[f"SIG{received.signal}"])
    except asyncssh.BreakReceived:
        pass
    return None


async def _nothing() -> None:
    """The end of a terminal's input is a character that the client types, not an end of file."""


def _report(process: _ServerProcess, child: Process) -> None:
    code = child.returncode or 0
    if code < 0:
        process.exit_with_signal(signal.Signals(-code).name.removeprefix("SIG"))
    else:
        process.exit(code)


def _argv(account: Account, command: str | None) -> list[str]:
    return [account.shell, "-l"] if command is None else [account.shell, "-c", command]


def _environment(account: Account, process: _ServerProcess) -> dict[str, str]:
    peer = process.get_extra_info("peername") or ("127.0.0.1", 0)
    here = process.get_extra_info("sockname") or ("127.0.0.1", 0)
    return {
        "HOME": account.home,
        "USER": account.user,
        "LOGNAME": account.user,
        "SHELL": account.shell,
        "PATH": os.environ.get("PATH", os.defpath),
        "SSH_CLIENT": f"{peer[0]} {peer[1]} {here[1]}",
        "SSH_CONNECTION": f"{peer[0]} {peer[1]} {here[0]} {here[1]}",
        **account.env,
    }
