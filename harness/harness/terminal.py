"""The interface of terminals: persistent sessions on a target that operators can attach to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .command import Capture, Command, Keys
from .deprecated_names import renamed_method
from .errors import UnsupportedOperation
from .results import PaneInfo, SessionInfo, ShellResult
from .target import Target

if TYPE_CHECKING:
    from .pane_events import PaneEvent, PaneWatches

__all__ = [
    "CLIENT_STATUS",
    "CURRENT_TMUX",
    "Listener",
    "OperatorActivity",
    "Operators",
    "ScreenMark",
    "Sessions",
    "Terminal",
    "check_own_tmux_of",
]


# -- Operators at a session: their activity, and what they see of the agent.


@dataclass(frozen=True, slots=True)
class OperatorActivity:
    """An activity of an operator at the session; ``pane`` is the pane's name, if it was in one.

    ``typing``: keys at the prompt of a pane, or a command typed there. ``took``, ``returned``: the key that takes the
    session over, and gives it back.
    """

    kind: Literal["typing", "took", "returned"]
    pane: str = ""


Listener = Callable[[OperatorActivity], None]
"""A callback for activities; it must not block or raise."""


@dataclass(frozen=True, slots=True)
class ScreenMark:
    """A line of a pane, counted from the start of its scrollback, which keeps ``limit`` lines."""

    pane: str
    line: int
    limit: int


class Operators(ABC):
    """The operators' view of a session, obtained from ``ExecutionContext.operators``."""

    @abstractmethod
    async def set_status(self, text: str) -> None:
        """Show the agent's state in the status line; an empty text, or the end of this process, removes it.

        Args:
            text: Letters, digits, blanks and ``-:.,#``; other characters are removed. At most 40 characters.
        """

    @abstractmethod
    async def set_paused(self, *, paused: bool) -> None:
        """Show that the session is taken over or given back, as the key does, without calling the listener."""

    @abstractmethod
    async def mark(self, pane: str | None = None) -> ScreenMark:
        """Return the current cursor line of a pane.

        Raises:
            PaneGone: The pane does not exist.
        """

    @abstractmethod
    async def text_since(self, mark: ScreenMark) -> str:
        """Return the pane's text since a mark, as the terminal shows it; of a long text, its last lines.

        Raises:
            PaneGone: The pane does not exist any more.
        """

    take = renamed_method("take", "set_paused")
    show = renamed_method("show", "set_status")
    since = renamed_method("since", "text_since")


# -- Sessions and terminals.


CLIENT_STATUS = 64
"""Added to the exit status of a supervised client: with status 64 it was detached, or its session ended.

ssh and the programs of container engines use no status from 64 to 65, so these come from the target.
"""


CURRENT_TMUX = "current"
"""The name of the operator's own tmux, in place of a session's."""


def check_own_tmux_of(target: Target) -> None:
    """Check that a target has the operator's own tmux, before it is connected.

    Raises:
        UnsupportedOperation: It is not this machine.
    """
    if [hop.scheme for hop in target.hops] != ["local"]:
        raise UnsupportedOperation(
            "--tmux current is the tmux of this machine, and has no pane of another target",
            target=target,
            hint="leave the target out; a pane with ssh in it can be lent, too",
        )


class Sessions(ABC):
    """The managed tmux sessions of a target, attached or not."""

    @abstractmethod
    async def list(self) -> list[SessionInfo]:
        """Return the sessions that harness created; ``attached`` counts operators."""

    @abstractmethod
    async def create(self, name: str) -> SessionInfo:
        """Create a session.

        Raises:
            TerminalError: The configured limit is reached, or the name is taken.
        """

    @abstractmethod
    async def kill(self, name: str) -> None:
        """Kill a session, its panes and their processes.

        Raises:
            PaneGone: There is no session of that name; the message names the existing ones.
        """


