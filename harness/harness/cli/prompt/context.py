"""What slash commands work with: the session at the prompt, and the seams to whoever shows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...context import ExecutionContext
    from ...tasks import BackgroundTasks
    from ...toolkit.assembly import Toolkit
    from ...toolkit.executor import Executor
    from ...toolkit.permissions.timed import TimedApproval

__all__ = ["Front", "Output", "PromptContext"]


class Output(ABC):
    """Where commands print. It makes texts printable: commands hand them over as they are."""

    @abstractmethod
    def say(self, *lines: str) -> None:
        """Lines of a result."""

    @abstractmethod
    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; one without rows is its headers alone."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """One line that says what is wrong, and what to do."""


class Front(ABC):
    """What the loop at the prompt does for commands."""

    @abstractmethod
    def leave(self) -> None:
        """End the prompt, in order, when the command is done."""

    @abstractmethod
    async def open_session(self, session_id: str | None) -> None:
        """Go on with a stored conversation, or with None begin a new one; the one that was open is closed first.

        Raises:
            HarnessError: it cannot be opened; the one that was open goes on.
        """

    @abstractmethod
    async def attach(self, *, read_only: bool = False) -> None:
        """Give the terminal to a client of the tmux session until it detaches.

        Raises:
            UnsupportedOperation: there is no tmux session, or no terminal to give.
        """

    @property
    @abstractmethod
    def themes(self) -> tuple[str, ...]:
        """The names of the themes that there are."""

    @property
    @abstractmethod
    def theme(self) -> str:
        """The theme that is used."""

    @abstractmethod
    def set_theme(self, name: str) -> None:
        """Use another theme: one of :attr:`themes`."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """The session at the prompt, as it is when a command begins. The loop makes one for each command.

    Without a model ``agent`` and ``models`` are None; ``executor`` is then that of the operator's own commands.
    """

    execution: ExecutionContext
    toolkit: Toolkit
    executor: Executor
    timed: TimedApproval
    output: Output
    front: Front
    tasks: BackgroundTasks
    """For what goes on after a command has returned; they end with the prompt."""
    agent: Any = None
    """The :class:`harness.agent.agent.Agent`, or None."""
    models: Any = None
    """The :class:`harness.agent.models.ModelTable`, or None when it could not be loaded."""
    store: Any = None
    """The :class:`harness.agent.sessions.SessionStore`, or None when conversations are not stored."""
