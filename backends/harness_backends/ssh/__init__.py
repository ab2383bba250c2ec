"""``ssh://`` targets: OpenSSH's own client by default, asyncssh where it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from harness.backend import Backend
from harness.config import Config
from harness.target import Target
from harness.transport import Transport

from .master import MasterInfo, disconnect, list_masters

__all__ = ["MasterInfo", "disconnect", "list_masters", "open_backend", "open_transport"]


def open_transport(target: Target, config: Config, base: Transport | None) -> AbstractAsyncContextManager[Transport]:
    """The transport of the engine that ``config.ssh_engine`` names."""
    if config.ssh_engine == "asyncssh":
        from .asyncssh_engine import open_asyncssh_transport

        return open_asyncssh_transport(target, config, base)
    from .openssh import open_openssh_transport

    return open_openssh_transport(target, config, base)


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """The backend of ``ssh:``."""
    async with open_transport(target, config, transport) as connected:
        from ..posix.backend import open_posix_backend  # while connecting there was time to load it

        async with open_posix_backend(connected, config) as backend:
            yield backend
