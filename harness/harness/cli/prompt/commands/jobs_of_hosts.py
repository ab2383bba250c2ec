"""The jobs of a session on many hosts, for slash commands: ``HOST:ID`` names a job, equal ones are one row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import anyio

from ....context import ExecutionContext
from ....errors import ConfigError, HarnessError, JobNotFound
from ....fleets import FleetContext
from ....fleets.host_names import fold_names
from ....fleets.merging import error_text, merge_outcomes
from ....results import Job, Status, without_helpers
from .base import moment

if TYPE_CHECKING:
    from ....fleets import Fleet, HostOutcome

__all__ = [
    "HostJobs",
    "JobRow",
    "JobTail",
    "ask_hosts",
    "connected_hosts",
    "counted",
    "ending_text",
    "error_lines",
    "fleet_of",
    "job_and_hosts",
    "kill_job",
    "known_job",
    "list_jobs",
    "merge_jobs",
    "read_tail",
]

T = TypeVar("T")
ANSWER_TIMEOUT = 5.0
"""Seconds: commands that show the current state must not wait for one unresponsive host."""
MAX_NAMES_CHARS = 40
"""Length of folded names in a table."""
SAME_START = 60.0
"""Seconds between the starts of equal jobs that are shown as one time."""


def fleet_of(execution: ExecutionContext) -> Fleet | None:
    """Return the hosts of a session; None on one target."""
    return execution.fleet if isinstance(execution, FleetContext) else None


def counted(names: Sequence[str]) -> str:
    """Return folded names and their number: ``web[1-3] (3)``."""
    return f"{fold_names(names)} ({len(names)})"


def job_and_hosts(fleet: Fleet, word: str) -> tuple[tuple[str, ...], str]:
    """Return the hosts and the job ID of ``HOST:ID``, where ``HOST`` is a pattern.

    Raises:
        HarnessError: The word names no host, or none of this session.
    """
    pattern, _, job_id = word.rpartition(":")
    if not pattern or not job_id:
        example = f"{fleet.names[0]}:{job_id or '12'}"
        raise HarnessError(f"job {word!r} needs its host: write HOST:ID, such as {example}; /ps lists running jobs")
    try:
        return fleet.choose(pattern), job_id
    except ConfigError as error:
        raise HarnessError(f"job {word!r}: {error.message} ({error.hint})") from None


def connected_hosts(fleet: Fleet) -> list[str]:
    """Return the names of the hosts that are connected."""
    return [name for name in fleet.names if fleet.is_connected(name)]


async def ask_hosts(
    fleet: Fleet, names: Sequence[str], work: Callable[[ExecutionContext], Awaitable[T]]
) -> list[HostOutcome[T]]:
    """Call an async function with the context of each host and return the outcomes in the order of the names."""
    async with aclosing(fleet.map(work, hosts=names)) as outcomes:
        found = {name: outcome async for name, outcome in outcomes}
    return [found[name] for name in names if name in found]


def error_lines(outcomes: Sequence[HostOutcome[T]]) -> list[str]:
    """Return the errors of outcomes, those of hosts with equal ones as one line."""
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    return [
        f"{group.hosts[0]}: {error_text(group.outcome, named=True)}"
        if len(group.hosts) == 1
        else f"{counted(group.hosts)}: {group.text}"
        for group in merge_outcomes(failed)
    ]


# -- the table of jobs


@dataclass(slots=True)
class JobRow:
    """Equal jobs of hosts; ``job`` is the first one's."""

    job: Job
    hosts: list[str]
    last_start: float

    @property
    def name(self) -> str:
        """The jobs as arguments of slash commands name them, as far as that is short: ``web[1-3]:12``."""
        folded = fold_names(self.hosts)
        if len(folded) > MAX_NAMES_CHARS:
            folded = f"{folded[: MAX_NAMES_CHARS - 1]}…({len(self.hosts)} hosts)"
        return f"{folded}:{self.job.job_id}"

    @property
    def started(self) -> str:
        """When the first one started."""
        first = moment(self.job.started)
        return f"{first} or later" if self.last_start - (self.job.started or 0.0) > SAME_START else first


