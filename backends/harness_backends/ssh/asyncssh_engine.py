"""The engine on asyncssh: one connection, kept and renewed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from harness.config import Config
from harness.errors import (
    AuthenticationError,
    ConfigError,
    ConnectError,
    ConnectionLost,
    HarnessError,
    HostKeyError,
    TargetNotFound,
    UnsupportedOperation,
)
from harness.extras import install_extra
from harness.login import current_prompter, use_prompter
from harness.target import Target
from harness.transport import Process, Transport

from ..local import LocalTransport
from .remote import interactive_command, new_nonce, remote_command

if TYPE_CHECKING:
    import asyncssh

    from .asyncssh_process import Channel, SshProcess
    from .asyncssh_settings import ConfigFiles

__all__ = [
    "ReconnectingTransport",
    "open_asyncssh_transport",
]


# -- The second SSH engine: asyncssh. An order of magnitude cheaper per connection than a client program, for fleets
# of hosts and for embedding. It reads the user's ssh configuration and says what of it it does not honour.


DEFAULT_CHANNELS = 10
CLOSE_TIMEOUT = 2.0
SINGLE_TIMEOUT = 2.0
"""Seconds for which a second channel is waited for where the server allows one."""

_log = logging.getLogger(__name__)


class AsyncsshTransport(Transport):
    """Starts programs through one asyncssh connection.

    ``notices`` are sentences about settings of the user's that this engine does not honour.
    """

    shares_sockets = False

    def __init__(self, target: Target, config: Config) -> None:
        self.target = target
        self.max_channels = config.max_channels or DEFAULT_CHANNELS
        self.notices: list[str] = []
        self._config = config
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lost: str | None = None
        self._channels: set[Channel] = set()
        self._slots = anyio.CapacityLimiter(self.max_channels)
        self._opening: set[asyncio.Task[Channel]] = set()
        self._freed = anyio.Event()
        self._opened_before = False
        self._peak = 0
        """How many channels the server has allowed at once so far."""

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        """The connection, for another engine to tunnel through."""
        assert self._connection is not None
        return self._connection

    @property
    def is_lost(self) -> bool:
        """The connection has ended."""
        return self._lost is not None

    def connected(self, connection: asyncssh.SSHClientConnection) -> None:
        """Called once, after the login."""
        self._connection = connection

    def on_loss(self, error: Exception | None) -> None:
        """Called when the connection has ended, for whatever reason."""
        self._lost = str(error) if error and str(error) else "the connection was closed"
        for channel in list(self._channels):
            channel.end_of_link()

    async def open_process(self, argv: Sequence[str]) -> Process:
        nonce = new_nonce()
        command = remote_command(argv, nonce)
        process = await self._open_channel(command, nonce)
        try:
            await process.started(self._config.login_timeout)
        except BaseException:
            await process.aclose()
            if self._lost is not None:
                raise self._link_lost() from None
            raise
        return process

    async def _open_channel(self, command: str, nonce: str) -> SshProcess:
        """Open a channel; while the server allows no more, wait for one of ours to close, within the time limit."""
        from .asyncssh_process import channel_refused

        single = anyio.current_time() + SINGLE_TIMEOUT
        with anyio.move_on_after(self._config.connect_timeout) as patience:
            for delay in _pauses():
                if self.max_channels == 1 and self._channels:  # that one is here to stay
                    patience.deadline = min(patience.deadline, single)
                slot = object()
                await self._slots.acquire_on_behalf_of(slot)
                process = await self._try_open(command, nonce, slot)
                if process is not None:
                    return process
                with anyio.move_on_after(delay):
                    await self._freed.wait()
        raise channel_refused(self.target, len(self._channels))

    async def _try_open(self, command: str, nonce: str, slot: object) -> SshProcess | None:
        import asyncssh

        from .asyncssh_process import FOREIGN, channel_refused, translate

        first, self._opened_before = not self._opened_before, True
        try:
            return await self._create(command, nonce, slot)
        except asyncssh.ChannelOpenError as error:
            if self._lost is not None:
                raise self._link_lost() from error
            if first:
                raise channel_refused(self.target, 0) from error
            self.max_channels = max(1, self._peak)
            self._freed = anyio.Event()
            return None  # nothing was started
        except FOREIGN as error:
            if self._lost is not None:
                raise self._link_lost() from error
            raise translate(error, self.target, connected=True) from error

    async def _create(self, command: str, nonce: str, slot: object) -> SshProcess:
        from .asyncssh_process import SshProcess

        task = asyncio.create_task(self._session(command, nonce))
        self._opening.add(task)
        try:
            channel = await asyncio.shield(task)
        except BaseException:
            task.add_done_callback(lambda done: self._abandon(done, slot))
            raise
        self._opening.discard(task)
        self._channels.add(channel)
        self._peak = max(self._peak, sum(not other.closed for other in self._channels))
        if self._lost is not None:
            channel.end_of_link()
        return SshProcess(channel, self.target, lambda: self._closed(channel, slot))

    async def _session(self, command: str, nonce: str) -> Channel:
        from .asyncssh_process import Channel

        channel = Channel(nonce)
        await self.connection.create_session(
            lambda: channel, command=command, request_pty=False, x11_forwarding=False, encoding=None
        )
        return channel

    def _abandon(self, task: asyncio.Task[Channel], slot: object) -> None:
        """The caller has gone while the channel was being opened: close it when it is there."""
        self._opening.discard(task)
        self._slots.release_on_behalf_of(slot)
        if not task.cancelled() and task.exception() is None:
            task.result().channel.abort()

    def _closed(self, channel: Channel, slot: object) -> None:
        self._channels.discard(channel)
        self._slots.release_on_behalf_of(slot)
        self._freed.set()

    def _link_lost(self) -> ConnectionLost:
        return ConnectionLost(f"the link was lost: {self._lost}", target=self.target)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        from .asyncssh_settings import ssh_words

        return ["ssh", "-t", *ssh_words(self.target, self._config), "--", interactive_command(argv)]

    def describe(self) -> str:
        return "asyncssh"

    async def aclose(self) -> None:
        """End the connection and with it every channel; bounded."""
        if self._connection is None:
            return
        with anyio.CancelScope(shield=True):
            self._connection.close()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await self._connection.wait_closed()
            self._connection.abort()


def _pauses() -> Iterator[float]:
    """Seconds between attempts: sshd counts a session until it has buried the program, a moment after the channel."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 2, 0.25)


