"""The connections that harness keeps open between its runs: found, checked and ended.

A backend that keeps connections offers them under the same entry point as its factory: the module also has
``list_masters`` and ``disconnect`` of the shapes below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
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
    def name(self) -> str:
        """The host, for people."""

    @property
    def path(self) -> str:
        """Its control socket."""

    @property
    def pid(self) -> int | None:
        """Its process; None when it does not answer any more."""


class Keeper(Protocol):
    """What a backend that keeps connections can do with them."""

    async def list_masters(self) -> Sequence[Master]:
        """This user's kept connections, dead ones included."""

    async def disconnect(self, config: Config, target: Target | None) -> Sequence[Master]:
        """End the connection to a target, or with None all of them; returns those that were alive."""


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
    dead = [master for master in masters if master.pid is None]
    kept = len(masters) - len(dead)
    if not dead:
        return [ok("connections", f"{kept} kept")]
    if not clean:
        return [warn("connections", f"{len(dead)} of {len(masters)} are dead", "harness doctor --clean")]
    _remove(dead)
    return [ok("connections", f"{len(dead)} dead ones removed, {kept} kept")]


def _remove(dead: Sequence[Master]) -> None:
    for master in dead:
        Path(master.path).unlink(missing_ok=True)
