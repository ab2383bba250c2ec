"""What many hosts show: ``harness jobs list``, ``capture`` and ``doctor`` with ``--hosts``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ....backend import Finding
from ....context import ExecutionContext, backend_of
from ....results import Job
from ...named_commands import any_host_options, complete_commands, host_options
from ...output import table
from ...runtime import LOOKS, PLAIN, CliSession
from ...streams import Interruption
from ..doctor_findings import print_finding
from .calls import map_on_hosts
from .options import FleetOptions
from .report import FleetReport, MergedText

if TYPE_CHECKING:
    from ....fleets import Host, HostOutcome

__all__ = ["capture_on_fleet", "examine_fleet", "list_jobs_of_fleet"]


# -- jobs list


class _JobsReport(FleetReport[Sequence[Job]]):
    """A table of all hosts' jobs.

    Args:
        session: As for :class:`FleetReport`, like all further arguments but the last two.
        headers: The table's columns after the first one, which has the host.
        row: Returns the cells of a job.
    """

    def __init__(
        self,
        session: CliSession,
        hosts: Sequence[Host],
        interruption: Interruption,
        *,
        headers: Sequence[str],
        row: Callable[[Job], Sequence[str]],
    ) -> None:
        super().__init__(session, hosts, interruption)
        self._headers = headers
        self._row = row

    def result_json(self, result: Sequence[Job]) -> Mapping[str, object]:
        return {"jobs": result}

    def print_results(self, outcomes: Sequence[HostOutcome[Sequence[Job]]]) -> None:
        rows = [(outcome.host, *self._row(job)) for outcome in outcomes for job in outcome.result or ()]
        table(("HOST", *self._headers), rows)


def list_jobs_of_fleet(
    session: CliSession,
    options: FleetOptions,
    choose: Callable[[Sequence[Job]], Sequence[Job]],
    headers: Sequence[str],
    row: Callable[[Job], Sequence[str]],
) -> int:
    """Print the jobs of each host in one table and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        choose: Returns those of a host's jobs that are shown.
        headers: The table's columns after the first one, which has the host.
        row: Returns the cells of a job.
    """

    async def work(report: _JobsReport, name: str, context: ExecutionContext) -> Sequence[Job]:
        return choose(await context.jobs())

    make_report = partial(_JobsReport, session, headers=headers, row=row)
    return map_on_hosts(session, options, PLAIN, make_report, work)


# -- capture


class _ScreenReport(FleetReport[str]):
    """Equal texts of panes once.

    Args:
        session: As for :class:`FleetReport`, like all further arguments but the last two.
        facts: The members of each JSON object in addition to the text.
        colors: Whether the escape sequences of colors are printed at a terminal, too.
    """

    def __init__(
        self,
        session: CliSession,
        hosts: Sequence[Host],
        interruption: Interruption,
        *,
        facts: Mapping[str, object],
        colors: bool,
    ) -> None:
        super().__init__(session, hosts, interruption)
        self._facts = facts
        self._colors = colors

    def result_json(self, result: str) -> Mapping[str, object]:
        return {"text": result, **self._facts}

    def result_key(self, result: str) -> Hashable:
        return result

    def merged_text(self, result: str) -> MergedText:
        return MergedText(result.encode("utf-8", "surrogateescape"))

    def write_lines(self, stream: int, prefix: bytes, data: bytes) -> None:
        if self._colors and stream == 1:
            self.writers[stream].write(data + (b"" if data.endswith(b"\n") or not data else b"\n"))
        else:
            super().write_lines(stream, prefix, data)


def capture_on_fleet(
    session: CliSession, options: FleetOptions, how: Mapping[str, Any], *, facts: Mapping[str, object]
) -> int:
    """Print the pane of each host, equal texts once, and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        how: The arguments of ``capture_pane``.
        facts: The members of each JSON object in addition to the text.
    """

    async def work(report: _ScreenReport, name: str, context: ExecutionContext) -> str:
        return await context.capture_pane(**how)

    make_report = partial(_ScreenReport, session, facts=facts, colors=how["include_escape_sequences"])
    return map_on_hosts(session, options, LOOKS, make_report, work)


# -- doctor

SEVERITY = ("fail", "warn", "ok")
MAX_OK_LINES = 3
"""Lines about hosts that pass one check with different messages; more of them are one line."""


@dataclass(slots=True)
class _Line:
    """Hosts with the same finding; ``finding`` is the first one's."""

    finding: Finding
    names: list[str] = field(default_factory=list)
    texts: int = 1
    """The number of different findings."""


