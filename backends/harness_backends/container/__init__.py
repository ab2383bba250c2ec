"""The ``docker:``, ``podman:`` and ``container:`` backends: a container, entered through its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from harness.backend import Backend
from harness.config import Config
from harness.target import Target
from harness.transport import Transport

if TYPE_CHECKING:
    from harness.backend import Finding

    from .transport import ContainerTransport

__all__ = ["examine_engines", "list_engines", "open_backend", "open_transport"]


@asynccontextmanager
async def open_transport(target: Target, config: Config, base: Transport | None) -> AsyncIterator[ContainerTransport]:
    """Open a transport into the container that the target currently names.

    Raises:
        TargetNotFound: the container does not exist.
        ConnectError: no engine answers, or the container is in a state without programs.
    """
    from .lookup import find_container
    from .transport import ContainerTransport

    here = base is None or base.target.last.scheme == "local"
    async with find_container(target, config, None if here else base) as found:
        yield ContainerTransport(target, found.engine, found.info, base=found.base)


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """Open the backend of a ``docker:``, ``podman:`` or ``container:`` target."""
    from .backend import open_container_backend

    async with open_transport(target, config, transport) as entered, open_container_backend(entered, config) as backend:
        yield backend


async def list_engines(config: Config) -> list[Finding]:
    """Return a finding about each engine of this machine; see :mod:`.checkup`."""
    from .checkup import list_engines as listed

    return await listed(config)


async def examine_engines(target: Target | None, config: Config, *, clean: bool) -> list[Finding]:
    """Check engines and containers for ``harness doctor``; see :mod:`.checkup`."""
    from .checkup import examine_engines as examine

    return await examine(target, config, clean=clean)
