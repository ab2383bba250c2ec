"""The interface to the operator's terminal: inputs, themes, printable texts, and writing all of a text."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Literal

import anyio

from ..asking import columns_of

__all__ = [
    "DEFAULT",
    "NONE",
    "THEMES",
    "Choice",
    "ExpandRequested",
    "Input",
    "InputEnded",
    "Inputs",
    "Interrupted",
    "Line",
    "QuestionSurface",
    "Role",
    "Span",
    "Surface",
    "SurfaceQuestion",
    "TerminalWriter",
    "TextEntered",
    "Theme",
    "choice_lines",
    "folded",
    "line",
    "one_line",
    "output_lines",
    "painted",
    "printable",
    "text_of",
    "theme_for",
]


# -- Texts of models, targets and people as a terminal may show them: controls are spelled out, never obeyed. Pure.


JOINERS = "\u200c\u200d"
"""What joins letters and pictures of people's writing; it has no width and moves nothing."""
_SAFE = re.compile(r"[\n\t\x20-\x7e]*")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_MOVES = re.compile(r"\x1b\[[0-9;:?<=>]*[ -/]*[@-ln-~]|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]")


def printable(text: str) -> str:
    """The text with its line ends and tabs, and everything else that is no character to see spelled out."""
    text = text.replace("\r\n", "\n")
    if _SAFE.fullmatch(text):
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t" or char in JOINERS:
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is no text
        return f"\\x{ord(char) & 0xFF:02x}"
    return repr(char)[1:-1].encode("ascii", "backslashreplace").decode()


def one_line(text: str, limit: int = 0) -> str:
    """The text as one printable line; ``limit`` characters of it where that is not 0."""
    joined = " ".join(printable(text).split())
    return joined if not limit or len(joined) <= limit else f"{joined[: max(0, limit - 1)]}…"


def output_lines(text: str) -> list[str]:
    """What a command wrote, as lines: colours and movements of the cursor are left out, and of a line that was
    written over what stands there in the end."""
    plain = _MOVES.sub("", _COLOURS.sub("", text)).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n")]
    return [printable(line).expandtabs(8) for line in lines]


# -- How the prompt looks: what each kind of text is drawn with. Pure.


Role = Literal[
    "", "accent", "code", "dim", "error", "ok", "prompt", "quote", "selected", "status", "title", "tool", "warn"
]


@dataclass(frozen=True, slots=True)
class Span:
    """A text, and what kind of text it is."""

    text: str
    role: Role = ""


Line = tuple[Span, ...]
"""One line to show; its texts may be anything, they are made printable when it is drawn."""


def line(*parts: str | Span) -> Line:
    """A line of texts and spans."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def text_of(shown: Line) -> str:
    """A line without what it is drawn with."""
    return "".join(span.text for span in shown)


def folded(shown: Line, width: int, indent: str = "  ") -> list[Line]:
    """Break a line at spaces into rows of at most ``width`` columns, the further ones indented. Pure.

    A word that is wider than a row is broken where it must be.
    """
    one = tuple(Span(printable(span.text).replace("\n", " ").expandtabs(4), span.role) for span in shown)
    rows: list[Line] = []
    start, text = 0, text_of(one)
    while columns_of(text[start:]) > (room := max(width - (len(indent) if rows else 0), 1)):
        end = _row_end(text, start, room)
        rows.append((*([Span(indent)] if rows else []), *_part(one, start, end)))
        start = end + (text[end : end + 1] == " ")
    return [*rows, (*([Span(indent)] if rows else []), *_part(one, start, len(text)))]


def _row_end(text: str, start: int, room: int) -> int:
    """Where a row that begins at ``start`` ends: at its last space that is not an indentation."""
    end = start + 1
    while end < len(text) and columns_of(text[start : end + 1]) <= room:
        end += 1
    first = len(text) - len(text[start:].lstrip())
    space = text.rfind(" ", first, end + 1)
    return space if space > first else end


def _part(one: Line, start: int, end: int) -> Line:
    spans, at = [], 0
    for span in one:
        part = span.text[max(0, start - at) : max(0, end - at)]
        at += len(span.text)
        if part:
            spans.append(Span(part, span.role))
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class Theme:
    """A look: for each role the words ``bold``, ``dim``, ``italic``, ``underline``, ``reverse`` and a colour's name."""

    name: str
    styles: Mapping[Role, str]

    @property
    def coloured(self) -> bool:
        """It has colours."""
        return any(word in COLOURS for style in self.styles.values() for word in style.split())


