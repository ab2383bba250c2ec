"""A backend in one class: commands as another user of the target before it, written ``ssh://web1+as://postgres``."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from harness import Config, ConnectError, Target
from harness.backend import Backend
from harness.transport import Process, Transport
from harness_backends.composition import open_posix_backend


class AsUser(Transport):
    """Starts programs through ``sudo`` on another transport."""

    def __init__(self, target: Target, base: Transport) -> None:
        self.target = target
        self.max_channels = base.max_channels
        self._base = base
        self._sudo = ["sudo", "-n", "-u", target.last.host, "--"]

    async def open_process(self, argv: Sequence[str]) -> Process:
        return await self._base.open_process([*self._sudo, *argv])

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return self._base.interactive_argv([*self._sudo, *argv])

    def describe(self) -> str:
        return f"{self._base.describe()}, as {self.target.last.host}"


@asynccontextmanager
async def open_backend(target: Target, config: Config, transport: Transport | None) -> AsyncIterator[Backend]:
    if transport is None:
        raise ConnectError("as://USER needs a target before it", target=target, hint=f"for example local:+{target}")
    async with open_posix_backend(AsUser(target, transport), config) as backend:
        yield backend
