"""One call on many hosts: the hosts of a command's options, and the call with its report and its exit code."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import click

from ....context import ExecutionContext
from ....errors import HarnessError
from ....live.announcement import announce
from ....live.sessions.command_session import CommandSession
from ....notifications.command_end import notified_end
from ...exits import INTERRUPTED
from ...options import Invocation
from ...redaction import session_redactor
from ...runtime import CliSession, TargetRequirements
from ...streams import Interruption, run_async
from .control import FleetControl
from .options import FleetOptions
from .report import FleetReport

if TYPE_CHECKING:
    from ....config import Config
    from ....context import ExecutionContext
    from ....fleets import Fleet, Host, HostOutcome, Inventory
    from ....fleets.executor import FleetExecutor
    from ....fleets.in_process import UseContext
    from ....live.sessions.host_groups import HostGroup, HostProgress, RunningJob
    from ....live.sessions.job_output import StoredOutput

__all__ = ["call_on_hosts", "hosts_of_options", "hosts_of_patterns", "map_on_hosts"]


# -- The hosts of a call as dashboards see them.

T = TypeVar("T")
ENDED_BADLY = ("failed", "error", "unreachable", "unknown", "interrupted")
"""The states of hosts that need attention, in the order in which they are shown."""


class ShownHosts(Generic[T]):
    """The hosts of a report; see :class:`HostsOfCommand`. Only when a dashboard asks, its modules are loaded."""

    def __init__(self, report: FleetReport[T]) -> None:
        self._report = report

    @property
    def run(self) -> int | None:
        """The number of the run, if it is kept."""
        return self._report.run

    def progress(self) -> HostProgress:
        """Return how far the call is."""
        from ....live.sessions.host_groups import HostProgress

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
        from ....live.sessions.host_groups import HostGroup

        for group in merge_outcomes(by_state.get(state, ()), self._report.result_key):
            yield HostGroup(state, tuple(group.hosts), group.text or self._ending(group.outcome))

    def _ending(self, outcome: HostOutcome[T]) -> str:
        if outcome.error is not None:
            return outcome.error.message
        return self._report.ending_text({outcome.host: cast("T", outcome.result)})

    def _without_outcome(self) -> Iterator[HostGroup]:
        from ....live.sessions.host_groups import HostGroup

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
        from ....live.sessions.host_groups import RunningJob

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


# -- Calls.

_Outcomes = AsyncGenerator[tuple[str, "HostOutcome[T]"], None]


def call_on_hosts(
    session: CliSession,
    options: FleetOptions,
    needs: TargetRequirements,
    make_report: Callable[[Sequence[Host], Interruption], FleetReport[T]],
    call: Callable[..., _Outcomes[T]],
    *,
    chosen: Sequence[Host] | None = None,
    terminal: tuple[bool | str, str | None] | None = None,
    config: Config | None = None,
) -> int:
    """Make one call on the hosts of a command's options, print the report, and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        needs: What the command needs of each host.
        make_report: Returns the report for the hosts.
        call: Makes the call; gets the fleet, the report, and the arguments of :meth:`Fleet.map` as keywords.
        chosen: The hosts, if they are not those of the options.
        terminal: The tmux session and the pane, if they are not those of the settings.
        config: The engine's settings, if they are not the program's.

    Raises:
        click.UsageError: No hosts were given, or a single target as well.
        ConfigError: A pattern or the inventory is wrong.

    Returns:
        0 if every host is ok; 125 if a host could not be reached or its outcome is unknown; else 1.
    """
    from ....fleets import fleet

    hosts = hosts_of_options(session, options) if chosen is None else chosen
    control = FleetControl(session, options)
    tmux, pane = session.terminal_of(needs) if terminal is None else terminal
    recording = session.host_recording(needs, tmux, len(hosts), by_workers=options.scheduler is not None)

    async def main(interruption: Interruption) -> int:
        report = make_report(hosts, interruption)
        settings = config or session.settings.config
        async with (
            session.notified("fleet") as notifier,
            _shown(report, interruption) as shown,
            _executor_of(options, settings.connect_timeout, recording) as executor,
            fleet(hosts, tmux=tmux, pane=pane, config=settings, create=needs.create, executor=executor) as opened,
        ):
            arguments = options.start_arguments() | {
                "on_start": report.start,
                "on_wave": lambda names: control.before_wave(opened, report.show),
            }
            with (
                notified_end(notifier, shown.state, "fleet_ended") as end,
                control.signals(interruption, opened, report.clear),
            ):
                try:
                    async with aclosing(call(opened, report, **arguments)) as outcomes:
                        async for _, outcome in outcomes:
                            report.add(outcome)
                finally:  # before the connections are closed, which an unresponsive host delays
                    report.finish()
                if not control.interrupted:
                    end.take_counts(report.counts(), report.run)
        return INTERRUPTED if control.interrupted and report.has_left_out else report.exit_code

    return run_async(main)


@asynccontextmanager
async def _shown(report: FleetReport[T], interruption: Interruption) -> AsyncIterator[CommandSession]:
    """Show the call in dashboards while the context is open."""
    from ....fleets.host_names import fold_names

    names = fold_names(host.name for host in report.hosts)
    settings, choices = report.session.settings, report.session.invocation.choices
    make_redactor = partial(session_redactor, settings, choices, report.variables)
    async with announce("fleet", is_shown=settings.config.announce) as announcement:
        session = CommandSession(
            names, report.title, interruption.interrupt, make_redactor=make_redactor, hosts=ShownHosts(report)
        )

        def changed() -> None:
            session.hosts_changed()
            announcement.changed()

        report.changed = changed
        with announcement.session(session):
            yield session


@asynccontextmanager
async def _executor_of(
    options: FleetOptions, timeout: float, recording: UseContext | None
) -> AsyncIterator[FleetExecutor | None]:
    """Connect to the scheduler of a command's options, if they have one."""
    if options.scheduler is None:
        from ....fleets.in_process import InProcess

        yield InProcess(recording)
        return
    from ....fleets.dask_executor import connect_scheduler

    async with connect_scheduler(options.scheduler, timeout) as executor:
        yield executor


