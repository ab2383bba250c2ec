"""The report of a call on many hosts: a line with counts, merged results, errors, a summary and the exit code."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import click

from ....errors import ConnectError, ConnectionLost
from ....wording import counted
from ...exits import FAILED, HARNESS_FAILED, failure_code
from ...named_commands import any_host_options, complete_commands, host_options
from ...output import as_json, error_json, escape_line, note, readable
from ...runtime import CliSession
from ...streams import Interruption, StreamWriter
from .texts import HostNotices

if TYPE_CHECKING:
    from ....context import ExecutionContext
    from ....fleets import Host, HostOutcome, OutcomeGroup
    from ....live.sessions.job_output import StoredOutput

__all__ = ["FleetReport", "MergedText"]

T = TypeVar("T")
KINDS = ("ok", "failed", "unreachable", "error", "unknown", "not_started", "interrupted")
"""How a host's outcome is counted."""


@dataclass(frozen=True, slots=True)
class MergedText:
    """A result as printed once for all hosts that have it."""

    output: bytes
    stderr: bytes = b""
    truncated: bool = False


class FleetReport(Generic[T]):
    """Prints the outcomes of one call: as JSON when they come, else merged at the end.

    A subclass decides what depends on the kind of the results.

    Args:
        session: The program's settings.
        hosts: All hosts of the call.
        interruption: The end of the program.
        live: Whether a line with counts is shown at a terminal.
    """

    def __init__(
        self, session: CliSession, hosts: Sequence[Host], interruption: Interruption, *, live: bool = True
    ) -> None:
        self.session = session
        self.hosts = hosts
        self.run: int | None = None
        """The number of the run, if it is kept."""
        context = click.get_current_context(silent=True)
        self.title = context.command_path if context is not None else ""
        """What is done, for dashboards."""
        self.variables: Mapping[str, str] = {}
        """The environment of the commands, whose secrets are not shown."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each change of a host."""
        self.outcomes: list[HostOutcome[T]] = []
        self.running: set[str] = set()
        self.jobs: dict[str, tuple[ExecutionContext, str]] = {}
        """The contexts and the job IDs of running hosts, for dashboards."""
        self.started_at = time.monotonic()
        self.writers = {number: StreamWriter(number, interruption) for number in (1, 2)}
        self.order = {host.name: place for place, host in enumerate(hosts)}
        self._unshown: list[HostOutcome[T]] = []
        self._failed = self._not_started = 0
        self._live = live and not session.json and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    # -- what depends on the results

    def result_kind(self, result: T) -> str:
        """Return how a result is counted, one of :data:`KINDS`."""
        return "ok"

    def result_json(self, result: T) -> Mapping[str, object]:
        """Return the members of a result's JSON object."""
        raise NotImplementedError

    def merged_text(self, result: T) -> MergedText | None:
        """Return what is printed once for equal results; None prints nothing."""
        return None

    def stored_output(self, result: T) -> StoredOutput:
        """Return the output of a result for dashboards, without how it ended."""
        from ....live.sessions.job_output import StoredOutput

        text = self.merged_text(result)
        return StoredOutput() if text is None else StoredOutput(text.output, text.stderr)

    def ending_text(self, results: Mapping[str, T]) -> str:
        """Return how the equal results of these hosts ended; empty for a success."""
        return ""

    def result_job(self, result: T) -> str | None:
        """Return the job ID of a result, which notices name."""
        return None

    def result_key(self, result: T) -> Hashable:
        """Return what equal results have in common."""
        return self.merged_text(result)

    def result_notices(self, result: T) -> Iterable[str]:
        """Return what is unusual about a result."""
        return ()

    def print_results(self, outcomes: Sequence[HostOutcome[T]]) -> None:
        """Print results: those of equal hosts once."""
        self._print_merged(outcomes)

    def print_ended(self, outcome: HostOutcome[T]) -> None:
        """Print an outcome when it comes; the default waits for the others."""

    def progress_text(self) -> str:
        """Return what the line with counts adds to them."""
        return ""

    # -- what happens

    def start(self, name: str) -> None:
        """Count a host as running."""
        self.running.add(name)
        self.show_counts()
        self.changed()

    def set_job(self, name: str, context: ExecutionContext, job_id: str) -> None:
        """Note the job of a host's command."""
        self.jobs[name] = (context, job_id)
        self.changed()

    def add(self, outcome: HostOutcome[T]) -> None:
        """Take a host's outcome."""
        self.running.discard(outcome.host)
        self.jobs.pop(outcome.host, None)
        self.outcomes.append(outcome)
        self._unshown.append(outcome)
        kind = self.kind_of(outcome)
        self._not_started += kind == "not_started"
        self._failed += kind not in {"ok", "not_started"}
        if self.session.json:
            self._write_json(self._outcome_json(outcome))
        else:
            self.print_ended(outcome)
        self.show_counts()
        self.changed()

    @property
    def failed(self) -> int:
        """The number of hosts that started, and are not ok."""
        return self._failed

    @property
    def ok(self) -> int:
        """The number of hosts that are ok."""
        return self._ended - self._failed

    @property
    def _ended(self) -> int:
        """The number of hosts that started and ended."""
        return len(self.outcomes) - self._not_started

    def clear(self) -> None:
        """Remove the line with counts, before another line is printed."""
        if self._live:
            click.echo("\r\033[K", nl=False, err=True)

    def show(self) -> None:
        """Print what was not printed yet: results, errors and notices."""
        self.clear()
        outcomes = sorted(self._unshown, key=lambda outcome: self.order[outcome.host])
        self._unshown.clear()
        if self.session.json:
            return
        self.print_results([outcome for outcome in outcomes if outcome.error is None])
        self._print_problems(outcomes)

    def finish(self) -> None:
        """Print what is left, and the summary, after an interrupt too."""
        self._add_left_out()
        for writer in self.writers.values():
            writer.finish(interrupted=True)
        self.show()
        if self.session.json:
            run = {} if self.run is None else {"run": self.run}
            self._write_json({"summary": run | self.counts()})
        else:
            self._print_summary()

    def _add_left_out(self) -> None:
        from ....fleets import HostOutcome
        from ....fleets.starting import HostNotStarted

        begun = self.running | {outcome.host for outcome in self.outcomes}
        for host in self.hosts:
            if host.name not in begun:
                error = HostNotStarted("not started")
                self.add(HostOutcome(host.name, str(host.target), error=error, started=False))

    @property
    def has_left_out(self) -> bool:
        """Whether a host was not started."""
        return any(outcome.left_out for outcome in self.outcomes)

    @property
    def exit_code(self) -> int:
        """0 if every host is ok; 125 if one was not reached, or its outcome is unknown; else 1."""
        kinds = {self.kind_of(outcome) for outcome in self.outcomes}
        return HARNESS_FAILED if kinds & {"unreachable", "error", "unknown"} else FAILED if kinds - {"ok"} else 0

    # -- lines

    def _write_json(self, value: object) -> None:
        self.writers[1].write(as_json(value).encode() + b"\n")

    def write_lines(self, stream: int, prefix: bytes, data: bytes) -> None:
        """Write lines with a prefix: exact bytes, but to a terminal with control characters escaped."""
        lines = data.removesuffix(b"\n").split(b"\n") if data else []
        if os.isatty(stream):
            lines = [escape_line(line) for line in lines]
        self.writers[stream].write(b"".join(prefix + line + b"\n" for line in lines))

    def _print_merged(self, outcomes: Sequence[HostOutcome[T]]) -> None:
        from ....fleets.host_names import fold_names
        from ....fleets.merging import difference, merge_outcomes

        by_name = {outcome.host: cast("T", outcome.result) for outcome in outcomes}
        most: MergedText | None = None
        for group in merge_outcomes(outcomes, self.result_key):
            text = self.merged_text(cast("T", group.outcome.result))
            if text is None:
                continue
            changed = None
            if most is None:
                most = text if len(group.hosts) > 1 else MergedText(b"")
            elif not (most.truncated or text.truncated):
                changed = difference(most.output, text.output)
            names = readable(fold_names(group.hosts))
            ending = self.ending_text({name: by_name[name] for name in group.hosts})
            more = f"{ending and f': {ending}'}{', changes to the first output' if changed else ''}"
            body = "\n".join(changed).encode("utf-8", "surrogateescape") if changed else text.output
            self.writers[1].write(f"== {names} ({len(group.hosts)}){more}\n".encode())
            self.write_lines(1, b"", body)
            self.write_lines(2, f"{names.removesuffix(':')}: ".encode(), text.stderr)

    def _print_problems(self, outcomes: Sequence[HostOutcome[T]]) -> None:
        from ....fleets.host_names import fold_names
        from ....fleets.merging import merge_outcomes

        for group in merge_outcomes(outcome for outcome in outcomes if outcome.error is not None):
            note(f"{fold_names(group.hosts)} ({len(group.hosts)}): {self._with_host_options(group)}")
        for text, names in self._notices(outcomes).items():
            note(f"{fold_names(names)} ({len(names)}): {text}")

    def _with_host_options(self, group: OutcomeGroup[T]) -> str:
        """Return the error of hosts; commands in it reach the host, if it is one."""
        choices = self.session.invocation.choices
        if len(group.hosts) == 1:
            return complete_commands(group.text, host_options(group.outcome.target, choices))
        return complete_commands(group.text, any_host_options(choices))

    def _notices(self, outcomes: Sequence[HostOutcome[T]]) -> dict[str, list[str]]:
        """Return what is unusual about results, with the hosts that it is true of."""
        found = HostNotices(self.session.invocation.choices)
        for outcome in outcomes:
            if outcome.error is None:
                result = cast("T", outcome.result)
                for text in self.result_notices(result):
                    found.add(outcome.host, outcome.target, self.result_job(result), text)
        return found.merged()

    # -- counts

    def kind_of(self, outcome: HostOutcome[T]) -> str:
        """Return how an outcome is counted, one of :data:`KINDS`."""
        if outcome.left_out:
            return "not_started"
        if outcome.interrupted:
            return "interrupted"
        if outcome.error is None:
            return self.result_kind(cast("T", outcome.result))
        if isinstance(outcome.error, ConnectError | ConnectionLost):
            return "unreachable"
        code = failure_code(outcome.error, passes_codes=self.session.invocation.passes_codes)
        return "failed" if code == FAILED else "error"

    def counts(self) -> dict[str, int]:
        """Return the number of hosts, and of each of :data:`KINDS`."""
        kinds = Counter([self.kind_of(outcome) for outcome in self.outcomes] + ["interrupted"] * len(self.running))
        return {"hosts": len(self.hosts), **{kind: kinds[kind] for kind in KINDS}}

    def _print_summary(self) -> None:
        from ....fleets.host_names import fold_names

        if self.running:
            names = fold_names(sorted(self.running, key=self.order.__getitem__))
            note(f"{names} ({len(self.running)}): interrupted")
        counts = self.counts()
        shown = [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count and kind != "hosts"]
        number = counted(counts["hosts"], "host")
        run = "" if self.run is None else f"run {self.run}, "
        note(f"{run}{number}: {', '.join(shown)}, {time.monotonic() - self.started_at:.1f} s")

    def show_counts(self) -> None:
        """Show the line with counts, if standard error is a terminal."""
        if not self._live:
            return
        done = self._ended
        text = (
            f"{done}/{len(self.hosts)} done, {self._failed} failed, {len(self.running)} running{self.progress_text()}"
        )
        if 0 < done < len(self.hosts) and not self._not_started:
            left = (time.monotonic() - self.started_at) / done * (len(self.hosts) - done)
            text += f", about {left:.0f} s left"
        click.echo(f"\r\033[K{text}", nl=False, err=True)

    def _outcome_json(self, outcome: HostOutcome[T]) -> dict[str, object]:
        about: dict[str, object] = {"host": outcome.host, "target": outcome.target, "started": outcome.started}
        if outcome.error is None:
            return {**about, **self.result_json(cast("T", outcome.result))}
        error = outcome.error
        hint = complete_commands(error.hint, host_options(outcome.target, self.session.invocation.choices))
        return about | error_json(type(error).__name__, error.message, error.target, hint)
