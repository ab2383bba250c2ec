"""The seam between what is said at the prompt and the terminal it is said at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal

from .themes import Line, Span, Theme

__all__ = [
    "Asking",
    "Choice",
    "Ended",
    "Entered",
    "Input",
    "Interrupted",
    "Opened",
    "QuestionSurface",
    "Surface",
    "choice_lines",
]


@dataclass(frozen=True, slots=True)
class Entered:
    """The operator has entered a text; it may have many lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Ctrl-D in an empty line, or the terminal is gone (``gone``)."""

    gone: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """What was shown folded is to be opened."""


INDENT, BETWEEN = "  ", " · "

Input = Entered | Interrupted | Ended | Opened


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer that is offered: the key that gives it, and its meaning.

    ``at_once``: the key alone answers where the terminal reports single keys; else Enter confirms it. ``group`` is the
    heading of the row that it belongs to.
    """

    key: str
    meaning: str
    at_once: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class Asking:
    """A question to the operator: what to show, what to put before the answer, and what the answer begins with.

    ``check`` says what is wrong with an answer, which is then asked for again; empty: nothing is. ``follows``: it goes
    on with a question that was just answered. ``choices`` are shown as a menu below the lines.
    """

    lines: tuple[Line, ...]
    label: str
    prefill: str = ""
    secret: bool = False
    kind: Literal["approval", "question", "login"] = "question"
    check: Callable[[str], str] = lambda text: ""
    follows: bool = False
    choices: tuple[Choice, ...] = ()


def choice_rows(choices: Sequence[Choice], width: int) -> list[list[int]]:
    """Arrange choices in rows of at most ``width`` columns, a new row for each group. Pure.

    Returns:
        The numbers of the choices of each row.
    """
    rows: list[list[int]] = []
    used = 0
    for number, choice in enumerate(choices):
        size = len(choice.key) + 1 + len(choice.meaning)
        if number and choice.group == choices[number - 1].group and used + len(BETWEEN) + size <= width:
            rows[-1].append(number)
            used += len(BETWEEN) + size
        else:
            rows.append([number])
            starts = not number or choice.group != choices[number - 1].group
            used = len(INDENT) + size + (len(choice.group) + 1 if choice.group and starts else 0)
    return rows


def choice_lines(choices: Sequence[Choice], width: int, selected: int | None = None) -> list[Line]:
    """Draw choices; the selected one is marked. Pure."""
    lines: list[Line] = []
    for row in choice_rows(choices, width):
        spans: list[Span] = [Span(INDENT)]
        first = choices[row[0]]
        if first.group and (not row[0] or choices[row[0] - 1].group != first.group):
            spans.append(Span(f"{first.group} ", "dim"))
        for number in row:
            choice = choices[number]
            if number != row[0]:
                spans.append(Span(BETWEEN, "dim"))
            spans.append(Span(f"{choice.key} {choice.meaning}", "selected" if number == selected else "accent"))
        lines.append(tuple(spans))
    return lines


class QuestionSurface(ABC):
    """A terminal at which the operator is asked."""

    @abstractmethod
    async def ask(self, asking: Asking) -> str | None:
        """The operator's answer; None when they gave none. One question is shown at a time.

        What was typed before the question was shown is no answer to it.
        """

    @abstractmethod
    def show(self, *lines: Line) -> None:
        """Lines that stay."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns."""


class Surface(QuestionSurface):
    """A terminal: what has been said stays above, what goes on is shown below it, and the operator types at its end."""

    theme: Theme

    @abstractmethod
    def serve(self) -> AbstractAsyncContextManager[None]:
        """The prompt is there inside."""

    @abstractmethod
    def inputs(self) -> AsyncIterator[Input]:
        """What the operator does, one after the other."""

    @abstractmethod
    def answer(self, text: str) -> None:
        """A piece of the assistant's words, as it comes."""

    @abstractmethod
    def answer_ended(self) -> None:
        """The answer is whole, or will not become it."""

    @abstractmethod
    def live(self, lines: Sequence[Line]) -> None:
        """What goes on, in place of what went on before; a terminal that cannot does nothing."""

    @property
    @abstractmethod
    def is_live(self) -> bool:
        """Whether :meth:`live` shows anything; else what a command writes is shown as it comes."""

    @abstractmethod
    def status(self, line: Line) -> None:
        """The state of everything in one line; a terminal that cannot does nothing."""

    @abstractmethod
    def dismiss(self) -> bool:
        """Give up the question that is shown; False when there is none."""

    @abstractmethod
    def clear(self) -> bool:
        """Forget what is typed and was not entered; False when there is nothing, or it is not known."""

    @abstractmethod
    def restyle(self, theme: Theme) -> None:
        """Draw with another theme from now on."""

    @abstractmethod
    def ready(self, *, busy: bool) -> None:
        """Whether something is being worked on: a terminal without a status line shows its prompt when not."""

    @abstractmethod
    async def lend(self, work: Callable[[], Awaitable[None]]) -> None:
        """Give the terminal away while ``work`` runs."""
