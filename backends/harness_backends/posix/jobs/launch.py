"""The lines that start jobs: in a directory, as a user, in a shell that waits for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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

from ..end_proof import proves_end, status_of_broken
from ..persistent_shell import PendingReply, PersistentShell
from ..state_directory import JobStore

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
    "launch_line",
    "order_text",
    "outcome",
    "preamble",
    "recorded",
    "refusal",
    "signal_name",
    "start_line",
    "start_text",
    "start_text_as",
    "write_bytes",
]


# -- A directory that a command was to run in and cannot be entered: the command did not run.


MISSING, NOT_A_DIRECTORY, NOT_ENTERED = 1, 2, 3
"""Why it cannot be entered, as shells on the target tell it."""

_FAULTS: dict[int, tuple[type[FileError], str]] = {
    MISSING: (FileNotFound, "no such directory"),
    NOT_A_DIRECTORY: (NotADirectory, "not a directory"),
}


def cwd_error(fault: int, cwd: str | None, target: object) -> FileError:
    """The error that says so."""
    kind, what = _FAULTS.get(fault, (PermissionDenied, "may not be entered"))
    return kind(f"{cwd}: {what}, so nothing ran", target=target)


# -- How to run a command as another user.


_NAME = re.compile(r"[A-Za-z_0-9][A-Za-z0-9_.@+-]*")


def change_user(user: str, capabilities: Capabilities, target: object) -> tuple[str, ...]:
    """The words that go before a command's argv. Nobody is asked for a password.

    Raises:
        UnsupportedOperation: the login is not root, and there is no sudo; or this is no user's name.
    """
    if not _NAME.fullmatch(user):
        raise UnsupportedOperation(f"{user!r} is not a user's name", target=target, hint="give a login name")
    if capabilities.uid == 0:
        return _from_root(user, capabilities, target)
    if capabilities.has("sudo"):
        return ("sudo", "-n", "-u", user, "--")
    raise UnsupportedOperation(
        f"cannot run as {user}: the login is neither root nor has sudo",
        target=target,
        hint=f"connect as root or as {user}, or install sudo and allow it without a password",
    )


def _from_root(user: str, capabilities: Capabilities, target: object) -> tuple[str, ...]:
    if capabilities.has("runuser"):
        return ("runuser", "-u", user, "--")
    if capabilities.has("sudo"):
        return ("sudo", "-n", "-u", user, "--")
    if capabilities.has("su"):
        return ("su", "-s", "/bin/sh", "-c", 'exec "$0" "$@"', "--", user)
    raise UnsupportedOperation(
        f"cannot run as {user}: no runuser, sudo or su", target=target, hint="install util-linux or sudo there"
    )


def check_script(program: tuple[str, ...]) -> str:
    """A script that tries the change of user with nothing to run: a refusal must not look like the command's end."""
    return f"{' '.join(map(shlex.quote, program))} sh -c : >/dev/null"


def refusal(user: str, said: str, target: object) -> UnsupportedOperation:
    """What to raise when the change of user was refused."""
    accounts = "root" if user == "root" else f"root or {user}"
    reason = (said.strip().splitlines() or ["it was refused"])[-1]
    return UnsupportedOperation(
        f"cannot run as {user}: {reason}",
        target=target,
        hint=f"check the name, and allow it without a password (NOPASSWD in sudoers), or connect as {accounts}",
    )


def account_text(user: str) -> str:
    """Shell text that sets the variables of a login, as far as the program before it has not."""
    return f'HOME=~{user}; [ -d "$HOME" ] || HOME=/; USER={user}; LOGNAME={user}; export HOME USER LOGNAME; '


# -- The lines that make the held shell run jobs, and what its replies mean. Pure.


SIGNALS = frozenset(
    ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP", "ALRM", "ABRT", "WINCH")
)
"""What a job may be sent."""
INTERRUPTING = frozenset(("INT", "TERM"))
"""Signals before which a job in a terminal gets a C-c: a shell whose program another one ends goes on."""


NO_CODE = frozenset((Status.TIMED_OUT, Status.UNKNOWN))
"""How a job ended whose shell's exit code says nothing of the command."""


def signal_name(text: str) -> str:
    """A signal as people write it, by the name that ``kill`` takes.

    Raises:
        ValueError: it is not one.
    """
    name = text.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise ValueError(f"{text!r} is not a signal's name: use {', '.join(sorted(SIGNALS))}")
    return name


class StartError(IntEnum):
    """Frame codes that mean: nothing ran, and no record was kept."""

    CWD_MISSING = 1001
    CWD_NO_DIRECTORY = 1002
    CWD_DENIED = 1003
    NO_SPACE = 1004
    NO_GROUP = 1005
    NOT_TAKEN = 1006
    """No shell took the order, or somebody asked for the job before it came and was told that it will not run."""


