"""The ``exec:`` backend: a target that a program gives, such as ``k8s://namespace/pod`` or one of the settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from harness.backend import Backend
from harness.config import Config
from harness.target import Target
from harness.transport import Transport

if TYPE_CHECKING:
    from .transport import ProgramTransport

__all__ = ["open_backend", "open_transport"]


async def open_transport(target: Target, config: Config, base: Transport | None) -> ProgramTransport:
    """Return a transport through the target's program, which was checked: it passes bytes and ends exactly.

    Raises:
        TargetNotFound: the settings have no program for the target, or its URL is not one of its program.
        ConnectError: the program cannot be started, starts no shell, or changes what it passes on.
    """
    from ..local.transport import LocalTransport
    from .templates import find_template
    from .transport import ProgramTransport

    template = find_template(target, config)
    transport = ProgramTransport(target, template, base or LocalTransport(Target.parse("local:")))
    await transport.check()
    return transport


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    """Open the backend of an ``exec:`` target, or of one of the shipped templates."""
    from ..composition import open_posix_backend

    entered = await open_transport(target, config, transport)
    async with open_posix_backend(entered, config) as backend:
        yield backend