class Terminal(ABC):
    """Runner of commands in the shells of panes, one at a time per pane, in order of arrival.

    Panes that this terminal did not create are never changed. Every method may raise :class:`ConnectionLost`.
    """

    session: str
    """The name of the session in use."""
    runs_commands: bool = True
    """Whether commands run in its panes; False for the operator's own, which are only captured and typed into."""

    @property
    def session_identity(self) -> str:
        """What identifies the session: a later one of the same name has another value; empty if that is unknown."""
        return ""

    @abstractmethod
    async def run(self, command: Command) -> ShellResult:
        """Run one command in a pane's persistent shell; it never runs twice.

        Cancelling the caller interrupts the command and waits, bounded, for its exit. A connection lost after dispatch
        is a result (``unknown``), before it an exception.

        Raises:
            PaneBusy: The pane is held by an operator's command or by an unfinished job.
            PaneGone: The pane ``command.pane`` does not exist.
            ShellNotReady: The pane has no usable shell, and none could be started.
        """

    @abstractmethod
    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult | None:
        """Wait for a job of this terminal and return its result, ``running`` on a timeout; None for other jobs."""

    async def held(self, job_id: str, offset: int, wait: float) -> ShellResult | None:
        """Return the job's buffered output, if this terminal has all of it, or None.

        With ``wait``, wait up to that many seconds for more than ``offset`` bytes or the job's end. The default returns
        None, so that the job's log is read.
        """
        return None

    @abstractmethod
    def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes] | None:
        """Return an iterator over the output of a job of this terminal, live, from byte ``offset``; else None."""

    @abstractmethod
    async def kill(self, job_id: str, signal: str, grace: float) -> bool:
        """Signal a job's foreground process group, then KILL after ``grace`` seconds; return False for other jobs."""

    @abstractmethod
    async def capture(self, request: Capture) -> str:
        """Return the text of a pane's screen or scrollback."""

    @abstractmethod
    async def send_keys(self, request: Keys) -> None:
        """Type into a pane; return when tmux has accepted the keys."""

    @abstractmethod
    async def list_panes(self) -> list[PaneInfo]:
        """Return the managed panes of this session."""

    @abstractmethod
    async def create_pane(self, name: str, cwd: str | None = None) -> PaneInfo:
        """Create a pane with a new shell.

        Raises:
            TerminalError: The limit is reached, or the name is taken.
        """

    @abstractmethod
    async def ensure_pane(self, name: str, *, create: bool = True) -> None:
        """Create the pane if it is missing; from now on it is recreated, with a notice, after it was closed.

        Raises:
            PaneGone: It is missing, and ``create`` is False or ``name`` is a tmux pane ID.
        """

    @abstractmethod
    async def kill_pane(self, name: str, *, force: bool = False) -> None:
        """Kill a managed pane and its processes; the default pane is refused unless ``force`` is given."""

    @abstractmethod
    async def list_sessions(self) -> list[SessionInfo]:
        """Return the managed sessions on this tmux server."""

    @abstractmethod
    async def create_session(self, name: str) -> SessionInfo:
        """Create a managed session, within the configured limit."""

    @abstractmethod
    async def kill_session(self, name: str) -> None:
        """Kill a managed session and its panes; the session in use is refused."""

    async def lend_pane(self, name: str, seconds: float | None = None) -> PaneInfo:
        """Let harness type into a pane of the operator's own tmux: see :meth:`.ExecutionContext.lend_pane`.

        Raises:
            UnsupportedOperation: The panes are harness's own, which is the default.
        """
        raise _not_lendable()

    async def end_lend(self, name: str) -> PaneInfo:
        """Stop typing into a pane of the operator's own tmux.

        Raises:
            UnsupportedOperation: The panes are harness's own, which is the default.
        """
        raise _not_lendable()

    def operators(self, listener: Listener) -> AbstractAsyncContextManager[Operators]:
        """Watch the operators at the session, and show them the agent's state.

        Raises:
            UnsupportedOperation: This terminal cannot watch operators, which is the default.
        """
        raise UnsupportedOperation("this terminal cannot watch its operators", hint="use tmux 3.2 or newer")

    def watch_pane(self, name: str | None, max_bytes: int) -> AbstractAsyncContextManager[AsyncIterator[PaneEvent]]:
        """Watch a pane live: see :meth:`.ExecutionContext.watch_pane`; the iterator ends after ``Closed``.

        Raises:
            PaneGone: The pane does not exist.
            UnsupportedOperation: This terminal has no live stream, which is the default.
        """
        raise _not_live()

    def watch_panes(self, max_bytes: int) -> AbstractAsyncContextManager[PaneWatches]:
        """Watch all managed panes live: see :meth:`.ExecutionContext.watch_panes`.

        Raises:
            UnsupportedOperation: This terminal has no live stream, which is the default.
        """
        raise _not_live()

    def libtmux(self, pane: str | None) -> AbstractAsyncContextManager[Any]:
        """Open libtmux objects for the session, or for a managed pane.

        Raises:
            UnsupportedOperation: This terminal is not tmux, which is the default.
        """
        raise UnsupportedOperation("this terminal is not tmux")

    @abstractmethod
    def attach_command(self, *, read_only: bool = False) -> list[str]:
        """Return the command that an operator runs on this machine to attach."""

    def supervised_attach_command(self, *, read_only: bool = False) -> list[str]:
        """Return :meth:`attach_command` for a program that reconnects by itself.

        The command never logs in, and its exit status is that of the client plus :data:`CLIENT_STATUS`: any other
        status does not prove how the client ended.

        Raises:
            UnsupportedOperation: This terminal has no such command, which is the default.
        """
        raise UnsupportedOperation("this terminal cannot be attached to again by a program")

    @abstractmethod
    def describe(self) -> str:
        """Return a phrase for ``repr``: ``tmux 'harness' pane %0 idle``."""


def _not_lendable() -> UnsupportedOperation:
    return UnsupportedOperation("only panes of your own tmux can be lent", hint='connect with tmux="current"')


def _not_live() -> UnsupportedOperation:
    return UnsupportedOperation(
        "this terminal cannot be watched live: it has no control mode",
        hint='set control_mode = "auto", or allow tmux -C on the target; harness capture shows the screen',
    )
