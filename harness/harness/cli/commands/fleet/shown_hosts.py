"""The hosts of a call on many hosts, as dashboards see them: their states, failed ones first, and their outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ....errors import HarnessError
from ....live.sessions.host_groups import HostGroup, HostProgress, RunningJob
from .report import FleetReport

if TYPE_CHECKING:
    from ....context import ExecutionContext
    from ....fleets import HostOutcome
    from ....live.sessions.job_output import StoredOutput

__all__ = ["ShownHosts"]

T = TypeVar("T")
ENDED_BADLY = ("failed", "error", "unreachable", "unknown", "interrupted")
"""The states of hosts that need attention, in the order in which they are shown."""


class ShownHosts(Generic[T]):
    """The hosts of a report; see :class:`HostsOfCommand`."""

    def __init__(self, report: FleetReport[T]) -> None:
        self._report = report

    @property
    def run(self) -> int | None:
        """The number of the run, if it is kept."""
        return self._report.run

    def progress(self) -> HostProgress:
        """Return how far the call is."""
        report = self._report
        return HostProgress(len(report.hosts), len(report.running), report.ok, report.failed)

    def groups(self) -> Sequence[HostGroup]:
        """Return all hosts: those that need attention, then those that run, have not started, and are ok."""
        by_state: dict[str, list[HostOutcome[T]]] = {}
        for outcome in sorted(self._report.outcomes, key=lambda outcome: self._report.order[outcome.host]):
            by_state.setdefault(self._report.kind_of(outcome), []).append(outcome)
        found = [group for state in ENDED_BADLY for group in self._merged(state, by_state)]
        found += self._without_outcome()
        return [*found, *self._merged("not_started", by_state), *self._merged("ok", by_state)]

    def _merged(self, state: str, by_state: dict[str, list[HostOutcome[T]]]) -> Iterator[HostGroup]:
        from ....fleets.merging import merge_outcomes

        for group in merge_outcomes(by_state.get(state, ()), self._report.result_key):
            yield HostGroup(state, tuple(group.hosts), group.text or self._ending(group.outcome))

    def _ending(self, outcome: HostOutcome[T]) -> str:
        if outcome.error is not None:
            return outcome.error.message
        return self._report.ending_text({outcome.host: cast("T", outcome.result)})

    def _without_outcome(self) -> Iterator[HostGroup]:
        report = self._report
        running = tuple(sorted(report.running, key=report.order.__getitem__))
        if running:
            yield HostGroup("running", running)
        started = report.running | {outcome.host for outcome in report.outcomes}
        waiting = tuple(host.name for host in report.hosts if host.name not in started)
        if waiting:
            yield HostGroup("pending", waiting)

    def panes(self) -> Mapping[str, ExecutionContext]:
        """Return the hosts whose command runs in a pane, with their contexts."""
        return {host: context for host, (context, _) in self._report.jobs.items() if context.has_terminal}

    def output_of(self, host: str) -> RunningJob | StoredOutput:
        """Return the output of a host.

        Raises:
            HarnessError: There is no such host, or it has none.
        """
        if host not in self._report.order:
            raise HarnessError(f"this run has no host {host}", hint="use the name as it is listed")
        if (job := self._report.jobs.get(host)) is not None:
            return RunningJob(*job)
        outcome = next((one for one in self._report.outcomes if one.host == host), None)
        if outcome is None:
            raise HarnessError(f"{host}: there is no output yet", hint="try again once its command runs")
        return self._stored(outcome)

    def _stored(self, outcome: HostOutcome[T]) -> StoredOutput:
        from ....live.sessions.job_output import StoredOutput

        has_result = outcome.error is None
        output = self._report.stored_output(cast("T", outcome.result)) if has_result else StoredOutput()
        return replace(output, ending=self._ending(outcome))
