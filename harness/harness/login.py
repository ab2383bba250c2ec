"""Answers to login questions (password, passphrase, second factor, host key), and terminal modes after a stop.

By default, a program with a terminal asks its operator there; without a terminal, logins that need an answer fail.
Programs with another way to ask set a prompter::

    async with use_prompter(my_prompter), connect("ssh://web1") as ctx: ...

A ``sudo`` that waits for a password in a pane is a question, too: :func:`use_sudo_approver` sets who decides about it.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import termios
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Literal, Protocol

import anyio

from .deprecated_names import renamed_names
from .wording import escape_invisible

__all__ = [
    "LoginQuestion",
    "Prompter",
    "SudoApprover",
    "TerminalPrompter",
    "WaitingSudo",
    "current_prompter",
    "current_sudo_approver",
    "on_sigcont",
    "questions_forbidden",
    "use_prompter",
    "use_sudo_approver",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, when_continued="on_sigcont")


# -- Terminal modes after a stop by a shell's job control.


@contextmanager
def on_sigcont(terminal: int, again: Callable[[], None]) -> Iterator[None]:
    """Call ``again`` each time this process continues in the foreground of a terminal after a stop.

    A shell resets the terminal's modes, such as echo. ``again`` is called from a signal handler of the main thread, so
    it must only set the terminal. In other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def continued(number: int, frame: FrameType | None) -> None:
        if _is_ours(terminal):
            again()

    before = signal.signal(signal.SIGCONT, continued)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before if before is not None else signal.SIG_DFL)


def _is_ours(terminal: int) -> bool:
    """Return whether this process is in the terminal's foreground, as others would be stopped for changing it."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False


# -- questions


QuestionKind = Literal["password", "passphrase", "otp", "hostkey", "sudo", "other"]


@dataclass(frozen=True, slots=True)
class LoginQuestion:
    """One question of a login; ``text`` is the login's own text, and the answer to a ``secret`` one must not be shown.

    A ``sudo`` question is asked later, for a command as another user or a ``sudo`` that waits in a pane; harness words
    it, except a second factor's. If it is not ``secret``, it asks whether to use a known password (``y``). A
    ``hostkey`` question is answered with ``yes``, ``no`` or the fingerprint. ``attempt`` counts from 1; more than 1
    means that the previous answer was refused.
    """

    kind: QuestionKind
    text: str
    secret: bool
    target: str
    attempt: int = 1

    @property
    def refusal(self) -> str:
        """The text before a repeated question; empty at the first attempt."""
        if self.attempt == 1 or self.kind == "hostkey":
            return ""
        what = {
            "password": "wrong password",
            "passphrase": "wrong passphrase",
            "otp": "wrong code",
            "sudo": "wrong password",
        }
        return f"{what.get(self.kind, 'the answer was not accepted')}, try again"


class Prompter(Protocol):
    """Answerer of login questions."""

    async def answer(self, question: LoginQuestion) -> str | None:
        """Return the answer without a line feed; None cancels the login."""


class TerminalPrompter:
    """Prompter at the controlling terminal: one question at a time, without echo for secrets."""

    def __init__(self, path: str = "/dev/tty") -> None:
        self._path = path
        self._asking = anyio.Lock()

    def usable(self) -> bool:
        """Return True if there is a terminal and this process is in its foreground."""
        try:
            terminal = os.open(self._path, os.O_RDWR | os.O_NOCTTY)
        except OSError:
            return False
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        except OSError:
            return False
        finally:
            os.close(terminal)

    def show(self, text: str) -> None:
        """Write a text; errors of the terminal are ignored."""
        with suppress(OSError):
            terminal = os.open(self._path, os.O_WRONLY | os.O_NOCTTY)
            try:
                os.write(terminal, text.encode("utf-8", "replace"))
            finally:
                os.close(terminal)

    async def answer(self, question: LoginQuestion) -> str | None:
        """Show the question and read a line; return None at end of file."""
        line = None
        async with self._asking:
            terminal = os.open(self._path, os.O_RDWR | os.O_NOCTTY)
            try:
                with _echo(terminal, on=not question.secret):
                    text = f"{question.refusal}\n{question.text}" if question.refusal else question.text
                    os.write(terminal, text.encode("utf-8", "replace"))
                    line = await _read_line(terminal)
                    return line
            finally:
                if line is None:  # input for this question must not reach the shell
                    termios.tcflush(terminal, termios.TCIFLUSH)
                if question.secret or line is None:  # no echoed Enter has ended the line
                    os.write(terminal, b"\n")
                os.close(terminal)


@contextmanager
def _echo(terminal: int, *, on: bool) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    wanted = termios.tcgetattr(terminal)
    local = wanted[3] | termios.ICANON | termios.ISIG
    wanted[3] = local | termios.ECHO if on else local & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, wanted)

    def again() -> None:
        with suppress(termios.error):  # the terminal was closed; the next read reports it
            termios.tcsetattr(terminal, termios.TCSANOW, wanted)

    try:
        with on_sigcont(terminal, again):
            yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def _read_line(terminal: int) -> str | None:
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(terminal)
        data = os.read(terminal, 4096)  # the terminal delivers whole lines, so this does not block
        if not data:
            return None
        line += data
    return line.removesuffix(b"\n").decode("utf-8", "surrogateescape")


_prompter: ContextVar[Prompter | None] = ContextVar("harness_prompter", default=None)


class _NoPrompter:
    """Prompter that answers nothing, to forbid questions even with a terminal."""

    async def answer(self, question: LoginQuestion) -> str | None:
        return None


_NOBODY = _NoPrompter()


@contextmanager
def use_prompter(prompter: Prompter | None) -> Iterator[None]:
    """Let ``prompter`` answer questions of logins inside; None forbids questions."""
    token = _prompter.set(_NOBODY if prompter is None else prompter)
    try:
        yield
    finally:
        _prompter.reset(token)


def questions_forbidden() -> bool:
    """Return whether :func:`use_prompter` forbids questions, so that a terminal would not help."""
    return _prompter.get() is _NOBODY


@cache
def _terminal() -> TerminalPrompter:
    """Return the prompter of the operator's terminal, which all logins share: it asks one question at a time."""
    return TerminalPrompter()


