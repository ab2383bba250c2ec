"""``harness run``: run one command, pass it standard input, print its output and exit with its exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from ...command import OnTimeout, observe_jobs
from ...context import ExecutionContext
from ...errors import HarnessError
from ...live.announcement import announce
from ...live.sessions.command_session import CommandSession
from ...results import ShellResult, Status
from ..exits import exit_code_of
from ..options import NO_LIMIT, Size, command, time_limit_option
from ..output import note, print_json, result_json
from ..redaction import session_redactor
from ..runtime import CliSession, TargetRequirements, on_target, session_of
from ..streams import Interruption, StreamWriter
from .fleet.options import FleetOptions, fleet_options

if TYPE_CHECKING:
    from ...notifications.command_end import CommandEnd
    from ...notifications.notifier import Notifier
    from ..unseen_typing import UnseenTyping

__all__ = [
    "MAX_MEMORY_BYTES",
    "brief",
    "command_text",
    "explain",
    "outcome_sentence",
    "run",
    "spool_stdin",
]


# -- Standard input for a command: in memory while it is small, else in an unlinked temporary file.


MAX_MEMORY_BYTES = 1 << 20
"""Bytes of standard input that are kept in memory."""
CHUNK = 1 << 18


@contextmanager
def spool_stdin(*, read: bool) -> Iterator[bytes | Path | None]:
    """Read standard input to its end.

    The temporary file has no name in any directory, so it vanishes with this process.

    Args:
        read: False yields None without reading.

    Yields:
        The input, or the path of a file that holds it; the path is valid inside only.

    Raises:
        HarnessError: Standard input is closed (which is not the same as empty), or there is no space to store it.
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
    import tempfile  # slow to import, and seldom needed

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
            f"cannot store standard input on this machine: {why}",
            hint="free some space, or set TMPDIR to a directory with more",
        ) from error


# -- ``harness run``.


SHOWN_LINES = 4
"""Maximum number of screen lines that are shown below a notice."""

HELP = """Run COMMAND on the target, print its output and exit with its exit code.

One word is shell text and runs unchanged: harness run -- 'cd /var/log && du -sh . | tail -1'. Several words are a
program and its arguments, passed on exactly: harness run -- rm -- 'my file'.

With --tmux it runs in the pane's shell, where cd and export persist; without, in a new sh. A missing session and the
pane of --pane NAME are created, within the limits of the settings (max_sessions, max_panes).

Without --timeout there is no time limit, unless the setting timeout gives one: then harness stops waiting and the
command keeps running as a job. With --timeout, the command is killed when the timeout expires; with --on-timeout keep,
and by default with --tmux, it keeps running. In a container of --image it is always killed with the container.

With --user USER the command runs as another user: a root login needs nothing, others need sudo. If sudo asks for a
password, you type it at the terminal, or the setting sudo_password_command prints it: harness run --user root -- id.
On several hosts, --ask-sudo-password asks once, before the start.

With --key KEY the command runs once per target: if a run with this key was started there before, by any process, its
job is waited for and its output printed again, also after harness or this machine was stopped. A key is kept as long as
jobs are.

With --hosts 'web[1-20],db1,!web7', --inventory FILE or several --ssh it runs on each host, at most --forks at a time.
Equal outputs are printed once, with the hosts' names; --each prints lines as they come, --json one object per host and
a summary. The exit code is 0 if every command ended with 0, 125 if a host could not be reached or an outcome is
unknown, else 1. Logins ask nothing. 'harness hosts' lists the hosts of a pattern. The first Ctrl-C starts nothing more
and waits for what runs; the second one interrupts it.

Exit codes other than the command's own: 124 the timeout expired, 125 harness failed or the outcome is unknown, 126
denied by a policy, 130 interrupted. Ctrl-C interrupts the command.
"""


def command_text(words: tuple[str, ...]) -> str:
    """Return the shell text of the command line's words: one word unchanged, several each quoted."""
    return words[0] if len(words) == 1 else shlex.join(words)


