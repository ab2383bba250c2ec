"""Shell lines that start jobs: in a directory, as a user, in a prestarted shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import anyio

from harness.backend import Capabilities
from harness.errors import (
    ConnectError,
    ConnectionLost,
    FileError,
    FileNotFound,
    NotADirectory,
    PermissionDenied,
    UnsupportedOperation,
)
from harness.results import Status

from ..pane_jobs.end_proof import proves_end, status_of_broken
from ..persistent_shell import PendingReply, PersistentShell, ShellReply
from ..state_directory import JobStore
from .memory_records import IN_MEMORY

__all__ = [
    "INTERRUPTING",
    "MAX_COMMAND_BYTES",
    "MISSING",
    "NOT_A_DIRECTORY",
    "NOT_ENTERED",
    "Launch",
    "Outcome",
    "PrestartedShell",
    "PrestartedShells",
    "StartError",
    "account_text",
    "background_line",
    "change_user",
    "check_script",
    "cwd_error",
    "kill_rights",
    "launch_line",
    "order_text",
    "outcome",
    "preamble",
    "recorded",
    "refusal",
    "run_in_background",
    "signal_name",
    "start_line",
    "start_text",
    "start_text_as",
    "write_bytes",
]


# -- Errors about a working directory that cannot be entered, so that the command did not run.


MISSING, NOT_A_DIRECTORY, NOT_ENTERED = 1, 2, 3
"""Reasons why a directory cannot be entered, as reported by shells on the target."""

_FAULTS: dict[int, tuple[type[FileError], str]] = {
    MISSING: (FileNotFound, "no such directory"),
    NOT_A_DIRECTORY: (NotADirectory, "not a directory"),
}


def cwd_error(fault: int, cwd: str | None, target: object) -> FileError:
    """Return the error for a directory that cannot be entered."""
    kind, what = _FAULTS.get(fault, (PermissionDenied, "no permission to enter the directory"))
    return kind(f"{cwd}: {what}, so nothing ran", target=target)


# -- How to run a command as another user.


AUDIT_FAILURE = "error initializing audit plugin"
"""A line that ``sudo`` adds after the reason of some refusals."""
_NAME = re.compile(r"[A-Za-z_0-9][A-Za-z0-9_.@+-]*")


def change_user(user: str, capabilities: Capabilities, target: object) -> tuple[str, ...]:
    """Return the arguments to put before a command's argv; they never ask for a password.

    :class:`..sudo.user_change.UserChanges` falls back to others that do.

    Raises:
        UnsupportedOperation: the login is neither root nor has sudo, or the user name is invalid.
    """
    if not _NAME.fullmatch(user):
        raise UnsupportedOperation(f"{user!r} is not a valid user name", target=target, hint="use a login name")
    if capabilities.uid == 0:
        return _from_root(user, capabilities, target)
    if capabilities.has("sudo"):
        return (capabilities.program("sudo"), "-n", "-u", user, "--")
    raise UnsupportedOperation(
        f"cannot run as {user}: the login is neither root nor has sudo",
        target=target,
        hint=f"connect as root or as {user}, or install sudo",
    )


def _from_root(user: str, capabilities: Capabilities, target: object) -> tuple[str, ...]:
    if capabilities.has("runuser"):
        return ("runuser", "-u", user, "--")
    if capabilities.has("sudo"):
        return (capabilities.program("sudo"), "-n", "-u", user, "--")
    if capabilities.has("su"):
        return ("su", "-s", "/bin/sh", "-c", 'exec "$0" "$@"', "--", user)
    raise UnsupportedOperation(
        f"cannot run as {user}: no runuser, sudo or su", target=target, hint="install util-linux or sudo on the target"
    )


def check_script(program: tuple[str, ...]) -> str:
    """Return a script that tests the change of user, as its refusal must not look like the command's exit."""
    return f"{' '.join(map(shlex.quote, program))} sh -c : >/dev/null"


def refusal(user: str, said: str, target: object) -> UnsupportedOperation:
    """Return the error for a refused change of user."""
    accounts = "root" if user == "root" else f"root or {user}"
    return UnsupportedOperation(
        f"cannot run as {user}: {refusal_reason(said)}",
        target=target,
        hint=f"check the name and what sudoers allows, or connect as {accounts}",
    )


def refusal_reason(said: str) -> str:
    """Return the reason from the standard error of what refused a change of user. Pure."""
    lines = said.strip().splitlines()
    reasons = [line for line in lines if AUDIT_FAILURE not in line]
    return (reasons or lines or ["refused"])[-1]


def kill_rights(argv: tuple[str, ...], askpass: str) -> str:
    """Return shell code that lets ``hx_kill`` signal another user's processes; ``askpass`` as at the start."""
    by_user = f"hx_by={shlex.quote(' '.join(map(shlex.quote, argv)))}; "
    return f"{by_user}SUDO_ASKPASS={shlex.quote(askpass)}; export SUDO_ASKPASS; " if askpass else by_user


