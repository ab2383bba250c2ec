"""``harness run``: one command, whose output and exit code become ours, and standard input for it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from ...command import OnTimeout
from ...context import ExecutionContext
from ...errors import HarnessError
from ...results import ShellResult, Status
from ..exits import exit_code_of
from ..options import NO_LIMIT, Size, command, time_limit_option
from ..output import note, print_json, result_json
from ..runtime import CliSession, TargetRequirements, on_target, session_of
from ..streams import Interruption, StreamWriter

__all__ = [
    "MAX_MEMORY_BYTES",
    "brief",
    "command_text",
    "explain",
    "outcome_sentence",
    "run",
    "spool_stdin",
]


# -- Our standard input for a command: in memory while it is small, else in a file that nobody can name.


MAX_MEMORY_BYTES = 1 << 20
"""Bytes that are held in memory."""
CHUNK = 1 << 18


@contextmanager
def spool_stdin(*, read: bool) -> Iterator[bytes | Path | None]:
    """All of our standard input, read to its end; None when it is not to be read. A path is good inside only.

    The file has no name in any directory: nothing is left of it, however this process ends.

    Raises:
        HarnessError: the input is closed, which must not pass for empty, or there is no space for it.
    """
    if not read:
        yield None
        return
    if sys.stdin is None:
        raise HarnessError("standard input is closed", hint="give it a file, a pipe or /dev/null")
    source = sys.stdin.buffer
    head = source.read(MAX_MEMORY_BYTES + 1)
    if len(head) <= MAX_MEMORY_BYTES:
        yield head
        return
    import tempfile  # slow to load, as start-up goes, and seldom needed

    with tempfile.TemporaryFile(buffering=0) as file:
        _fill(file, head, source)
        yield Path(f"/dev/fd/{file.fileno()}")


def _fill(file: BinaryIO, data: bytes, source: BinaryIO) -> None:
    while data:
        _put(file, data)
        data = source.read(CHUNK)
    file.seek(0)


def _put(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        why = (error.strerror or "error").lower()
        raise HarnessError(
            f"the standard input could not be stored on this machine: {why}",
            hint="free some space, or set TMPDIR to a directory that has it",
        ) from error


# -- ``harness run``: one command, whose output and exit code become ours.


SHOWN_LINES = 4
"""Lines of a screen that a notice shows."""

HELP = """Run COMMAND on the target; its output and exit code become ours.

One word is shell text and runs as it is: harness run -- 'cd /var/log && du -sh . | tail -1'. Several words are one
program and its arguments, passed on exactly: harness run -- rm -- 'my file'.

With --tmux it runs in the pane's shell, where cd and export last; without, in a fresh sh. A session that is missing is
made, and so is the pane of --pane NAME, both within the limits of the settings (max_sessions, max_panes).

Without --timeout there is no time limit, unless the setting timeout gives one: then harness stops waiting and the
command goes on as a job. With --timeout, the command is ended when the time is over, or with --on-timeout keep, and by
default under --tmux, left running. In a container of --image it is always ended, as the container is.

Exit codes besides the command's own: 124 the time ran out, 125 harness failed or the outcome is unknown, 126 refused
by a policy, 130 interrupted. Ctrl-C interrupts the command.
"""


def command_text(words: tuple[str, ...]) -> str:
    """Shell text from the command line's words: one word is shell text already, several are quoted one by one."""
    return words[0] if len(words) == 1 else shlex.join(words)