@dataclass(slots=True)
class HostJobs:
    """The jobs of hosts, and the errors of those that could not be asked."""

    rows: list[JobRow]
    errors: list[str] = field(default_factory=list)

    def recent(self, count: int) -> list[JobRow]:
        """Return the running jobs and the newest ``count`` others."""
        newest = {id(row) for row in self.rows[-count:]}
        return [row for row in self.rows if row.job.status is Status.RUNNING or id(row) in newest]


async def list_jobs(fleet: Fleet, names: Sequence[str], *, helpers: bool = False, running: bool = False) -> HostJobs:
    """Return the jobs of hosts, the oldest first, equal ones as one row.

    Args:
        fleet: The hosts of the session.
        names: The hosts to ask; those without a connection are connected.
        helpers: Include the helper commands of tools.
        running: Only running jobs; a host that does not answer within :data:`ANSWER_TIMEOUT` is an error.
    """

    async def work(execution: ExecutionContext) -> list[Job]:
        try:
            with anyio.fail_after(ANSWER_TIMEOUT if running else None):
                jobs = without_helpers(await execution.jobs(), helpers=helpers)
        except TimeoutError:
            raise HarnessError(f"no answer within {ANSWER_TIMEOUT:.0f} s") from None
        return [job for job in jobs if job.status is Status.RUNNING or not running]

    outcomes = await ask_hosts(fleet, names, work)
    jobs = [(outcome.host, job) for outcome in outcomes for job in outcome.result or ()]
    return HostJobs(merge_jobs(jobs), error_lines(outcomes))


def merge_jobs(jobs: Sequence[tuple[str, Job]]) -> list[JobRow]:
    """Return jobs of hosts as rows, the oldest first: same ID, command, pane, status and exit code are one row."""
    rows: dict[tuple[object, ...], JobRow] = {}
    for host, job in sorted(jobs, key=lambda found: found[1].started or 0.0):
        key = (job.job_id, job.command, job.pane, job.status, job.exit_code)
        row = rows.setdefault(key, JobRow(job, [], 0.0))
        row.hosts.append(host)
        row.last_start = job.started or 0.0
    return list(rows.values())


# -- one job


@dataclass(frozen=True, slots=True)
class JobTail:
    """A job with the end of its output; equal ones of hosts are shown once."""

    job: Job
    size: int
    start: int
    data: bytes

    @property
    def key(self) -> tuple[object, ...]:
        """What equal jobs have in common."""
        return self.job.command, self.job.status, self.job.exit_code, self.job.pane, self.size, self.data

    def without_times(self) -> JobTail:
        """Return it for several hosts, whose jobs started and ended at different times."""
        return replace(self, job=replace(self.job, started=None, ended=None))


async def read_tail(execution: ExecutionContext, job_id: str, limit: int) -> JobTail:
    """Return a job and the last bytes of its output.

    Raises:
        HarnessError: It is unknown.
    """
    job = await known_job(execution, job_id)
    size = (await execution.read_job(job_id, limit=0)).stdout.size
    part = (await execution.read_job(job_id, stdout=max(0, size - limit), limit=limit)).stdout
    return JobTail(job, part.size, part.start, part.data)


async def kill_job(execution: ExecutionContext, job_id: str) -> str:
    """Kill a job and return how it ended, to be written after its name.

    Raises:
        HarnessError: It is unknown, or cannot be killed.
    """
    job = await known_job(execution, job_id)
    if job.status is not Status.RUNNING:
        return f" had already ended: {ending_text(job)}"
    return f": {ending_text(await execution.kill(job_id))}"


async def known_job(execution: ExecutionContext, job_id: str) -> Job:
    """Return a job.

    Raises:
        HarnessError: It is unknown.
    """
    try:
        return await execution.job(job_id)
    except JobNotFound:
        raise HarnessError(f"unknown job {job_id!r} on the target; /jobs lists them") from None


def ending_text(job: Job) -> str:
    """Return how a job ended: ``completed, exit code 0``."""
    code = "no exit code" if job.exit_code is None else f"exit code {job.exit_code}"
    return f"{job.status.value}, {code}"
