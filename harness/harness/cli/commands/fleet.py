"""``harness run --hosts`` and ``harness hosts``: one command on many hosts, and which hosts a pattern means."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from ...errors import ConnectError, ConnectionLost, HarnessError
from ...results import ShellResult, Status
from ..exits import FAILED, HARNESS_FAILED, INTERRUPTED
from ..options import Invocation, command
from ..output import error_json, escape_line, note, print_json, readable, result_json, table
from ..runtime import CliSession, session_of
from ..streams import Interruption, StreamWriter, run_async
from .fleet_control import FleetControl, FleetOptions

if TYPE_CHECKING:
    from ...fleets import Host, HostOutcome

__all__ = ["hosts", "run_on_fleet"]

MAX_LINE = 1 << 16
"""Bytes of a line without an end after which --each prints it anyway."""


def run_on_fleet(session: CliSession, options: FleetOptions, text: str, call: Mapping[str, Any]) -> int:
    """Run a command on each host, print the outcomes, and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        text: Shell text.
        call: Further arguments of ``run_shell``.

    Raises:
        click.UsageError: No hosts were given, or a single target as well.
        ConfigError: A pattern or the inventory is wrong.

    Returns:
        0 if every command ended with 0; 125 if a host could not be reached or its outcome is unknown; else 1.
    """
    from ...fleets import fleet

    chosen = _hosts_of_options(session, options)
    control = FleetControl(session, options)
    settings = session.settings

    async def main(interruption: Interruption) -> int:
        report = _Report(session, options, chosen, interruption)
        try:
            async with fleet(chosen, tmux=settings.tmux, pane=settings.pane, config=settings.config) as opened:
                interrupt = partial(control.interrupt, opened, report.clear)
                with interruption.reaches(), interruption.first_interrupt(interrupt):
                    outcomes = opened.run_shell(
                        text,
                        on_start=report.start,
                        on_wave=lambda names: control.before_wave(opened, report.show),
                        on_output=report.output if options.each else None,
                        on_stderr=report.stderr if options.each else None,
                        **options.start_arguments(),
                        **call,
                    )
                    async for _, outcome in outcomes:
                        report.add(outcome)
        finally:
            report.finish()
        return INTERRUPTED if control.interrupted and report.has_left_out else report.exit_code

    return run_async(main)


def _hosts_of_options(session: CliSession, options: FleetOptions) -> tuple[Host, ...]:
    """Return the hosts of a command's options.

    Raises:
        click.UsageError: No hosts were given, or a single target as well.
        ConfigError: A pattern or the inventory is wrong.
    """
    if options.patterns or options.inventory:
        return _hosts(session, options.patterns, options.inventory)
    if session.invocation.several:
        return _hosts_of_choices(session.invocation)
    raise click.UsageError(
        "the options for many hosts, such as --forks and --each, need --hosts, --inventory or several --ssh"
    )


def _hosts_of_choices(invocation: Invocation) -> tuple[Host, ...]:
    """Return the hosts of several ``--ssh``, or each ``--container`` on each of them.

    Raises:
        click.UsageError: They are combined with ``--image``.
        HarnessError: One is not a target.
    """
    from ...fleets import Host
    from ...settings import load_settings

    choices, several = invocation.choices, invocation.several
    if choices.image is not None:
        raise click.UsageError("--image works on one target at a time")
    found = []
    for ssh, container in product(several.get("ssh", (choices.ssh,)), several.get("container", (choices.container,))):
        target = load_settings(replace(choices, ssh=ssh, container=container)).target
        found.append(Host(ssh if ssh is not None and container is None else str(target), target))
    return tuple(found)


def _hosts(session: CliSession, patterns: Sequence[str], inventory: str | None) -> tuple[Host, ...]:
    """Return the chosen hosts.

    Raises:
        click.UsageError: A single target was chosen as well.
        ConfigError: A pattern or the inventory is wrong.
    """
    from ...fleets import read_inventory, resolve_hosts

    choices = session.invocation.choices
    for name in ("ssh", "target", "container", "image"):
        if getattr(choices, name) is not None:
            raise click.UsageError(f"a pattern of hosts and --{name} contradict each other: give one of them")
    read = read_inventory(inventory) if inventory else None
    return resolve_hosts(patterns, read, ssh_config=session.settings.config.ssh_config or None)


@dataclass
class _Report:
    """Prints outcomes: each as it comes with --each and --json, else merged at the end."""

    session: CliSession
    options: FleetOptions
    hosts: Sequence[Host]
    interruption: Interruption
    outcomes: list[HostOutcome[ShellResult]] = field(default_factory=list)
    unshown: list[HostOutcome[ShellResult]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    partial: dict[tuple[str, int], bytes] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.writers = {number: StreamWriter(number, self.interruption) for number in (1, 2)}
        self.order = {host.name: place for place, host in enumerate(self.hosts)}
        live = not self.options.each and not self.session.json
        self.live = live and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def start(self, name: str) -> None:
        self.running.add(name)
        self._show_counts()

    def output(self, name: str, data: bytes) -> None:
        self._lines(name, 1, data)

    def stderr(self, name: str, data: bytes) -> None:
        self._lines(name, 2, data)

    def add(self, outcome: HostOutcome[ShellResult]) -> None:
        self.running.discard(outcome.host)
        self.outcomes.append(outcome)
        self.unshown.append(outcome)
        if self.session.json:
            print_json(_outcome_json(outcome))
        elif self.options.each:
            self._end_lines(outcome.host)
            if outcome.failed and outcome.result is not None:  # errors are in the summary
                note(f"{_label(outcome.host)}: {_how(outcome)}")
        self._show_counts()

    def clear(self) -> None:
        """Remove the line with counts, before another line is printed."""
        if self.live:
            click.echo("\r\033[K", nl=False, err=True)

    def show(self) -> None:
        """Print what was not printed yet: merged outputs, errors and notices."""
        self.clear()
        outcomes = sorted(self.unshown, key=lambda outcome: self.order[outcome.host])
        self.unshown.clear()
        if self.session.json:
            return
        if not self.options.each:
            self._print_merged(outcomes)
        self._print_problems(outcomes)

    def finish(self) -> None:
        """Print what is left, and the summary."""
        self._add_left_out()
        self.show()
        if self.session.json:
            print_json({"summary": self._counts()})
        else:
            self._print_summary()

    def _add_left_out(self) -> None:
        from ...fleets import HostOutcome

        begun = self.running | {outcome.host for outcome in self.outcomes}
        for host in self.hosts:
            if host.name not in begun:
                error = HarnessError("not started")
                self.add(HostOutcome(host.name, str(host.target), error=error, started=False))

    @property
    def has_left_out(self) -> bool:
        """Whether a host was not started."""
        return not all(outcome.started for outcome in self.outcomes)

    @property
    def exit_code(self) -> int:
        unproved = any(_kind(outcome) in {"unreachable", "error", "unknown"} for outcome in self.outcomes)
        failed = any(outcome.failed for outcome in self.outcomes)
        return HARNESS_FAILED if unproved else FAILED if failed else 0

    # -- --each

    def _lines(self, name: str, stream: int, data: bytes) -> None:
        *lines, rest = (self.partial.pop((name, stream), b"") + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        if rest:
            self.partial[name, stream] = rest
        if lines:
            self._write_lines(stream, f"{_label(name)}: ".encode(), b"\n".join(lines))

    def _write_lines(self, stream: int, prefix: bytes, data: bytes) -> None:
        """Write lines with a prefix: exact bytes, but to a terminal with control characters escaped."""
        lines = data.removesuffix(b"\n").split(b"\n") if data else []
        if os.isatty(stream):
            lines = [escape_line(line) for line in lines]
        self.writers[stream].write(b"".join(prefix + line + b"\n" for line in lines))

    def _end_lines(self, name: str) -> None:
        for stream in (1, 2):
            if (name, stream) in self.partial:
                self._lines(name, stream, b"\n")

    # -- merged

    def _print_merged(self, outcomes: Sequence[HostOutcome[ShellResult]]) -> None:
        from ...fleets.hosts import fold_names
        from ...fleets.merging import difference, merge_outcomes

        groups = [group for group in merge_outcomes(outcomes) if group.outcome.result is not None]
        most = groups[0].outcome.result if groups and len(groups[0].hosts) > 1 else None
        for group in groups:
            result = group.outcome.result
            assert result is not None
            names = readable(fold_names(group.hosts))
            how = f": {_how(group.outcome)}" if group.outcome.failed else ""
            changed = difference(most, result) if most is not None and result is not most else None
            title = f"== {names} ({len(group.hosts)}){how}{', changes to the first output' if changed else ''}"
            body = "\n".join(changed).encode("utf-8", "surrogateescape") if changed else result.stdout_bytes
            self.writers[1].write(title.encode() + b"\n")
            self._write_lines(1, b"", body)
            self._write_lines(2, f"{names.removesuffix(':')}: ".encode(), result.stderr_bytes)

    # -- counts

    def _counts(self) -> dict[str, object]:
        kinds = Counter(_kind(outcome) for outcome in self.outcomes)
        by_kind = {kind: kinds[kind] for kind in ("ok", "failed", "unreachable", "error", "unknown", "not_started")}
        return {"hosts": len(self.hosts), **by_kind, "interrupted": len(self.running)}

    def _print_problems(self, outcomes: Sequence[HostOutcome[ShellResult]]) -> None:
        from ...fleets.hosts import fold_names
        from ...fleets.merging import error_text, merge_outcomes

        for group in merge_outcomes(outcome for outcome in outcomes if outcome.error is not None):
            text = error_text(group.outcome, named=len(group.hosts) == 1)
            note(f"{fold_names(group.hosts)} ({len(group.hosts)}): {text}")
        for text, names in self._notices(outcomes).items():
            note(f"{fold_names(names)} ({len(names)}): {text.partition(chr(10))[0]}")

    def _print_summary(self) -> None:
        from ...fleets.hosts import fold_names

        if self.running:
            names = fold_names(sorted(self.running, key=self.order.__getitem__))
            note(f"{names} ({len(self.running)}): interrupted")
        counts = self._counts()
        shown = [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count and kind != "hosts"]
        number = f"{counts['hosts']} {'host' if counts['hosts'] == 1 else 'hosts'}"
        note(f"{number}: {', '.join(shown)}, {time.monotonic() - self.began:.1f} s")

    def _notices(self, outcomes: Sequence[HostOutcome[ShellResult]]) -> dict[str, list[str]]:
        """Return what is unusual about results, with the hosts that it is true of."""
        found: dict[str, list[str]] = {}
        for outcome in outcomes:
            result = outcome.result
            if result is None:
                continue
            cut = result.truncated and not self.options.each
            omitted = [f"{result.truncated:,} bytes in the middle of the output are not shown"] if cut else []
            for text in (*result.notices, *omitted):
                found.setdefault(text, []).append(outcome.host)
        return found

    def _show_counts(self) -> None:
        if not self.live:
            return
        done, failed = len(self.outcomes), sum(outcome.failed for outcome in self.outcomes)
        text = f"{done}/{len(self.hosts)} done, {failed} failed, {len(self.running)} running"
        if 0 < done < len(self.hosts):
            text += f", about {(time.monotonic() - self.began) / done * (len(self.hosts) - done):.0f} s left"
        click.echo(f"\r\033[K{text}", nl=False, err=True)


def _kind(outcome: HostOutcome[ShellResult]) -> str:
    if not outcome.started:
        return "not_started"
    if outcome.result is None:
        return "unreachable" if isinstance(outcome.error, ConnectError | ConnectionLost) else "error"
    if outcome.result.status is Status.UNKNOWN:
        return "unknown"
    return "ok" if outcome.result.ok else "failed"


def _label(name: str) -> str:
    """Return a host's name as it is printed before a colon."""
    return readable(name.removesuffix(":"))


def _how(outcome: HostOutcome[ShellResult]) -> str:
    """Return how a failed outcome ended, in a few words."""
    if outcome.error is not None:
        return readable(outcome.error.message)
    result = outcome.result
    assert result is not None
    if result.exit_code is not None:
        return f"exit code {result.exit_code}"
    return result.status.value.replace("_", " ") + (f" as job {result.job_id}" if result.job_id else "")


def _outcome_json(outcome: HostOutcome[ShellResult]) -> dict[str, object]:
    about: dict[str, object] = {"host": outcome.host, "target": outcome.target, "started": outcome.started}
    if outcome.result is not None:
        return about | result_json(outcome.result)
    error = outcome.error
    assert isinstance(error, HarnessError)
    return about | error_json(type(error).__name__, error.message, error.target, error.hint)


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
    found = _hosts(session, patterns if patterns or inventory else ("*",), inventory)
    if session.json:
        print_json([{"host": host.name, "target": str(host.target)} for host in found])
    elif fold:
        from ...fleets.hosts import fold_names

        click.echo(readable(fold_names(host.name for host in found)))
    else:
        table(("HOST", "TARGET"), [(host.name, str(host.target)) for host in found])
