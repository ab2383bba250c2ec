"""What a slash command is, what it works with, how its arguments are read, and where it prints."""

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


# -- What slash commands work with: the session at the prompt, and the seams to whoever shows it.


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


class PromptActions(ABC):
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
    front: PromptActions
    deadlines: Deadlines
    """One for the life of the prompt."""
    agent: Agent | None = None
    models: ModelTable | None = None
    """None when the settings of models are wrong."""
    store: ConversationStore | None = None
    """None when conversations are not stored."""


# -- Where slash commands print: on the surface of the prompt.


GAP = 2
NARROW = 20
"""Columns below which nothing is put into lines of its own."""


class SurfaceOutput(Output):
    """See the module. Texts may be anything; what a terminal would obey is spelled out."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def say(self, *lines: str) -> None:
        """Lines of a result."""
        parts = (line(part) for one in lines for part in printable(one).split("\n"))
        self._surface.show(*(row for part in parts for row in folded(part, self._surface.width - 1)))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table in aligned columns; the last one goes on below itself where the terminal ends."""
        cells = [[one_line(cell) for cell in row] for row in (headers, *rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headers) - 1)]
        head, *below = (_row(row, widths, self._surface.width) for row in cells)
        self._surface.show(*(line(Span(one, "title")) for one in head), *(line(one) for row in below for one in row))

    def warn(self, text: str) -> None:
        """One line that says what is wrong, and what to do."""
        self._surface.show(*folded(line(Span(one_line(text), "warn")), self._surface.width - 1))


def _row(cells: Sequence[str], widths: Sequence[int], width: int) -> list[str]:
    """One row as lines. Pure."""
    before = "".join(cell.ljust(room + GAP) for cell, room in zip(cells, widths, strict=False))
    room = width - len(before)
    if room < NARROW or len(cells[-1]) <= room:
        return [f"{before}{cells[-1]}".rstrip()]
    first, *more = textwrap.wrap(cells[-1], room)
    return [f"{before}{first}", *(f"{' ' * len(before)}{one}" for one in more)]


# -- ``/timeout``: things that are ended when their time is over.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deadline:
    """Something that is to end at ``at``, on the clock of :func:`anyio.current_time`."""

    what: str
    at: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class Deadlines:
    """One for each thing at most; a later one replaces it. They live as long as the prompt."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._set: dict[str, Deadline] = {}

    def set(self, what: str, seconds: float, end: Callable[[], Awaitable[None]]) -> None:
        """Call ``end`` after so many seconds, unless it is dropped before."""
        self.drop(what)
        deadline = self._set[what] = Deadline(what, anyio.current_time() + seconds)
        self._tasks.start_soon(self._wait, deadline, end)

    def drop(self, what: str) -> bool:
        """Take it back; whether there was one."""
        known = self._set.pop(what, None)
        if known is not None:
            known.scope.cancel()
        return known is not None

    @property
    def all(self) -> tuple[Deadline, ...]:
        """Those that are set, the nearest first."""
        return tuple(sorted(self._set.values(), key=lambda one: one.at))

    async def _wait(self, deadline: Deadline, end: Callable[[], Awaitable[None]]) -> None:
        with deadline.scope:
            await anyio.sleep_until(deadline.at)
            if self._set.get(deadline.what) is deadline:
                del self._set[deadline.what]
                with anyio.CancelScope(shield=True):  # what is begun is done, also when it is replaced meanwhile
                    await self._end(deadline, end)

    async def _end(self, deadline: Deadline, end: Callable[[], Awaitable[None]]) -> None:
        try:
            await end()
        except Exception as error:  # the prompt is worth more than one of its deadlines
            log.warning("%s could not be ended: %s", deadline.what, error)


# -- What a slash command is, and how its arguments are read.


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
