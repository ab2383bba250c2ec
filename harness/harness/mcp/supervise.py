"""Keeps one server running: starts it when it is needed, starts it again when it ends, and gives up with a reason."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal

import anyio

from ..errors import AuthenticationError, ConfigError, ConnectError, HarnessError, UnsupportedOperation
from .client import Connection
from .client_config import ServerConfig

__all__ = ["RestartBudget", "ServerState", "Supervision", "Supervisor"]

FINAL = (ConfigError, AuthenticationError, UnsupportedOperation)
"""To start it again would end in the same way."""

logger = logging.getLogger(__name__)

State = Literal["idle", "starting", "ready", "waiting", "unavailable"]


@dataclass(frozen=True, slots=True)
class Supervision:
    """How often a server is started again: ``restarts`` times within ``window`` seconds, at most.

    The first restart waits for ``backoff`` seconds, each further one twice as long as the one before.
    """

    restarts: int = 3
    window: float = 60.0
    backoff: float = 0.5


@dataclass(slots=True)
class RestartBudget:
    """Counts restarts. Times are of any clock that does not go back."""

    rules: Supervision
    _times: deque[float] = field(default_factory=deque)

    def next_delay(self, now: float) -> float | None:
        """Seconds to wait before a restart, which is counted; None when there were too many."""
        while self._times and now - self._times[0] >= self.rules.window:
            self._times.popleft()
        if len(self._times) >= self.rules.restarts:
            return None
        self._times.append(now)
        return float(self.rules.backoff * 2 ** (len(self._times) - 1))

    def forget(self) -> None:
        """Somebody asked for a restart: begin anew."""
        self._times.clear()


@dataclass(frozen=True, slots=True)
class ServerState:
    """How a server is, and why it is not there."""

    state: State
    reason: str = ""


Opener = Callable[[Callable[[], None]], AbstractAsyncContextManager[Connection]]
"""Reaches the server; takes what to call when its tools change."""
Lister = Callable[[Connection], Awaitable[None]]
"""Takes the tools of a server that has just started, or says that they changed."""


class Supervisor:
    """One server. :meth:`run` is its life; everything else may be called from any task.

    Args:
        listed: called with each new connection before it serves calls, and when the server's tools change.
    """

    def __init__(
        self, config: ServerConfig, open_server: Opener, listed: Lister, rules: Supervision | None = None
    ) -> None:
        self.config = config
        self._open = open_server
        self._listed = listed
        self._rules = rules or Supervision()
        self._budget = RestartBudget(self._rules)
        self._state = ServerState("idle" if config.lazy else "starting")
        self._news = anyio.Event()
        self._wanted = anyio.Event()
        self._connection: Connection | None = None
        self._retry_at = 0.0

    @property
    def state(self) -> ServerState:
        """How it is now."""
        return self._state

    async def changed(self) -> ServerState:
        """Wait until it is another, and return that."""
        await self._news.wait()
        return self._state

    def restart(self) -> None:
        """Start it again, now, also when it was given up. A running one is ended first: its calls are lost."""
        self._budget.forget()
        self._retry_at = 0.0
        if self._connection is not None:
            self._connection.link.end("it is being restarted")
        self._wanted.set()

    async def connection(self) -> Connection:
        """The session, once it is there. Starts a server that is not running.

        Raises:
            ConnectError: it is not available, and why. Nothing was sent to it.
        """
        self._wake()
        with anyio.move_on_after(self.config.start_timeout + self._rules.backoff):
            while True:
                connection = self._connection
                if connection is not None and not connection.link.ended.is_set():
                    return connection
                if self._state.state == "unavailable" and not self._wanted.is_set():
                    raise self._unavailable()
                await self._news.wait()
        raise self._unavailable("it did not start in time")

    def _unavailable(self, reason: str = "") -> ConnectError:
        text = self._state.reason or reason
        return ConnectError(f"server {self.config.name!r} is unavailable: {text}")

    def _wake(self) -> None:
        if self._state.state == "idle":
            self._wanted.set()
        if self._state.state == "unavailable" and self._retry_at and anyio.current_time() >= self._retry_at:
            self._wanted.set()

    def _become(self, state: State, reason: str = "") -> None:
        self._state = ServerState(state, reason)
        self._news.set()
        self._news = anyio.Event()

    async def run(self) -> None:
        """Look after the server until this is cancelled."""
        if self.config.lazy:
            await self._sleep()
        while True:
            self._become("starting", self._state.reason)
            reason, final = await self._serve()
            delay = None if final else self._budget.next_delay(anyio.current_time())
            if delay is not None:
                self._become("waiting", reason)
                with anyio.move_on_after(delay):
                    await self._wanted.wait()
                self._wanted = anyio.Event()
                continue
            self._retry_at = 0.0 if final else anyio.current_time() + self._rules.window
            self._become("unavailable", reason if final else f"{reason}; it was started {self._rules.restarts} times")
            await self._sleep()

    async def _sleep(self) -> None:
        await self._wanted.wait()
        self._wanted = anyio.Event()

    async def _serve(self) -> tuple[str, bool]:
        """Start it and stay until it ends: the reason, and whether a further start would be no use."""
        changed = _Changes()
        try:
            async with self._open(changed.note) as connection:
                await self._listed(connection)
                self._connection = connection
                self._become("ready")
                await self._watch(connection, changed)
                return connection.link.reason, False
        except HarnessError as error:
            return self._bare(str(error)), isinstance(error, FINAL)
        except Exception as error:  # a defect about one server must not end the others
            logger.exception("server %s", self.config.name)
            return f"{type(error).__name__}: {error}", True
        finally:
            self._connection = None

    def _bare(self, text: str) -> str:
        """A reason without the server's name, which stands before it wherever it is told."""
        return text.removeprefix(f"server {self.config.name!r}").removeprefix(":").strip()

    async def _watch(self, connection: Connection, changed: _Changes) -> None:
        """Until the link ends; its tools are taken again whenever they change."""
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                while True:
                    await changed.wait()
                    try:
                        await self._listed(connection)
                    except HarnessError as error:
                        connection.link.end(error.message)

            tasks.start_soon(follow)
            await connection.link.ended.wait()
            tasks.cancel_scope.cancel()


class _Changes:
    """Several notes that come at once are one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = anyio.Event()
