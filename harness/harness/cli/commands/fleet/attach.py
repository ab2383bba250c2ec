"""``harness attach --hosts``: the tmux sessions of many hosts side by side in tmux on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ....context import ExecutionContext
from ...exits import SIGNALLED
from ...output import readable
from ...runtime import CliSession, TargetRequirements
from ...streams import Interruption
from ...tiled_windows import TiledPane, client_pane, show_tiled
from .calls import map_on_hosts
from .options import FleetOptions
from .report import FleetReport

if TYPE_CHECKING:
    from ....fleets import Host, HostOutcome

__all__ = ["attach_to_fleet"]

_FAILED = """\
printf '%s\\n\\nEnter closes this pane\\n' "$1"
read -r _"""


class _AttachReport(FleetReport[Sequence[str]]):
    """The commands that attach to the hosts' sessions; they are printed on request only.

    Args:
        session: As for :class:`FleetReport`, like all further arguments but the last one.
        print_commands: Whether to print them, as lines for a shell.
    """

    def __init__(
        self, session: CliSession, hosts: Sequence[Host], interruption: Interruption, *, print_commands: bool
    ) -> None:
        super().__init__(session, hosts, interruption)
        self._print_commands = print_commands

    def result_json(self, result: Sequence[str]) -> Mapping[str, object]:
        return {"argv": result}

    def print_results(self, outcomes: Sequence[HostOutcome[Sequence[str]]]) -> None:
        if self._print_commands:
            for outcome in outcomes:
                click.echo(f"{shlex.join(outcome.result or ())}  # {readable(outcome.host)}")

    def ordered(self) -> list[HostOutcome[Sequence[str]]]:
        """Return the outcomes in the order of the hosts."""
        return sorted(self.outcomes, key=lambda outcome: self.order[outcome.host])


def attach_to_fleet(session: CliSession, options: FleetOptions, *, read_only: bool, print_only: bool) -> int:
    """Attach to the session of each host, in a pane for each, and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many logins at a time.
        read_only: Watch only.
        print_only: Print the commands instead.

    Raises:
        HarnessError: tmux is missing on this machine, or cannot use the terminal.
    """
    reports: list[_AttachReport] = []

    def make_report(hosts: Sequence[Host], interruption: Interruption) -> _AttachReport:
        reports.append(_AttachReport(session, hosts, interruption, print_commands=print_only))
        return reports[0]

    async def work(report: _AttachReport, name: str, context: ExecutionContext) -> Sequence[str]:
        return context.attach_command_read_only if read_only else context.attach_command

    code = map_on_hosts(session, options, TargetRequirements(terminal=True, pane=False), make_report, work)
    outcomes = reports[0].ordered()
    reached = any(outcome.error is None for outcome in outcomes)
    if reached and code < SIGNALLED and not (print_only or session.json):
        show_tiled([_pane(outcome) for outcome in outcomes], "harness")
    return code


def _pane(outcome: HostOutcome[Sequence[str]]) -> TiledPane:
    """Return the pane of a host: its session, or the error that prevents attaching to it."""
    from ....fleets.merging import error_text

    name = readable(outcome.host)
    if outcome.error is None:
        return client_pane(name, outcome.result or ())
    return TiledPane(f"{name}: error", ["sh", "-c", _FAILED, "sh", readable(error_text(outcome, named=True))])