def map_on_hosts(
    session: CliSession,
    options: FleetOptions,
    needs: TargetRequirements,
    make_report: Callable[[Sequence[Host], Interruption], FleetReport[T]],
    work: Callable[[Any, str, ExecutionContext], Awaitable[T]],
    *,
    chosen: Sequence[Host] | None = None,
    config: Config | None = None,
) -> int:
    """Call a function with the context of each host, as :func:`call_on_hosts`.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        needs: What the command needs of each host.
        make_report: Returns the report for the hosts.
        work: Gets the report, the host's name and its context.
        chosen: The hosts, if the options have been read.
        config: The engine's settings, if they are not the program's.
    """

    def call(opened: Fleet, report: FleetReport[T], **arguments: Any) -> _Outcomes[T]:
        return opened.map_named(partial(work, report), **arguments)

    return call_on_hosts(session, options, needs, make_report, call, chosen=chosen, config=config)


def hosts_of_options(
    session: CliSession, options: FleetOptions, *, ignore_become: bool = True, inventory: Inventory | None = None
) -> tuple[Host, ...]:
    """Return the hosts of a command's options.

    Args:
        session: The program's settings.
        options: The hosts.
        inventory: The inventory of the options, if it has been read.
        ignore_become: As for ``resolve_hosts``; False if it matters as which account commands run.

    Raises:
        click.UsageError: No hosts were given, or a single target as well.
        ConfigError: A pattern or the inventory is wrong.
    """
    if options.patterns or options.inventory:
        source = inventory or options.inventory
        return hosts_of_patterns(session, options.patterns, source, ignore_become=ignore_become)
    if session.invocation.several:
        return _hosts_of_choices(session.invocation)
    raise click.UsageError("the options for many hosts, such as --forks, need --hosts, --inventory or several --ssh")


def _hosts_of_choices(invocation: Invocation) -> tuple[Host, ...]:
    """Return the hosts of several ``--ssh``, or each ``--container`` on each of them.

    Raises:
        click.UsageError: They are combined with ``--image``.
        HarnessError: One is not a target.
    """
    from ....fleets import Host
    from ....settings import load_settings

    choices, several = invocation.choices, invocation.several
    if choices.image is not None:
        raise click.UsageError("--image works on one target at a time")
    found = []
    for ssh, container in product(several.get("ssh", (choices.ssh,)), several.get("container", (choices.container,))):
        target = load_settings(replace(choices, ssh=ssh, container=container)).target
        found.append(Host(ssh if ssh is not None and container is None else str(target), target))
    return tuple(found)


def hosts_of_patterns(
    session: CliSession, patterns: Sequence[str], inventory: str | Inventory | None, *, ignore_become: bool = True
) -> tuple[Host, ...]:
    """Return the hosts that patterns and an inventory mean, with the named targets of the settings.

    Raises:
        click.UsageError: A single target was chosen as well.
        ConfigError: A pattern or the inventory is wrong.
    """
    from ....fleets import NamedTarget, read_inventory, resolve_hosts

    choices = session.invocation.choices
    for name in ("ssh", "target", "container", "image"):
        if getattr(choices, name) is not None:
            raise click.UsageError(f"a pattern of hosts and --{name} contradict each other: give one of them")
    read = read_inventory(inventory) if isinstance(inventory, str) else inventory
    settings = session.settings
    own = dict(settings.target_settings)
    return resolve_hosts(
        patterns,
        read,
        ssh_config=settings.config.ssh_config or None,
        targets={name: NamedTarget(url, own[name]) for name, url in settings.targets},
        ignore_become=ignore_become,
    )
