"""Pacing of logins: a few at the same time per server, and further tries where the server throttles them."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar

from harness.errors import ConnectError

__all__ = ["MAX_LOGINS", "PAUSES", "ThrottledError", "log_in_paced"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

MAX_LOGINS = 8
"""Logins at the same time per server: sshd drops connections from 10 unauthenticated ones on (MaxStartups)."""

PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each further try after the server has dropped a connection, multiplied by 0.5 to 1.5."""


class ThrottledError(ConnectError):
    """The server closed the connection before the key exchange ended: no login was tried, and no command was sent."""


@dataclass(eq=False)
class _Server:
    slots: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MAX_LOGINS))
    users: int = 0

    def slow_down(self, limit: float) -> None:
        """Halve the number of logins at the same time, unless it has been lowered since it was ``limit``."""
        self.slots.total_tokens = min(self.slots.total_tokens, max(1, limit // 2))


_servers: RunVar[dict[str, _Server]] = RunVar("_servers")
"""The servers at which this event loop is logging in."""


@contextmanager
def _use(server: str) -> Iterator[_Server]:
    servers = _servers.get(None)
    if servers is None:
        servers = {}
        _servers.set(servers)
    entry = servers.setdefault(server, _Server())
    entry.users += 1
    try:
        yield entry
    finally:
        entry.users -= 1
        if not entry.users:
            del servers[server]


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
                if tries > len(PAUSES) or paused > max_pause:
                    raise _still_throttled(error, tries) from error
                logger.info("%s: connection dropped before the login, next try in %.1f s", error.target, pause)
            finally:
                entry.slots.release_on_behalf_of(slot)
            await anyio.sleep(pause)


def _pause(tries: int) -> float:
    """Return the seconds before the next try, not the same for all logins that were dropped together."""
    return PAUSES[min(tries, len(PAUSES) - 1)] * (0.5 + os.urandom(1)[0] / 255)


def _still_throttled(error: ThrottledError, tries: int) -> ConnectError:
    count = "1 try" if tries == 1 else f"{tries} tries"
    return ConnectError(f"{error.message} ({count})", target=error.target, hint=error.hint)
