"""People at a session: what they do there, and what they are shown of whoever works beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Listener", "OperatorActivity", "Operators", "ScreenMark"]


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
    async def show(self, text: str) -> None:
        """Say in the status line what the agent does; an empty text takes it away, as does our end, however it comes.

        Args:
            text: letters, digits, blanks and ``-:.,#``; anything else is left out. 40 characters at most.
        """

    @abstractmethod
    async def take(self, *, taken: bool) -> None:
        """Show that the session is taken over, or given back, as the key does. The listener is not told."""

    @abstractmethod
    async def mark(self, pane: str | None = None) -> ScreenMark:
        """Where the cursor of a pane is now.

        Raises:
            PaneGone: there is no such pane.
        """

    @abstractmethod
    async def since(self, mark: ScreenMark) -> str:
        """What has been written to the pane since, as the terminal shows it: its last lines, where it is much.

        Raises:
            PaneGone: there is no such pane any more.
        """