def account_text(user: str) -> str:
    """Return shell code that sets a login's variables."""
    home = f'unset SUDO_ASKPASS; HOME=~{user}; [ -d "$HOME" ] || HOME=/; '
    return f"{home}USER={user}; LOGNAME={user}; export HOME USER LOGNAME; "


# -- Lines that make the persistent shell run jobs, and the meaning of its replies. Pure.


SIGNALS = frozenset(
    ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP", "ALRM", "ABRT", "WINCH")
)
"""The signals that a job may be sent."""
INTERRUPTING = frozenset(("INT", "TERM"))
"""Signals that a C-c precedes for a job in a terminal: a shell continues after another process kills its program."""


NO_CODE = frozenset((Status.TIMED_OUT, Status.UNKNOWN))
"""Statuses for which the shell's exit code is not the command's."""


def signal_name(text: str) -> str:
    """Normalize a signal's name for ``kill``: upper case, without SIG.

    Raises:
        ValueError: the signal is not in :data:`SIGNALS`.
    """
    name = text.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise ValueError(f"{text!r} is not a valid signal name: use {', '.join(sorted(SIGNALS))}")
    return name


class StartError(IntEnum):
    """Frame codes of jobs that did not run and left no record."""

    CWD_MISSING = 1001
    CWD_NO_DIRECTORY = 1002
    CWD_DENIED = 1003
    NO_SPACE = 1004
    NO_GROUP = 1005
    NOT_TAKEN = 1006
    """No shell accepted the order, or the job was queried earlier and reported as never started."""


ENDED_TWICE = 1007
"""The frame code of a job whose exit record another process wrote before it ended."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The arguments of one call of ``hx_run``.

    ``start`` is shell code that replaces the subshell by the command: :func:`start_text`. ``limit`` bounds the bytes of
    each stream in the reply frame, ``log_limit`` those that are stored; ``feed`` is shell code that writes ``N.in``.
    """

    job_id: str
    record: str
    start: str
    cwd: str = ""
    feed: str = ""
    limit: int = 0
    acknowledge: bool = False
    log_limit: int = 1 << 28


def launch_line(launch: Launch) -> Callable[[int], str]:
    """Return the line that starts a job, as a function of the reply's id."""
    words = (launch.job_id, launch.record, launch.cwd, launch.start, launch.feed, str(launch.limit))
    rest = f"{' '.join(map(shlex.quote, words))} {int(launch.acknowledge)} {launch.log_limit} .\n"
    return lambda number: f"hx_run {number} {rest}"


def prestart_line(job_id: str, limit: int, slot: str, previous: str) -> Callable[[int], str]:
    """Return the line that prestarts a shell in the slot that the job ``previous`` used before."""
    rest = f"{job_id} {limit} {slot} {previous or chr(39) * 2} .\n"
    return lambda number: f"hx_warm {number} {rest}"


def start_line(launch: Launch, slot: str) -> str:
    """Return the line that sends a prestarted shell its order, ``launch.start``: :func:`order_text`."""
    words = (launch.job_id, launch.record, launch.start, launch.feed, slot)
    return f"hx_fire {' '.join(map(shlex.quote, words))} {launch.log_limit} .\n"


def order_text(env: tuple[tuple[str, str], ...], cwd: str) -> str:
    """Return the line that a prestarted shell executes before the command."""
    text = preamble(env) + f"hx_to={shlex.quote(cwd)}"
    return text.replace("\n", "'\"$hx_nl\"'")  # a newline is always between single quotes here


def background_line(script: str) -> Callable[[int], str]:
    """Return the line that runs a script in the background of the persistent shell."""
    rest = f"{shlex.quote(script)} .\n"
    return lambda number: f"hx_back {number} {rest}"


async def run_in_background(shell: PersistentShell, script: str, seconds: float | None = None) -> ShellReply | None:
    """Run a script in the background of the persistent shell, and return its reply; None if it takes too long."""
    ticket = await shell.submit(background_line(script))
    try:
        with anyio.move_on_after(seconds):
            return await ticket.reply()
        return None
    finally:
        ticket.forget()


def preamble(env: tuple[tuple[str, str], ...]) -> str:
    """Return shell code that sets the environment; it appears in no argv and no file."""
    return "".join(f"export {name}={shlex.quote(value)}; " for name, value in env)


def start_text(env: tuple[tuple[str, str], ...] = ()) -> str:
    """Return shell code that starts the command as the login's user."""
    return preamble(env) + 'hx_group "$hx_sh" -c "$hx_child" sh "$hx_job" "$hx_jobs" "$hx_umask"'


