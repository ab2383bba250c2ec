"""What slash commands work with: the session at the prompt, and the seams to whoever shows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from ...agent.models import ModelProfile, ModelTable
    from ...agent.storage import SessionStore
    from ...context import ExecutionContext
    from ...toolkit.assembly import Toolkit
    from ...toolkit.executor import Executor
    from ...toolkit.permissions.timed import TimedApproval
    from .deadlines import Deadlines

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
    async def use_model(self, profile: ModelProfile) -> None:
        """Begin a conversation with a model, where there was none to talk to.

        Raises:
            HarnessError: it cannot be opened.
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

    Without a model ``agent`` is None; ``executor`` is then that of the operator's own commands.
    """

    execution: ExecutionContext
    toolkit: Toolkit
    executor: Executor
    timed: TimedApproval
    output: Output
    front: Front
    deadlines: Deadlines
    """One for the life of the prompt."""
    agent: Agent | None = None
    models: ModelTable | None = None
    """None when the settings of models are wrong."""
    store: SessionStore | None = None
    """None when conversations are not stored."""
