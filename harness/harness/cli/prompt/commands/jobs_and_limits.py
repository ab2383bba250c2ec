"""Slash commands for running work: the turn, its calls, jobs on the target, the tmux session to attach to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio

from ....command import parse_duration
from ....context import ExecutionContext
from ....errors import ConfigError, HarnessError
from ....fleets import Fleet
from ....fleets.host_names import fold_names
from ....fleets.merging import merge_outcomes
from ....results import Job, Status, without_helpers
from ...named_commands import complete_commands, complete_commands_on_host
from .base import BadArguments, Choice, HostSession, SlashCommand, agent_of, brief, duration, job_facts, moment
from .jobs_of_hosts import (
    JobTail,
    ask_hosts,
    connected_hosts,
    ending_text,
    error_lines,
    fleet_of,
    job_and_hosts,
    kill_job,
    known_job,
    list_jobs,
    read_tail,
)

if TYPE_CHECKING:
    from .base import PromptContext

__all__ = ["Attach", "Jobs", "Kill", "KillTarget", "Ps", "Timeout", "parse_timeout", "parse_victims"]

LAST_JOBS = 20
MAX_ROWS = 200
"""Jobs of many hosts in one table."""
HOST_CHOICES = 50
"""Hosts that completion offers."""
JOB_COLUMNS = ("ID", "STATUS", "CODE", "STARTED", "PANE", "COMMAND")
_READ_ONLY = ("read-only", "-r")
_EVERY = ("all", "--all")
"""Arguments that include helper commands."""
TAIL = 4096
"""Bytes at the end of a job's output that are shown."""
LONGEST = 7 * 86400.0
"""Maximum number of seconds until a deadline."""
_NUMBER = re.compile(r"#?([1-9][0-9]{0,8})", re.ASCII)


# -- running work


class Ps(SlashCommand):
    """``/ps``."""

    name = "ps"
    about = "Show the running turn, queued prompts, and jobs on the target."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the table."""
        if args:
            raise BadArguments(f"unexpected argument {args!r}")
        rows = [*_turn_rows(context), *await _job_rows(context)]
        if rows:
            context.output.table(("WHAT", "ID", "STATE", "SINCE", "PANE", "COMMAND"), rows)
        else:
            context.output.say("nothing is running")
        _say_unconnected(context)
        now = anyio.current_time()
        for deadline in context.deadlines.all:
            context.output.say(f"{deadline.what} will be ended in {duration(deadline.at - now)} (/timeout)")


def _turn_rows(context: PromptContext) -> list[tuple[str, ...]]:
    if context.agent is None:
        return []
    state = context.agent.state
    turn = [("turn", "turn", state.doing, "", "", "")] if state.turn_id else []
    queue = [("prompt", f"#{one.place}", "queued", "", "", brief(one.prompt)) for one in state.queue]
    return [*turn, *queue]


async def _job_rows(context: PromptContext) -> list[tuple[str, ...]]:
    redact = context.toolkit.redactor.text
    fleet = fleet_of(context.execution)
    if fleet is None:
        found = without_helpers(await context.execution.jobs())
        running = [(job.job_id, job, moment(job.started)) for job in found if job.status is Status.RUNNING]
    else:
        listed = await list_jobs(fleet, connected_hosts(fleet), running=True)
        running = [(row.name, row.job, row.started) for row in listed.rows]
        for text in listed.errors:
            context.output.warn(text)
    return [
        ("job", name, job.status.value, started, job.pane or "", brief(redact(job.command)))
        for name, job, started in running
    ]


def _say_unconnected(context: PromptContext) -> None:
    """Say how many hosts were not asked, because a login could take long."""
    fleet = fleet_of(context.execution)
    if fleet is not None and (others := len(fleet) - len(connected_hosts(fleet))):
        text = "1 host is" if others == 1 else f"{others} hosts are"
        context.output.say(f"{text} not connected; /jobs connects to all hosts and lists their jobs")


# -- end work


@dataclass(frozen=True, slots=True)
class KillTarget:
    """A thing to end; ``ident`` is a job's ID, or a queued prompt's number."""

    kind: Literal["turn", "prompt", "job"]
    ident: str = ""

    def __str__(self) -> str:
        return {"turn": "the turn", "prompt": f"prompt #{self.ident}", "job": f"job {self.ident}"}[self.kind]


def parse_victims(args: str) -> tuple[KillTarget, ...]:
    """Parse the arguments of ``/kill``: ``turn``, ``#2`` (a queued prompt) or job IDs. Pure.

    Raises:
        BadArguments: There are none, or one is invalid.
    """
    words = tuple(dict.fromkeys(args.split()))
    if not words:
        raise BadArguments("missing argument: turn, a job's ID, or #N for a queued prompt; /ps lists them")
    return tuple(_victim(word) for word in words)


def _victim(word: str) -> KillTarget:
    if word == "turn":
        return KillTarget("turn")
    if word.startswith("#"):
        match = _NUMBER.fullmatch(word)
        if match is None:
            raise BadArguments(f"{word!r} is not the number of a queued prompt")
        return KillTarget("prompt", match[1])
    return KillTarget("job", word)


class Kill(SlashCommand):
    """``/kill``."""

    name = "kill"
    usage = "turn|ID|#N..."
    about = "Cancel the turn, kill a job on the target (TERM, then KILL), or remove a queued prompt."

    async def run(self, context: PromptContext, args: str) -> None:
        """End each of them, even if another one fails."""
        failures = []
        for victim in parse_victims(args):
            try:
                ended = await end(victim, context)
            except HarnessError as error:
                failures.append(error.message)
            else:
                context.output.say(*ended.lines)
                failures += ended.failures
        if failures:
            raise HarnessError("; ".join(failures))

    def may_wait(self, args: str) -> bool:
        """Return whether it ends jobs on hosts, one of which may be unresponsive."""
        return ":" in args

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the turn and the queued prompts; jobs are known only to the target."""
        rows = _turn_rows(context)
        return [Choice(row[1], row[5] or row[2]) for row in rows if row[1] not in words]


