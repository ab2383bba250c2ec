"""The ``ssh:`` backend: OpenSSH's client by default, asyncssh with ``ssh_engine = "asyncssh"``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from harness.backend import Backend
from harness.config import Config
from harness.errors import UnsupportedOperation
from harness.target import Target
from harness.transport import Transport

from .control_master import MasterInfo, acquire, disconnect, list_masters, plan_master
from .options import check_options

__all__ = ["MasterInfo", "disconnect", "list_masters", "open_backend", "open_transport"]


def open_transport(target: Target, config: Config, base: Transport | None) -> AbstractAsyncContextManager[Transport]:
    """Open the transport of the engine that ``config.ssh_engine`` selects."""
    check_options(config, target)
    if config.ssh_engine == "asyncssh":
        from .asyncssh_engine import open_asyncssh_transport

        return open_asyncssh_transport(target, config, base)
    return _open_openssh_transport(target, config, base)


@asynccontextmanager
async def _open_openssh_transport(
    target: Target, config: Config, base: Transport | None = None
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
    master = await plan_master(target, config)
    from .openssh import OpenSSHTransport  # loaded here: ssh -G has already preloaded it

    transport = OpenSSHTransport(master, await acquire(master))
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """Open the backend of an ``ssh:`` target."""
    async with open_transport(target, config, transport) as connected:
        from ..composition import open_posix_backend  # loaded here: preloaded while connecting

        async with open_posix_backend(connected, config) as backend:
            yield backend
