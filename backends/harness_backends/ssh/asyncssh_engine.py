"""The asyncssh engine: one connection per target, reopened after a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import RunVar

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

from ..local.transport import LocalTransport
from .host_engine import has_asyncssh, problem_of_asyncssh
from .login_pacing import error_at_jump_host, log_in_without_retries, share_login
from .options import SshSettings, jump_config
from .remote_command import interactive_command, new_nonce, remote_command

if TYPE_CHECKING:
    import asyncssh

    from .asyncssh_process import Channel, SshProcess

__all__ = [
    "ReconnectingTransport",
    "open_asyncssh_transport",
]


# -- The second SSH engine: asyncssh. A connection costs a tenth of a client program, for fleets of hosts and for
# embedding. It gets the user's settings as ``ssh -G`` prints them, and reports those that it does not support.


DEFAULT_CHANNELS = 10
CLOSE_TIMEOUT = 2.0
SINGLE_TIMEOUT = 2.0
"""Seconds to wait for a second channel where the server allows only one."""

_log = logging.getLogger(__name__)


class AsyncsshTransport(Transport):
    """A transport that starts programs through one asyncssh connection.

    ``notices`` report the user's settings that this engine does not support.
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
        """The largest number of channels that the server has allowed at once."""

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        """The connection, for another login to tunnel through."""
        assert self._connection is not None
        return self._connection

    @property
    def is_lost(self) -> bool:
        """True if the connection has ended."""
        return self._lost is not None

    def connected(self, connection: asyncssh.SSHClientConnection) -> None:
        """Set the connection; called once, after the login."""
        self._connection = connection

    def on_loss(self, error: Exception | None) -> None:
        """Record that the connection has ended, and end its channels."""
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
        """Open a channel; at the server's limit, wait until one of this connection is closed, up to the timeout."""
        from .asyncssh_process import channel_refused

        single = anyio.current_time() + SINGLE_TIMEOUT
        with anyio.move_on_after(self._config.connect_timeout) as patience:
            for delay in _pauses():
                if self.max_channels == 1 and self._channels:  # the first one stays open
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
        """Close a channel that was opened after its caller had been cancelled."""
        self._opening.discard(task)
        self._slots.release_on_behalf_of(slot)
        if not task.cancelled() and task.exception() is None:
            task.result().channel.abort()

    def _closed(self, channel: Channel, slot: object) -> None:
        self._channels.discard(channel)
        self._slots.release_on_behalf_of(slot)
        self._freed.set()

    def _link_lost(self) -> ConnectionLost:
        return ConnectionLost(f"connection lost: {self._lost}", target=self.target)

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        from .asyncssh_settings import ssh_words

        return ["ssh", "-t", *ssh_words(self.target, self._config), "--", interactive_command(argv)]

    def supervised_argv(self, argv: Sequence[str]) -> list[str]:
        raise UnsupportedOperation(
            "no other program can use a connection of asyncssh",
            target=self.target,
            hint='install the OpenSSH client, and set ssh_engine = "openssh"',
        )

    def describe(self) -> str:
        return "asyncssh"

    async def aclose(self) -> None:
        """Close the connection with all its channels, within :data:`CLOSE_TIMEOUT`."""
        if self._connection is None:
            return
        with anyio.CancelScope(shield=True):
            self._connection.close()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await self._connection.wait_closed()
            self._connection.abort()


LogIn = Callable[[AsyncExitStack], Awaitable[AsyncsshTransport]]
"""Logs in, and pushes the connection's cleanup onto the stack."""


