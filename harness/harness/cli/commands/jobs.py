"""``harness jobs``: jobs on the target, including finished ones and those of other harness processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import click

from ...context import ExecutionContext
from ...discovery import open_target
from ...errors import OutputDropped
from ...live.sessions.command_session import CommandSession
from ...notifications.command_end import notified_end
from ...results import Job, Status, without_helpers
from ..completed_names import complete_job
from ..exits import exit_code_of
from ..options import command, group, pause_option, time_limit_option
from ..output import as_json, note, print_json, readable, result_json, table, with_base64
from ..redaction import session_redactor
from ..runtime import PLAIN, on_target, session_of
from ..streams import Interruption, StreamWriter, run_async
from .fleet.options import FleetOptions, fleet_options
from .recordings import IDLE_LIMIT, SPEED, play_job
from .run import brief, explain

__all__ = [
    "JsonLines",
    "jobs",
    "whole_characters",
]


# -- A job's output as JSON, one object per line.


def whole_characters(data: bytes) -> int:
    """Return the number of bytes before a UTF-8 character that is incomplete at the end."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)


class JsonLines:
    """Writer of a job's output as lines ``{"offset": N, "text": "..."}``, with the job's status as the last line."""

    def __init__(self, write: Callable[[bytes], None], offset: int) -> None:
        self._write = write
        self._offset = offset
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Write the next bytes; keep an incomplete character until its rest arrives."""
        data = self._rest + data
        cut = whole_characters(data)
        self._rest = data[cut:]
        self._piece(data[:cut])

    def skip_to(self, offset: int) -> None:
        """Set the offset of the next bytes, after a gap of dropped output."""
        self._piece(self._rest)
        self._rest = b""
        self._offset = offset

    def finish(self, job: Job) -> None:
        """Write the remaining bytes and the job's status."""
        self._piece(self._rest)
        self._rest = b""
        self._line({"offset": self._offset, "status": job.status.value, "exit_code": job.exit_code})

    def _piece(self, data: bytes) -> None:
        if data:
            self._line({"offset": self._offset, **with_base64("text", data)})
            self._offset += len(data)

    def _line(self, value: object) -> None:
        self._write(as_json(value).encode() + b"\n")


# -- ``harness jobs``.


SIGNALS = ("TERM", "INT", "HUP", "QUIT", "KILL", "USR1", "USR2", "STOP", "CONT")
WHOLE = 1 << 30


JOB_COLUMNS = ("ID", "STATUS", "CODE", "STARTED", "PANE", "COMMAND")
SHOWN_JOBS = 20


@command("list", many_hosts=True)
@click.option("--all", "every", is_flag=True, help="Include finished jobs and helper commands run by tools.")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help=f"Show the last N (default: {SHOWN_JOBS}; none on many hosts).",
)
@fleet_options()
@click.pass_context
def list_jobs(ctx: click.Context, every: bool, last: int | None, fleet: FleetOptions) -> int:
    """List the target's jobs, oldest first: the running ones and the last N.

    --all includes helper commands, which tools run for themselves, such as a search; --json marks them "helper": true.

    With --hosts, --inventory or several --ssh, one table has the running jobs of all hosts, with --last the last N of
    each, too.
    """
    session = session_of(ctx)

    def choose(found: Sequence[Job], last: int) -> list[Job]:
        found = without_helpers(found, helpers=every)
        recent = {job.job_id for job in found[len(found) - min(last, len(found)) :]}
        return [job for job in found if every or job.status is Status.RUNNING or job.job_id in recent]

    if fleet.used_by(session.invocation):
        from .fleet.views import list_jobs_of_fleet

        return list_jobs_of_fleet(session, fleet, partial(choose, last=last or 0), JOB_COLUMNS, _row)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        shown = choose(await target.jobs(), last or SHOWN_JOBS)
        if session.json:
            print_json(shown)
        else:
            table(JOB_COLUMNS, [_row(job) for job in shown])

    return on_target(session, work, PLAIN)


@command("show")
@click.argument("job_id", metavar="ID", shell_complete=complete_job)
@click.pass_context
def show(ctx: click.Context, job_id: str) -> int:
    """Print a job's details."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        job = await target.job(job_id)
        if session.json:
            print_json(job)
        else:
            _print_facts(job)

    return on_target(session, work, PLAIN)


@command("tail")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends.")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Start at this byte of the output.")
@click.argument("job_id", metavar="ID", shell_complete=complete_job)
@click.pass_context
def tail(ctx: click.Context, follow: bool, offset: int, job_id: str) -> int:
    """Print a job's output so far, and with -f new output as it arrives. Standard error follows standard output.

    --json prints one JSON object per line: pieces of the output with their offsets, then the job's status.
    """
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        raw = StreamWriter(1, interruption)
        out = JsonLines(raw.write, offset) if session.json else raw
        job = await target.job(job_id)
        if follow or job.status is not Status.RUNNING:
            await _follow(target, job_id, offset, out)
            job = await target.job(job_id) if session.json else job
        else:
            result = await target.wait(job_id, timeout=0.0, max_output=WHOLE)
            out.write((result.stdout_bytes + result.stderr_bytes)[offset:])
            for notice in result.notices:
                note(*brief(notice))
        if isinstance(out, JsonLines):
            out.finish(job)

    return on_target(session, work, PLAIN)


async def _follow(target: ExecutionContext, job_id: str, offset: int, out: JsonLines | StreamWriter) -> None:
    """Write a job's stored output from ``offset`` on; report dropped output on standard error."""
    while True:
        try:
            async for chunk in target.follow(job_id, offset=offset):
                out.write(chunk)
        except OutputDropped as gap:
            note(gap.message)
            if gap.end == gap.start:
                return
            offset = gap.end
            if isinstance(out, JsonLines):
                out.skip_to(offset)
        else:
            return


