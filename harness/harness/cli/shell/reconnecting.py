"""The loop of ``harness shell``: attach, and attach again after the connection was lost."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

import anyio

from ...context import ExecutionContext
from ...errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLost,
    HarnessError,
    HostKeyError,
    PaneGone,
    TargetGone,
    TargetNotFound,
    UnsupportedOperation,
)
from ...login import LoginQuestion, TerminalPrompter, use_prompter
from ...target import Target
from ...terminal import CLIENT_STATUS
from ..foreground_program import run_in_terminal
from ..runtime import CliSession, TargetRequirements
from .local_terminal import LocalTerminal

__all__ = ["ClientEnd", "ReconnectingShell", "client_end", "may_retry", "pause_before"]

PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each attempt to reconnect."""
STABLE_SECONDS = 10.0
"""Seconds after which an attached client counts as working."""
MAX_CLIENT_FAILURES = 2
"""Clients that fail one after the other, before they work, until harness gives up."""
_CLIENT_FAILURES = frozenset({1, 126, 127})
"""Exit statuses of a tmux client that failed, or that could not be started."""


class ClientEnd(enum.Enum):
    """What the exit code of a supervised client proves."""

    WANTED = enum.auto()
    """The client was detached, or its session ended."""
    FAILED = enum.auto()
    """The client ended with an error: tmux cannot use the terminal, or its server or session ended."""
    UNKNOWN = enum.auto()
    """The connection was lost, or a program on the way was killed."""


def client_end(code: int) -> ClientEnd:
    """Return how a supervised client ended, by the exit code of its command. Pure."""
    if code == CLIENT_STATUS:
        return ClientEnd.WANTED
    return ClientEnd.FAILED if code - CLIENT_STATUS in _CLIENT_FAILURES else ClientEnd.UNKNOWN


def pause_before(attempt: int) -> float:
    """Return the seconds to wait before an attempt to reconnect, counted from 0. Pure."""
    return PAUSES[min(attempt, len(PAUSES) - 1)]


def may_retry(error: HarnessError) -> bool:
    """Return whether an attempt to reconnect after this error may succeed. Pure.

    A name may not resolve because the network is down. Refused logins are not repeated: servers ban who tries again.
    """
    if isinstance(error, AuthenticationError | HostKeyError | TargetGone):
        return False
    if isinstance(error, TargetNotFound):
        return _is_host(error.target)
    return isinstance(error, ConnectError | ConnectionLost)


def _is_host(target: str) -> bool:
    try:
        return Target.parse(target).last.scheme == "ssh"
    except TargetNotFound:
        return False


class _Prompter:
    """Prompter at the terminal that leaves the line about the connection first."""

    def __init__(self, terminal: LocalTerminal, prompter: TerminalPrompter) -> None:
        self._terminal = terminal
        self._prompter = prompter

    async def answer(self, question: LoginQuestion) -> str | None:
        self._terminal.end_line()
        return await self._prompter.answer(question)


class ReconnectingShell:
    """A terminal on a target's tmux session.

    Args:
        session: The program's settings; its target is not this machine.
        terminal: The operator's terminal.
        read_only: Whether to watch only.
    """

    def __init__(self, session: CliSession, terminal: LocalTerminal, *, read_only: bool) -> None:
        self._session = session
        self._terminal = terminal
        self._read_only = read_only
        self._attempt = 0
        self._failures = 0
        self._lost: float | None = None
        self._reason = ""
        self._identity = ""

    async def run(self) -> int:
        """Attach until the operator detaches or the session ends, and return the exit code.

        Raises:
            HarnessError: The first connection failed, a later one cannot succeed, or the session no longer exists.
        """
        ended = await self._attach(create=True)
        while not ended:
            await self._wait()
            try:
                with self._questions():
                    ended = await self._attach(create=False)
            except PaneGone as error:
                raise _session_ended(error.target) from error
            except HarnessError as error:
                if not may_retry(error):
                    raise
                self._reason = error.message
        return 0

    async def _attach(self, *, create: bool) -> bool:
        """Connect, and run a client of the session.

        Returns:
            Whether it was detached, or the session ended; else the connection was lost, as far as is known.

        Raises:
            UnsupportedOperation: Clients cannot work.
        """
        async with AsyncExitStack() as stack:
            needs = TargetRequirements(terminal=True, create=create, pane=False)
            target = await stack.enter_async_context(self._session.open(needs))
            self._check_identity(target)
            words = target.supervised_attach_command(read_only=self._read_only)
            if not self._session.settings.config.dedicated_connection:  # that ends with its context
                await stack.aclose()
            return await self._run_client(words)

    def _check_identity(self, target: ExecutionContext) -> None:
        """Check that this is still the session of the first connection.

        Raises:
            PaneGone: Another session has its name.
        """
        before, found = self._identity, target.session_identity
        if before and found and before != found:
            raise _session_ended(target.target)
        self._identity = found or before

    async def _run_client(self, words: list[str]) -> bool:
        self._terminal.give_back()  # first: what is typed after the message is for the session
        if self._lost is not None:
            self._terminal.show(f"reconnected after {time.monotonic() - self._lost:.0f} s")
            self._terminal.end_line()
        started, end = time.monotonic(), ClientEnd.UNKNOWN
        try:
            end = client_end(await run_in_terminal(words))
        finally:
            if end is not ClientEnd.WANTED:  # also if it was cancelled
                self._terminal.take_over()
        if end is not ClientEnd.WANTED:
            self._lost = time.monotonic()
            self._note_end(end, self._lost - started)
        return end is ClientEnd.WANTED

    def _note_end(self, end: ClientEnd, seconds: float) -> None:
        """Note that a client ended so many seconds after its start.

        Raises:
            UnsupportedOperation: Clients cannot work.
        """
        self._reason = ""
        if seconds >= STABLE_SECONDS:
            self._attempt = self._failures = 0
        if end is ClientEnd.FAILED:
            self._failures += 1
            self._reason = "the client on the target failed"
        if self._failures >= MAX_CLIENT_FAILURES:
            raise UnsupportedOperation(
                "tmux on the target fails whenever it is attached to",
                target=self._session.settings.target,
                hint="its message is above",
            )

    async def _wait(self) -> None:
        """Wait before the next attempt, and show how long."""
        reason = f"; {self._reason}" if self._reason else ""
        until, is_update = anyio.current_time() + pause_before(self._attempt), False
        self._attempt += 1
        while (left := until - anyio.current_time()) > 0:
            text = f"connection lost, trying again in {left + 0.5:.0f} s (Ctrl-C ends){reason}"
            self._terminal.show(text, is_update=is_update)
            is_update = True
            await anyio.sleep(min(left, 1.0))
        self._terminal.show(f"connection lost, reconnecting (Ctrl-C ends){reason}")

    @contextmanager
    def _questions(self) -> Iterator[None]:
        """Let logins inside ask at the terminal, below the line about the connection."""
        prompter = TerminalPrompter()
        if self._session.invocation.batch or not prompter.usable():
            yield
            return
        with use_prompter(_Prompter(self._terminal, prompter)):
            yield


def _session_ended(target: object) -> PaneGone:
    return PaneGone(
        "the tmux session no longer exists: it ended, or the target was restarted",
        target=target,
        hint="harness shell opens a new one",
    )
