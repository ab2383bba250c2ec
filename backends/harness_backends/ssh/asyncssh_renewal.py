"""A connection of the asyncssh engine that is made anew when it is lost, as the OpenSSH engine does with its master."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import anyio

from harness.errors import AuthenticationError, ConnectError, ConnectionLost, HarnessError, HostKeyError
from harness.login import current_prompter, use_prompter
from harness.target import Target
from harness.transport import Process, Transport

from .asyncssh_engine import AsyncsshTransport

__all__ = ["LogIn", "RenewingTransport"]

news = logging.getLogger("harness_backends.links")
"""What is logged here, with these two arguments, is counted, traced and shown."""
BACKOFF = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)

LogIn = Callable[[AsyncExitStack], Awaitable[AsyncsshTransport]]
"""Logs in, and leaves in the stack what ends the connection."""


class RenewingTransport(Transport):
    """Starts programs through the present connection, and logs in again when that has gone."""

    shares_sockets = False

    def __init__(self, target: Target, log_in: LogIn) -> None:
        self.target = target
        self._log_in = log_in
        self._prompter = current_prompter()
        self._stack = AsyncExitStack()
        self._current: AsyncsshTransport | None = None
        self._renewing = anyio.Lock()
        self._failures = 0
        self._lost: float | None = None
        self._final: HarnessError | None = None

    async def connect(self) -> AsyncsshTransport:
        """The present connection, or a new one; a refused login is not tried twice."""
        async with self._renewing:
            if self._current is not None and not self._current.is_lost:
                return self._current
            if self._final is not None:
                raise self._final
            again, self._lost = self._current is not None, self._lost or anyio.current_time()
            await anyio.sleep(BACKOFF[min(self._failures, len(BACKOFF) - 1)])
            await self._end()
            try:
                with use_prompter(self._prompter):
                    self._current = await self._log_in(self._stack)
            except (AuthenticationError, HostKeyError) as error:
                self._final = error
                raise
            except (ConnectError, ConnectionLost):
                self._failures += 1
                raise
            self.max_channels = self._current.max_channels
            self._failures = 0
            seconds, self._lost = anyio.current_time() - self._lost, None
            if again:
                self.renewals += 1
                target = str(self.target)
                news.info("%s: the link was lost, and is back after %.1f s", target, seconds)
            return self._current

    @property
    def current(self) -> AsyncsshTransport:
        """The connection as it is, for another engine to tunnel through."""
        assert self._current is not None
        return self._current

    @property
    def notices(self) -> list[str]:
        """Sentences about settings of the user's that this engine does not honour."""
        return self.current.notices

    async def open_process(self, argv: Sequence[str]) -> Process:
        transport = await self.connect()
        try:
            return await transport.open_process(argv)
        finally:
            self.max_channels = transport.max_channels

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return self.current.interactive_argv(argv)

    def describe(self) -> str:
        return "asyncssh"

    async def _end(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def aclose(self) -> None:
        """End the connection and with it every channel; bounded."""
        with anyio.CancelScope(shield=True):
            await self._end()