@command("wait")
@time_limit_option(
    "--timeout", default="none", show_default=True, help="Stop waiting after TIME; the job keeps running."
)
@click.argument("job_id", metavar="ID", shell_complete=complete_job)
@click.pass_context
def wait(ctx: click.Context, timeout: float, job_id: str) -> int:
    """Wait for a job, print its output and exit with its exit code, as 'harness run' does."""
    session = session_of(ctx)
    session.invocation.passes_codes = True

    async def work(target: ExecutionContext, interruption: Interruption) -> int:
        make_redactor = partial(session_redactor, session.settings, session.invocation.choices)
        name, cancel = str(target.target), interruption.interrupt
        shown = CommandSession(name, f"job {job_id}", cancel, make_redactor=make_redactor)
        async with session.notified("run") as notifier:
            with notified_end(notifier, lambda: replace(shown.state(), session=""), "job_ended", shown.redact) as end:
                result = await target.wait(job_id, timeout=timeout, max_output=WHOLE)
                if not interruption.tripped:
                    end.take_result(result)
            if session.json:
                print_json(result_json(result))
            else:
                StreamWriter(1, interruption).write(result.stdout_bytes)
                StreamWriter(2, interruption).write(result.stderr_bytes)
                explain(result, str(target.target))
            return exit_code_of(result)

    return on_target(session, work, PLAIN)


@command("kill")
@click.option("--signal", "signal_name", type=click.Choice(SIGNALS, case_sensitive=False), default="TERM")
@pause_option("--grace", default="2s", show_default=True, help="Send KILL to remaining processes after TIME.")
@click.argument("job_id", metavar="ID", shell_complete=complete_job)
@click.pass_context
def kill(ctx: click.Context, signal_name: str, grace: float, job_id: str) -> int:
    """Send a signal to a job's processes, then KILL to those that remain.

    In a pane, the default TERM is sent after a C-c; any other signal is sent first.
    """
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        job = await target.kill(job_id, signal=signal_name.upper(), grace=grace)
        if session.json:
            print_json(job)
        else:
            _print_facts(job)

    return on_target(session, work, PLAIN)


@command("clean")
@click.pass_context
def clean(ctx: click.Context) -> int:
    """Remove finished jobs beyond the limits (jobs_max_age, jobs_max_bytes), and logs of closed panes."""
    session = session_of(ctx)

    async def main(interruption: Interruption) -> int:
        with session.questions():
            async with open_target(session.settings.target, session.settings.config) as backend:
                removed = await backend.jobs.clean()
        print_json({"removed": removed}) if session.json else click.echo(f"{removed} jobs removed")
        return 0

    return run_async(main)


def _row(job: Job) -> tuple[str, ...]:
    code = "" if job.exit_code is None else str(job.exit_code)
    first, *more = job.command.splitlines() or [""]
    text = first if len(first) <= 60 and not more else f"{first[:57]}..."
    return job.job_id, job.status.value, code, _when(job.started), job.pane or "", text


@command("replay")
@click.argument("job_id", metavar="ID", shell_complete=complete_job)
@SPEED
@IDLE_LIMIT
@click.pass_context
def replay(ctx: click.Context, job_id: str, speed: float, idle_limit: float | None) -> int:
    """Play the recording of a job in this terminal: space pauses, q quits.

    It needs a recording of the job's pane: see 'harness recordings'.
    """
    return play_job(session_of(ctx), job_id, speed, idle_limit)


def _print_facts(job: Job) -> None:
    facts = {
        "job": job.job_id,
        "status": job.status.value,
        "exit code": "" if job.exit_code is None else str(job.exit_code),
        "started": _when(job.started),
        "ended": _when(job.ended),
        "pane": job.pane or "",
        "directory": job.cwd or "",
        "owner": job.owner or "",
        "for": "the work of a tool" if job.helper else "",
        "key": job.key or "",
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name + ':':11}{readable(value)}")
    for number, line in enumerate(job.command.split("\n")):
        click.echo(f"{'' if number else 'command:':11}{readable(line)}")


def _when(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


jobs = group(
    "jobs",
    "list",
    (list_jobs, show, tail, wait, kill, clean, replay),
    "List, show, follow, wait for and kill jobs on the target.",
)
