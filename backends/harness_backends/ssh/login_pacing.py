"""Pacing of logins: a few at the same time per server, and further tries where the server throttles them."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar

from harness.errors import ConnectError, HarnessError
from harness.login import current_prompter
from harness.target import Target

__all__ = [
    "MAX_LOGINS",
    "PAUSES",
    "ThrottledError",
    "error_at_jump_host",
    "error_of_forward",
    "log_in_paced",
    "log_in_without_retries",
    "share_login",
]

T = TypeVar("T")
logger = logging.getLogger(__name__)

MAX_LOGINS = 8
"""Logins at the same time per server: sshd drops connections from 10 unauthenticated ones on (MaxStartups)."""

PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each further try after the server has dropped a connection, multiplied by 0.5 to 1.5."""


_retries: ContextVar[bool] = ContextVar("_retries", default=True)


@contextmanager
def log_in_without_retries() -> Iterator[None]:
    """Report a dropped connection at once: a caller that reconnects tries again itself, and meanwhile says why."""
    token = _retries.set(False)
    try:
        yield
    finally:
        _retries.reset(token)


class ThrottledError(ConnectError):
    """The server closed the connection before the key exchange ended: no login was tried, and no command was sent."""


@dataclass(eq=False)
class _Logins:
    """The logins at one server, or those of one shared connection."""

    slots: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MAX_LOGINS))
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    failures: int = 0
    error: HarnessError | None = None
    users: int = 0

    def slow_down(self, limit: float) -> None:
        """Halve the number of logins at the same time, unless it has been lowered since it was ``limit``."""
        self.slots.total_tokens = min(self.slots.total_tokens, max(1, limit // 2))


_logins: RunVar[dict[str, _Logins]] = RunVar("_logins")
"""The logins of this event loop, by the name of their server or shared connection."""


@contextmanager
def _use(name: str) -> Iterator[_Logins]:
    logins = _logins.get(None)
    if logins is None:
        logins = {}
        _logins.set(logins)
    entry = logins.setdefault(name, _Logins())
    entry.users += 1
    try:
        yield entry
    finally:
        entry.users -= 1
        if not entry.users:
            del logins[name]


async def log_in_paced(server: str, log_in: Callable[[], Awaitable[T]], *, max_pause: float) -> T:
    """Log in when fewer than :data:`MAX_LOGINS` others do so at this server; try again if it throttles logins.

    Args:
        server: Identifies the server that counts the login.
        log_in: Logs in once; it raises :class:`ThrottledError` only if the server has not seen an authentication.
        max_pause: Seconds to wait between tries, altogether.

    Raises:
        ConnectError: ``log_in`` raised it, or the server throttled every try.
    """
    tries, paused = 0, 0.0
    with _use(server) as entry:
        while True:
            slot = object()
            await entry.slots.acquire_on_behalf_of(slot)
            limit = entry.slots.total_tokens
            try:
                return await log_in()
            except ThrottledError as error:
                entry.slow_down(limit)
                pause = _pause(tries)
                tries, paused = tries + 1, paused + pause
                if tries > len(PAUSES) or paused > max_pause or not _retries.get():
                    raise _still_throttled(error, tries) from error
                logger.info("%s: connection dropped before the login, next try in %.1f s", error.target, pause)
            finally:
                entry.slots.release_on_behalf_of(slot)
            await anyio.sleep(pause)


def _pause(tries: int) -> float:
    """Return the seconds before the next try, not the same for all logins that were dropped together."""
    return PAUSES[min(tries, len(PAUSES) - 1)] * (0.5 + os.urandom(1)[0] / 255)


def _still_throttled(error: ThrottledError, tries: int) -> ConnectError:
    count = f" ({tries} tries)" if tries > 1 else ""
    return ConnectError(f"{error.message}{count}", target=error.target, hint=error.hint)


async def share_login(connection: str, log_in: Callable[[], Awaitable[T]]) -> T:
    """Call a login whose connection others share, one after the other; those who wait while it fails get its error.

    Args:
        connection: Identifies the shared connection.
        log_in: Returns a share of the connection; logs in if it does not exist.

    Raises:
        HarnessError: ``log_in`` raised it, for this caller or for one that it has waited for.
    """
    with _use(f"{connection} {id(current_prompter())}") as entry:  # with another prompter the login may succeed
        failures = entry.failures
        async with entry.turn:
            if entry.error is not None and entry.failures != failures:
                raise entry.error
            try:
                return await log_in()
            except HarnessError as error:
                entry.failures, entry.error = entry.failures + 1, error
                raise


def error_at_jump_host(error: HarnessError, jump: Target, target: Target) -> HarnessError:
    """Return the error of a host whose jump host failed with ``error``."""
    name = str(jump).partition("://")[2]
    return type(error)(f"jump host {name}: {error.message}", target=target, hint=error.hint)


def error_of_forward(jump: str, target: Target, reason: str = "") -> ConnectError:
    """Return the error of a host that its jump host cannot connect to."""
    return ConnectError(
        f"the jump host{jump and ' '}{jump} cannot connect to it{reason and ': '}{reason}",
        target=target,
        hint="the host is down, its SSH port is closed, or the jump host forbids it (AllowTcpForwarding)",
    )