COLOURS: Final = {
    name: str(code)
    for start, prefix in ((30, "ansi"), (90, "ansibright"))
    for code, name in enumerate(
        (prefix + colour for colour in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")), start
    )
}
_ATTRIBUTES: Final = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "reverse": "7"}

DEFAULT: Final = Theme(
    "default",
    {
        "accent": "ansicyan",
        "code": "ansicyan",
        "dim": "dim",
        "error": "bold ansired",
        "ok": "ansigreen",
        "prompt": "bold ansicyan",
        "quote": "italic",
        "selected": "reverse bold",
        "status": "reverse",
        "title": "bold",
        "tool": "ansiblue",
        "warn": "ansiyellow",
    },
)
_LIGHT: Final = Theme(
    "light",
    {
        **DEFAULT.styles,
        "accent": "ansiblue",
        "code": "ansimagenta",
        "prompt": "bold ansiblue",
        "tool": "ansimagenta",
        "warn": "bold ansimagenta",
    },
)
_CONTRAST: Final = Theme(
    "contrast",
    {
        **DEFAULT.styles,
        "accent": "bold ansibrightcyan",
        "code": "ansibrightcyan",
        "dim": "",
        "error": "reverse bold ansibrightred",
        "ok": "bold ansibrightgreen",
        "tool": "bold ansibrightblue",
        "warn": "bold ansibrightyellow",
    },
)
_MONO: Final = Theme(
    "mono",
    {
        "accent": "bold",
        "dim": "dim",
        "error": "bold",
        "prompt": "bold",
        "quote": "italic",
        "selected": "reverse bold",
        "status": "reverse",
        "title": "bold",
        "tool": "bold",
        "warn": "underline",
    },
)
NONE: Final = Theme("none", {})
"""Nothing but text: for terminals that know nothing else."""
THEMES: Final = {theme.name: theme for theme in (DEFAULT, _LIGHT, _CONTRAST, _MONO, NONE)}


def theme_for(name: str, *, color: bool, environ: Mapping[str, str] | None = None) -> Theme:
    """The theme of that name, or the default one; without colours where none are wanted."""
    env = os.environ if environ is None else environ
    chosen = THEMES.get(name, DEFAULT)
    return _MONO if chosen.coloured and (not color or env.get("NO_COLOR")) else chosen


def painted(lines: Sequence[Line], theme: Theme) -> str:
    """Lines as a terminal takes them, each with its end. Whatever the texts hold, they are only seen."""
    return "".join(f"{''.join(_span(span, theme) for span in one)}\n" for one in lines)