def start_text_as(user_argv: tuple[str, ...], length: int, askpass: str = "") -> str:
    """Return shell code that starts the command (the first ``length`` bytes of ``N.in``) as another user.

    ``askpass`` is the program by which ``sudo`` reads a password.
    """
    asking = f"SUDO_ASKPASS={shlex.quote(askpass)}; export SUDO_ASKPASS; " if askpass else ""
    prefix = " ".join(map(shlex.quote, user_argv))
    return f'{asking}hx_group {prefix} "$hx_sh" -c "$hx_child_other" sh {length} "$hx_umask"'


def write_bytes(data: bytes, variable_path: str) -> str:
    """Return shell code that writes any bytes to a file with the builtin ``printf``."""
    pieces = (f"printf '{octal(chunk)}'" for chunk in _chunks(data, 4096))
    return "{ " + "; ".join(pieces) + f"; }} >{variable_path}" if data else f": >{variable_path}"


def octal(data: bytes) -> str:
    """Encode bytes as a ``printf`` format: plain characters unchanged, the rest as ``\\NNN``."""
    return "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in data)


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789.,:;/=_+-\n")


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The meaning of a frame's code: how the command ended, or why it did not start."""

    status: Status
    exit_code: int | None = None
    fault: StartError | None = None
    in_memory: bool = False
    """Whether its record and its output are in memory, as the disk was full."""


def outcome(code: int) -> Outcome:
    """Interpret the code of a reply frame of ``hx_run``."""
    if code >= IN_MEMORY:
        return replace(outcome(code - IN_MEMORY), in_memory=True)
    if code == ENDED_TWICE:
        return Outcome(Status.UNKNOWN)
    if code in StartError._value2member_map_:
        return Outcome(Status.UNKNOWN, None, StartError(code))
    if code >= 3000:
        return Outcome(Status.INTERRUPTED, code - 3000)
    if code >= 2000:
        return Outcome(Status.TIMED_OUT)
    return Outcome(Status.COMPLETED, code)


def recorded(text: str, proof: str = "") -> Outcome | None:
    """Parse the content of ``N.exit``; return None while it is incomplete.

    Args:
        proof: the digest in the job's record; a completed command must show the matching secret.
    """
    words = text.split()
    if not text.endswith("\n") or not words or not words[0].lstrip("-").isdecimal():
        return None
    try:
        status = Status(words[1]) if len(words) > 1 else Status.COMPLETED
    except ValueError:
        status = Status.COMPLETED
    secret, broken = ([*words[2:4], "", ""])[:2]
    if status is Status.COMPLETED and not proves_end(secret, proof):
        return Outcome(Status.UNKNOWN)
    if status is Status.COMPLETED:
        status = status_of_broken(int(words[0]), broken)
    return Outcome(status, None if status in NO_CODE else int(words[0]))


# -- Prestarted shells, which save a command the time to start a process.


READY_WITHIN = 1.0
MAX_COMMAND_BYTES = 2048
"""The limit of an order, which must fit into the FIFO's buffer."""


@dataclass(frozen=True, slots=True)
class PrestartedShell:
    """A prestarted shell: its job's id, the pending reply, and the slot for its order."""

    job_id: str
    ticket: PendingReply
    slot: str


class PrestartedShells:
    """The manager of one prestarted shell on the target, for commands in a row."""

    def __init__(self, shell: PersistentShell, store: JobStore, limit: int) -> None:
        self._shell = shell
        self._store = store
        self._limit = limit
        self._idle: PrestartedShell | None = None
        self._previous = {"a": "", "b": ""}
        self._turn = "a"
        self._busy = False

    async def take(self) -> PrestartedShell | None:
        """Take the prestarted shell, if there is one; the caller then owns it.

        Waits briefly for a shell that is still starting, so that the ids of commands in a row increase.
        """
        warm = self._idle
        if warm is None or self._busy:
            return None
        self._busy = True
        try:
            with anyio.move_on_after(READY_WITHIN) as waiting:
                await warm.ticket.started()
        except ConnectionLost:
            self._idle = None
            return None
        finally:
            self._busy = False
        if waiting.cancelled_caught:
            return None
        self._idle = None
        if warm.ticket.done:  # it was declined, or exited early
            warm.ticket.forget()
            return None
        self._previous[warm.slot] = warm.job_id
        return warm

    async def prepare(self) -> None:
        """Prestart a shell if there is none and an id is available, without waiting for it.

        There is never a second one: two readers of a slot would accept each other's orders.
        """
        if self._idle is not None or self._busy or (job_id := self._store.claim_ready()) is None:
            return
        self._busy = True
        self._turn = "b" if self._turn == "a" else "a"
        line = prestart_line(job_id, self._limit, self._turn, self._previous[self._turn])
        try:
            ticket = await self._shell.submit(line, acknowledged=True)
        except (ConnectionLost, ConnectError):
            return
        finally:
            self._busy = False
        self._idle = PrestartedShell(job_id, ticket, self._turn)
