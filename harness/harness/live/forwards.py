"""The running forwards of this user on this machine: their names, and how they are found and ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from ..errors import ConfigError, HarnessError
from ..forwards.specification import ForwardSpec, TcpAddress
from ..system.account import account_name
from ..system.private_files import hold_lock, is_locked
from ..system.process_identity import this_process
from ..target import Target
from .client import ProcessLeft
from .overview import LiveProcess, Overview, open_overview
from .sessions.state import SessionState
from .sockets import open_directory

__all__ = [
    "RunningForward",
    "check_name",
    "default_name",
    "hold_name",
    "is_name_held",
    "list_forwards",
    "stop_forwards",
]

ANSWER_TIMEOUT = 5.0
"""Seconds that processes have to answer; a stopped one does not."""
STOP_TIMEOUT = 30.0
"""Seconds for a forward to end what listens on the target."""
MAX_NUMBER = 99
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class RunningForward:
    """The forwards of one process. ``since`` is the Unix time since which the state is ``state``."""

    name: str
    target: str
    state: str
    since: float
    started: float
    pid: int
    forwards: Sequence[Mapping[str, str]]
    connections: int
    note: str


# -- names


def check_name(name: str) -> None:
    """Refuse what is not a name.

    Raises:
        ConfigError: It has other characters, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name of a forward", hint="use up to 64 letters, digits, '.', '_' and '-'")


def default_name(target: Target, specs: Sequence[ForwardSpec]) -> str:
    """Return the name of forwards that were given none: the host, and where the first one listens."""
    listen = specs[0].listen
    place = str(listen.port) if isinstance(listen, TcpAddress) else listen.path.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{target.last.host}-{place}".lstrip(".-"))[:60] or "forward"


@contextmanager
def hold_name(name: str, *, is_given: bool) -> Iterator[str]:
    """Hold a name against this user's other forwards on this machine, and yield it.

    Args:
        name: The name.
        is_given: Whether the operator chose it; else a number is added if it is in use.

    Raises:
        HarnessError: It is in use.
    """
    with ExitStack() as stack:
        for candidate in [name, *(f"{name}-{number}" for number in range(2, MAX_NUMBER + 1) if not is_given)]:
            try:
                stack.enter_context(hold_lock(_lock_of(candidate), 0.0))
            except TimeoutError:
                continue
            yield candidate
            return
        raise HarnessError(
            f"a forward with the name {name} is running",
            hint=f"choose another --name, or end it with 'harness forward stop {name}'",
        )


def is_name_held(name: str) -> bool:
    """Return whether forwards with this name run, or may run."""
    return is_locked(_lock_of(name))


def _lock_of(name: str) -> Path:
    return open_directory(this_process()) / f".forward.{name}.lock"


# -- finding and ending them


async def list_forwards() -> tuple[list[RunningForward], list[int]]:
    """Return the running forwards, by name, and the processes that do not answer: each may have forwards."""
    async with open_overview() as overview:
        await _wait_complete(overview)
        found = sorted((_forward_of(*row) for row in _rows(overview)), key=lambda one: one.name)
        return found, [one.identity.pid for one in overview.processes.values() if not one.is_complete]


async def stop_forwards(
    chosen: Callable[[RunningForward], bool],
) -> tuple[list[RunningForward], list[tuple[RunningForward, HarnessError]]]:
    """End forwards, and return those that have ended, and those that have not, with the reason.

    Args:
        chosen: Whether to end a forward.
    """
    ended: list[RunningForward] = []
    failed: list[tuple[RunningForward, HarnessError]] = []
    async with open_overview(name=account_name()) as overview:
        await _wait_complete(overview)
        for process, session in _rows(overview):
            forward = _forward_of(process, session)
            if not chosen(forward):
                continue
            try:
                await _stop(process, session)
                ended.append(forward)
            except HarnessError as error:
                failed.append((forward, error))
    return ended, failed


async def _wait_complete(overview: Overview) -> None:
    with anyio.move_on_after(ANSWER_TIMEOUT):
        await overview.wait_complete()


def _rows(overview: Overview) -> Iterable[tuple[LiveProcess, SessionState]]:
    return [row for row in overview.rows() if row[1].forward is not None and not row[0].lost_at]


def _forward_of(process: LiveProcess, session: SessionState) -> RunningForward:
    forward = session.forward
    assert forward is not None
    return RunningForward(
        name=forward.name,
        target=session.target,
        state="connected" if session.doing == "running" else "reconnecting",
        since=session.since,
        started=session.started,
        pid=process.identity.pid,
        forwards=forward.forwards,
        connections=forward.connections,
        note=session.note,
    )


async def _stop(process: LiveProcess, session: SessionState) -> None:
    """End the forwards of a process, and wait until it has closed its socket: then nothing listens any more."""
    client = process.client
    if client is None:
        return  # it has ended meanwhile
    if process.acting_problem:
        raise HarnessError(process.acting_problem, hint=f"kill {process.identity.pid}")
    try:
        with anyio.fail_after(STOP_TIMEOUT):
            with suppress(ProcessLeft):
                await client.request(session.session, "cancel")
            await client.wait_closed()
    except TimeoutError:
        raise HarnessError(
            f"the process does not end within {STOP_TIMEOUT:g} s", hint=f"kill {process.identity.pid}"
        ) from None