def _span(span: Span, theme: Theme) -> str:
    text = printable(span.text).replace("\n", " ")
    codes = ";".join(_code(word) for word in theme.styles.get(span.role, "").split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _code(word: str) -> str:
    return _ATTRIBUTES.get(word) or COLOURS[word]


# -- The seam between what is said at the prompt and the terminal it is said at.


@dataclass(frozen=True, slots=True)
class TextEntered:
    """The operator has entered a text; it may have many lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C."""


@dataclass(frozen=True, slots=True)
class InputEnded:
    """Ctrl-D in an empty line, or the terminal is gone (``gone``)."""

    gone: bool = False


@dataclass(frozen=True, slots=True)
class ExpandRequested:
    """What was shown folded is to be opened."""


INDENT, BETWEEN = "  ", " · "

Input = TextEntered | Interrupted | InputEnded | ExpandRequested


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
class SurfaceQuestion:
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
    async def ask(self, asking: SurfaceQuestion) -> str | None:
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


# -- What the operator does, in the order in which they did it, until somebody works on it.


class Inputs:
    """A queue with one reader. It keeps everything, also what is done before there is a reader."""

    def __init__(self) -> None:
        self._waiting: deque[Input] = deque()
        self._more = anyio.Event()

    def put(self, what: Input) -> None:
        """The operator has done that."""
        self._waiting.append(what)
        self._more.set()

    async def taken(self) -> AsyncIterator[Input]:
        """One after the other, without end."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            self._more = anyio.Event()
            await self._more.wait()


# -- The terminal that is written to: all of a text, however slowly it takes it, until it is gone.
#
# A terminal takes nothing while its emulator or its link stands, or somebody has pressed Ctrl-S. What is written
# then is kept, and a task of its own writes it later: the time limits of commands must not stand still with the
# terminal.


MAX_BUFFERED_BYTES = 1 << 20
"""Bytes that are kept for a terminal that takes nothing; what comes then is not shown."""
FLUSH_TIMEOUT = 1.0
"""Seconds that the last words may take."""


class TerminalWriter:
    """A stream on a terminal. Once the terminal is gone, it takes everything and shows nothing.

    Who shares the terminal finds it as it was: one that blocks is written to through a description of our own that
    does not.

    Args:
        gone: is called once, when the terminal is gone.
        caught_up: is called when all that waited was written.
    """

    encoding = "utf-8"

    def __init__(
        self, descriptor: int, gone: Callable[[], None], *, caught_up: Callable[[], None] = lambda: None
    ) -> None:
        self._descriptor = descriptor
        self._own = _opened_again(descriptor)
        self._gone = gone
        self._caught_up = caught_up
        self._open = True
        self._waiting = bytearray()
        self._left_out = 0
        self._more = anyio.Event()
        self._looked = anyio.Event()

    @property
    def behind(self) -> bool:
        """It has not taken all yet."""
        return bool(self._waiting)

    def write(self, text: str) -> int:
        """Write what it takes now, and keep the rest for :meth:`run`."""
        if len(self._waiting) > MAX_BUFFERED_BYTES:
            self._left_out += text.count("\n")
        elif self._open:
            self._waiting += text.encode("utf-8", "backslashreplace")
            self._push()
        return len(text)

    async def run(self) -> None:
        """Write what waits, as the terminal takes it."""
        while True:
            while not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            await anyio.wait_writable(self._own)
            self._push()
            if not self._waiting:
                self._caught_up()

    async def drained(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until all is written, the terminal is gone, or ``given_up``, which :meth:`look` asks."""
        while self._waiting and not given_up():
            await self._looked.wait()

    def look(self) -> None:
        """Let everybody who waits see whether there is a reason any more."""
        self._looked.set()
        self._looked = anyio.Event()

    async def finish(self) -> None:
        """Write the last words, after :meth:`run` was ended; a terminal that takes nothing is not waited for."""
        with anyio.move_on_after(FLUSH_TIMEOUT, shield=True):
            while self._waiting:
                await anyio.wait_writable(self._own)
                self._push()
        self._waiting.clear()

    def _push(self) -> None:
        """Write as much as it takes."""
        try:
            while self._waiting:
                del self._waiting[: os.write(self._own, self._waiting)]
                self._report_dropped_output()
        except BlockingIOError:
            self._more.set()
            return
        except OSError:
            self._open = False
            self._waiting.clear()
            self._gone()
        self.look()

    def _report_dropped_output(self) -> None:
        if self._left_out and not self._waiting:
            self._waiting += f"· {self._left_out} lines are not shown: the terminal took nothing\r\n".encode()
            self._left_out = 0

    def flush(self) -> None:
        """What waits is written by :meth:`run`."""

    def fileno(self) -> int:
        """The terminal."""
        return self._descriptor

    def isatty(self) -> bool:
        """It is one."""
        return True


def _opened_again(descriptor: int) -> int:
    """The same terminal, non-blocking for us alone until we end; the descriptor itself where that cannot be had."""
    try:
        own = os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return descriptor
    if os.fstat(own).st_rdev == os.fstat(descriptor).st_rdev:
        return own
    os.close(own)
    return descriptor
