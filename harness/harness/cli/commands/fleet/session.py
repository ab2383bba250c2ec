"""A session of an agent, a prompt or a server: on one target, or on the hosts of ``--hosts``."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....context import ExecutionContext
from ...runtime import CliSession, TargetRequirements
from ...streams import Interruption, run_async
from .options import FleetOptions

if TYPE_CHECKING:
    from ....fleets import Host, Inventory

__all__ = ["SessionTarget", "target_of"]

RUNS_COMMANDS = TargetRequirements(create=True)


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """Where a session works: on the target of the settings, or on ``hosts``."""

    session: CliSession
    hosts: tuple[Host, ...] = ()
    inventory: Inventory | None = None
    options: FleetOptions = field(default_factory=FleetOptions)
    """How the hosts were named."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the targets."""
        return tuple(str(host.target) for host in self.hosts) or (str(self.session.settings.target),)

    @property
    def url(self) -> str:
        """The URL of the target, or that of the fleet, by which conversations know it."""
        from ....fleets.session_context import fleet_target

        return str(fleet_target(host.name for host in self.hosts)) if self.hosts else self.urls[0]

    @property
    def shown(self) -> str:
        """The target, or the folded names of the hosts, for messages."""
        from ....fleets.host_names import fold_names

        return fold_names(host.name for host in self.hosts) if self.hosts else self.urls[0]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ExecutionContext]:
        """Open the target, or the fleet as one context; its hosts are connected when they are first used."""
        if not self.hosts:
            async with self.session.open(RUNS_COMMANDS) as context:
                yield context
            return
        from ....fleets import FleetContext, fleet
        from ....fleets.in_process import InProcess

        tmux, pane = self.session.terminal_of(RUNS_COMMANDS)
        config = self.session.settings.config
        executor = InProcess(self.session.host_recording(RUNS_COMMANDS, tmux, len(self.hosts)))
        async with fleet(
            self.hosts, tmux=tmux, pane=pane, config=config, inventory=self.inventory, executor=executor
        ) as opened:
            context = FleetContext(opened)
            logging.getLogger("harness").info("working on %s", context.describe())
            yield context

    def run(self, work: Callable[[ExecutionContext, Interruption], Awaitable[int | None]]) -> int:
        """Open the target or the fleet, run ``work`` on it, and return its exit code."""

        async def main(interruption: Interruption) -> int:
            async with self.open() as context:
                with interruption.reaches():
                    return await work(context, interruption) or 0
            return 0  # cancelled; run_async returns the exit code

        return run_async(main)


def target_of(session: CliSession, options: FleetOptions) -> SessionTarget:
    """Return where a session works.

    Args:
        session: The program's settings.
        options: The hosts of the command line.

    Raises:
        click.UsageError: Hosts and a single target were given.
        ConfigError: A pattern or the inventory is wrong.
    """
    if not options.used_by(session.invocation):
        return SessionTarget(session)
    from ....fleets import read_inventory
    from .calls import hosts_of_options

    inventory = read_inventory(options.inventory) if options.inventory else None
    return SessionTarget(session, hosts_of_options(session, options, inventory=inventory), inventory, options)
