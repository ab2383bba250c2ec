"""The prompt in line mode: it only prints lines, overwrites nothing and uses no special keys."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import anyio

from ...login import on_sigcont
from .surface import (
    NONE,
    ExpandRequested,
    Input,
    InputEnded,
    Inputs,
    Interrupted,
    Line,
    Surface,
    SurfaceQuestion,
    TerminalWriter,
    TextEntered,
    Theme,
    choice_lines,
    line,
    painted,
    printable,
)

__all__ = ["LineSurface", "asked_text", "entries_of"]

MARK: Final = "harness> "
OPEN: Final = "\x0f"
"""Ctrl-O, on a line of its own."""
TOGETHER = 0.1
"""Seconds between lines that count as pasted together."""
LATE = 1.0
"""Seconds after an unanswered question in which the next line counts as its late answer."""
LONGEST = 1 << 20
"""Maximum number of characters of pasted text."""


def entries_of(lines: Sequence[str]) -> list[str]:
    """Return the inputs of lines that arrived together: one for each command, or one text. Pure.

    A line that ends with a backslash continues on the next one; in a command the backslash is kept for the shell.
    """
    joined: list[str] = []
    for one in lines:
        if joined and joined[-1].endswith("\\"):
            before = joined[-1] if joined[-1].startswith("!") else joined[-1][:-1]
            joined[-1] = f"{before}\n{one}"
        else:
            joined.append(one)
    commands = all(one.startswith(("!", "/")) or not one.strip() for one in joined)
    return joined if commands else ["\n".join(joined)]


def asked_text(asking: SurfaceQuestion, width: int, theme: Theme) -> str:
    """Return a question with its choices and the initial text of the answer, as lines. Pure."""
    prefill = "".join(f"  {one}\n" for one in printable(asking.prefill).split("\n") if asking.prefill)
    return painted((*asking.lines, *choice_lines(asking.choices, width - 1)), theme) + prefill


class LineSurface(Surface):
    """Surface in line mode; lines are edited by the terminal itself."""

    def __init__(self, terminal: int) -> None:
        self.theme: Theme = NONE
        self._terminal = terminal
        self._stream = TerminalWriter(terminal, lambda: self._inputs.put(InputEnded(gone=True)))
        self._inputs = Inputs()
        self._answer: list[str | None] | None = None
        self._answered = anyio.Event()
        self._one = anyio.Lock()
        self._reading = anyio.Lock()
        self._column = 0
        self._busy = True  # until ready() is called
        self._marked = False
        self._keys = sys.stdin.fileno()
        self._withdrawn = -math.inf

    # -- serving

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """See :class:`Surface`."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stream.run)
                tasks.start_soon(self._read)
                tasks.start_soon(self._interrupts)
                self._mark()
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
            self._end_line()
        finally:
            await self._stream.finish()

    async def _read(self) -> None:
        """Read lines; those that arrive together are one text."""
        reader = _Lines(self._keys)
        while True:
            await anyio.wait_readable(self._keys)
            async with self._reading:
                if not _readable(self._keys):
                    continue  # it was flushed, or read by another program
                lines = [*reader.read()]
                while not reader.ended and await _more(self._keys) and sum(map(len, lines)) < LONGEST:
                    lines += reader.read()
            self._took(lines, ended=reader.ended)
            if reader.ended:
                return

    def _took(self, lines: Sequence[str], *, ended: bool) -> None:
        if lines:
            self._marked, self._column = False, 0
        if self._answer is not None and lines:
            self._answer.append(lines[0])
            self._answered.set()
            lines = lines[1:]
        elif lines and time.monotonic() <= self._withdrawn + LATE:
            if lines[0]:
                self.show(line("- discarded: the line was typed for a question that is closed"))
            self._withdrawn, lines = -math.inf, lines[1:]
        if lines:
            for text in entries_of(lines):
                self._inputs.put(ExpandRequested() if text == OPEN else TextEntered(text))
        if ended and self._answer is not None:
            self.dismiss()
        elif ended:
            self._inputs.put(InputEnded(gone=True))

    async def _interrupts(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        try:
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    self._write("\n")
                    self._inputs.put(Interrupted())
        finally:
            signal.signal(signal.SIGINT, before)

    def inputs(self) -> AsyncIterator[Input]:
        """See :class:`Surface`."""
        return self._inputs.taken()

    # -- showing

    def _write(self, text: str) -> None:
        self._column = 0 if text.endswith("\n") else 1
        self._stream.write(text)

    def _end_line(self) -> None:
        if self._column:
            self._write("\n")
        self._marked = False

    def _mark(self) -> None:
        if not self._busy and not self._marked and self._answer is None:
            self._end_line()
            self._write(MARK)
            self._marked = True

    def ready(self, *, busy: bool) -> None:
        """See :class:`Surface`."""
        self._busy = busy
        self._mark()

    def show(self, *lines: Line) -> None:
        """See :class:`Surface`."""
        if lines:
            self._end_line()
            self._write(painted(lines, self.theme))
            self._mark()

    def answer(self, text: str) -> None:
        """See :class:`Surface`."""
        if self._marked:
            self._end_line()
        if text:
            self._write(printable(text))

    def answer_ended(self) -> None:
        """See :class:`Surface`."""
        self._end_line()

    def live(self, lines: Sequence[Line]) -> None:
        """Do nothing; printed lines cannot be replaced."""

    @property
    def is_live(self) -> bool:
        """Whether running work is shown: False."""
        return False

    def status(self, line: Line) -> None:
        """Do nothing."""

    def clear(self) -> bool:
        """Return False; the terminal itself edits the line."""
        return False

    def restyle(self, theme: Theme) -> None:
        """Do nothing; there are no themes in line mode."""

    @property
    def width(self) -> int:
        """The width in columns."""
        with suppress(OSError):
            return os.get_terminal_size(self._terminal).columns or 80
        return 80

    # -- asking

    async def ask(self, asking: SurfaceQuestion) -> str | None:
        """See :class:`Surface`."""
        async with self._one:
            if not asking.follows:
                async with self._reading:
                    termios.tcflush(self._keys, termios.TCIFLUSH)
            try:
                with _hidden(self._keys, hidden=asking.secret):
                    try:
                        return await self._clear_answer(asking)
                    finally:
                        self._withdraw()
            finally:
                self._answer = None
                self._mark()

    def _withdraw(self) -> None:
        """Discard input for a question that ended unanswered, as it is not meant for the prompt."""
        if self._answer:
            return
        self._withdrawn = time.monotonic()
        if not self._reading.locked():
            termios.tcflush(self._keys, termios.TCIFLUSH)

    async def _clear_answer(self, asking: SurfaceQuestion) -> str | None:
        shown = asked_text(asking, self.width, self.theme)
        while True:
            self._answer, self._answered = [], anyio.Event()
            self._end_line()
            self._write(f"{shown}{asking.label} ")
            await self._seen()
            await self._answered.wait()
            answer = self._answer[0]
            complaint = asking.check(answer) if answer is not None else ""
            if not complaint:
                return answer
            shown = painted([line(f"  {complaint}")], self.theme)

    async def _seen(self) -> None:
        """Wait until the question is visible, and discard input from before."""
        while self._stream.behind and not self._answered.is_set():
            async with self._reading:
                await self._stream.drained(self._answered.is_set)
                termios.tcflush(self._keys, termios.TCIFLUSH)

    def dismiss(self) -> bool:
        """See :class:`Surface`."""
        if self._answer is None:
            return False
        self._answer.append(None)
        self._answered.set()
        self._stream.look()
        return True

    async def lend(self, work: Callable[[], Awaitable[None]]) -> None:
        """See :class:`Surface`."""
        async with self._reading:
            await self._stream.drained()
            await work()
        self._mark()


class _Lines:
    """Reader of lines from a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self.ended = False

    def read(self) -> list[str]:
        """Return the complete lines, and at end of file an incomplete one, too."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            data = b""
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self.ended and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode("utf-8", "replace") for line in lines]


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


async def _more(descriptor: int) -> bool:
    with anyio.move_on_after(TOGETHER):
        await anyio.wait_readable(descriptor)
        return True
    return False


@contextmanager
def _hidden(terminal: int, *, hidden: bool) -> Iterator[None]:
    if not hidden:
        yield
        return
    before = termios.tcgetattr(terminal)
    silent = termios.tcgetattr(terminal)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, silent)

    def again() -> None:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, silent)

    try:
        with on_sigcont(terminal, again):
            yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)  # TCSANOW does not wait for an unresponsive terminal
