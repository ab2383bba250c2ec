"""The base of slash commands: their context, arguments and output."""

from __future__ import annotations

import logging
import textwrap
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from ....errors import HarnessError
from ....results import Job
from ....system.background_tasks import BackgroundTasks
from ..surface import Span, Surface, folded, line, one_line, printable

if TYPE_CHECKING:
    from ....agent.agent import Agent
    from ....agent.models import ModelProfile, ModelTable
    from ....agent.storage import ConversationStore
    from ....context import ExecutionContext
    from ....toolkit.assembly import Toolkit
    from ....toolkit.executor import Executor
    from ....toolkit.permissions.remembered_answers import TimedApproval

__all__ = [
    "BadArguments",
    "Choice",
    "Deadline",
    "Deadlines",
    "HostSession",
    "Output",
    "PromptActions",
    "PromptContext",
    "SlashCommand",
    "SurfaceOutput",
    "agent_of",
    "brief",
    "duration",
    "job_facts",
    "moment",
    "no_arguments",
    "one_of",
]


# -- The context of slash commands, and the interfaces to the prompt.


class Output(ABC):
    """The output of slash commands; it escapes texts, so commands pass them unchanged."""

    @abstractmethod
    def say(self, *lines: str) -> None:
        """Print lines of a result."""

    @abstractmethod
    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table; without rows, only its headers."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """Print one line about a problem and its remedy."""


@dataclass(frozen=True, slots=True)
class HostSession:
    """The command of a client of a tmux session; ``host`` is empty on one target."""

    host: str
    command: Sequence[str]


class PromptActions(ABC):
    """The actions of the prompt's loop for slash commands."""

    @abstractmethod
    def leave(self) -> None:
        """End the prompt after the command."""

    @abstractmethod
    async def open_session(self, session_id: str | None) -> None:
        """Resume a stored conversation, or start a new one for None, then close the previous one.

        Raises:
            HarnessError: It cannot be opened; the previous one stays open.
        """

    @abstractmethod
    async def use_model(self, profile: ModelProfile) -> None:
        """Start a conversation with a model, if none is open.

        Raises:
            HarnessError: It cannot be opened.
        """

    @abstractmethod
    async def attach(self, sessions: Sequence[HostSession]) -> None:
        """Give the terminal to a client of a tmux session until it detaches; of several, to tiled panes of clients.

        Raises:
            HarnessError: A program that it needs cannot be started.
        """

    @property
    @abstractmethod
    def themes(self) -> tuple[str, ...]:
        """The names of the available themes."""

    @property
    @abstractmethod
    def theme(self) -> str:
        """The name of the current theme."""

    @abstractmethod
    def set_theme(self, name: str) -> None:
        """Use another theme, one of :attr:`themes`."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """The state of the prompt when a command starts; the loop creates one for each command.

    Without a model ``agent`` is None; ``executor`` is then that of the operator's commands.
    """

    execution: ExecutionContext
    toolkit: Toolkit
    executor: Executor
    timed: TimedApproval
    output: Output
    front: PromptActions
    deadlines: Deadlines
    """The deadlines, which live as long as the prompt."""
    agent: Agent | None = None
    models: ModelTable | None = None
    """None if the model settings are invalid."""
    store: ConversationStore | None = None
    """None if conversations are not stored."""


# -- Output on the prompt's surface.


GAP = 2
NARROW = 20
"""Minimum width in columns for wrapping the last column of a table."""


class SurfaceOutput(Output):
    """Output on the prompt's surface, with control characters escaped."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def say(self, *lines: str) -> None:
        """Print lines of a result."""
        parts = (line(part) for one in lines for part in printable(one).split("\n"))
        self._surface.show(*(row for part in parts for row in folded(part, self._surface.width - 1)))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table in aligned columns; the last column wraps at the terminal's width."""
        cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headers) - 1)]
        head, *below = (_row(row, widths, self._surface.width) for row in cells)
        self._surface.show(*(line(Span(one, "title")) for one in head), *(line(one) for row in below for one in row))

    def warn(self, text: str) -> None:
        """Print one line about a problem and its remedy."""
        self._surface.show(*folded(line(Span(one_line(text), "warn")), self._surface.width - 1))


def _row(cells: Sequence[str], widths: Sequence[int], width: int) -> list[str]:
    """Return one row of a table as lines. Pure."""
    before = "".join(cell.ljust(room + GAP) for cell, room in zip(cells, widths, strict=False))
    room = width - len(before)
    if room < NARROW or len(cells[-1]) <= room:
        return [f"{before}{cells[-1]}".rstrip()]
    first, *more = textwrap.wrap(cells[-1], room)
    return [f"{before}{first}", *(f"{' ' * len(before)}{one}" for one in more)]


