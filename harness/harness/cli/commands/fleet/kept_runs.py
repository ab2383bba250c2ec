"""``harness fleet``: the runs on many hosts that are kept: list, show, wait, resume, retry, cancel."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from ...completed_names import complete_run
from ...exits import FAILED, HARNESS_FAILED
from ...options import command, group
from ...output import note, print_json, readable, table
from ...runtime import CliSession, session_of
from .options import EACH, FORKS, RETRY_UNREACHABLE, SCHEDULER, FleetOptions, collected_options
from .run import ask_hosts

if TYPE_CHECKING:
    from ....fleets.host_commands import HostCommand
    from ....fleets.kept_runs import Answer, KeptRun, RunStore

__all__ = ["fleet"]

SHOWN_COMMAND = 60
"""Characters of a command in the list."""

_options = collected_options(FORKS, EACH, RETRY_UNREACHABLE, SCHEDULER)
_number = click.argument("number", metavar="RUN", type=click.IntRange(min=1), shell_complete=complete_run)


def _store(session: CliSession) -> RunStore:
    from ....fleets.kept_runs import RunStore

    return RunStore(keep=session.settings.config.jobs_max_age)


def _kind(answer: Answer | None) -> str:
    """Return how a host answered, in a word, as the summary of ``harness run --hosts`` names it."""
    if answer is None or not answer.started:
        return "not started"
    if answer.cancelled:
        return "cancelled"
    if answer.error is not None:
        return "unreachable" if answer.unreachable else "error"
    if answer.status in ("running", "unknown", "interrupted"):
        return answer.status
    return "ok" if answer.ok else "failed"


def _state(run: KeptRun) -> str:
    if run.controlled:
        return "running"
    if run.cancelled:
        return "cancelled"
    return "unfinished" if run.unfinished() else "ended"


def _counts(run: KeptRun) -> str:
    answers = run.answers()
    counts = Counter(_kind(answers.get(host.name)) for host in run.hosts)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


def _exit_code(run: KeptRun) -> int:
    """Return the exit code of the whole run: as for ``harness run --hosts``."""
    answers = run.answers()
    kinds = {_kind(answers.get(host.name)) for host in run.hosts}
    if kinds & {"unreachable", "error", "unknown", "running", "not started", "cancelled"}:
        return HARNESS_FAILED
    return FAILED if kinds & {"failed", "interrupted"} else 0


@command("list")
@click.pass_context
def list_runs(ctx: click.Context) -> None:
    """List the runs, oldest first."""
    session = session_of(ctx)
    runs = _store(session).runs()
    if session.json:
        print_json([_run_json(run) for run in runs])
        return
    rows = [
        (str(run.number), _moment(run.created), _state(run), str(len(run.hosts)), _counts(run), _short(run.command))
        for run in runs
    ]
    table(("RUN", "STARTED", "STATE", "HOSTS", "OUTCOMES", "COMMAND"), rows)


@command("show")
@_number
@click.pass_context
def show(ctx: click.Context, number: int) -> None:
    """Print what is known here of a run's hosts; nothing is connected."""
    session = session_of(ctx)
    run = _store(session).open(number)
    answers = run.answers()
    if session.json:
        hosts = [_host_json(host.name, str(host.target), answers.get(host.name)) for host in run.hosts]
        print_json(_run_json(run) | {"outcomes": hosts})
        return
    click.echo(f"run {run.number}, started {_moment(run.created)}, {_state(run)}: {readable(run.command)}")
    rows = [(host.name, *_row(answers.get(host.name))) for host in run.hosts]
    table(("HOST", "OUTCOME", "EXIT CODE", "JOB", "ERROR"), rows)


def _row(answer: Answer | None) -> tuple[str, str, str, str]:
    if answer is None:
        return _kind(None), "", "", ""
    code = "" if answer.exit_code is None else str(answer.exit_code)
    return _kind(answer), code, answer.job_id or "", answer.error or ""


