"""Background commands: reading their output, ending and listing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field

from harness.errors import JobNotFound
from harness.results import Job, Status, without_helpers
from harness.toolkit import (
    Arguments,
    Category,
    Json,
    MutatingArguments,
    OutputLimit,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.results import fit_items
from harness.toolkit.values import Advice

from .job_output import BadPattern, JobReadRequest, OutputChunk, ReadPositions, line_matcher, parse_position, read_on
from .texts import Duration, Line, SomeContent, readable_line, seconds_of

__all__ = ["BashOutput", "JobId", "KillShell", "ListShells", "tools"]

MAX_WAIT = 600.0
MAX_GRACE = 60.0
MAX_LISTED_JOBS = 200
MAX_NAMED = 20
"""Maximum jobs that a message about a wrong id names."""
SHOWN_COMMAND = 120
"""Maximum characters of a command in the list."""
WHOLE = OutputLimit(40_000, 20_000)
LISTED = OutputLimit(15_000, 0)
ENDS = {
    Status.RUNNING: "is running",
    Status.TIMED_OUT: "timed out",
    Status.INTERRUPTED: "was interrupted",
    Status.UNKNOWN: "exited without an exit code: its outcome is unknown",
}


def _text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _signal(value: object) -> object:
    return value.upper().removeprefix("SIG") if isinstance(value, str) else value


def _position(value: str) -> str:
    parse_position(value)
    return value


JobId = Annotated[Line, BeforeValidator(_text), Field(max_length=64)]
"""The id of a job, which models often write as a number."""
Signal = Annotated[
    Literal["TERM", "INT", "HUP", "QUIT", "KILL", "ABRT", "USR1", "USR2", "ALRM"], BeforeValidator(_signal)
]


def status_phrase(job: Job) -> str:
    """Return a phrase that the job runs, or how it ended. Pure."""
    ended = ENDS.get(job.status, "has ended")
    return ended if job.exit_code is None else f"{ended}, exit code: {job.exit_code}"


def _not_found(error: JobNotFound, jobs: Sequence[Job]) -> ToolResult:
    """Return the failure for a wrong id, with the existing ids: the model may have lost one and have no list. Pure."""
    newest = reversed(list(without_helpers(jobs)))  # start times are in whole seconds
    found = sorted(newest, key=lambda job: (job.status is not Status.RUNNING, -(job.started or 0)))
    named = [f"{job.job_id} ({_state(job)})" for job in found[:MAX_NAMED]]
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    ids: list[Json] = [job.job_id for job in found[:MAX_LISTED_JOBS]]
    text = f"{error}; known jobs: {', '.join(named) or 'none'}{more}"
    return ToolResult.failure("job_not_found", text, data={"bash_ids": ids, "count": len(found)})


def _state(job: Job) -> str:
    return str(job.status) if job.exit_code is None else f"{job.status}, exit code {job.exit_code}"


class _Output(Arguments):
    bash_id: JobId = Field(
        description="the job, by the id that run_shell gave",
        validation_alias=AliasChoices("bash_id", "shell_id", "job_id"),
    )
    filter: Annotated[SomeContent, Field(max_length=1000)] | None = Field(
        None, description="regular expression: show only matching lines"
    )
    wait: Duration = Field(
        0, description="maximum time to wait for new output or the end: seconds, or a text such as 30s"
    )
    since: Annotated[str, BeforeValidator(_text), AfterValidator(_position)] | None = Field(
        None, description="read again from this position of an earlier result; 0 is the start"
    )
    tail: int | None = Field(None, ge=1, le=10_000, description="only this many last lines")


class BashOutput(Tool[_Output]):
    """``bash_output``."""

    def __init__(self) -> None:
        text = (
            "Read the new output of a job since your last read, of both streams, and its exit code if it has exited. "
            "Every part is returned once; since reads it again."
        )
        traits = Traits(
            category=Category.SHELL,
            parallelizable=True,
            aliases=("job_output",),
            packs=("background",),
            limit=WHOLE,
        )
        super().__init__("bash_output", text, _Output, traits)
        self._places = ReadPositions()

    async def run(self, args: _Output, ctx: ToolContext) -> ToolResult:
        try:
            matches = line_matcher(args.filter) if args.filter is not None else None
        except BadPattern as error:
            return ToolResult.failure("bad_pattern", f"filter: {error}. Nothing was read")
        longest = MAX_WAIT if ctx.handoff is None else min(MAX_WAIT, ctx.handoff)
        since = parse_position(args.since) if args.since is not None else None
        asked = JobReadRequest(since, matches, args.tail, min(seconds_of(args.wait), longest))
        try:
            async with self._places.of(ctx, args.bash_id) as reading:
                piece = await read_on(args.bash_id, asked, reading, ctx)
        except JobNotFound as error:
            return _not_found(error, await ctx.execution.jobs())
        return _output(piece, filtered=matches is not None)


def _output(piece: OutputChunk, *, filtered: bool) -> ToolResult:
    """Return the result; a failed job is not a failure to read its output. Pure."""
    streams = [
        f"{name}:\n{text.removesuffix(chr(10))}"
        for name, text in (("stdout", piece.stdout), ("stderr", piece.stderr))
        if text
    ]
    lines = [f"job {piece.job.job_id} {status_phrase(piece.job)}", *(streams or ["(no new output)"])]
    ways = (
        Advice(f"; since={piece.start} reads all of them", ("since",)),
        Advice(f"; since={piece.start} reads them", ("since",)),
        Advice(f", or since={piece.end}", ("since",)),
    )
    lines += _notes(piece, [way.text for way in ways], filtered=filtered)
    text = "\n".join(lines)
    return ToolResult.of(text, data=_output_data(piece), metadata={"matches": piece.matched}, advice=ways)


def _notes(piece: OutputChunk, ways: Sequence[str], *, filtered: bool) -> list[str]:
    to_all, to_passed, to_unread = ways
    notes = []
    if filtered:
        notes.append(f"[{piece.matched} of {piece.lines} new lines match{to_all}]")
    if piece.skipped:
        notes.append(f"[{piece.skipped} bytes before this were skipped{to_passed}]")
    if piece.lost:
        notes.append(f"[{piece.lost} bytes were dropped, because the output is too large]")
    if piece.gone:
        notes.append("[the target no longer has all of its output: the file was removed or truncated]")
    if piece.unread:
        notes.append(f"[{piece.unread} bytes are unread: the next call continues{to_unread}]")
    return notes


def _output_data(piece: OutputChunk) -> Json:
    return {
        "bash_id": piece.job.job_id,
        "status": str(piece.job.status),
        "exit_code": piece.job.exit_code,
        "done": piece.ended,
        "stdout": piece.stdout,
        "stderr": piece.stderr,
        "start": str(piece.start),
        "next": str(piece.end),
        "unread": piece.unread,
        "skipped": piece.skipped,
        "lost": piece.lost,
        "gone": piece.gone,
        "lines": piece.lines,
        "matches": piece.matched,
    }


class _Kill(MutatingArguments):
    shell_id: JobId = Field(
        description="the job, by the id that run_shell gave",
        validation_alias=AliasChoices("shell_id", "bash_id", "job_id"),
    )
    signal: Signal = Field("TERM", description="first signal; what still runs after grace is killed")
    grace: Duration = Field(2, description="seconds to exit after the signal, at most 60")


class KillShell(Tool[_Kill]):
    """``kill_shell``."""

    def __init__(self) -> None:
        text = (
            "End a job and everything that it started: a signal to its process group, then KILL. Its output and exit "
            "code stay available for bash_output."
        )
        traits = Traits(category=Category.SHELL, mutating=True, aliases=("kill_job",), packs=("background",))
        super().__init__("kill_shell", text, _Kill, traits)

    async def run(self, args: _Kill, ctx: ToolContext) -> ToolResult:
        try:
            before = await ctx.execution.job(args.shell_id)
        except JobNotFound as error:
            return _not_found(error, await ctx.execution.jobs())
        if before.status is not Status.RUNNING:
            return _killed(before, already=True)
        grace = min(seconds_of(args.grace), MAX_GRACE)
        return _killed(await ctx.execution.kill(args.shell_id, signal=args.signal, grace=grace), already=False)


def _killed(job: Job, *, already: bool) -> ToolResult:
    facts: Json = {
        "bash_id": job.job_id,
        "status": str(job.status),
        "exit_code": job.exit_code,
        "already_ended": already,
    }
    if job.status is Status.RUNNING:
        text = f"job {job.job_id} was sent the signal and KILL, and is still running: it may belong to another user"
        return ToolResult.failure("still_running", text, data=facts)
    if already:
        return ToolResult.of(f"job {job.job_id} had ended before: it {status_phrase(job)}", data=facts)
    way = Advice("; bash_output shows its last output", tools=("bash_output",))
    text = f"job {job.job_id} was ended: it {status_phrase(job)}{way.text}"
    return ToolResult.of(text, data=facts, advice=(way,))


class _List(Arguments):
    include_finished: bool = Field(True, description="include finished jobs")
    include_helpers: bool = Field(False, description="include helper commands of tools, such as searches")


class ListShells(Tool[_List]):
    """``list_shells``."""

    def __init__(self) -> None:
        text = (
            "List the jobs on the target, also those of other clients: id, state, duration, pane and command. "
            "The newest are last."
        )
        traits = Traits(
            category=Category.SHELL, parallelizable=True, aliases=("list_jobs",), packs=("background",), limit=LISTED
        )
        super().__init__("list_shells", text, _List, traits)

    async def run(self, args: _List, ctx: ToolContext) -> ToolResult:
        found = without_helpers(await ctx.execution.jobs(), helpers=args.include_helpers)
        running = [job for job in found if job.status is Status.RUNNING]
        wanted = found if args.include_finished else running
        clean = [replace(job, command=ctx.redactor.text(job.command)) for job in wanted]  # a cut secret is not found
        return _listed(clean, len(found), len(running), ctx.clock())


def _listed(jobs: Sequence[Job], known: int, running: int, now: float) -> ToolResult:
    """Return the list: the running jobs and the newest of the others, as many as fit. Pure."""
    first = sorted(jobs, key=lambda job: (job.status is not Status.RUNNING, -(job.started or 0)))[:MAX_LISTED_JOBS]
    rows, _ = fit_items(first, lambda some: _table(some, now), OutputLimit(LISTED.characters - 200, 0))
    left_out = len(jobs) - len(rows)
    shown = sorted(rows, key=jobs.index)
    notes = [f"[{left_out} more finished jobs are not shown]"] if left_out else []
    text = "\n".join([_table(shown, now) or "(no jobs)", *notes])
    listed: list[Json] = [_row_data(job) for job in shown]
    data: Json = {"shells": listed, "count": len(jobs), "running": running, "left_out": left_out}
    return ToolResult.of(text, data=data, metadata={"matches": len(jobs), "known": known})


def _table(jobs: Sequence[Job], now: float) -> str:
    return "\n".join(_row(job, now) for job in jobs)


def _row(job: Job, now: float) -> str:
    code = "" if job.exit_code is None else f" {job.exit_code}"
    end = now if job.ended is None and job.status is Status.RUNNING else job.ended
    took = "" if job.started is None or end is None else f"  {max(0.0, end - job.started):.0f} s"
    pane = f"  pane {job.pane}" if job.pane else ""
    return f"{job.job_id}  {job.status}{code}{took}{pane}  {_short(job.command)}"


def _short(command: str) -> str:
    first, _, rest = command.strip().partition("\n")
    short = readable_line(first[:SHOWN_COMMAND])
    return f"{short} ..." if rest or len(first) > SHOWN_COMMAND else short


def _row_data(job: Job) -> Json:
    started = None if job.started is None else datetime.fromtimestamp(job.started, UTC).isoformat(timespec="seconds")
    return {
        "bash_id": job.job_id,
        "status": str(job.status),
        "exit_code": job.exit_code,
        "started": started,
        "pane": job.pane,
        "owner": job.owner,
        "cwd": job.cwd,
        "command": _short(job.command),
    }


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [BashOutput(), KillShell(), ListShells()]
