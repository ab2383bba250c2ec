"""``ssh://`` targets: OpenSSH's own client by default, asyncssh where it is asked for."""

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
    """The transport of the engine that ``config.ssh_engine`` names."""
    check_options(config, target)
    if config.ssh_engine == "asyncssh":
        from .asyncssh_engine import open_asyncssh_transport

        return open_asyncssh_transport(target, config, base)
    return _open_openssh_transport(target, config, base)


@asynccontextmanager
async def _open_openssh_transport(
    target: Target, config: Config, base: Transport | None = None
) -> AsyncIterator[Transport]:
    """Log in to a target, or share the connection of another harness of this user.

    Raises:
        ConnectError: it could not be entered; a subclass where the reason is known.
        ConfigError: ssh does not accept its configuration.
        UnsupportedOperation: the target is to be reached from another host.
    """
    if base is not None and base.target.last.scheme != "local":
        raise UnsupportedOperation(
            f"ssh from {base.target} is not possible", target=target, hint="reach it with ProxyJump in the ssh config"
        )
    master = await plan_master(target, config)
    from .openssh import OpenSSHTransport  # while ssh -G ran there was time to load it

    transport = OpenSSHTransport(master, await acquire(master))
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """The backend of ``ssh:``."""
    async with open_transport(target, config, transport) as connected:
        from ..posix.backend import open_posix_backend  # while connecting there was time to load it

        async with open_posix_backend(connected, config) as backend:
            yield backend
