"""The default SSH engine: ``ssh`` logs in once, and each program is a session of that connection."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial

import anyio

from harness.errors import AuthenticationError, ConnectError, ConnectionLost, HostKeyError, UnsupportedOperation
from harness.login import current_prompter, use_prompter
from harness.transport import Process, Transport

from .channel_limit import ChannelLease, ChannelLimiter
from .control_master import (
    ControlMaster,
    acquire,
    connect_with_timeout,
    count_connections,
    end_master,
    with_relocated_socket,
)
from .login_pacing import log_in_without_retries
from .multiplex import MuxConnection, MuxConnectionClosed, MuxError, MuxProcess, MuxRefused, open_pipes
from .options import interactive_argv
from .remote_command import new_nonce, remote_command

__all__ = ["OpenSSHTransport"]

logger = logging.getLogger(__name__)
connection_log = logging.getLogger("harness_backends.links")
"""The logger of reconnects: the trace and the prompt read the two arguments of its records."""

DEFAULT_CHANNELS = 9
"""sshd's default MaxSessions is 10; one is left for the operator."""

REFUSAL_PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds before retries: the server still counts a session for a moment after it has ended."""

QUEUE_TIMEOUT = 60.0
"""Seconds to wait for a first session while other processes use all sessions of a shared connection."""

QUEUE_PAUSE = (0.2, 0.8)
"""Range in seconds of the random pause between attempts, so that waiting processes do not retry together."""

SINGLE_TIMEOUT = 2.0
"""Seconds to wait for a second session where the server allows only one: the first one stays open."""

BACKOFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each attempt to reconnect."""