def _pauses() -> Iterator[float]:
    """Yield the seconds between attempts: sshd counts a session until it has reaped the program."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 2, 0.25)


@asynccontextmanager
async def open_asyncssh_transport(
    target: Target, config: Config, base: Transport | None, settings: SshSettings | None = None
) -> AsyncIterator[Transport]:
    """Log in and stay connected until the context exits; a lost connection is reopened when it is next needed.

    Args:
        target: The host.
        config: The settings of harness.
        base: The transport to tunnel through.
        settings: The user's settings for the host, for the first login; None reads them.

    Raises:
        ConnectError: the login failed; a subclass where the reason is known.
        ConfigError: the user's ssh configuration cannot be read.
        UnsupportedOperation: asyncssh is not installed, or cannot tunnel through ``base``.
    """
    _require_asyncssh(target)

    async def log_in(stack: AsyncExitStack) -> AsyncsshTransport:
        nonlocal settings
        known, settings = settings, None
        return await _log_in(stack, target, config, await _tunnel(target, base), settings=known)

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
    tunnel: AsyncsshTransport | None,
    behind: tuple[str, ...] = (),
    settings: SshSettings | None = None,
) -> AsyncsshTransport:
    """Log in to a host through its jump hosts; ``behind`` holds the hosts that are reached through it."""
    from .asyncssh_login import LoginHost, log_in
    from .asyncssh_process import translated
    from .asyncssh_settings import read_host_settings

    with translated(target):
        host = await read_host_settings(target, config, settings)
    if tunnel is None:
        tunnel = await _log_in_to_jump_host(stack, target, jump_config(host.ssh, config), behind)
    transport = AsyncsshTransport(target, config)
    through = tunnel.connection if tunnel else None
    endpoint = LoginHost(target, config, host, current_prompter(), through)
    stack.push_async_callback(transport.aclose)
    try:
        transport.connected(await log_in(endpoint, transport.on_loss))
    except ConnectError as error:
        if tunnel is None or not tunnel.is_lost:
            raise
        lost = ConnectError("the connection was lost during the login", target=tunnel.target)
        raise error_at_jump_host(lost, tunnel.target, target) from error
    transport.notices += [f"asyncssh does not support the ssh setting {setting!r}" for setting in host.lost]
    for notice in transport.notices:
        _log.warning('%s: %s; ssh_engine = "openssh" does', target, notice)
    return transport


async def _log_in_to_jump_host(
    stack: AsyncExitStack, target: Target, found: tuple[str, Config] | None, behind: tuple[str, ...]
) -> AsyncsshTransport | None:
    """Return the connection to the jump host before a host; None without one."""
    if found is None:
        return None
    name, config = found
    jump = _jump(name, target)
    behind = (*behind, str(target.last))
    if str(jump.last) in behind:
        raise ConfigError(f"the jump host {name} is behind itself", target=target, hint="check ProxyJump")
    reach = partial(_log_in, target=jump, config=config, tunnel=None, behind=behind)
    try:
        return await use_jump_host(stack, jump, config, None, reach)
    except HarnessError as error:
        raise error_at_jump_host(error, jump, target) from error


@dataclass(eq=False)
class _SharedConnection:
    """The connection to a jump host, which all hosts behind it use."""

    transport: AsyncsshTransport
    stack: AsyncExitStack
    users: int = 0


_jump_hosts: RunVar[dict[str, _SharedConnection]] = RunVar("_jump_hosts")
"""The jump hosts to which this event loop is connected."""


async def use_jump_host(
    stack: AsyncExitStack,
    jump: Target,
    config: Config,
    tunnel: AsyncsshTransport | None,
    log_in: LogIn,
) -> AsyncsshTransport:
    """Return the connection to a jump host that all hosts behind it share; it ends with the last of them.

    Args:
        stack: Gives the share back when it is closed.
        jump: The jump host.
        config: Its settings.
        tunnel: The connection to the jump host before it.
        log_in: Logs in to the jump host.
    """
    if config.dedicated_connection:
        return await log_in(stack)
    name = f"{jump} {id(tunnel)} {config!r}"
    shared = await share_login(name, partial(_share, name, log_in))
    stack.push_async_callback(_give_back, name, shared)
    return shared.transport


async def _share(name: str, log_in: LogIn) -> _SharedConnection:
    jumps = _jump_hosts.get({})
    _jump_hosts.set(jumps)
    shared = jumps.get(name)
    if shared is None or shared.transport.is_lost:
        stack = AsyncExitStack()
        try:
            shared = _SharedConnection(await log_in(stack), stack)
        except BaseException:
            await stack.aclose()
            raise
        jumps[name] = shared
    shared.users += 1
    return shared


async def _give_back(name: str, shared: _SharedConnection) -> None:
    shared.users -= 1
    if shared.users:
        return
    jumps = _jump_hosts.get({})
    if jumps.get(name) is shared:
        del jumps[name]
    await shared.stack.aclose()


def _jump(text: str, target: Target) -> Target:
    try:
        return Target.parse(text if text.startswith("ssh://") else f"ssh://{text}")
    except TargetNotFound as error:
        raise ConfigError(f"ProxyJump {text!r} is not a valid host", target=target) from error


async def _tunnel(target: Target, base: Transport | None) -> AsyncsshTransport | None:
    if base is None or isinstance(base, LocalTransport):
        return None
    if isinstance(base, ReconnectingTransport):
        return await base.connect()
    raise UnsupportedOperation(
        f"asyncssh cannot log in through {base.describe()}",
        target=target,
        hint="use ProxyJump, or ssh_engine = openssh",
    )


def _require_asyncssh(target: Target) -> None:
    if not has_asyncssh():
        raise UnsupportedOperation(
            "the asyncssh engine is not installed", target=target, hint=install_extra("asyncssh")
        )
    if problem := problem_of_asyncssh():
        raise UnsupportedOperation(problem, target=target, hint=install_extra("asyncssh"))


# -- A connection of the asyncssh engine that is reopened after a loss, like the OpenSSH engine's master.


connection_log = logging.getLogger("harness_backends.links")
"""The logger of reconnects: the trace and the prompt read the two arguments of its records."""
BACKOFF = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)


class ReconnectingTransport(Transport):
    """A transport that starts programs through the current connection, and reconnects when it was lost."""

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
        """Return the current connection, reconnecting if it was lost; a refused login is not retried."""
        async with self._renewing:
            if self._current is not None and not self._current.is_lost:
                return self._current
            if self._final is not None:
                raise self._final
            again, self._lost = self._current is not None, self._lost or anyio.current_time()
            await anyio.sleep(BACKOFF[min(self._failures, len(BACKOFF) - 1)])
            await self._end()
            try:
                with use_prompter(self._prompter), log_in_without_retries() if again else nullcontext():
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
                connection_log.info("%s: reconnected after %.1f s", target, seconds)
            return self._current

    @property
    def current(self) -> AsyncsshTransport:
        """The current connection, even if it was lost."""
        assert self._current is not None
        return self._current

    @property
    def notices(self) -> list[str]:
        """Notices about the user's settings that this engine does not support."""
        return self.current.notices

    async def open_process(self, argv: Sequence[str]) -> Process:
        transport = await self.connect()
        try:
            return await transport.open_process(argv)
        finally:
            self.max_channels = transport.max_channels

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return self.current.interactive_argv(argv)

    def supervised_argv(self, argv: Sequence[str]) -> list[str]:
        return self.current.supervised_argv(argv)

    def describe(self) -> str:
        return "asyncssh"

    async def _end(self) -> None:
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def aclose(self) -> None:
        """Close the connection with all its channels, within :data:`CLOSE_TIMEOUT`."""
        with anyio.CancelScope(shield=True):
            await self._end()
