"""The prompt on a terminal with cursor movement: printed lines scroll up, the editor is below them."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO, cast

import anyio
from prompt_toolkit.application import in_terminal
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.vt100 import Vt100_Output

from ...login import on_sigcont
from ..asking import wrapped
from .editor import MARK, Editor, InputFocus
from .line_mode import entries_of
from .markdown import MarkdownBlock, MarkdownSplitter, drawn
from .surface import (
    ExpandRequested,
    Input,
    InputEnded,
    Inputs,
    Interrupted,
    Line,
    Span,
    Surface,
    SurfaceQuestion,
    TerminalWriter,
    TextEntered,
    Theme,
    folded,
    line,
    painted,
    printable,
)

__all__ = [
    "ScreenSurface",
    "Typeahead",
    "parse_typeahead",
]


# -- Typeahead: input from before the prompt was drawn, kept by the terminal's line editing. Pure.


@dataclass(frozen=True, slots=True)
class Typeahead:
    """Parsed typeahead: ``entered`` is a complete prompt; ``keys`` go into the line, where they wait for Enter."""

    entered: str = ""
    keys: str = ""


def parse_typeahead(data: bytes) -> Typeahead:
    """Parse input that was typed before the prompt was visible.

    Lines with an Enter are one prompt for the model. Commands do not run: they wait in the line, where they can be
    seen, and so does input with other keys.
    """
    text = data.decode("utf-8", "surrogateescape")
    whole, ended, rest = text.rpartition("\n")
    if not ended or not whole.strip():
        return Typeahead(keys=rest)
    lines = whole.split("\n")
    if any(one.lstrip().startswith(("!", "/")) for one in lines) or not all(map(_is_text, lines)):
        return Typeahead(keys=f"{whole}\n{rest}" if rest else whole)
    return Typeahead("\n".join(entries_of(lines)), rest)


def _is_text(line: str) -> bool:
    return line.replace("\t", " ").isprintable()


# -- The surface with an editor.


TAIL = 6
"""Maximum number of lines of an incomplete response."""
ECHOED = 12
"""Maximum number of lines of an entered text that are printed."""
WAITS = line(Span("a question waits: Ctrl-O answers it; your line is kept", "warn"))


@dataclass
class _Question:
    asking: SurfaceQuestion
    answer: str | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class ScreenSurface(Surface):
    """Surface with an editor at the end of the screen.

    Args:
        terminal: The descriptor of the terminal to draw on.
        theme: The theme.
        history: The input history.
        completer: Completes the input.
        keyboard: Decides whether a question may take the keyboard; None is a new one.
        accepts_typeahead: Returns whether an entered line of typeahead is a prompt; otherwise it waits in the line.
    """

    def __init__(
        self,
        terminal: int,
        *,
        theme: Theme,
        history: History,
        completer: Completer,
        keyboard: InputFocus | None = None,
        accepts_typeahead: Callable[[], bool] = lambda: True,
    ) -> None:
        self.theme = theme
        self._accepts_typeahead = accepts_typeahead
        self._inputs = Inputs()
        self._keys = Vt100Input(sys.stdin)
        self._keyboard = keyboard or InputFocus()
        self._stream = TerminalWriter(
            terminal, lambda: self._happened(InputEnded(gone=True)), caught_up=self._caught_up
        )
        output = Vt100_Output(
            _as_text(self._stream),
            get_size=lambda: _size(terminal),
            term=os.environ.get("TERM"),
            enable_cpr=False,
        )
        self._editor = Editor(
            self._keys,
            output,
            history=history,
            completer=completer,
            theme=lambda: self.theme,
            happened=self._happened,
            answered=self._answered,
            keyboard=self._keyboard,
            behind=lambda: self._stream.behind,
        )
        self._editor.app.key_processor.before_key_press += lambda sender: self._pressed()
        self._blocks = MarkdownSplitter()
        self._last: MarkdownBlock | None = None
        self._going_on: tuple[Line, ...] = ()
        self._question: _Question | None = None
        self._one = anyio.Lock()
        self._drawn = anyio.Event()
        self._editor.app.after_render += lambda app: self._drawn.set()
        self._opened = anyio.Event()
        self._key = anyio.Event()
        self._lent: list[str] | None = None
        self._waits: tuple[Line, ...] = ()

    # -- serving

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """See :class:`Surface`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stream.run)
                tasks.start_soon(self._run)
                tasks.start_soon(self._interrupts)
                try:
                    await self._drawn.wait()
                    yield
                finally:
                    if self._editor.app.is_running:
                        self._editor.app.exit()
                    tasks.cancel_scope.cancel()
        finally:
            await self._stream.finish()

    async def _run(self) -> None:
        try:
            with self._keys.raw_mode(), on_sigcont(self._keys.fileno(), self._continued):
                self._take_blind()
                await self._editor.app.run_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:
            self._happened(InputEnded(gone=True))
        finally:
            self._drawn.set()

    def _caught_up(self) -> None:
        self._editor.app.invalidate()

    def _continued(self) -> None:
        """Set the terminal's mode again after a shell used it, and draw below the shell's output."""
        if self._lent is None:
            with suppress(termios.error):
                self._keys.raw_mode().__enter__()
            self._editor.draw_again()

    def _take_blind(self) -> None:
        """Read the typeahead that the terminal kept in line mode."""
        before = parse_typeahead(_waiting(self._keys.fileno()))
        keys = before.keys
        if before.entered and self._accepts_typeahead():
            self._editor.entered(before.entered)
        elif before.entered:
            keys = "\n".join(filter(None, (before.entered, keys)))
        self._keys.vt100_parser.feed(keys)
        store_typeahead(self._keys, self._keys.flush_keys())

    async def _interrupts(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        try:
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    self._happened(Interrupted())
        finally:
            signal.signal(signal.SIGINT, before)

    def inputs(self) -> AsyncIterator[Input]:
        """See :class:`Surface`."""
        return self._inputs.taken()

    def _happened(self, what: Input) -> None:
        if self._lent is not None and isinstance(what, Interrupted):
            return  # it was meant for the program that has the terminal
        if isinstance(what, ExpandRequested) and self._question is not None:
            self._opened.set()
            return
        if isinstance(what, TextEntered) and what.text.strip():
            self.show(*_echo(what.text, self.width))
        self._inputs.put(what)

    def clear(self) -> bool:
        """See :class:`Surface`."""
        typed = bool(self._editor.line.text)
        self._editor.line.reset()
        return typed

    def restyle(self, theme: Theme) -> None:
        """See :class:`Surface`."""
        self.theme = theme
        self._editor.restyle()

    def _pressed(self) -> None:
        self._keyboard.pressed()
        self._key.set()

    # -- showing

    def _above(self, text: str) -> None:
        if self._lent is None:
            self._editor.above(text)
        else:
            self._lent.append(text)

    def show(self, *lines: Line) -> None:
        """See :class:`Surface`."""
        if lines:
            self._above(painted(lines, self.theme))

    def answer(self, text: str) -> None:
        """See :class:`Surface`."""
        self._put(self._blocks.feed(text))
        self._draw_live()

    def answer_ended(self) -> None:
        """See :class:`Surface`."""
        self._put(self._blocks.end())
        self._last = None
        self._draw_live()

    def _put(self, pieces: Sequence[MarkdownBlock]) -> None:
        written = ""
        for piece in pieces:
            if self._last is not None and not (piece.kind == self._last.kind == "code"):
                written += "\n"
            written += drawn(piece, self.theme, self.width)
            self._last = piece
        if written:
            self._above(written)

    def live(self, lines: Sequence[Line]) -> None:
        """See :class:`Surface`."""
        self._going_on = tuple(lines)
        self._draw_live()

    def _draw_live(self) -> None:
        rest = self._blocks.rest
        tail = tuple(line(part) for part in _rows_of(rest, self.width - 1)[-TAIL:]) if rest.strip() else ()
        self._editor.live((*tail, *self._going_on, *self._waits))

    @property
    def is_live(self) -> bool:
        """Whether running work is shown: True."""
        return True

    def status(self, line: Line) -> None:
        """See :class:`Surface`."""
        self._editor.status(line)

    def ready(self, *, busy: bool) -> None:
        """Do nothing; the prompt is always visible."""

    @property
    def width(self) -> int:
        """The width in columns."""
        return self._editor.app.output.get_size().columns

    # -- asking

    async def ask(self, asking: SurfaceQuestion) -> str | None:
        """See :class:`Surface`."""
        async with self._one:
            self.show(*asking.lines)
            question = self._question = _Question(asking)
            try:
                await self._drawn.wait()
                await self._stream.drained(question.done.is_set)  # the operator must see the question first
                if not asking.follows:
                    await self._keys_are_free(question)
                return await self._clear_answer(question)
            finally:
                self._question = None
                self._waits = ()
                self._editor.question(None)
                self._draw_live()

    async def _clear_answer(self, question: _Question) -> str | None:
        """Return the first valid answer."""
        while True:
            if not question.done.is_set():
                self._editor.question(question.asking)
                await question.done.wait()
            if question.answer is None:
                return None
            complaint = question.asking.check(question.answer)
            if not complaint:
                return question.answer
            self.show(line(Span(f"  {complaint}", "warn")))
            question.done = anyio.Event()

    async def _keys_are_free(self, question: _Question) -> None:
        """Wait until input can only be meant for the question, or the operator opens it (Ctrl-O)."""
        self._opened = anyio.Event()
        while not self._opened.is_set() and not question.done.is_set():
            typing = bool(self._editor.line.text)
            if not typing and not self._keyboard.quiet_in() and not _readable(sys.stdin.fileno()):
                return
            self._waits = (WAITS,) if typing else ()
            self._draw_live()
            self._key = anyio.Event()
            with anyio.move_on_after(math.inf if typing else max(0.05, self._keyboard.quiet_in())):
                await self._key.wait()

    def _answered(self, text: str | None) -> None:
        """Take the first answer; ignore further ones until it was checked."""
        if self._question is not None and not self._question.done.is_set():
            self._question.answer = text
            self._question.done.set()

    def dismiss(self) -> bool:
        """See :class:`Surface`."""
        if self._question is None:
            return False
        self._answered(None)
        self._key.set()
        self._stream.look()
        return True

    async def lend(self, work: Callable[[], Awaitable[None]]) -> None:
        """See :class:`Surface`."""
        async with in_terminal():
            await self._stream.drained()
            self._lent = []
            try:
                await work()
            finally:
                written, self._lent = "".join(self._lent), None
        if written:
            self._editor.above(written)


def _echo(text: str, width: int) -> list[Line]:
    lines = text.rstrip().split("\n")
    marked = [line(Span(MARK if not number else "  ", "prompt"), one) for number, one in enumerate(lines[:ECHOED])]
    commands = text.startswith("!")  # commands stay unfolded, for copying
    shown = marked if commands else [row for one in marked for row in folded(one, width - 1)]
    more = len(lines) - ECHOED
    return [*shown, *([line(Span(f"  … {more} more lines", "dim"))] if more > 0 else [])]


def _rows_of(text: str, width: int) -> list[str]:
    """Return the text in rows of at most ``width`` columns, broken at spaces if possible."""
    return [row for one in printable(text).expandtabs(4).split("\n") for row in wrapped(one, width)]


def _size(terminal: int) -> Size:
    try:
        columns, rows = os.get_terminal_size(terminal)
    except OSError:
        return Size(rows=24, columns=80)
    return Size(rows=rows or 24, columns=columns or 80)


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _waiting(descriptor: int) -> bytes:
    """Return the input that can be read now; nothing if the terminal was closed."""
    data = b""
    with suppress(OSError):
        while _readable(descriptor) and (more := os.read(descriptor, 1 << 16)):
            data += more
    return data


def _as_text(stream: TerminalWriter) -> TextIO:
    return cast("TextIO", stream)  # prompt_toolkit uses only methods that TerminalWriter has
