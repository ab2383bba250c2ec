"""The slash commands of the prompt: what they are called, how they are read, and what completes them.

::

    parsed = parse("/kill 12")                 # Parsed, or Mistake with a sentence for the operator
    await parsed.command.run(context, parsed.args)
    completions("/mod", context)               # what could stand there: Completion(text, start, about)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import PromptContext

__all__ = ["Completion", "Mistake", "Parsed", "SlashCommand", "completions", "parse"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A text that could stand in the line from its character ``start`` to the end of the line."""

    text: str
    start: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line that is no command: a sentence that says why, and what to write."""

    message: str


class SlashCommand(ABC):
    """One command."""

    name: str
    aliases: tuple[str, ...] = ()
    usage: str = ""
    """Its arguments, as help shows them."""
    about: str
    """One line of help."""
    during_turn: bool = True
    """Whether it can run while a turn does."""

    @abstractmethod
    async def run(self, context: PromptContext, args: str) -> None:
        """Do it. ``args`` is what stands after the name.

        Raises:
            HarnessError: it could not be done; whoever called it shows why.
        """

    def choices(self, context: PromptContext, words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """What the next word could be, after these: texts, and what each is. Never waits."""
        return ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A command, and what stands after its name."""

    command: SlashCommand
    args: str


def parse(line: str) -> Parsed | Mistake:
    """Read a line that begins with a slash. Pure."""
    return Mistake(f"there is no command {line.split()[0] if line.split() else line!r}")


def completions(line: str, context: PromptContext) -> list[Completion]:
    """What could stand at the end of a line that begins with a slash. Never waits."""
    return []