@command("wait")
@_options
@_number
@click.pass_context
def wait(ctx: click.Context, number: int, fleet: FleetOptions) -> int:
    """Wait for the commands of a run and print their outputs; nothing is started.

    The exit code is that of 'harness run --hosts'. It works while the run's own process is running, and for a run that
    ended, whose outputs are read from the hosts again.
    """
    session = session_of(ctx)
    run = _store(session).open(number)
    ask_hosts(
        session,
        fleet,
        run.hosts,
        partial(run.command_for, action="wait"),
        run,
        starts=False,
    )
    return _exit_code(run)


@command("resume")
@_options
@_number
@click.pass_context
def resume(ctx: click.Context, number: int, fleet: FleetOptions) -> int:
    """Continue a run: wait for the commands that started, and start those that did not. Nothing runs twice.

    Hosts whose command has ended are not asked again. The exit code is that of the whole run.
    """
    session = session_of(ctx)
    store = _store(session)
    run = store.open(number)
    store.check_fresh(run)
    with run.held():
        _continue(session, fleet, run, run.command_for)
    return _exit_code(run)


def _continue(
    session: CliSession, options: FleetOptions, run: KeptRun, command_for: Callable[[str], HostCommand]
) -> None:
    unfinished = run.unfinished()
    ended = len(run.hosts) - len(unfinished)
    if ended and not session.json:
        note(f"run {run.number}: the command has ended on {ended} of {len(run.hosts)} hosts")
    if unfinished:
        ask_hosts(session, options, unfinished, command_for, run)


@command("retry")
@click.option("--failed", is_flag=True, required=True, help="Run on the hosts whose command failed.")
@_options
@_number
@click.pass_context
def retry(ctx: click.Context, number: int, failed: bool, fleet: FleetOptions) -> int:
    """Run the command of a run again, as a new run, on the hosts where it failed.

    These are the hosts whose command ended with another exit code than 0, at its timeout or by an interrupt. Hosts that
    were not reached or did not start, or whose outcome is unknown, are left to 'harness fleet resume'.
    """
    session = session_of(ctx)
    store = _store(session)
    run = store.open(number)
    answers = run.answers()
    chosen = [host for host in run.hosts if (answer := answers.get(host.name)) and answer.final and not answer.ok]
    if not chosen:
        note(f"run {number}: no host has a failed command ({_counts(run)})")
        return 0
    again = store.create(
        run.command, chosen, call=run.call, stdin=run.stdin, tmux=run.tmux, pane=run.pane, origin=run.number
    )
    with again.held():
        return ask_hosts(session, fleet, chosen, again.command_for, again)


@command("cancel")
@collected_options(FORKS, SCHEDULER)
@_number
@click.pass_context
def cancel(ctx: click.Context, number: int, fleet: FleetOptions) -> int:
    """End the commands of a run, and start no further one, also while its own process is running.

    The exit code is 0 if every host is known to run nothing more of it, else 125.
    """
    session = session_of(ctx)
    store = _store(session)
    run = store.open(number)
    store.check_fresh(run)
    run.cancel()
    unfinished = run.unfinished()
    if unfinished:
        ask_hosts(
            session,
            fleet,
            unfinished,
            partial(run.command_for, action="cancel"),
            run,
            starts=False,
        )
    answers = run.answers()
    proved = all((answer := answers.get(host.name)) and answer.settled for host in run.hosts)
    return 0 if proved else HARNESS_FAILED


fleet = group(
    "fleet",
    "list",
    (list_runs, show, wait, resume, retry, cancel),
    "List, show, wait for, resume, retry and cancel runs on many hosts.",
)


# -- JSON


def _run_json(run: KeptRun) -> dict[str, object]:
    answers = run.answers()
    return {
        "run": run.number,
        "command": run.command,
        "started": run.created,
        "state": _state(run),
        "hosts": len(run.hosts),
        "counts": dict(Counter(_kind(answers.get(host.name)) for host in run.hosts)),
        "origin": run.origin,
    }


def _host_json(name: str, target: str, answer: Answer | None) -> dict[str, object]:
    known = {} if answer is None else {"status": answer.status, "exit_code": answer.exit_code, "job_id": answer.job_id}
    return {"host": name, "target": target, "outcome": _kind(answer), **known, "error": answer and answer.error}


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _short(text: str) -> str:
    line = readable(text.partition("\n")[0])
    return line if len(line) <= SHOWN_COMMAND else line[: SHOWN_COMMAND - 1] + "…"