@command("run", help=HELP, many_hosts=True, context_settings={"allow_interspersed_args": False})
@time_limit_option("--timeout", help="Stop the command after TIME: 90, 30s, 10m, 1h, none.")
@click.option(
    "--on-timeout", type=click.Choice(["keep", "kill"]), help="Keep or kill the command when the timeout expires."
)
@click.option("--no-wait", is_flag=True, help="Start the command, print its job ID and exit.")
@click.option("--cwd", metavar="DIR", help="Run the command in DIR.")
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Set an environment variable; repeatable.")
@click.option("--user", metavar="USER", help="Run the command as USER, by sudo unless the login is root.")
@click.option("--stdin", is_flag=True, help="Pass standard input to the command.")
@click.option(
    "--max-output",
    type=Size(),
    metavar="BYTES",
    default="1M",
    show_default=True,
    help="Truncate the output in --json, and the merged output of a host.",
)
@click.option("--key", metavar="KEY", help="Run once: a further run with KEY on this target returns the same job.")
@fleet_options(changes=True, each=True)
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
    key: str | None,
    fleet: FleetOptions,
    words: tuple[str, ...],
) -> int:
    environment = dict(_variable(item) for item in env)
    session = session_of(ctx)
    session.invocation.passes_codes = True
    if session.settings.config.image:
        on_timeout = _on_timeout_in_throw_away(on_timeout, no_wait=no_wait)
    text, limit = command_text(words), timeout or session.settings.timeout or NO_LIMIT
    how: dict[str, Any] = {
        "wait": not no_wait,
        "timeout": limit,
        "on_timeout": on_timeout or ("keep" if timeout is None else None),
        "cwd": cwd,
        "env": environment,
        "user": user,
        "max_output": max_output,
        "receive_early": not no_wait,
        "key": key,
    }
    if fleet.used_by(session.invocation):
        from .fleet.run import run_on_fleet

        if no_wait:
            raise click.UsageError("--no-wait does not work on several hosts")
        with spool_stdin(read=stdin) as given:
            return run_on_fleet(session, fleet, text, how | {"stdin": given if stdin else None})

    async def work(target: ExecutionContext, interruption: Interruption) -> int:
        out, err = (None, None) if no_wait else _writers(session, interruption, limit)  # else only the job ID
        async with (
            session.notified("run") as notifier,
            _shown(session, target, text, interruption, environment) as shown,
        ):
            with _notified_end(notifier, shown) as end:
                result = await _run_shell(target, text, out, err, how | {"stdin": given if stdin else None})
                if end is not None and not (no_wait or interruption.tripped):
                    end.take_result(result)
            _finish_writers(out, err)
            return _finish(session, target, result, None if no_wait else limit)

    with spool_stdin(read=stdin) as given:
        return on_target(session, work, TargetRequirements(create=True))


async def _run_shell(
    target: ExecutionContext, text: str, out: StreamWriter | None, err: StreamWriter | None, how: Mapping[str, Any]
) -> ShellResult:
    with _hidden_typing() as typing:
        return await target.run_shell(
            text,
            on_output=_writing(out, typing),
            on_stderr=_writing(err, typing),
            pane=None if target.has_terminal else target.pane,  # refused, as the command would run beside that pane
            **how,
        )


def _hidden_typing() -> AbstractContextManager[UnseenTyping | None]:
    """Hide what is typed at questions in the output, if that is shown at a terminal."""
    if not os.isatty(1):
        return nullcontext()
    from ..unseen_typing import unseen_typing

    return unseen_typing()


def _notified_end(notifier: Notifier | None, shown: CommandSession) -> AbstractContextManager[CommandEnd | None]:
    """Notify of the end of the command inside, if there is a notifier."""
    if notifier is None:
        return nullcontext()
    from ...notifications.command_end import notified_end

    return notified_end(notifier, shown.state, "job_ended", shown.redact)