def current_prompter() -> Prompter | None:
    """Return the prompter in use, or the operator's terminal; None if neither is available."""
    chosen = _prompter.get()
    if chosen is _NOBODY:
        return None
    if chosen is not None:
        return chosen
    return _terminal() if sys.platform != "win32" and _terminal().usable() else None


# -- a sudo that waits in a pane


@dataclass(frozen=True, slots=True)
class WaitingSudo:
    """A ``sudo`` that waits for a password in a pane, as the process table of the target shows it."""

    target: str
    pane: str
    process: int
    account: str
    """The user who started it."""
    user: str
    """The user as whom its command is to run."""
    argv: tuple[str, ...]

    @property
    def command(self) -> str:
        """Its arguments as shell text to show, with control characters escaped."""
        return escape_invisible(shlex.join(self.argv))

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.process} in pane {self.pane}, as {self.user})"


SudoApprover = Callable[[WaitingSudo], Awaitable[str]]
"""Decides whether the operator's password may be typed: returns why not, or an empty text."""


_sudo_approver: ContextVar[SudoApprover | None] = ContextVar("harness_sudo_approver", default=None)


@contextmanager
def use_sudo_approver(approver: SudoApprover | None) -> Iterator[None]:
    """Let ``approver`` decide about each ``sudo`` that waits in a pane for a password; with None, the prompter does."""
    token = _sudo_approver.set(approver)
    try:
        yield
    finally:
        _sudo_approver.reset(token)


def current_sudo_approver() -> SudoApprover | None:
    """Return the approver in use; with None, an operator decides by answering the prompter's question."""
    return _sudo_approver.get()