@dataclass(frozen=True, slots=True)
class EndReport:
    """What was ended, and the failures on hosts where it was not."""

    lines: Sequence[str]
    failures: Sequence[str] = ()


async def end(victim: KillTarget, context: PromptContext) -> EndReport:
    """End a thing and return its outcome.

    Raises:
        HarnessError: It does not exist, or it cannot be ended.
    """
    if victim.kind == "job":
        return await _end_job(victim.ident, context)
    if victim.kind == "turn":
        if context.agent is None or not context.agent.cancel():
            raise HarnessError("no turn is running")
        return EndReport(["the turn is cancelled"])
    if not agent_of(context).withdraw(int(victim.ident)):
        raise HarnessError(f"no prompt #{victim.ident} is queued; /ps lists them")
    return EndReport([f"prompt #{victim.ident} is removed"])


async def _end_job(ident: str, context: PromptContext) -> EndReport:
    fleet = fleet_of(context.execution)
    if fleet is None:
        return EndReport([f"job {ident}{await kill_job(context.execution, ident)}"])
    names, job_id = job_and_hosts(fleet, ident)
    outcomes = await ask_hosts(fleet, names, partial(kill_job, job_id=job_id))
    ended = merge_outcomes([outcome for outcome in outcomes if outcome.error is None])
    lines = [f"job {fold_names(group.hosts)}:{job_id}{group.outcome.result}" for group in ended]
    return EndReport(lines, error_lines(outcomes))


# -- end work later


@dataclass(frozen=True, slots=True)
class TimeoutRequest:
    """A deadline to set; ``seconds`` None drops it."""

    victim: KillTarget
    seconds: float | None


def parse_timeout(args: str) -> TimeoutRequest:
    """Parse the arguments of ``/timeout``: ``10m``, ``10m 12`` (a job), ``none``, ``none 12``. Pure.

    Raises:
        BadArguments: They are invalid, or the time is more than a week.
    """
    time, *rest = args.split()
    if len(rest) > 1:
        raise BadArguments("give a time, and at most one job")
    victim = _victim(rest[0]) if rest else KillTarget("turn")
    if victim.kind == "prompt":
        raise BadArguments("a queued prompt cannot have a deadline, as it does not run yet")
    if time in ("none", "off"):
        return TimeoutRequest(victim, None)
    try:
        seconds = parse_duration(time)
    except ValueError:
        raise BadArguments(f"{time!r} is not a time: write 90, 30s, 10m, 1h, or none") from None
    if not 0 < seconds <= LONGEST:
        raise BadArguments(f"{time!r} is not between 0 and a week")
    return TimeoutRequest(victim, seconds)


