"""``harness run --hosts`` and ``harness hosts``: one command on many hosts, and which hosts a pattern means."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ....errors import HarnessError
from ....login import use_prompter
from ....results import ShellResult, Status
from ...completed_names import complete_file, complete_pattern
from ...options import command
from ...output import note, print_json, readable, result_json, table, warn
from ...runtime import CliSession, TargetRequirements, session_of
from ...streams import Interruption
from .calls import call_on_hosts, hosts_of_options, hosts_of_patterns
from .control import check_can_ask, sudo_prompter
from .options import FleetOptions
from .report import FleetReport, MergedText
from .texts import ending_of, host_label, with_gap

if TYPE_CHECKING:
    from ....fleets import Fleet, Host, HostOutcome
    from ....fleets.host_commands import HostCommand
    from ....fleets.kept_runs import KeptRun
    from ....live.sessions.job_output import StoredOutput

__all__ = ["ask_hosts", "hosts", "run_on_fleet"]

log = logging.getLogger(__name__)

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
    from ....fleets.host_commands import HostCommand

    check_can_ask(session, options)  # before the run is stored
    chosen = hosts_of_options(session, options, ignore_become=how.get("user") is not None)
    prompter = sudo_prompter(session, options, how.get("user"), len(chosen))
    kept = _keep(session, text, chosen, how)
    with use_prompter(prompter):  # on many hosts, nothing else is asked
        if kept is None:
            asked = HostCommand(text, how.get("key"), how.get("stdin"), _run_options(how))
            return ask_hosts(session, options, chosen, lambda name: asked)
        with kept.held():
            return ask_hosts(session, options, chosen, kept.command_for, kept)


def ask_hosts(
    session: CliSession,
    options: FleetOptions,
    chosen: Sequence[Host],
    command_for: Callable[[str], HostCommand],
    kept: KeptRun | None = None,
    *,
    starts: bool = True,
) -> int:
    """Ask each host for a command's result, print the outcomes, and return the exit code.

    Args:
        session: The program's settings.
        options: How many hosts at a time, and how to print the outcomes.
        chosen: The hosts.
        command_for: Returns what is asked of a host, by its name.
        kept: Where the outcomes are stored.
        starts: Whether it starts commands, which a cancelled run must not.
    """
    needs = TargetRequirements(create=True)
    variables = command_for(chosen[0].name).options.get("env") if chosen else None
    make_report = partial(_CommandReport, session, each=options.each, kept=kept, variables=variables or {})

    def call(
        opened: Fleet, report: _CommandReport, on_start: Callable[[str], None], **arguments: Any
    ) -> AsyncGenerator[tuple[str, HostOutcome[ShellResult]], None]:
        def start(name: str) -> None:
            on_start(name)
            if starts and kept is not None and kept.cancelled:
                opened.stop_starting("the run was cancelled")

        outputs = {"on_output": report.output, "on_stderr": report.stderr} if options.each else {}
        return opened.ask(command_for, on_start=start, on_job=report.set_job, **outputs, **arguments)

    terminal = None if kept is None else (kept.tmux, kept.pane)
    return call_on_hosts(session, options, needs, make_report, call, chosen=chosen, terminal=terminal)


def _keep(session: CliSession, text: str, chosen: Sequence[Host], how: Mapping[str, Any]) -> KeptRun | None:
    """Store the run before it starts; None, with a warning, if that is not possible."""
    from ....fleets.kept_runs import RunStore

    tmux, pane = session.terminal_of(TargetRequirements(create=True))
    try:
        return RunStore(keep=session.settings.config.jobs_max_age).create(
            text, chosen, call=_run_options(how), stdin=how.get("stdin"), tmux=tmux, pane=pane, key=how.get("key")
        )
    except HarnessError as error:
        warn(f"this run cannot be resumed: {error}", as_json_document=session.json)
        return None


def _run_options(how: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if name not in {"stdin", "key"}}


class _CommandReport(FleetReport[ShellResult]):
    """The report of a command; with --each, lines are printed as they come."""

    def __init__(
        self,
        session: CliSession,
        hosts: Sequence[Host],
        interruption: Interruption,
        *,
        each: bool,
        kept: KeptRun | None,
        variables: Mapping[str, str],
    ) -> None:
        super().__init__(session, hosts, interruption, live=not each)
        self.run = None if kept is None else kept.number
        self.title = self.title if kept is None else kept.command
        self.variables = variables
        self._kept = kept
        self._store_failed = False
        self._each = each
        self._partial: dict[tuple[str, int], bytes] = {}

    def add(self, outcome: HostOutcome[ShellResult]) -> None:
        super().add(outcome)
        if self._kept is None or outcome.left_out:
            return
        try:
            self._kept.record(outcome)
        except OSError as error:  # asking the host again gives the same answer
            if not self._store_failed:  # once, not for each of many hosts
                log.warning("run %d: what the hosts answered cannot be stored: %s", self._kept.number, error.strerror)
            self._store_failed = True

    def finish(self) -> None:
        super().finish()
        kept = self._kept
        if kept is not None and not self.session.json and not kept.cancelled and kept.unfinished():
            note(f"to run it on the other hosts: harness fleet resume {kept.number}")

    def kind_of(self, outcome: HostOutcome[ShellResult]) -> str:
        from ....fleets.host_commands import RunCancelled

        return "not_started" if isinstance(outcome.error, RunCancelled) else super().kind_of(outcome)

    def result_kind(self, result: ShellResult) -> str:
        if result.status is Status.UNKNOWN:
            return "unknown"
        return "ok" if result.ok else "failed"

    def result_json(self, result: ShellResult) -> Mapping[str, object]:
        return result_json(result)

    def result_key(self, result: ShellResult) -> Hashable:
        return result.status, result.exit_code, result.stdout_bytes, result.stderr_bytes, result.truncated

    def merged_text(self, result: ShellResult) -> MergedText:
        output, stderr = (
            with_gap(result.stdout_bytes, result.stdout_gap),
            with_gap(result.stderr_bytes, result.stderr_gap),
        )
        return MergedText(output, stderr, truncated=bool(result.truncated))

    def stored_output(self, result: ShellResult) -> StoredOutput:
        from ....live.sessions.job_output import StoredOutput

        stdout, stderr = result.stdout_bytes, result.stderr_bytes
        return StoredOutput(stdout, stderr, stdout_gap=result.stdout_gap, stderr_gap=result.stderr_gap)

    def ending_text(self, results: Mapping[str, ShellResult]) -> str:
        return ending_of(results)

    def result_job(self, result: ShellResult) -> str | None:
        return result.job_id

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
            note(f"{host_label(outcome.host)}: {ending_of({outcome.host: outcome.result})}")

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


# -- ``harness hosts``

HELP = """List the hosts that patterns mean, with their targets; nothing is connected.

PATTERN is as for run --hosts: 'web[1-20],db1,!web7', '@web', 'web*', or a target URL. Without a pattern, all hosts of
the inventory, or the Host entries of the ssh configuration.
"""


@command("hosts", help=HELP)
@click.option(
    "--inventory",
    metavar="FILE",
    shell_complete=complete_file,
    help="Take hosts and groups from FILE: a list, or Ansible's INI or YAML.",
)
@click.option("--fold", is_flag=True, help="Print the names in short, on one line.")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1, shell_complete=complete_pattern)
@click.pass_context
def hosts(ctx: click.Context, inventory: str | None, fold: bool, patterns: tuple[str, ...]) -> None:
    session = session_of(ctx)
    found = hosts_of_patterns(session, patterns if patterns or inventory else ("*",), inventory)
    if session.json:
        print_json([{"host": host.name, "target": str(host.target)} for host in found])
    elif fold:
        from ....fleets.host_names import fold_names

        click.echo(readable(fold_names(host.name for host in found)))
    else:
        table(("HOST", "TARGET"), [(host.name, str(host.target)) for host in found])
