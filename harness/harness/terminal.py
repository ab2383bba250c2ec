"""Seam 2: a persistent terminal session on a target that people can attach to, and the people at it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

from .command import Capture, Command, Keys
from .deprecated_names import renamed_method
from .errors import UnsupportedOperation
from .results import PaneInfo, SessionInfo, ShellResult

__all__ = [
    "Listener",
    "OperatorActivity",
    "Operators",
    "ScreenMark",
    "Sessions",
    "Terminal",
]


# -- People at a session: what they do there, and what they are shown of whoever works beside them.


@dataclass(frozen=True, slots=True)
class OperatorActivity:
    """Somebody at the session did something. ``pane`` is the name of the pane, where it was in one.

    ``typing``: keys at the prompt of a pane, or a command that was typed there. ``took``, ``returned``: the key that
    takes the session over, and gives it back.
    """

    kind: Literal["typing", "took", "returned"]
    pane: str = ""


Listener = Callable[[OperatorActivity], None]
"""It may not wait or raise."""


@dataclass(frozen=True, slots=True)
class ScreenMark:
    """A line of a pane, counted from the beginning of its scrollback. ``limit`` lines are kept of it."""

    pane: str
    line: int
    limit: int


class Operators(ABC):
    """The session as the people at it see it; had from ``ExecutionContext.operators``."""

    @abstractmethod
    async def set_status(self, text: str) -> None:
        """Say in the status line what the agent does; an empty text takes it away, as does our end, however it comes.

        Args:
            text: letters, digits, blanks and ``-:.,#``; anything else is left out. 40 characters at most.
        """

    @abstractmethod
    async def set_paused(self, *, paused: bool) -> None:
        """Show that the session is taken over, or given back, as the key does. The listener is not told."""

    @abstractmethod
    async def mark(self, pane: str | None = None) -> ScreenMark:
        """Where the cursor of a pane is now.

        Raises:
            PaneGone: there is no such pane.
        """

    @abstractmethod
    async def text_since(self, mark: ScreenMark) -> str:
        """What has been written to the pane since, as the terminal shows it: its last lines, where it is much.

        Raises:
            PaneGone: there is no such pane any more.
        """

    take = renamed_method("take", "set_paused")
    show = renamed_method("show", "set_status")
    since = renamed_method("since", "text_since")


# -- Seam 2: a persistent terminal session on a target that people can attach to.


class Sessions(ABC):
    """The managed tmux sessions of a target, whether or not anybody is attached to one."""

    @abstractmethod
    async def list(self) -> list[SessionInfo]:
        """Those that harness made; ``attached`` counts people."""

    @abstractmethod
    async def create(self, name: str) -> SessionInfo:
        """A new one.

        Raises:
            TerminalError: the configured limit is reached, or the name is taken.
        """

    @abstractmethod
    async def kill(self, name: str) -> None:
        """End one, with its panes and what runs in them.

        Raises:
            PaneGone: there is none of that name; the message names those that are there.
        """


class Terminal(ABC):
    """Runs commands in the shells of panes, one at a time per pane, in order of arrival.

    Panes that this terminal did not create are never touched. Every method may raise :class:`ConnectionLost`.
    """

    session: str
    """The name of the session in use."""

    @abstractmethod
    async def run(self, command: Command) -> ShellResult:
        """Run one command in a pane's persistent shell. Never runs it twice.

        Cancelling the caller interrupts the command and waits, bounded, until it is gone. A link that is lost after
        dispatch is a result (``unknown``), before it an exception.

        Raises:
            PaneBusy: the pane is held by an operator's command or by an unfinished job.
            PaneGone: the pane that ``command.pane`` names does not exist.
            ShellNotReady: the pane has no usable shell, and none could be started.
        """

    @abstractmethod
    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult | None:
        """The result of a job that this terminal runs or ran, ``running`` when the time is over; None: not its job."""

    async def held(self, job_id: str, offset: int, wait: float) -> ShellResult | None:
        """The whole of what a job has written, when this terminal runs or ran it and has all of that; else None.

        With ``wait`` it is waited for that many seconds until there are more than ``offset`` bytes, or the job has
        ended. The default has nothing, so that the job's log is read.
        """
        return None

    @abstractmethod
    def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes] | None:
        """The output of a job that this terminal runs, live, from byte ``offset``; None when it is not its job."""

    @abstractmethod
    async def kill(self, job_id: str, signal: str, grace: float) -> bool:
        """Signal a job's foreground process group, then KILL after ``grace`` seconds. False when it is not its job."""

    @abstractmethod
    async def capture(self, request: Capture) -> str:
        """What is on a pane's screen, or in its scrollback."""

    @abstractmethod
    async def send_keys(self, request: Keys) -> None:
        """Type into a pane. Returns when tmux has taken the keys."""

    @abstractmethod
    async def list_panes(self) -> list[PaneInfo]:
        """The managed panes of this session."""

    @abstractmethod
    async def create_pane(self, name: str, cwd: str | None = None) -> PaneInfo:
        """A new pane with a fresh shell.

        Raises:
            TerminalError: the limit is reached, or the name is taken.
        """

    @abstractmethod
    async def ensure_pane(self, name: str, *, create: bool = True) -> None:
        """Make the pane unless it is there; from now on it is made anew, with a notice, when it was lost.

        Raises:
            PaneGone: it is not there, and ``create`` is False or ``name`` is tmux's id of a pane.
        """

    @abstractmethod
    async def kill_pane(self, name: str, *, force: bool = False) -> None:
        """End a managed pane and what runs in it. The default pane is refused unless ``force`` is given."""

    @abstractmethod
    async def list_sessions(self) -> list[SessionInfo]:
        """The managed sessions on this tmux server."""

    @abstractmethod
    async def create_session(self, name: str) -> SessionInfo:
        """A new managed session, within the configured limit."""

    @abstractmethod
    async def kill_session(self, name: str) -> None:
        """End a managed session and its panes. The session in use is refused."""

    def operators(self, listener: Listener) -> AbstractAsyncContextManager[Operators]:
        """Watch the people at the session, who are shown what goes on.

        Raises:
            UnsupportedOperation: this terminal cannot tell what they do, which is the default.
        """
        raise UnsupportedOperation("this terminal cannot tell what its operators do", hint="use tmux 3.2 or newer")

    def libtmux(self, pane: str | None) -> AbstractAsyncContextManager[Any]:
        """Give libtmux's objects for the session, or for a managed pane.

        Raises:
            UnsupportedOperation: this terminal is not tmux, which is the default.
        """
        raise UnsupportedOperation("this terminal is not tmux")

    @abstractmethod
    def attach_command(self, *, read_only: bool = False) -> list[str]:
        """The command that an operator types on this machine to attach."""

    @abstractmethod
    def describe(self) -> str:
        """One phrase for ``repr``: ``tmux 'harness' pane %0 idle``."""
