"""The ``ssh:`` backend: OpenSSH's client, or asyncssh, as ``ssh_engine`` says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from harness.backend import Backend
from harness.config import Config
from harness.errors import UnsupportedOperation
from harness.target import Target
from harness.transport import Transport

from .control_master import MasterInfo, acquire, disconnect, list_masters, plan_master
from .host_engine import choose_engine
from .live_master import run_if_connected
from .options import SshSettings, check_options
from .without_ssh import has_ssh

if TYPE_CHECKING:
    from harness.forwards.interface import Forwarding

__all__ = [
    "MasterInfo",
    "disconnect",
    "explain_engine",
    "list_masters",
    "open_backend",
    "open_forwarding",
    "open_transport",
    "run_if_connected",
]


logger = logging.getLogger(__name__)


def open_transport(target: Target, config: Config, base: Transport | None) -> AbstractAsyncContextManager[Transport]:
    """Open the transport of the engine that ``config.ssh_engine`` selects."""
    check_options(config, target)
    chooses = config.ssh_engine == "auto" or (config.ssh_engine == "default" and not has_ssh())
    if chooses and (base is None or base.target.last.scheme == "local"):
        return _open_chosen_transport(target, config, base)
    if config.ssh_engine == "asyncssh":
        from .asyncssh_engine import open_asyncssh_transport

        return open_asyncssh_transport(target, config, base)
    return _open_openssh_transport(target, config, base)


@asynccontextmanager
async def _open_chosen_transport(target: Target, config: Config, base: Transport | None) -> AsyncIterator[Transport]:
    engine = await choose_engine(target, config)
    async with AsyncExitStack() as stack:
        transport = None if engine.reasons else await _try_asyncssh(stack, target, config, base, engine.settings)
        if transport is None:
            opening = _open_openssh_transport(target, config, base, engine.settings)
            transport = await stack.enter_async_context(opening)
        yield transport


async def _try_asyncssh(
    stack: AsyncExitStack, target: Target, config: Config, base: Transport | None, settings: SshSettings
) -> Transport | None:
    """Log in with asyncssh; return None if only ssh may be able to: the agent does not sign, or no algorithm fits."""
    from .asyncssh_engine import open_asyncssh_transport
    from .login import AgentRefusedError, NegotiationError

    try:
        return await stack.enter_async_context(open_asyncssh_transport(target, config, base, settings))
    except (AgentRefusedError, NegotiationError) as error:
        if not has_ssh():
            raise
        logger.debug("%s: OpenSSH, because %s", target, error.message)
        return None


async def explain_engine(target: Target, config: Config) -> Sequence[str]:
    """Return why a host gets OpenSSH with ``ssh_engine = "auto"``; nothing if it gets asyncssh.

    Raises:
        ConfigError: ssh rejects its configuration.
        ConnectError: ssh is not installed, or does not answer in time.
    """
    return (await choose_engine(target, config)).reasons


@asynccontextmanager
async def _open_openssh_transport(
    target: Target, config: Config, base: Transport | None = None, settings: SshSettings | None = None
) -> AsyncIterator[Transport]:
    """Log in to a target, or share the connection of another harness process of this user.

    Raises:
        ConnectError: the login failed; a subclass where the reason is known.
        ConfigError: ssh rejects its configuration.
        UnsupportedOperation: the target would have to be reached from another host.
    """
    if base is not None and base.target.last.scheme != "local":
        raise UnsupportedOperation(
            f"ssh from {base.target} is not possible", target=target, hint="reach it with ProxyJump in the ssh config"
        )
    master = await plan_master(target, config, settings)
    from .openssh import OpenSSHTransport  # loaded here: ssh -G has already preloaded it

    transport = OpenSSHTransport(master, await acquire(master))
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def open_forwarding(target: Target, config: Config) -> AsyncIterator[Forwarding]:
    """Log in to a host, or share its connection, to forward connections; nothing runs there.

    Raises:
        ConnectError: the login failed; a subclass where the reason is known.
        ConfigError: ssh rejects its configuration.
    """
    async with open_transport(target, config, None) as transport:
        from .openssh import OpenSSHTransport  # as above

        if isinstance(transport, OpenSSHTransport):
            from .forwarding.openssh import open_openssh_forwarding

            opening = open_openssh_forwarding(transport)
        else:
            from .asyncssh_engine import ReconnectingTransport
            from .forwarding.asyncssh import open_asyncssh_forwarding

            assert isinstance(transport, ReconnectingTransport)
            opening = open_asyncssh_forwarding(transport)
        async with opening as forwarding:
            yield forwarding


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """Open the backend of an ``ssh:`` target."""
    async with open_transport(target, config, transport) as connected:
        from ..composition import open_posix_backend  # loaded here: preloaded while connecting

        async with open_posix_backend(connected, config) as backend:
            yield backend