class Timeout(SlashCommand):
    """``/timeout``."""

    name = "timeout"
    usage = "[TIME|none [ID]]"
    about = "End the running turn, or a job, after TIME; none drops the deadline."

    async def run(self, context: PromptContext, args: str) -> None:
        """Set, drop or list deadlines."""
        if not args:
            self._list(context)
            return
        wanted = parse_timeout(args)
        what = str(wanted.victim)
        if wanted.seconds is None:
            dropped = context.deadlines.drop(what)
            context.output.say(f"{what} has no deadline any more" if dropped else f"{what} had no deadline")
            return
        await self._check(wanted.victim, context)
        turn_id = context.agent.state.turn_id if context.agent is not None else ""

        async def over() -> None:
            await _over(wanted.victim, turn_id, context)

        context.deadlines.set(what, wanted.seconds, over)
        context.output.say(f"{what} will be ended in {duration(wanted.seconds)}")

    def _list(self, context: PromptContext) -> None:
        now = anyio.current_time()
        lines = [f"{one.what} will be ended in {duration(one.at - now)}" for one in context.deadlines.all]
        context.output.say(*lines or ["no deadlines are set"])

    async def _check(self, victim: KillTarget, context: PromptContext) -> None:
        if victim.kind == "turn":
            if context.agent is None or not context.agent.state.turn_id:
                raise HarnessError("no turn is running")
            return
        found = await _jobs_named(victim.ident, context)
        if all(job.status is not Status.RUNNING for job in found):
            raise HarnessError(f"{victim} has ended: {ending_text(found[0])}")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return common times."""
        return () if words else [Choice(text) for text in ("1m", "10m", "1h", "none")]


async def _over(victim: KillTarget, turn_id: str, context: PromptContext) -> None:
    """End the thing whose deadline has expired, unless it is a later turn."""
    if victim.kind == "turn" and (context.agent is None or context.agent.state.turn_id != turn_id):
        return
    try:
        ended = await end(victim, context)
    except HarnessError as error:
        ended = EndReport((), [error.message])
    for text in ended.lines:
        context.output.warn(f"deadline expired (/timeout): {text}")
    for text in ended.failures:
        context.output.warn(f"deadline expired (/timeout), but {victim} cannot be ended: {text}")


async def _jobs_named(ident: str, context: PromptContext) -> list[Job]:
    """Return the job of an ID, or those of ``HOST:ID``.

    Raises:
        HarnessError: One is unknown, or a host cannot be reached.
    """
    fleet = fleet_of(context.execution)
    if fleet is None:
        return [await known_job(context.execution, ident)]
    names, job_id = job_and_hosts(fleet, ident)
    outcomes = await ask_hosts(fleet, names, partial(known_job, job_id=job_id))
    if errors := error_lines(outcomes):
        raise HarnessError("; ".join(errors))
    return [outcome.result for outcome in outcomes if outcome.result is not None]


# -- jobs and attach


class Jobs(SlashCommand):
    """``/jobs``."""

    name = "jobs"
    usage = "[all|ID]"
    about = "List the last jobs on the target (all: with helper commands), or show one and the end of its output."
    details = (
        "  In a session on many hosts: [all] [HOSTS] lists the jobs of all hosts or of HOSTS (web[1-3],db1),",
        "  and HOST:ID shows one. /kill and /timeout take HOST:ID, too; HOST may be several: web[1-3]:12.",
    )

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the list or the job."""
        fleet = fleet_of(context.execution)
        if fleet is not None:
            await self._run_on_hosts(context, fleet, args)
        elif args in ("", *_EVERY):
            await self._list(context, helpers=args in _EVERY)
        else:
            tail = await read_tail(context.execution, args, TAIL)
            self._show(context, tail, args, complete_commands(_tail_command(args)))

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return ``all``, and the hosts of a session on many; jobs are known only to the target."""
        fleet = fleet_of(context.execution)
        hosts = [] if fleet is None else [Choice(name) for name in fleet.names[:HOST_CHOICES]]
        return hosts if words else [Choice("all", "include helper commands run by tools"), *hosts]

    def may_wait(self, args: str) -> bool:
        """Return True: hosts may have to be connected, and it changes nothing."""
        return True

    async def _list(self, context: PromptContext, *, helpers: bool) -> None:
        jobs = without_helpers(await context.execution.jobs(), helpers=helpers)
        recent = {job.job_id for job in jobs[-LAST_JOBS:]}
        shown = [job for job in jobs if job.status is Status.RUNNING or job.job_id in recent]
        if not shown:
            context.output.say("there are no jobs on the target")
            return
        redact = context.toolkit.redactor.text
        context.output.table(
            JOB_COLUMNS, [_row(job.job_id, job, moment(job.started), redact(job.command)) for job in shown]
        )

    def _show(self, context: PromptContext, tail: JobTail, name: str, command: str) -> None:
        redact = context.toolkit.redactor.text
        text = redact(tail.data.decode("utf-8", "replace")).rstrip("\n")
        context.output.say(*(redact(line) for line in job_facts(tail.job, name)))
        if tail.start:
            context.output.say(f"output, the last {len(tail.data)} of {tail.size} bytes ({command}):")
        elif text:
            context.output.say("output:")
        context.output.say(*text.split("\n") if text else ["(no output)"])

    # -- many hosts

    async def _run_on_hosts(self, context: PromptContext, fleet: Fleet, args: str) -> None:
        words = args.split()
        patterns = [word for word in words if word not in _EVERY]
        if len(patterns) > 1 or len(words) - len(patterns) > 1:
            raise BadArguments("give one pattern of hosts, or one job as HOST:ID")
        try:
            names = fleet.choose(patterns[0]) if patterns else fleet.names
        except ConfigError as error:
            if ":" not in patterns[0] and not patterns[0].isdigit():
                raise BadArguments(f"{error.message}; {error.hint}") from None
            await self._show_on_hosts(context, fleet, patterns[0])
            return
        await self._list_on_hosts(context, fleet, names, helpers=len(words) > len(patterns))

    async def _list_on_hosts(
        self, context: PromptContext, fleet: Fleet, names: Sequence[str], *, helpers: bool
    ) -> None:
        listed = await list_jobs(fleet, names, helpers=helpers)
        redact, rows = context.toolkit.redactor.text, listed.recent(LAST_JOBS)
        if rows:
            shown = rows[-MAX_ROWS:]
            context.output.table(
                JOB_COLUMNS, [_row(row.name, row.job, row.started, redact(row.job.command)) for row in shown]
            )
            if len(rows) > len(shown):
                context.output.say(f"and {len(rows) - len(shown)} older ones; /jobs HOSTS lists those of some hosts")
        elif len(listed.errors) == 0:
            context.output.say("there are no jobs on the hosts")
        for text in listed.errors:
            context.output.warn(text)

    async def _show_on_hosts(self, context: PromptContext, fleet: Fleet, word: str) -> None:
        names, job_id = job_and_hosts(fleet, word)
        outcomes = await ask_hosts(fleet, names, partial(read_tail, job_id=job_id, limit=TAIL))
        found = [outcome for outcome in outcomes if outcome.error is None]
        for number, group in enumerate(merge_outcomes(found, key=lambda tail: tail.key)):
            assert group.outcome.result is not None
            several = len(group.hosts) > 1
            tail = group.outcome.result.without_times() if several else group.outcome.result
            name = f"{fold_names(group.hosts)}:{job_id}{f' ({len(group.hosts)} hosts)' if several else ''}"
            if number:
                context.output.say("")
            command = complete_commands_on_host(_tail_command(job_id), "" if several else group.outcome.target)
            self._show(context, tail, name, command)
        for text in error_lines(outcomes):
            context.output.warn(text)


def _tail_command(job_id: str) -> str:
    return f"harness jobs tail {job_id}"


def _row(name: str, job: Job, started: str, command: str) -> tuple[str, ...]:
    code = "" if job.exit_code is None else str(job.exit_code)
    return name, job.status.value, code, started, job.pane or "", brief(command)


class Attach(SlashCommand):
    """``/attach``."""

    name = "attach"
    usage = "[read-only]"
    about = "Attach to the tmux session, to watch or to take over; C-b d returns here."
    details = (
        "  In a session on many hosts, /attach [read-only] [HOSTS] shows each host's tmux session in a pane of tmux on",
        "  this machine; one host has the whole terminal.",
    )

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the command for another terminal, then attach in this one."""
        words = args.split()
        read_only = any(word in _READ_ONLY for word in words)
        patterns = [word for word in words if word not in _READ_ONLY]
        fleet = fleet_of(context.execution)
        if len(patterns) > (0 if fleet is None else 1):
            raise BadArguments(f"invalid argument {patterns[-1]!r}")
        if fleet is not None:
            await self._attach_to_hosts(context, fleet, patterns, read_only=read_only)
            return
        command = _attach_command(context.execution, read_only=read_only)
        context.output.say(f"from another terminal: {shlex.join(command)}")
        await context.front.attach([HostSession("", command)])

    async def _attach_to_hosts(
        self, context: PromptContext, fleet: Fleet, patterns: Sequence[str], *, read_only: bool
    ) -> None:
        if not fleet.has_terminal:
            raise HarnessError("the hosts have no tmux sessions in this conversation; start harness with --tmux")
        names = fleet.choose(patterns[0]) if patterns else fleet.names

        async def work(execution: ExecutionContext) -> list[str]:
            return _attach_command(execution, read_only=read_only)

        outcomes = await ask_hosts(fleet, names, work)
        for text in error_lines(outcomes):
            context.output.warn(text)
        found = [HostSession(outcome.host, outcome.result) for outcome in outcomes if outcome.result is not None]
        if found:
            await context.front.attach(found)

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return ``read-only``, and the hosts of a session on many."""
        fleet = fleet_of(context.execution)
        hosts = [] if fleet is None else [Choice(name) for name in fleet.names[:HOST_CHOICES]]
        return hosts if words else [Choice("read-only", "watch without typing"), *hosts]


def _attach_command(execution: ExecutionContext, *, read_only: bool) -> list[str]:
    return execution.attach_command_read_only if read_only else execution.attach_command
