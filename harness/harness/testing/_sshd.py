"""The embedded SSH server itself, with pseudo-terminals."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import asyncssh
from anyio.abc import Process, TaskGroup

from ..system.background_tasks import BackgroundTasks
from ..system.descriptor_stream import DescriptorStream

__all__ = [
    "Account",
    "Host",
    "Pty",
    "SessionServer",
    "on_terminal",
]


# -- A pseudo-terminal with a child on it: size, modes, and non-blocking reads and writes of the controlling side.


# RFC 4254, section 8: opcodes of the encoded terminal modes.
_CHARACTERS = {
    1: termios.VINTR,
    2: termios.VQUIT,
    3: termios.VERASE,
    4: termios.VKILL,
    5: termios.VEOF,
    6: termios.VEOL,
    7: termios.VEOL2,
    8: termios.VSTART,
    9: termios.VSTOP,
    10: termios.VSUSP,
    12: termios.VREPRINT,
    13: termios.VWERASE,
    14: termios.VLNEXT,
    18: termios.VDISCARD,
}
_IFLAG, _OFLAG, _CFLAG, _LFLAG, _CC = 0, 1, 2, 3, 6
_FLAGS = {
    30: (_IFLAG, termios.IGNPAR),
    31: (_IFLAG, termios.PARMRK),
    32: (_IFLAG, termios.INPCK),
    33: (_IFLAG, termios.ISTRIP),
    34: (_IFLAG, termios.INLCR),
    35: (_IFLAG, termios.IGNCR),
    36: (_IFLAG, termios.ICRNL),
    38: (_IFLAG, termios.IXON),
    39: (_IFLAG, termios.IXANY),
    40: (_IFLAG, termios.IXOFF),
    41: (_IFLAG, termios.IMAXBEL),
    42: (_IFLAG, 0o40000),  # IUTF8, which the termios module does not name
    50: (_LFLAG, termios.ISIG),
    51: (_LFLAG, termios.ICANON),
    53: (_LFLAG, termios.ECHO),
    54: (_LFLAG, termios.ECHOE),
    55: (_LFLAG, termios.ECHOK),
    56: (_LFLAG, termios.ECHONL),
    57: (_LFLAG, termios.NOFLSH),
    58: (_LFLAG, termios.TOSTOP),
    59: (_LFLAG, termios.IEXTEN),
    60: (_LFLAG, termios.ECHOCTL),
    61: (_LFLAG, termios.ECHOKE),
    70: (_OFLAG, termios.OPOST),
    72: (_OFLAG, termios.ONLCR),
    73: (_OFLAG, termios.OCRNL),
    74: (_OFLAG, termios.ONOCR),
    75: (_OFLAG, termios.ONLRET),
    92: (_CFLAG, termios.PARENB),
    93: (_CFLAG, termios.PARODD),
}
_DISABLED = 255


class Pty:
    """Both sides of a new pseudo-terminal. Close the child's side once the child has it."""

    def __init__(self, size: tuple[int, int], modes: Mapping[int, int]) -> None:
        self.master, self.slave = os.openpty()
        self._stream = DescriptorStream(self.master)
        self.name = os.ttyname(self.slave)
        self.resize(*size)
        self._set_modes(modes)

    def resize(self, width: int, height: int) -> None:
        """Set the window size, in characters; the child's foreground group gets SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height or 24, width or 80, 0, 0))

    def _set_modes(self, modes: Mapping[int, int]) -> None:
        attributes = termios.tcgetattr(self.slave)
        for opcode, value in modes.items():
            if opcode in _CHARACTERS:
                attributes[_CC][_CHARACTERS[opcode]] = bytes([0 if value == _DISABLED else value & 255])
            elif opcode in _FLAGS:
                field, bit = _FLAGS[opcode]
                attributes[field] = attributes[field] | bit if value else attributes[field] & ~bit
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)

    async def read(self) -> bytes:
        """The next output; ``b""`` once nothing holds the child's side."""
        return await self._stream.read()

    async def write(self, data: bytes) -> None:
        """Type all of ``data``."""
        await self._stream.write(data)

    def close_slave(self) -> None:
        """Leave the child's side to the child."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def close(self) -> None:
        """Hang up."""
        self.close_slave()
        self._stream.close()
        self.master = -1


def on_terminal(name: str, argv: list[str]) -> list[str]:
    """A command that takes terminal ``name`` as its controlling one and becomes ``argv``.

    It must be started as a session leader: such a process acquires the first terminal that it opens.
    """
    return ["/bin/sh", "-c", 'exec <>"$1" >&0 2>&0; shift; exec "$@"', "sh", name, *argv]


# -- The sessions of the embedded SSH server: real processes, on pipes or on a pseudo-terminal.


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

    async def open_session(self, process: _ServerProcess) -> None:
        """Serve a client that has asked for a command or a shell; asyncssh awaits it in a task, as anyio requires."""
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

    def __init__(
        self, factory: Callable[[_ServerProcess], Awaitable[None]], open_sessions: set[_ServerProcess]
    ) -> None:
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
