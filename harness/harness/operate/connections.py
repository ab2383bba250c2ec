"""The connections that harness keeps open between its runs: found, checked and ended.

A backend that keeps connections offers them under the same entry point as its factory: the module also has
``list_masters`` and ``disconnect`` of the shapes below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol, cast

from ..config import Config
from ..discovery import find_backend
from ..errors import UnsupportedOperation
from ..settings import Settings
from ..target import Target
from .findings import Finding, ok, warn

__all__ = ["Keeper", "Master", "check_connections", "keeper"]


class Master(Protocol):
    """One connection that is kept."""

    @property
    def path(self) -> str:
        """Its control socket."""

    @property
    def alive(self) -> bool:
        """It answers."""


class Keeper(Protocol):
    """What a backend that keeps connections can do with them."""

    async def list_masters(self) -> Sequence[Master]:
        """This user's kept connections, dead ones included."""

    async def disconnect(self, config: Config, target: Target | None) -> int:
        """End the connection to a target, or with None all of them; returns how many. Dead ones are cleared away."""


def keeper(scheme: str = "ssh") -> Keeper:
    """The keeper of a scheme's connections.

    Raises:
        UnsupportedOperation: the backend keeps none.
    """
    module = sys.modules[find_backend(scheme).__module__]
    if not hasattr(module, "list_masters") or not hasattr(module, "disconnect"):
        raise UnsupportedOperation(f"the backend of {scheme}: keeps no connections")
    return cast(Keeper, module)


async def check_connections(settings: Settings, *, clean: bool) -> list[Finding]:
    """A finding about the kept connections; ``clean`` removes what the dead ones left."""
    if settings.config.ssh_engine != "openssh":
        return []
    masters = await keeper().list_masters()
    dead = [master for master in masters if not master.alive]
    if not dead:
        return [ok("connections", f"{len(masters)} kept")]
    if not clean:
        return [warn("connections", f"{len(dead)} of {len(masters)} are dead", "harness doctor --clean")]
    removed = await _clear(dead)
    return [ok("connections", f"{removed} dead ones removed, {len(masters) - len(dead)} kept")]


async def _clear(dead: Sequence[Master]) -> int:
    import os

    for master in dead:
        os.unlink(master.path)
    return len(dead)