class OpenSSHTransport(Transport):
    """A transport that starts programs through a control master, and reconnects on demand if it exited."""

    shares_sockets = False

    def __init__(self, master: ControlMaster, lease: MuxConnection) -> None:
        self.target = master.target
        self._master = master
        self._lease = lease
        self._prompter = current_prompter()
        self._budget = ChannelLimiter(master.config.max_channels or DEFAULT_CHANNELS)
        self.max_channels = self._fewest = self._budget.limit
        self._renewing = anyio.Lock()
        self._failures = 0
        self._lost: float | None = None
        self._final: ConnectError | None = None

    async def open_process(self, argv: Sequence[str]) -> Process:
        nonce = new_nonce()
        command = remote_command(argv, nonce).encode()
        process = await self._open(command, nonce)
        try:
            await self._await_start(process)
        except BaseException:
            await process.aclose()
            raise
        return process

    async def _open(self, command: bytes, nonce: str) -> MuxProcess:
        """Open a session; at the server's limit, wait until a session of this or another process ends."""
        patience = anyio.current_time() + max(self._master.config.connect_timeout, QUEUE_TIMEOUT)
        while True:
            ticket = await self._take_ticket()
            try:
                return await self._open_patiently(command, nonce, ticket)
            except MuxRefused as error:
                others = not self._budget.refused(ticket)
                if others and (anyio.current_time() > patience or not self._is_shared()):
                    raise self._no_session(error) from error
                if anyio.current_time() > patience:
                    raise self._all_in_use() from error
                self._follow_budget()
                if others:
                    least, most = QUEUE_PAUSE
                    await anyio.sleep(least + (most - least) * os.urandom(1)[0] / 255)
            except BaseException:
                self._budget.give_back(ticket)
                raise

    async def _take_ticket(self) -> ChannelLease:
        limit = self._master.config.connect_timeout
        try:
            return await self._budget.take(limit if self._budget.limit > 1 else min(limit, SINGLE_TIMEOUT))
        except TimeoutError:
            raise self._all_in_use() from None

    def _all_in_use(self) -> UnsupportedOperation:
        return UnsupportedOperation(
            f"all sessions that the server allows on one connection ({self._budget.limit}) are in use",
            target=self.target,
            hint="raise MaxSessions in the server's sshd_config, or end commands on this connection",
        )

    def _is_shared(self) -> bool:
        """Return True if other processes may have sessions: the master has connections besides this lease."""
        return not self._master.private and count_connections(self._master.path) != 1

    def _no_session(self, error: MuxRefused) -> ConnectError:
        return ConnectError(
            f"the server refuses sessions on this connection: {error}",
            target=self.target,
            hint="MaxSessions in its sshd_config is 0, or other harness processes use all sessions",
        )

    def _follow_budget(self) -> None:
        self.max_channels: int = self._budget.limit
        if self.max_channels < self._fewest:
            self._fewest = self.max_channels
            logger.info(
                "%s: the server allows only %d sessions per connection (MaxSessions)", self.target, self.max_channels
            )

    async def _open_patiently(self, command: bytes, nonce: str, ticket: ChannelLease) -> MuxProcess:
        for pause in REFUSAL_PAUSES:
            try:
                return await self._open_once(command, nonce, ticket)
            except MuxRefused as error:
                logger.debug("%s: %s", self.target, error)
                self._budget.note_transient_refusal(ticket)
                self._follow_budget()
            await anyio.sleep(pause)
        return await self._open_once(command, nonce, ticket)

    async def _open_once(self, command: bytes, nonce: str, ticket: ChannelLease) -> MuxProcess:
        session = await self.connect()
        pipes = open_pipes()
        settings = self._master.settings
        try:
            with anyio.fail_after(self._master.config.prompt_timeout):
                await session.open_session(
                    command, settings.environment(os.environ), pipes.theirs, forward_agent=settings.forwards_agent
                )
        except BaseException as error:
            session.close()
            pipes.close_ours()
            raise self._session_error(error) from error
        finally:
            pipes.close_theirs()
        self._budget.opened(ticket, session.has_ended)
        self._follow_budget()
        return MuxProcess(self.target, session, pipes, nonce, partial(self._budget.give_back, ticket))

    def _session_error(self, error: BaseException) -> BaseException:
        if isinstance(error, MuxConnectionClosed):
            return ConnectionLost("the connection was lost", target=self.target)
        if isinstance(error, TimeoutError):
            return ConnectionLost("the server does not answer", target=self.target, hint="the network may be down")
        return error

    async def _await_start(self, process: MuxProcess) -> None:
        limit = self._master.config.prompt_timeout
        try:
            with anyio.fail_after(limit):
                if await process.wait_for_start():
                    return
                status = await process.wait()
                words = await process.last_words()
        except TimeoutError:
            raise ConnectError(
                f"the login shell did not start the command within {limit:g} s",
                target=self.target,
                hint="a shell start-up file blocks or reads standard input; restrict that to interactive shells",
            ) from None
        said = f": {words}" if words else ""
        raise ConnectError(
            f"the login shell exited with status {status} and did not start the command{said}",
            target=self.target,
            hint="check the account's shell and its start-up files",
        )

    # -- the connection

    @property
    def control_path(self) -> str:
        """The control master's socket."""
        return self._master.path

    async def connect(self) -> MuxConnection:
        """Connect to the control master, logging in again if it has exited.

        Raises:
            ConnectError: the login failed; a refused one is final.
            ConnectionLost: the new master exited at once.
        """
        try:
            return await connect_with_timeout(self._master.path)
        except MuxError:
            await self._renew()
        try:
            return await connect_with_timeout(self._master.path)
        except MuxError as error:
            raise ConnectionLost(
                "the connection was lost again right after reconnecting", target=self.target
            ) from error

    async def _renew(self) -> None:
        """Reconnect with backoff after the master has exited; a refused login is not retried."""
        async with self._renewing:
            if self._final is not None:
                raise self._final
            self._lost = self._lost or anyio.current_time()
            await anyio.sleep(BACKOFF[min(self._failures, len(BACKOFF) - 1)])
            try:
                self._master = with_relocated_socket(self._master)
                with use_prompter(self._prompter), log_in_without_retries():
                    lease = await acquire(self._master)
            except (AuthenticationError, HostKeyError) as error:
                self._final = error
                raise
            except ConnectError:
                self._failures += 1
                raise
            self._lease.close()
            self._lease = lease
            self._failures = 0
            self.renewals += 1
            target, seconds = str(self.target), anyio.current_time() - self._lost
            self._lost = None
            connection_log.info("%s: reconnected after %.1f s", target, seconds)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        master = self._master
        return interactive_argv(master.hop, master.config, master.path, master.settings, argv)

    def supervised_argv(self, argv: Sequence[str]) -> list[str]:
        master = self._master
        return interactive_argv(master.hop, master.config, master.path, master.settings, argv, logs_in=False)

    def describe(self) -> str:
        return "ssh master (private)" if self._master.private else "ssh master"

    async def aclose(self) -> None:
        """Release the lease on the master; terminate a private one."""
        self._lease.close()
        if self._master.private:
            with anyio.CancelScope(shield=True):
                await end_master(self._master.path)