def _writing(writer: StreamWriter | None, typing: UnseenTyping | None) -> Callable[[bytes], None] | None:
    """Return a function that writes output, and prepares a terminal before; None without a writer."""
    if writer is None:
        return None
    if typing is None:
        return writer.write

    def write(data: bytes) -> None:
        typing.before_output(data)
        writer.write(data)

    return write


@asynccontextmanager
async def _shown(
    session: CliSession,
    target: ExecutionContext,
    text: str,
    interruption: Interruption,
    variables: Mapping[str, str],
) -> AsyncIterator[CommandSession]:
    """Show the command in dashboards while the context is open."""
    attach = tuple(target.attach_command) if target.has_terminal else ()
    name, cancel = str(target.target), interruption.interrupt
    make_redactor = partial(session_redactor, session.settings, session.invocation.choices, variables)
    shown = CommandSession(name, text, cancel, make_redactor=make_redactor, execution=target, attach=attach)
    async with announce("run", is_shown=session.settings.config.announce) as announcement:
        with announcement.session(shown), observe_jobs(shown.set_job):
            yield shown


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return name, value


def _on_timeout_in_throw_away(chosen: OnTimeout | None, *, no_wait: bool) -> OnTimeout:
    """Return what a timeout does in a temporary container, which no job outlives.

    Raises:
        click.UsageError: The options ask to leave the command running.
    """
    if no_wait or chosen == "keep":
        raise click.UsageError(
            f"{'--no-wait' if no_wait else '--on-timeout keep'} does not work in a container of --image:"
            " it is removed on exit"
        )
    return "kill"


_Writers = tuple[StreamWriter | None, StreamWriter | None]


def _writers(session: CliSession, interruption: Interruption, limit: float) -> _Writers:
    if session.json:
        return None, None
    return StreamWriter(1, interruption, limit), StreamWriter(2, interruption, limit)


def _finish_writers(*writers: StreamWriter | None) -> None:
    for writer in writers:
        if writer is not None:
            writer.finish()


def _finish(session: CliSession, target: ExecutionContext, result: ShellResult, limit: float | None) -> int:
    """Print a result and return the exit code; ``limit`` None: harness did not wait for the command."""
    waited = limit is not None
    if session.json:
        print_json(result_json(result))
    elif not waited:
        click.echo(result.job_id)
    if not session.json:
        explain(result, str(target.target), waited=waited, limit=limit)
    return exit_code_of(result, waited=waited)


def brief(notice: str) -> list[str]:
    """Return a notice's first line and its last non-empty lines, which show what a program asks."""
    first, *more = notice.splitlines() or [""]
    lines = [line.rstrip() for line in more if line.strip()]
    return [first, *(f"  {line}" for line in lines[-SHOWN_LINES:])]


def explain(result: ShellResult, target: str, *, waited: bool = True, limit: float | None = None) -> None:
    """Print on stderr what the exit code alone does not say.

    Args:
        result: The command's result.
        target: The target's name.
        waited: Whether harness waited for the command.
        limit: The maximum wait in seconds; None when it is not known.
    """
    for notice in result.notices:
        note(*brief(notice))
    sentence = outcome_sentence(result, limit)
    if sentence and (waited or result.status is not Status.RUNNING):
        note(f"{target.removesuffix(':')}: {sentence}")


def outcome_sentence(result: ShellResult, limit: float | None) -> str:
    """Return a sentence about a result without an exit code; empty for other results.

    Args:
        result: The command's result.
        limit: The maximum wait in seconds; None when it is not known.
    """
    again = f"harness jobs wait {result.job_id}"
    match result.status:
        case Status.RUNNING:
            return f"still running as job {result.job_id} {_how_long(result.duration, limit)} ({again})"
        case Status.TIMED_OUT:
            return (
                f"stopped at its timeout{f', after {result.duration:.0f} s' if limit is None else f' of {limit:g} s'}"
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
        return f"after {duration:.1f} s, waiting for input"
    if duration >= limit * 0.95:
        return f"after its {limit:g} s"
    return f"after {duration:.1f} of its {limit:g} s, waiting for input"