@asynccontextmanager
async def open_asyncssh_transport(target: Target, config: Config, base: Transport | None) -> AsyncIterator[Transport]:
    """Log in, and be connected until this is left; a connection that is lost is made anew when it is next needed.

    Raises:
        ConnectError: or a subclass that says what went wrong.
        ConfigError: the user's ssh configuration cannot be read.
        UnsupportedOperation: asyncssh is not installed, or ``base`` is of another kind.
    """
    _require_asyncssh(target)
    from .asyncssh_settings import config_files

    async def log_in(stack: AsyncExitStack) -> AsyncsshTransport:
        with config_files(config) as files:
            return await _log_in(stack, target, config, files, await _tunnel(target, base), ())

    transport = ReconnectingTransport(target, log_in)
    try:
        await transport.connect()
        yield transport
    finally:
        await transport.aclose()


async def _log_in(
    stack: AsyncExitStack,
    target: Target,
    config: Config,
    files: ConfigFiles,
    tunnel: asyncssh.SSHClientConnection | None,
    path: tuple[str, ...],
) -> AsyncsshTransport:
    """Log in to a host, to the hosts of its ``ProxyJump`` before it. ``path``: the jumps that this one is for."""
    from .asyncssh_login import LoginHost, log_in
    from .asyncssh_process import translated
    from .asyncssh_settings import read_effective, read_host_settings

    effective = await read_effective(target, config, files)
    with translated(target):
        settings = await read_host_settings(target, config, files.all)
    for jump in settings.jumps if tunnel is None else ():
        if jump not in path:
            bare = replace(config, identity="", ssh_options=())  # as OpenSSH: only the files apply to a jump host
            hop = _jump(jump, target)
            below = await _log_in(stack, hop, bare, replace(files, options=""), tunnel, (*path, *settings.jumps))
            tunnel = below.connection
    transport = AsyncsshTransport(target, config)
    endpoint = LoginHost(target, config, files.all, settings, effective.host_key_checking, current_prompter(), tunnel)
    stack.push_async_callback(transport.aclose)
    transport.connected(await log_in(endpoint, transport.on_loss))
    transport.notices += [f"asyncssh does not honour the ssh setting {setting!r}" for setting in effective.lost]
    for notice in transport.notices:
        _log.warning('%s: %s; ssh_engine = "openssh" does', target, notice)
    return transport


def _jump(text: str, target: Target) -> Target:
    try:
        return Target.parse(text if text.startswith("ssh://") else f"ssh://{text}")
    except TargetNotFound as error:
        raise ConfigError(f"ProxyJump {text!r} is not a host", target=target) from error


async def _tunnel(target: Target, base: Transport | None) -> asyncssh.SSHClientConnection | None:

    if base is None or isinstance(base, LocalTransport):
        return None
    if isinstance(base, ReconnectingTransport):
        return (await base.connect()).connection
    raise UnsupportedOperation(
        f"asyncssh cannot log in through {base.describe()}",
        target=target,
        hint="use ProxyJump, or ssh_engine = openssh",
    )


def _require_asyncssh(target: Target) -> None:
    try:
        import asyncssh  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise UnsupportedOperation(
            "the asyncssh engine is not installed", target=target, hint=install_extra("asyncssh")
        ) from error


# -- A connection of the asyncssh engine that is made anew when it is lost, as the OpenSSH engine does with its
# master.


connection_log = logging.getLogger("harness_backends.links")
"""What is logged here, with these two arguments, is counted, traced and shown."""
BACKOFF = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)

LogIn = Callable[[AsyncExitStack], Awaitable[AsyncsshTransport]]
"""Logs in, and leaves in the stack what ends the connection."""


class ReconnectingTransport(Transport):
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
                connection_log.info("%s: the link was lost, and is back after %.1f s", target, seconds)
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