ENDED_TWICE = 1007
"""The frame code of a job of which a record of its end was there before it ended: something else wrote it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One call of ``hx_run``. ``start`` is shell text that replaces the subshell by the command: :func:`start_text`.

    ``limit`` bounds the bytes of each stream in the reply frame, and ``log_limit`` those that are kept of it; ``feed``
    is shell text that writes ``N.in``.
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
    """The line that starts a job, as a function of the reply's id."""
    words = (launch.job_id, launch.record, launch.cwd, launch.start, launch.feed, str(launch.limit))
    rest = f"{' '.join(map(shlex.quote, words))} {int(launch.acknowledge)} {launch.log_limit} .\n"
    return lambda number: f"hx_run {number} {rest}"


def prestart_line(job_id: str, limit: int, slot: str, previous: str) -> Callable[[int], str]:
    """The line that starts a shell for a coming job in a slot that the job ``previous`` had before."""
    rest = f"{job_id} {limit} {slot} {previous or chr(39) * 2} .\n"
    return lambda number: f"hx_warm {number} {rest}"


def start_line(launch: Launch, slot: str) -> str:
    """The line that gives the order to such a shell. ``launch.start`` is the order: :func:`order_text`."""
    words = (launch.job_id, launch.record, launch.start, launch.feed, slot)
    return f"hx_fire {' '.join(map(shlex.quote, words))} {launch.log_limit} .\n"


def order_text(env: tuple[tuple[str, str], ...], cwd: str) -> str:
    """What a waiting shell does before it becomes the command: one line."""
    text = preamble(env) + f"hx_to={shlex.quote(cwd)}"
    return text.replace("\n", "'\"$hx_nl\"'")  # a newline is always between single quotes here


def background_line(script: str) -> Callable[[int], str]:
    """The line that runs a script beside everything else in the held shell."""
    rest = f"{shlex.quote(script)} .\n"
    return lambda number: f"hx_back {number} {rest}"


def preamble(env: tuple[tuple[str, str], ...]) -> str:
    """Shell text that sets the environment. It travels over the held channel only: it is in no argv and no file."""
    return "".join(f"export {name}={shlex.quote(value)}; " for name, value in env)


def start_text(env: tuple[tuple[str, str], ...] = ()) -> str:
    """Start the command as the login's user."""
    return preamble(env) + 'hx_group "$hx_sh" -c "$hx_child" sh "$hx_job" "$hx_jobs" "$hx_umask"'


def start_text_as(user_argv: tuple[str, ...], length: int) -> str:
    """Start the command, the first ``length`` bytes of ``N.in``, through a program that changes the user."""
    prefix = " ".join(map(shlex.quote, user_argv))
    return f'hx_group {prefix} "$hx_sh" -c "$hx_child_other" sh {length} "$hx_umask"'


def write_bytes(data: bytes, variable_path: str) -> str:
    """Shell text that writes any bytes to a file with the builtin ``printf``."""
    pieces = (f"printf '{octal(chunk)}'" for chunk in _chunks(data, 4096))
    return "{ " + "; ".join(pieces) + f"; }} >{variable_path}" if data else f": >{variable_path}"


def octal(data: bytes) -> str:
    """Bytes as the format of ``printf``: letters, digits and blanks as they are, the rest as ``\\NNN``."""
    return "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in data)


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789.,:;/=_+-\n")


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a frame's code says: how the command ended, or what kept it from starting."""

    status: Status
    exit_code: int | None = None
    fault: StartError | None = None


def outcome(code: int) -> Outcome:
    """Read the code of a reply frame of ``hx_run``."""
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
    """Read the content of ``N.exit``; None while it is not whole.

    Args:
        proof: what the job's record holds. That a command completed needs the secret that belongs to it.
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


# -- A shell that is started before its command is known, so that a command pays for no process on its way.


READY_WITHIN = 1.0
MAX_COMMAND_BYTES = 2048
"""Bytes of an order; it must fit into a FIFO that nobody reads."""


@dataclass(frozen=True, slots=True)
class PrestartedShell:
    """A waiting shell: its job's id, the ticket of the reply to come, and the slot that its order goes to."""

    job_id: str
    ticket: PendingReply
    slot: str


class PrestartedShells:
    """Keeps one waiting shell on the target once commands come one after the other."""

    def __init__(self, shell: PersistentShell, store: JobStore, limit: int) -> None:
        self._shell = shell
        self._store = store
        self._limit = limit
        self._idle: PrestartedShell | None = None
        self._previous = {"a": "", "b": ""}
        self._turn = "a"
        self._busy = False

    async def take(self) -> PrestartedShell | None:
        """The waiting shell, if there is one; it is the caller's now.

        One that is still starting is waited for, for a moment, so that the ids of commands in a row rise.
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
        if warm.ticket.done:  # it was declined, or ended before its time
            warm.ticket.forget()
            return None
        self._previous[warm.slot] = warm.job_id
        return warm

    async def prepare(self) -> None:
        """Start one if there is none and an id is at hand; returns at once.

        There is never a second one: two readers of a slot would take each other's orders.
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