class _FindingsReport(FleetReport[Sequence[Finding]]):
    """Equal findings of hosts once, the failures first."""

    def result_kind(self, result: Sequence[Finding]) -> str:
        return "failed" if any(finding.level == "fail" for finding in result) else "ok"

    def result_json(self, result: Sequence[Finding]) -> Mapping[str, object]:
        return {"ok": self.result_kind(result) == "ok", "findings": result}

    def print_results(self, outcomes: Sequence[HostOutcome[Sequence[Finding]]]) -> None:
        from ....fleets.host_names import fold_names

        lines = _merge_ok(_merge_findings(outcomes))
        width = max((len(line.finding.check) for line in lines), default=0)
        for line in sorted(lines, key=lambda line: SEVERITY.index(line.finding.level)):
            names = f"{fold_names(line.names)} ({len(line.names)})"
            message = line.finding.message if line.texts == 1 else f"{line.texts} different messages (--json has them)"
            fix = complete_commands(line.finding.fix, self._options_of(line.names))
            print_finding(replace(line.finding, message=f"{names}: {message}", fix=fix), width)

    def _options_of(self, names: Sequence[str]) -> str:
        """Return the options of a command that reaches the hosts of a finding."""
        choices = self.session.invocation.choices
        if len(names) > 1:
            return any_host_options(choices)
        return host_options(next(str(host.target) for host in self.hosts if host.name == names[0]), choices)


def _merge_findings(outcomes: Sequence[HostOutcome[Sequence[Finding]]]) -> list[_Line]:
    """Return equal findings as one line each, in the order of the checks; a single host keeps its name in it."""
    from ....fleets.merging import hide_names

    order: dict[str, None] = {}
    lines: dict[Finding, _Line] = {}
    for outcome in outcomes:
        for finding in cast("Sequence[Finding]", outcome.result):
            order.setdefault(finding.check)
            message, fix = (hide_names(text, outcome) for text in (finding.message, finding.fix))
            key = replace(finding, message=message, fix=fix)
            lines.setdefault(key, _Line(finding)).names.append(outcome.host)
    for key, line in lines.items():
        if len(line.names) > 1:
            line.finding = key
    checks = list(order)
    return sorted(lines.values(), key=lambda line: checks.index(line.finding.check))


def _merge_ok(lines: Sequence[_Line]) -> list[_Line]:
    """Return the lines, but those about a check that many hosts pass with different messages as one."""
    passed: dict[str, list[_Line]] = {}
    for line in lines:
        if line.finding.level == "ok":
            passed.setdefault(line.finding.check, []).append(line)
    kept = []
    for line in lines:
        same = passed[line.finding.check] if line.finding.level == "ok" else [line]
        if len(same) <= MAX_OK_LINES:
            kept.append(line)
        elif line is same[0]:
            kept.append(_Line(line.finding, [name for item in same for name in item.names], len(same)))
    return kept


def examine_fleet(session: CliSession, options: FleetOptions, *, clean: bool) -> int:
    """Check each host, print equal findings once, and return the exit code."""

    async def work(report: _FindingsReport, name: str, context: ExecutionContext) -> Sequence[Finding]:
        from ....operate.doctor import examine

        settings = replace(session.settings, target=context.target)
        return await examine(settings, clean=clean, opened=backend_of(context))

    config = session.settings.config
    if config.ssh_engine == "default":  # the checks are about OpenSSH, as for one host
        config = replace(config, ssh_engine="openssh")
    return map_on_hosts(session, options, PLAIN, partial(_FindingsReport, session), work, config=config)
