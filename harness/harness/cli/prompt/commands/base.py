"""What a slash command is, and how its arguments are read."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import HarnessError
from ...results import Job

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from .context import PromptContext

__all__ = [
    "BadArguments",
    "Choice",
    "SlashCommand",
    "agent_of",
    "brief",
    "duration",
    "job_facts",
    "moment",
    "no_arguments",
    "one_of",
]

COMMAND_SHOWN = 60
"""Characters of a command in a list."""


class BadArguments(HarnessError):
    """What stands after a command's name means nothing to it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A word that could come next, and what it is."""

    text: str
    about: str = ""


class SlashCommand(ABC):
    """One command. It keeps nothing between its runs."""

    name: str
    aliases: tuple[str, ...] = ()
    usage: str = ""
    """Its arguments, as help shows them."""
    about: str
    """One line of help."""
    details: tuple[str, ...] = ()
    """Further lines of its help."""

    @abstractmethod
    async def run(self, context: PromptContext, args: str) -> None:
        """Do it. ``args`` is what stands after the name, without spaces around it.

        Raises:
            BadArguments: the arguments mean nothing.
            HarnessError: it could not be done; whoever called it shows why.
        """

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """What the next word could be, after these. Never waits, and never asks the target."""
        return ()

    def refused_in_turn(self, args: str) -> bool:
        """Whether it cannot run while a turn does."""
        return False

    def may_wait(self, args: str) -> bool:
        """Whether it may wait for long, so that other commands run meanwhile."""
        return False

    @property
    def synopsis(self) -> str:
        """How it is written: ``/kill ID``."""
        return f"/{self.name} {self.usage}".rstrip()


def agent_of(context: PromptContext) -> Agent:
    """The agent.

    Raises:
        HarnessError: there is none, for want of a model.
    """
    if context.agent is None:
        raise HarnessError("there is no model at this prompt", hint="harness models says how to configure one")
    return context.agent


def no_arguments(args: str) -> None:
    """Refuse arguments of a command that takes none.

    Raises:
        BadArguments: there are some.
    """
    if args:
        raise BadArguments(f"it takes no arguments, and {args!r} is one")


def one_of(word: str, known: Iterable[str], what: str) -> str:
    """The word, when it is one of those that are known.

    Raises:
        BadArguments: it is not; the nearest one is named.
    """
    names = tuple(known)
    if word in names:
        return word
    from difflib import get_close_matches  # for mistakes only

    close = get_close_matches(word, names, n=1)
    advice = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
    raise BadArguments(f"there is no {what} {word!r}; {advice}")


def duration(seconds: float) -> str:
    """A time as people say it: ``12 s``, ``4 min``, ``2 h 5 min``. Pure."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def moment(seconds: float | None) -> str:
    """A time of the clock, as this machine writes it; nothing when there is none."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def brief(text: str, limit: int = COMMAND_SHOWN) -> str:
    """The first line of a text, cut. Pure."""
    first, *more = text.strip().splitlines() or [""]
    return first if len(first) <= limit and not more else f"{first[: limit - 3]}..."


def job_facts(job: Job) -> tuple[str, ...]:
    """What is known of a job, line by line. Pure but for the clock of this machine."""
    facts = {
        "job": job.job_id,
        "status": job.status.value,
        "exit code": "" if job.exit_code is None else str(job.exit_code),
        "started": moment(job.started),
        "ended": moment(job.ended),
        "pane": job.pane or "",
        "directory": job.cwd or "",
        "for": "the work of a tool" if job.helper else "",
    }
    lines = [f"{name + ':':11}{value}" for name, value in facts.items() if value]
    return (*lines, *(f"{'' if n else 'command:':11}{line}" for n, line in enumerate(job.command.split("\n"))))
