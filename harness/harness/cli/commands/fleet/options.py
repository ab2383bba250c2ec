"""The options of commands on many hosts, and what the operator decides while one runs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import anyio
import click

from ....errors import HarnessError
from ....login import LoginQuestion, Prompter, TerminalPrompter
from ....wording import counted
from ...completed_names import complete_file, complete_pattern
from ...options import HostCount, Invocation
from ...output import warn
from ...runtime import CliSession
from ...streams import Interruption, run_async

if TYPE_CHECKING:
    from ....fleets import Fleet

__all__ = [
    "EACH",
    "FORKS",
    "RETRY_UNREACHABLE",
    "SCHEDULER",
    "FleetControl",
    "FleetOptions",
    "check_can_ask",
    "collected_options",
    "fleet_options",
    "sudo_prompter",
]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """The options of a command for many hosts."""

    patterns: tuple[str, ...] = ()
    inventory: str | None = None
    forks: int | None = None
    rolling: str | None = None
    first: int | None = None
    max_fail: str | None = None
    retry_unreachable: int | None = None
    each: bool = False
    scheduler: str | None = None
    ask_sudo_password: bool = False

    @property
    def given(self) -> bool:
        """Whether any of them was given."""
        return self != FleetOptions()

    def used_by(self, invocation: Invocation) -> bool:
        """Return whether a command works on many hosts, by these options or by several ``--ssh``."""
        return self.given or bool(invocation.several)

    def start_arguments(self) -> dict[str, Any]:
        """Return the arguments of a fleet's call that decide which hosts start when."""
        from ....fleets.fleet_calls import DEFAULT_FORKS

        only_first = self.first is not None and self.rolling is None
        return {
            "forks": self.forks or DEFAULT_FORKS,
            "rolling": self.rolling if self.first is None else [self.first, self.rolling or "100%"],
            "max_fail": self.max_fail or ("100%" if only_first else None),  # the operator decides, not a limit
            "retry_unreachable": self.retry_unreachable or 0,
        }


_COUNT: dict[str, Any] = {"type": HostCount(), "metavar": "N|N%"}
FORKS = click.option("--forks", type=click.IntRange(min=1), metavar="N", help="Hosts at the same time (default: 64).")
EACH = click.option("--each", is_flag=True, help="Print the hosts' lines as they come, with the host's name.")
RETRY_UNREACHABLE = click.option(
    "--retry-unreachable",
    type=click.IntRange(min=0),
    metavar="N",
    help="Try N times more to log in to a host that was not reached.",
)
_SESSION_OPTIONS = (
    click.option(
        "--hosts",
        "patterns",
        metavar="PATTERN",
        multiple=True,
        shell_complete=complete_pattern,
        help="Use each of these hosts; repeatable.",
    ),
    click.option(
        "--inventory",
        metavar="FILE",
        shell_complete=complete_file,
        help="Take hosts and groups from FILE: a list, or Ansible's INI or YAML.",
    ),
)
_HOST_OPTIONS = (*_SESSION_OPTIONS, FORKS, RETRY_UNREACHABLE)
_START_OPTIONS = (
    click.option("--rolling", **_COUNT, help="Start N hosts when the N before have ended without a failure."),
    click.option("--first", type=click.IntRange(min=1), metavar="N", help="Ask whether to continue after N hosts."),
    click.option("--max-fail", **_COUNT, help="When N hosts failed, start no further one."),
)
SCHEDULER = click.option(
    "--scheduler", metavar="ADDRESS", help="Run on the workers of the Dask scheduler at ADDRESS (tcp://HOST:8786)."
)
ASK_SUDO_PASSWORD = click.option(
    "--ask-sudo-password", is_flag=True, help="Ask once for the password that sudo wants on these hosts (--user)."
)
_Function = Callable[..., int | None]


def fleet_options(
    *, changes: bool = False, each: bool = False, session: bool = False
) -> Callable[[_Function], _Function]:
    """Declare the options for many hosts; the command gets them as ``fleet``, a :class:`FleetOptions`.

    Args:
        changes: Whether the command changes hosts, so that it takes the options that start few of them first.
        each: Whether it runs a command, so that it can print lines as they come, and run on workers.
        session: Whether it opens a session on the hosts, whose calls name some of them.
    """

    hosts = _SESSION_OPTIONS if session else _HOST_OPTIONS
    return collected_options(
        *hosts, *(_START_OPTIONS if changes else ()), *((EACH, SCHEDULER, ASK_SUDO_PASSWORD) if each else ())
    )


