"""``docker://``, ``podman://`` and ``container://`` targets: a container, entered through its engine."""

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

__all__ = ["examine_engines", "open_backend", "open_transport"]


@asynccontextmanager
async def open_transport(target: Target, config: Config, base: Transport | None) -> AsyncIterator[ContainerTransport]:
    """The transport into the container that the target names now.

    Raises:
        TargetNotFound: there is no such container.
        ConnectError: no engine answers, or the container takes no program in its state.
    """
    from .finding import find_container
    from .transport import ContainerTransport

    here = base is None or base.target.last.scheme == "local"
    async with find_container(target, config, None if here else base) as found:
        yield ContainerTransport(target, found.engine, found.info, base=found.base)


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """The backend of ``docker:``, ``podman:`` and ``container:``."""
    from .backend import open_container_backend

    async with open_transport(target, config, transport) as entered, open_container_backend(entered, config) as backend:
        yield backend


async def examine_engines(target: Target | None, config: Config, *, clean: bool) -> list[Finding]:
    """What ``harness doctor`` says of engines and containers; see :mod:`.checkup`."""
    from .checkup import examine_engines as examine

    return await examine(target, config, clean=clean)
