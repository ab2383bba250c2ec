"""The interface to the operator's terminal: inputs, themes, printable texts, and a non-blocking writer."""

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


# -- Printable forms of texts of models, targets and operators, with control characters escaped. Pure.


JOINERS = "\u200c\u200d"
"""Joiners of letters and emoji, which have no width and are safe to print."""
_SAFE = re.compile(r"[\n\t\x20-\x7e]*")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_MOVES = re.compile(r"\x1b\[[0-9;:?<=>]*[ -/]*[@-ln-~]|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]")


def printable(text: str) -> str:
    """Return the text with invisible characters escaped, except line feeds and tabs."""
    text = text.replace("\r\n", "\n")
    if _SAFE.fullmatch(text):
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t" or char in JOINERS:
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(char) & 0xFF:02x}"
    return repr(char)[1:-1].encode("ascii", "backslashreplace").decode()


def one_line(text: str, limit: int = 0) -> str:
    """Return the text as one printable line, of at most ``limit`` characters unless that is 0."""
    joined = " ".join(printable(text).split())
    return joined if not limit or len(joined) <= limit else f"{joined[: max(0, limit - 1)]}…"


def output_lines(text: str) -> list[str]:
    """Return a command's output as printable lines.

    Colors and cursor movements are removed; of an overwritten line, only the last text is kept.
    """
    plain = _MOVES.sub("", _COLOURS.sub("", text)).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n")]
    return [printable(line).expandtabs(8) for line in lines]


# -- Themes: the style of each kind of text. Pure.


Role = Literal[
    "", "accent", "code", "dim", "error", "ok", "prompt", "quote", "selected", "status", "title", "tool", "warn"
]


@dataclass(frozen=True, slots=True)
class Span:
    """A text and its role."""

    text: str
    role: Role = ""


Line = tuple[Span, ...]
"""One line to show; its texts are escaped when it is drawn."""


def line(*parts: str | Span) -> Line:
    """Return a line of texts and spans."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def text_of(shown: Line) -> str:
    """Return the text of a line without roles."""
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
    """Return where a row that starts at ``start`` ends: at its last space that is not an indentation."""
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
    """A theme: for each role words of ``bold``, ``dim``, ``italic``, ``underline``, ``reverse`` and color names."""

    name: str
    styles: Mapping[Role, str]

    @property
    def coloured(self) -> bool:
        """Whether it has colors."""
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
"""Text without styles, for terminals that support none."""
THEMES: Final = {theme.name: theme for theme in (DEFAULT, _LIGHT, _CONTRAST, _MONO, NONE)}


def theme_for(name: str, *, color: bool, environ: Mapping[str, str] | None = None) -> Theme:
    """Return the theme of that name, or the default one; a theme without colors if colors are disabled."""
    env = os.environ if environ is None else environ
    chosen = THEMES.get(name, DEFAULT)
    return _MONO if chosen.coloured and (not color or env.get("NO_COLOR")) else chosen


def painted(lines: Sequence[Line], theme: Theme) -> str:
    """Return lines as text for a terminal, with line feeds and escaped control characters."""
    return "".join(f"{''.join(_span(span, theme) for span in one)}\n" for one in lines)


def _span(span: Span, theme: Theme) -> str:
    text = printable(span.text).replace("\n", " ")
    codes = ";".join(_code(word) for word in theme.styles.get(span.role, "").split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text


def _code(word: str) -> str:
    return _ATTRIBUTES.get(word) or COLOURS[word]


# -- Inputs, questions, and the interface of a terminal.


@dataclass(frozen=True, slots=True)
class TextEntered:
    """The operator entered a text of one or more lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C."""


@dataclass(frozen=True, slots=True)
class InputEnded:
    """Ctrl-D in an empty line, or the terminal was closed (``gone``)."""

    gone: bool = False


@dataclass(frozen=True, slots=True)
class ExpandRequested:
    """The operator wants to see the hidden reasoning, or to answer the waiting question."""


INDENT, BETWEEN = "  ", " · "

Input = TextEntered | Interrupted | InputEnded | ExpandRequested


@dataclass(frozen=True, slots=True)
class Choice:
    """An offered answer: its key and its meaning.

    With ``at_once`` the key alone answers if the terminal reports single keys; otherwise Enter confirms it. ``group``
    is the heading of its row.
    """

    key: str
    meaning: str
    at_once: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class SurfaceQuestion:
    """A question to the operator: its lines, the label of the answer, and the initial text of the answer.

    ``check`` returns why an answer is invalid, which is then asked for again; empty if it is valid. ``follows``: the
    question continues one that was just answered. ``choices`` are shown as a menu below the lines.
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
    """Return the choices as lines, with the selected one marked. Pure."""
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
    """A terminal that can ask the operator."""

    @abstractmethod
    async def ask(self, asking: SurfaceQuestion) -> str | None:
        """Ask the operator and return the answer, or None without one; one question is shown at a time.

        Typeahead from before the question was shown is not an answer.
        """

    @abstractmethod
    def show(self, *lines: Line) -> None:
        """Print lines."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The width in columns."""


