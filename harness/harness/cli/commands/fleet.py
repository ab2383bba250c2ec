"""``harness run --hosts`` and ``harness hosts``: one command on many hosts, and which hosts a pattern means."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ...results import ShellResult, Status
from ..options import command
from ..output import note, print_json, readable, result_json, table
from ..runtime import CliSession, TargetRequirements, session_of
from ..streams import Interruption
from .fleet_calls import call_on_hosts, hosts_of_patterns
from .fleet_control import FleetOptions
from .fleet_report import FleetReport, MergedText, host_label

if TYPE_CHECKING:
    from ...fleets import Fleet, Host, HostOutcome

__all__ = ["hosts", "run_on_fleet"]

MAX_LINE = 1 << 16
"""Bytes of a line without an end after which --each prints it anyway."""


def run_on_fleet(session: CliSession, options: FleetOptions, text: str, how: Mapping[str, Any]) -> int:
    """Run a command on each host, print the outcomes, and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        text: Shell text.
        how: Further arguments of ``run_shell``.

    Raises:
        click.UsageError: No hosts were given, or a single target as well.
        ConfigError: A pattern or the inventory is wrong.

    Returns:
        0 if every command ended with 0; 125 if a host could not be reached or its outcome is unknown; else 1.
    """
    needs = TargetRequirements(create=True)
    make_report = partial(_CommandReport, session, each=options.each)

    def call(
        opened: Fleet, report: _CommandReport, **arguments: Any
    ) -> AsyncGenerator[tuple[str, HostOutcome[ShellResult]], None]:
        if options.each:
            arguments |= {"on_output": report.output, "on_stderr": report.stderr}
        return opened.run_shell(text, **arguments, **how)

    return call_on_hosts(session, options, needs, make_report, call)


class _CommandReport(FleetReport[ShellResult]):
    """The report of a command; with --each, lines are printed as they come."""

    def __init__(self, session: CliSession, hosts: Sequence[Host], interruption: Interruption, *, each: bool) -> None:
        super().__init__(session, hosts, interruption, live=not each)
        self._each = each
        self._partial: dict[tuple[str, int], bytes] = {}

    def result_kind(self, result: ShellResult) -> str:
        if result.status is Status.UNKNOWN:
            return "unknown"
        return "ok" if result.ok else "failed"

    def result_json(self, result: ShellResult) -> Mapping[str, object]:
        return result_json(result)

    def result_key(self, result: ShellResult) -> Hashable:
        return result.status, result.exit_code, result.stdout_bytes, result.stderr_bytes, result.truncated

    def merged_text(self, result: ShellResult) -> MergedText:
        ending = "" if result.ok else _ending(result)
        return MergedText(result.stdout_bytes, result.stderr_bytes, ending, truncated=bool(result.truncated))

    def result_notices(self, result: ShellResult) -> Iterable[str]:
        cut = result.truncated and not self._each
        omitted = [f"{result.truncated:,} bytes in the middle of the output are not shown"] if cut else []
        return *result.notices, *omitted

    def print_results(self, outcomes: Sequence[HostOutcome[ShellResult]]) -> None:
        if not self._each:
            super().print_results(outcomes)

    # -- --each

    def print_ended(self, outcome: HostOutcome[ShellResult]) -> None:
        if not self._each:
            return
        for stream in (1, 2):
            if (outcome.host, stream) in self._partial:
                self._lines(outcome.host, stream, b"\n")
        if outcome.result is not None and not outcome.result.ok:  # errors are in the summary
            note(f"{host_label(outcome.host)}: {_ending(outcome.result)}")

    def output(self, name: str, data: bytes) -> None:
        """Print the complete lines of a host's output."""
        self._lines(name, 1, data)

    def stderr(self, name: str, data: bytes) -> None:
        """Print the complete lines of a host's standard error."""
        self._lines(name, 2, data)

    def _lines(self, name: str, stream: int, data: bytes) -> None:
        *lines, rest = (self._partial.pop((name, stream), b"") + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        if rest:
            self._partial[name, stream] = rest
        if lines:
            self.write_lines(stream, f"{host_label(name)}: ".encode(), b"\n".join(lines))


def _ending(result: ShellResult) -> str:
    """Return how a failed command ended, in a few words."""
    if result.exit_code is not None:
        return f"exit code {result.exit_code}"
    return result.status.value.replace("_", " ") + (f" as job {result.job_id}" if result.job_id else "")


# -- ``harness hosts``

HELP = """List the hosts that patterns mean, with their targets; nothing is connected.

PATTERN is as for run --hosts: 'web[1-20],db1,!web7', '@web', 'web*', or a target URL. Without a pattern, all hosts of
the inventory, or the Host entries of the ssh configuration.
"""


@command("hosts", help=HELP)
@click.option("--inventory", metavar="FILE", help="Take hosts and groups from FILE: a list, or Ansible's INI or YAML.")
@click.option("--fold", is_flag=True, help="Print the names in short, on one line.")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.pass_context
def hosts(ctx: click.Context, inventory: str | None, fold: bool, patterns: tuple[str, ...]) -> None:
    session = session_of(ctx)
    found = hosts_of_patterns(session, patterns if patterns or inventory else ("*",), inventory)
    if session.json:
        print_json([{"host": host.name, "target": str(host.target)} for host in found])
    elif fold:
        from ...fleets.hosts import fold_names

        click.echo(readable(fold_names(host.name for host in found)))
    else:
        table(("HOST", "TARGET"), [(host.name, str(host.target)) for host in found])