def collected_options(*options: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    """Declare options that are fields of :class:`FleetOptions`; the command gets them as ``fleet``."""

    def declare(function: _Function) -> _Function:
        @wraps(function)
        def collected(*args: Any, **values: Any) -> int | None:
            chosen = {item.name: values.pop(item.name) for item in fields(FleetOptions) if item.name in values}
            return function(*args, fleet=FleetOptions(**chosen), **values)

        for option in reversed(options):
            option(collected)
        return collected

    return declare


def check_can_ask(session: CliSession, options: FleetOptions) -> None:
    """Refuse ``--first`` where it could not ask.

    Raises:
        click.UsageError: There is no terminal, or the options forbid questions.
    """
    can_ask = not (session.json or session.invocation.batch) and TerminalPrompter().usable()
    if options.first is not None and not can_ask:
        raise click.UsageError(
            "--first asks at the terminal whether to continue: without one, or with --json or --batch, use"
            " --rolling N --max-fail N"
        )


class _SudoPassword:
    """Gives each host the password that the operator has typed, once; answers nothing else."""

    def __init__(self, password: str) -> None:
        self._password = password

    async def answer(self, question: LoginQuestion) -> str | None:
        """See :class:`Prompter`."""
        return self._password if question.kind == "sudo" and question.attempt == 1 else None


def sudo_prompter(session: CliSession, options: FleetOptions, user: str | None, hosts: int) -> Prompter | None:
    """Ask for the password of ``--ask-sudo-password``; None if nothing may be asked on the hosts.

    Raises:
        click.UsageError: The option does not fit the others, or there is no terminal.
        HarnessError: No password was given.
    """
    if not options.ask_sudo_password:
        return None
    if user is None or options.scheduler is not None:
        raise click.UsageError("--ask-sudo-password is for --user, and does not work with --scheduler")
    prompter = TerminalPrompter()
    if session.invocation.batch or not prompter.usable():
        raise click.UsageError("--ask-sudo-password needs a terminal: without one, set sudo_password_command")
    answers: list[str | None] = []
    text = f"harness: sudo password for {hosts} hosts, each of which that asks for it gets it, to run as {user}: "

    async def ask(interruption: Interruption) -> int:
        answers.append(await prompter.answer(LoginQuestion("sudo", text, True, "")))
        return 0

    run_async(ask)
    if not (answers and answers[0]):
        raise HarnessError("no sudo password was given, so nothing ran")
    return _SudoPassword(answers[0])


class FleetControl:
    """The operator's decisions while a command runs on many hosts: ``--first`` and the first Ctrl-C.

    Args:
        session: The program's settings.
        options: The options of the command.

    Raises:
        click.UsageError: ``--first`` cannot ask.
    """

    def __init__(self, session: CliSession, options: FleetOptions) -> None:
        self.interrupted = False
        """Whether Ctrl-C let nothing more start."""
        self._session = session
        self._first = options.first
        self._prompter = TerminalPrompter()
        self._question: anyio.CancelScope | None = None
        check_can_ask(session, options)

    @contextmanager
    def signals(self, interruption: Interruption, fleet: Fleet, clear: Callable[[], None]) -> Iterator[None]:
        """Let the first Ctrl-C inside start nothing more, and the second one, or another signal, end what runs.

        Args:
            interruption: The program's signals.
            fleet: The fleet.
            clear: Removes the line with counts.
        """
        first, stop = partial(self.interrupt, fleet, clear), partial(self._stop, interruption, fleet, clear)
        with interruption.first_interrupt(first), interruption.stopped_by(stop, partial(_left_running, fleet)):
            yield

    def _stop(self, interruption: Interruption, fleet: Fleet, clear: Callable[[], None]) -> None:
        """Interrupt what runs; print that, as an unresponsive host takes some seconds."""
        running = len(fleet.running)
        if self._question is not None:
            self._question.cancel()
        if running and interruption.signal != signal.SIGPIPE:
            clear()
            text = f"interrupting {counted(running, 'host')}"
            warn(text, as_json_document=self._session.json)
        fleet.interrupt()

    def interrupt(self, fleet: Fleet, clear: Callable[[], None]) -> None:
        """Start nothing more, and print how many hosts still run.

        Args:
            fleet: The fleet.
            clear: Removes the line with counts.
        """
        self.interrupted = True
        running = fleet.stop_starting("interrupted")
        if self._question is not None:
            self._question.cancel()
        still = f"; {counted(running, 'host')} still run{'s' if running == 1 else ''}"
        more = f"{still} (Ctrl-C again to interrupt {'it' if running == 1 else 'them'})" if running else ""
        clear()
        warn(f"nothing more starts{more}", as_json_document=self._session.json)

    async def before_wave(self, fleet: Fleet, show: Callable[[], None]) -> None:
        """Ask after the first hosts whether to continue; anything but yes starts nothing more.

        Args:
            fleet: The fleet.
            show: Prints the results so far.
        """
        if self._first is None:
            return
        others, self._first = len(fleet) - self._first, None
        show()
        question = f"harness: continue on the other {counted(others, 'host')}? [y/N] "
        answer: str | None = None
        with anyio.CancelScope() as self._question, suppress(OSError):  # OSError: the terminal was closed
            answer = await self._prompter.answer(LoginQuestion("other", question, False, ""))
        self._question = None
        if (answer or "").strip().lower() not in {"y", "yes"}:
            fleet.stop_starting("interrupted" if self.interrupted else "declined at the terminal")


def _left_running(fleet: Fleet) -> str:
    """Return the line about the hosts whose commands may run on when the process is ended at once."""
    jobs = [f"{name}: job {job}" if job else name for name, job in fleet.running.items()]
    return f"\nharness: may still be running: {', '.join(jobs)}\n" if jobs else ""