class Surface(QuestionSurface):
    """The prompt's terminal: printed lines above, running work below them, and the input at the end."""

    theme: Theme

    @abstractmethod
    def serve(self) -> AbstractAsyncContextManager[None]:
        """Show the prompt while the context is open."""

    @abstractmethod
    def inputs(self) -> AsyncIterator[Input]:
        """Iterate over the operator's inputs in order."""

    @abstractmethod
    def answer(self, text: str) -> None:
        """Show a piece of the model's response."""

    @abstractmethod
    def answer_ended(self) -> None:
        """Finish the current response, complete or not."""

    @abstractmethod
    def live(self, lines: Sequence[Line]) -> None:
        """Replace the lines about running work; does nothing in line mode."""

    @property
    @abstractmethod
    def is_live(self) -> bool:
        """Whether :meth:`live` shows anything; otherwise output is printed as it arrives."""

    @abstractmethod
    def status(self, line: Line) -> None:
        """Show the status line; does nothing in line mode."""

    @abstractmethod
    def dismiss(self) -> bool:
        """Cancel the shown question; return False without one."""

    @abstractmethod
    def clear(self) -> bool:
        """Clear the typed line; return False if it is empty or unknown."""

    @abstractmethod
    def restyle(self, theme: Theme) -> None:
        """Use another theme from now on."""

    @abstractmethod
    def ready(self, *, busy: bool) -> None:
        """Report whether work is running; in line mode, the prompt is shown when it is not."""

    @abstractmethod
    async def lend(self, work: Callable[[], Awaitable[None]]) -> None:
        """Give the terminal away while ``work`` runs."""


# -- The queue of the operator's inputs.


class Inputs:
    """A queue of inputs with one reader, which keeps inputs from before there is a reader."""

    def __init__(self) -> None:
        self._waiting: deque[Input] = deque()
        self._more = anyio.Event()

    def put(self, what: Input) -> None:
        """Add an input."""
        self._waiting.append(what)
        self._more.set()

    async def taken(self) -> AsyncIterator[Input]:
        """Iterate over inputs without end."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            self._more = anyio.Event()
            await self._more.wait()


# -- A non-blocking writer to the terminal.
#
# A terminal accepts no output while its emulator or connection is unresponsive, or after Ctrl-S. Output is then kept
# and written later by a task of its own, so that timeouts of commands do not wait for the terminal.


MAX_BUFFERED_BYTES = 1 << 20
"""Bytes that are kept for an unresponsive terminal; further output is dropped."""
FLUSH_TIMEOUT = 1.0
"""Seconds for writing the last output."""


class TerminalWriter:
    """A text stream on a terminal; after the terminal was closed, it discards output.

    It writes through its own non-blocking open file description, so that other users of the terminal are not affected.

    Args:
        descriptor: The terminal.
        gone: Called once, when the terminal was closed.
        caught_up: Called when all waiting output was written.
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
        """Whether output is waiting."""
        return bool(self._waiting)

    def write(self, text: str) -> int:
        """Write what the terminal accepts now, and keep the rest for :meth:`run`."""
        if len(self._waiting) > MAX_BUFFERED_BYTES:
            self._left_out += text.count("\n")
        elif self._open:
            self._waiting += text.encode("utf-8", "backslashreplace")
            self._push()
        return len(text)

    async def run(self) -> None:
        """Write waiting output as the terminal accepts it."""
        while True:
            while not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            await anyio.wait_writable(self._own)
            self._push()
            if not self._waiting:
                self._caught_up()

    async def drained(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until all is written, the terminal was closed, or ``given_up`` returns True after :meth:`look`."""
        while self._waiting and not given_up():
            await self._looked.wait()

    def look(self) -> None:
        """Make waiting :meth:`drained` calls check their conditions again."""
        self._looked.set()
        self._looked = anyio.Event()

    async def finish(self) -> None:
        """Write the last output after :meth:`run` has ended, without waiting for an unresponsive terminal."""
        with anyio.move_on_after(FLUSH_TIMEOUT, shield=True):
            while self._waiting:
                await anyio.wait_writable(self._own)
                self._push()
        self._waiting.clear()

    def _push(self) -> None:
        """Write as much as the terminal accepts."""
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
            self._waiting += f"· {self._left_out} lines are not shown: the terminal was unresponsive\r\n".encode()
            self._left_out = 0

    def flush(self) -> None:
        """Do nothing; :meth:`run` writes waiting output."""

    def fileno(self) -> int:
        """Return the terminal's descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return True."""
        return True


def _opened_again(descriptor: int) -> int:
    """Return a new non-blocking descriptor of the terminal, or the same descriptor if it cannot be opened."""
    try:
        own = os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return descriptor
    if os.fstat(own).st_rdev == os.fstat(descriptor).st_rdev:
        return own
    os.close(own)
    return descriptor
