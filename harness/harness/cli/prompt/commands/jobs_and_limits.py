"""Slash commands for running work: the turn, its calls, jobs on the target, the tmux session to attach to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import anyio

from ....command import parse_duration
from ....errors import HarnessError, JobNotFound
from ....results import Job, Status, without_helpers
from ...named_commands import complete_commands
from .base import BadArguments, Choice, SlashCommand, agent_of, brief, duration, job_facts, moment

if TYPE_CHECKING:
    from .base import PromptContext

__all__ = ["Attach", "Jobs", "Kill", "KillTarget", "Ps", "Timeout", "parse_timeout", "parse_victims"]

LAST_JOBS = 20
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
        if not rows:
            context.output.say("nothing is running")
            return
        context.output.table(("WHAT", "ID", "STATE", "SINCE", "PANE", "COMMAND"), rows)
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
    running = [job for job in without_helpers(await context.execution.jobs()) if job.status is Status.RUNNING]
    redact = context.toolkit.redactor.text
    return [
        ("job", job.job_id, job.status.value, moment(job.started), job.pane or "", brief(redact(job.command)))
        for job in running
    ]


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
                context.output.say(await end(victim, context))
            except HarnessError as error:
                failures.append(error.message)
        if failures:
            raise HarnessError("; ".join(failures))

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the turn and the queued prompts; jobs are known only to the target."""
        rows = _turn_rows(context)
        return [Choice(row[1], row[5] or row[2]) for row in rows if row[1] not in words]


async def end(victim: KillTarget, context: PromptContext) -> str:
    """End a thing and return a sentence about its outcome.

    Raises:
        HarnessError: It does not exist, or it cannot be ended.
    """
    if victim.kind == "job":
        return await _end_job(victim.ident, context)
    if victim.kind == "turn":
        if context.agent is None or not context.agent.cancel():
            raise HarnessError("no turn is running")
        return "the turn is cancelled"
    if not agent_of(context).withdraw(int(victim.ident)):
        raise HarnessError(f"no prompt #{victim.ident} is queued; /ps lists them")
    return f"prompt #{victim.ident} is removed"


async def _end_job(job_id: str, context: PromptContext) -> str:
    try:
        before = await context.execution.job(job_id)
        if before.status is not Status.RUNNING:
            return f"job {job_id} had already ended: {_ending(before)}"
        return f"job {job_id}: {_ending(await context.execution.kill(job_id))}"
    except JobNotFound:
        raise HarnessError(f"unknown job {job_id!r} on the target; /ps lists running jobs") from None


def _ending(job: Job) -> str:
    code = "no exit code" if job.exit_code is None else f"exit code {job.exit_code}"
    return f"{job.status.value}, {code}"


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
        try:
            job = await context.execution.job(victim.ident)
        except JobNotFound:
            raise HarnessError(f"unknown job {victim.ident!r} on the target; /ps lists running jobs") from None
        if job.status is not Status.RUNNING:
            raise HarnessError(f"job {victim.ident} has ended: {_ending(job)}")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return common times."""
        return () if words else [Choice(text) for text in ("1m", "10m", "1h", "none")]


async def _over(victim: KillTarget, turn_id: str, context: PromptContext) -> None:
    """End the thing whose deadline has expired, unless it is a later turn."""
    if victim.kind == "turn" and (context.agent is None or context.agent.state.turn_id != turn_id):
        return
    try:
        context.output.warn(f"deadline expired (/timeout): {await end(victim, context)}")
    except HarnessError as error:
        context.output.warn(f"deadline expired (/timeout), but {victim} cannot be ended: {error.message}")


# -- jobs and attach


class Jobs(SlashCommand):
    """``/jobs``."""

    name = "jobs"
    usage = "[all|ID]"
    about = "List the last jobs on the target (all: with helper commands), or show one and the end of its output."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the list or the job."""
        if args in ("", *_EVERY):
            await self._list(context, helpers=args in _EVERY)
        else:
            await self._show(context, args)

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return ``all``; jobs are known only to the target."""
        return () if words else [Choice("all", "include helper commands run by tools")]

    async def _list(self, context: PromptContext, *, helpers: bool) -> None:
        jobs = without_helpers(await context.execution.jobs(), helpers=helpers)
        recent = {job.job_id for job in jobs[-LAST_JOBS:]}
        shown = [job for job in jobs if job.status is Status.RUNNING or job.job_id in recent]
        if not shown:
            context.output.say("there are no jobs on the target")
            return
        redact = context.toolkit.redactor.text
        context.output.table(
            ("ID", "STATUS", "CODE", "STARTED", "PANE", "COMMAND"), [_row(job, redact(job.command)) for job in shown]
        )

    async def _show(self, context: PromptContext, job_id: str) -> None:
        redact = context.toolkit.redactor.text
        try:
            job = await context.execution.job(job_id)
        except JobNotFound:
            raise HarnessError(f"unknown job {job_id!r} on the target; /jobs lists them") from None
        size = (await context.execution.read_job(job_id, limit=0)).stdout.size
        part = (await context.execution.read_job(job_id, stdout=max(0, size - TAIL), limit=TAIL)).stdout
        text = redact(part.data.decode("utf-8", "replace")).rstrip("\n")
        context.output.say(*(redact(line) for line in job_facts(job)))
        if part.start:
            command = complete_commands(f"harness jobs tail {job_id}")
            context.output.say(f"output, the last {len(part.data)} of {part.size} bytes ({command}):")
        elif text:
            context.output.say("output:")
        context.output.say(*text.split("\n") if text else ["(no output)"])


def _row(job: Job, command: str) -> tuple[str, ...]:
    code = "" if job.exit_code is None else str(job.exit_code)
    return job.job_id, job.status.value, code, moment(job.started), job.pane or "", brief(command)


class Attach(SlashCommand):
    """``/attach``."""

    name = "attach"
    usage = "[read-only]"
    about = "Attach to the tmux session, to watch or to take over; C-b d returns here."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the command for another terminal, then attach in this one."""
        if args not in ("", "read-only", "-r"):
            raise BadArguments(f"invalid argument {args!r}")
        execution = context.execution
        command = execution.attach_command_read_only if args else execution.attach_command
        context.output.say(f"from another terminal: {shlex.join(command)}")
        await context.front.attach(read_only=bool(args))

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return ``read-only``."""
        return () if words else [Choice("read-only", "watch without typing")]
