"""``harness cp``: copy files and directories between this machine and targets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ....context import connect
from ....copying.locations import Location, parse_location, path_on_target
from ...completed_names import complete_copied
from ...exits import FAILED
from ...options import command, pause_option
from ...runtime import CliSession, session_of
from ...streams import Interruption, StreamWriter, run_async
from ..fleet.options import FleetOptions, fleet_options
from .report import CopyReport

if TYPE_CHECKING:
    from ....copying import CopyOptions, CopySide
    from ....settings import Settings

__all__ = ["RECONNECT", "check_target_is_used", "cp", "location_of", "settings_of_host"]

RECONNECT = 60.0


@command("cp", many_hosts=True)
@click.option("-r", "-R", "--recursive", is_flag=True, help="Copy directories with their content.")
@click.option("-p", "--preserve", is_flag=True, help="Keep the modes and the times of the last changes.")
@click.option("--force", is_flag=True, help="Replace even read-only files.")
@pause_option(
    "--reconnect", default=RECONNECT, help="After a lost connection, try to reconnect for TIME (default: 60s)."
)
@fleet_options(changes=True)
@click.argument("sources", metavar="SRC...", nargs=-1, required=True, shell_complete=complete_copied)
@click.argument("destination", metavar="DST", shell_complete=complete_copied)
@click.pass_context
def cp(
    ctx: click.Context,
    recursive: bool,
    preserve: bool,
    force: bool,
    reconnect: float,
    fleet: FleetOptions,
    sources: Sequence[str],
    destination: str,
) -> int:
    """Copy files and directories between this machine and hosts: 'harness cp -r web1:/etc/nginx backup'.

    SRC and DST are paths of this machine, HOST:PATH, TARGET:PATH, or :PATH on the target of --ssh, --container,
    --target or --hosts. PATH may be a pattern with *, ?, [...] and **, which is matched on the host.

    Each file is replaced atomically and verified by its hash. Run the command again to resume it after a cut.

    With --hosts, --inventory or several --ssh, :PATH is on each host: copy to all, or from each to DST/HOST.
    """
    from ....copying import CopyOptions

    places = [location_of(text) for text in sources]
    place = location_of(destination)
    session = session_of(ctx)
    options = CopyOptions(recursive, preserve, force, reconnect)
    if fleet.used_by(session.invocation):
        from ..fleet.copy import copy_on_fleet

        return copy_on_fleet(session, fleet, places, place, options)
    check_target_is_used(session, [*places, place])
    return _copy(session, places, place, options)


def location_of(text: str) -> Location:
    """Read an argument of the command line.

    Raises:
        click.BadParameter: It is not a path.
    """
    try:
        return parse_location(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def check_target_is_used(session: CliSession, places: Sequence[Location]) -> None:
    """Refuse target options that would be ignored, and a path on a target that was not chosen.

    Raises:
        click.UsageError: An option and the paths contradict each other.
    """
    choices = session.invocation.choices
    given = [name for name in ("ssh", "container", "image", "target") if getattr(choices, name) is not None]
    used = any(place.host == "" for place in places)
    if given and not used:
        raise click.UsageError(f"no path is on the target of --{given[0]}: write it as :PATH")
    if used and not given and session.settings.target.last.scheme == "local":
        raise click.UsageError(":PATH is on the target of --ssh, --container, --target or --hosts: give one of them")


def _copy(session: CliSession, sources: Sequence[Location], destination: Location, options: CopyOptions) -> int:
    from ....copying import Copier

    async def main(interruption: Interruption) -> int:
        with CopyReport(session, StreamWriter(1, interruption)) as report:
            async with AsyncExitStack() as stack:
                stack.enter_context(session.questions())
                sides = _Sides(session, stack)
                there = await sides.open(destination)
                groups: dict[str, tuple[CopySide, list[str]]] = {}
                for source in sources:
                    side = await sides.open(source)
                    groups.setdefault(side.label, (side, []))[1].append(path_on_target(source))
                with interruption.reaches():
                    copier = Copier(list(groups.values()), there, path_on_target(destination), options, report)
                    summary = await copier.run()
                    report.finish(summary)
                    return FAILED if summary.failed else 0
            report.interrupted()
        return 0  # cancelled; run_async returns the exit code

    return run_async(main)


class _Sides:
    """The targets of a copy, each connected once."""

    def __init__(self, session: CliSession, stack: AsyncExitStack) -> None:
        self._session = session
        self._stack = stack
        self._known: dict[str, CopySide] = {}

    async def open(self, place: Location) -> CopySide:
        """Return the target of a path, connected."""
        label = "" if place.host is None else f"{place.host}:"
        if label not in self._known:
            self._known[label] = await self._connect(place.host, label)
        return self._known[label]

    async def _connect(self, host: str | None, label: str) -> CopySide:
        from ....copying import CopySide

        if host is None:
            context = await self._stack.enter_async_context(connect("local:"))
            return CopySide(context.files)
        settings = settings_of_host(self._session, host)
        context = await self._stack.enter_async_context(connect(settings.target, config=settings.config))
        return CopySide(context.files, label)


def settings_of_host(session: CliSession, host: str) -> Settings:
    """Return the settings by which a host of a path is reached: a named target, a target URL, or as ``--ssh``.

    Raises:
        HarnessError: It is not a target.
    """
    if not host:
        return session.settings
    from ....settings import load_settings

    choices = replace(session.invocation.choices, ssh=None, container=None, image=None, target=None)
    named = host in dict(session.settings.targets)
    if named or "://" in host:
        return load_settings(replace(choices, target=host))
    return load_settings(replace(choices, ssh=host))