# -- Deadlines of ``/timeout``.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deadline:
    """A thing to end at the time ``at`` of :func:`anyio.current_time`."""

    what: str
    at: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Deadlines:
    """The deadlines of the prompt, at most one for each thing; a later one replaces it."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._set: dict[str, Deadline] = {}

    def set(self, what: str, seconds: float, end: Callable[[], Awaitable[None]]) -> None:
        """Call ``end`` after that many seconds, unless the deadline is dropped before."""
        self.drop(what)
        deadline = self._set[what] = Deadline(what, anyio.current_time() + seconds)
        self._tasks.start_soon(self._wait, deadline, end)

    def drop(self, what: str) -> bool:
        """Drop the deadline of a thing and return whether there was one."""
        known = self._set.pop(what, None)
        if known is not None:
            known.scope.cancel()
        return known is not None

    @property
    def all(self) -> tuple[Deadline, ...]:
        """The pending deadlines, nearest first."""
        return tuple(sorted(self._set.values(), key=lambda one: one.at))

    async def _wait(self, deadline: Deadline, end: Callable[[], Awaitable[None]]) -> None:
        with deadline.scope:
            await anyio.sleep_until(deadline.at)
            if self._set.get(deadline.what) is deadline:
                del self._set[deadline.what]
                with anyio.CancelScope(shield=True):  # not interrupted, even if replaced meanwhile
                    await self._end(deadline, end)

    async def _end(self, deadline: Deadline, end: Callable[[], Awaitable[None]]) -> None:
        try:
            await end()
        except Exception as error:  # a failed deadline must not end the prompt
            log.warning("cannot end %s: %s", deadline.what, error)


# -- Slash commands and their arguments.


COMMAND_SHOWN = 60
"""Maximum number of characters of a command in a list."""


class BadArguments(HarnessError):
    """The arguments of a slash command are invalid."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A possible next word and its description."""

    text: str
    about: str = ""


class SlashCommand(ABC):
    """A slash command; it has no state between its runs."""

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
        """Run the command.

        Args:
            context: The state of the prompt.
            args: The text after the command's name, without surrounding spaces.

        Raises:
            BadArguments: The arguments are invalid.
            HarnessError: The command failed; the caller shows the reason.
        """

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return possible next words after these, without waiting and without asking the target."""
        return ()

    def refused_in_turn(self, args: str) -> bool:
        """Return whether the command cannot run during a turn."""
        return False

    def may_wait(self, args: str) -> bool:
        """Return whether the command may take long, so that other commands run meanwhile."""
        return False

    @property
    def synopsis(self) -> str:
        """The command's syntax: ``/kill ID``."""
        return f"/{self.name} {self.usage}".rstrip()


def agent_of(context: PromptContext) -> Agent:
    """Return the agent.

    Raises:
        HarnessError: No model is available.
    """
    if context.agent is None:
        raise HarnessError(
            "no model is available at this prompt", hint="'harness models' explains how to configure one"
        )
    return context.agent


def no_arguments(args: str) -> None:
    """Refuse arguments of a command that takes none.

    Raises:
        BadArguments: There are arguments.
    """
    if args:
        raise BadArguments(f"unexpected argument {args!r}")


def one_of(word: str, known: Iterable[str], what: str) -> str:
    """Return the word if it is one of the known ones.

    Raises:
        BadArguments: It is not; the message suggests the nearest one.
    """
    names = tuple(known)
    if word in names:
        return word
    from difflib import get_close_matches  # slow to import, needed for errors only

    close = get_close_matches(word, names, n=1)
    advice = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
    raise BadArguments(f"unknown {what} {word!r}; {advice}")


def duration(seconds: float) -> str:
    """Return a duration for display: ``12 s``, ``4 min``, ``2 h 5 min``. Pure."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def moment(seconds: float | None) -> str:
    """Return a point in time in local time; empty for None."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def brief(text: str, limit: int = COMMAND_SHOWN) -> str:
    """Return the first line of a text, truncated. Pure."""
    first, *more = text.strip().splitlines() or [""]
    return first if len(first) <= limit and not more else f"{first[: limit - 3]}..."


def job_facts(job: Job, name: str) -> tuple[str, ...]:
    """Return a job's details as lines, with its name in the first one. Pure, except for the local time zone."""
    facts = {
        "job": name,
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
