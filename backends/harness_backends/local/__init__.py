"""The ``local:`` backend: processes of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.backend import Backend
from harness.config import Config
from harness.target import Target
from harness.transport import Transport

from .transport import LocalTransport

__all__ = ["LocalTransport", "open_backend"]


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """Open the backend of a ``local:`` target."""
    from ..composition import open_posix_backend

    async with open_posix_backend(LocalTransport(target), config) as backend:
        yield backend
