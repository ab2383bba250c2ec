"""What the operator decides while a command runs on many hosts: passwords, ``--first`` and Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from ....errors import HarnessError
from ....login import LoginQuestion, Prompter, TerminalPrompter
from ....wording import counted
from ...output import warn
from ...runtime import CliSession
from ...streams import Interruption, run_async
from .options import FleetOptions

if TYPE_CHECKING:
    from ....fleets import Fleet

__all__ = ["FleetControl", "check_can_ask", "sudo_prompter"]


def check_can_ask(session: CliSession, options: FleetOptions) -> None:
    """Refuse ``--first`` where it could not ask.

    Raises:
        click.UsageError: No terminal is available, or the options forbid questions.
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
        click.UsageError: The option does not fit the others, or no terminal is available.
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