@command("run", help=HELP, context_settings={"allow_interspersed_args": False})
@time_limit_option("--timeout", help="End the command after TIME: 90, 30s, 10m, 1h, none.")
@click.option("--on-timeout", type=click.Choice(["keep", "kill"]), help="What happens to it when the time is over.")
@click.option("--no-wait", is_flag=True, help="Start it, print its job id and return.")
@click.option("--cwd", metavar="DIR", help="Run it in DIR.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Add to its environment; repeatable.")
@click.option("--user", metavar="USER", help="Run it as USER (root, or password-less sudo).")
@click.option("--stdin", is_flag=True, help="Give it our standard input.")
@click.option("--max-output", type=Size(), metavar="BYTES", default="1M", show_default=True, help="Cut --json's text.")
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context,
    timeout: float | None,
    on_timeout: OnTimeout | None,
    no_wait: bool,
    cwd: str | None,
    env: tuple[str, ...],
    user: str | None,
    stdin: bool,
    max_output: int,
    words: tuple[str, ...],
) -> int:
    environment = dict(_variable(item) for item in env)
    session = session_of(ctx)
    session.invocation.passes_codes = True
    if session.settings.config.image:
        on_timeout = _on_timeout_in_throw_away(on_timeout, no_wait=no_wait)
    text, limit = command_text(words), timeout or session.settings.timeout or NO_LIMIT

    async def work(target: ExecutionContext, interruption: Interruption) -> int:
        # Without waiting stdout is the job id alone.
        out, err = (None, None) if no_wait else _writers(session, interruption, limit)
        result = await target.run_shell(
            text,
            wait=not no_wait,
            timeout=limit,
            on_timeout=on_timeout or ("keep" if timeout is None else None),
            cwd=cwd,
            env=environment,
            stdin=given if stdin else None,
            user=user,
            on_output=out.write if out else None,
            on_stderr=err.write if err else None,
            max_output=max_output,
        )
        for writer in (out, err):
            if writer is not None:
                writer.finish()
        return _finish(session, target, result, None if no_wait else limit)

    with spool_stdin(read=stdin) as given:
        return on_target(session, work, TargetRequirements(create=True))


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return name, value


def _on_timeout_in_throw_away(chosen: OnTimeout | None, *, no_wait: bool) -> OnTimeout:
    """No job outlives a throw-away container, so none is said to."""
    if no_wait or chosen == "keep":
        raise click.UsageError(
            f"{'--no-wait' if no_wait else '--on-timeout keep'} leaves nothing in a container of --image:"
            " it is removed when this ends"
        )
    return "kill"


_Writers = tuple[StreamWriter | None, StreamWriter | None]


def _writers(session: CliSession, interruption: Interruption, limit: float) -> _Writers:
    if session.json:
        return None, None
    return StreamWriter(1, interruption, limit), StreamWriter(2, interruption, limit)


def _finish(session: CliSession, target: ExecutionContext, result: ShellResult, limit: float | None) -> int:
    """``limit`` None: it was not waited for."""
    waited = limit is not None
    if session.json:
        print_json(result_json(result))
    elif not waited:
        click.echo(result.job_id)
    if not session.json:
        explain(result, str(target.target), waited=waited, limit=limit)
    return exit_code_of(result, waited=waited)


def brief(notice: str) -> list[str]:
    """A notice's first line and the last lines below it that are not empty: what a program asks stands there."""
    first, *more = notice.splitlines() or [""]
    lines = [line.rstrip() for line in more if line.strip()]
    return [first, *(f"  {line}" for line in lines[-SHOWN_LINES:])]


def explain(result: ShellResult, target: str, *, waited: bool = True, limit: float | None = None) -> None:
    """Say on stderr what the exit code alone does not. ``limit`` is how long it was waited for at most, in seconds."""
    for notice in result.notices:
        note(*brief(notice))
    sentence = outcome_sentence(result, limit)
    if sentence and (waited or result.status is not Status.RUNNING):
        note(f"{target.removesuffix(':')}: {sentence}")


def outcome_sentence(result: ShellResult, limit: float | None) -> str:
    """What a result is, where it has no exit code that says so."""
    again = f"harness jobs wait {result.job_id}"
    match result.status:
        case Status.RUNNING:
            return f"still running as job {result.job_id} {_how_long(result.duration, limit)} ({again})"
        case Status.TIMED_OUT:
            return (
                f"ended at its time limit{f', after {result.duration:.0f} s' if limit is None else f' of {limit:g} s'}"
            )
        case Status.INTERRUPTED:
            return "the command was interrupted"
        case Status.UNKNOWN:
            return f"the outcome of job {result.job_id} is unknown ({again})"
        case _:
            return ""


def _how_long(duration: float, limit: float | None) -> str:
    if limit is None:
        return f"after {duration:.0f} s"
    if limit == NO_LIMIT:
        return f"after {duration:.1f} s, as it waits for somebody"
    if duration >= limit * 0.95:
        return f"after its {limit:g} s"
    return f"after {duration:.1f} of its {limit:g} s, as it waits for somebody"
