"""Redacts what watchers of a pane see, before it leaves the process."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
from anyio.lowlevel import RunVar

from ...pane_events import JobEnded, JobStarted, Output, PaneEvent, Screen, Typed
from .patterns import open_escape, plain_text
from .redactor import Redactor
from .stream import StreamRedactor

__all__ = ["HELD_SECONDS", "RedactedPaneEvents", "redact_screen"]

HELD_SECONDS = 0.15
"""Seconds until text after the name of a secret is shown to a live viewer, redacted as if it were complete."""
MAX_HELD_SECONDS = 10.0
"""The same for what is not viewed live."""
INLINE_BYTES = 512
"""More than these are redacted in a thread, so that nothing else waits for it."""
_workers: RunVar[anyio.CapacityLimiter] = RunVar("harness pane redaction")
"""One thread for all panes: several would take the time of the event loop."""


# -- Screens. Pure.

_ROW = re.compile(r"(\x1b\[\d{1,5};1H)")


def redact_screen(redactor: Redactor, content: bytes, columns: int) -> bytes:
    """Return the content of a :class:`.Screen` with each secret replaced, also one that continues in the next row.

    Rows stay where they are, except below a private key. The start of a known secret before the cursor is masked: the
    next output may complete it.
    """
    return _redact_drawing(redactor, _read_drawing(_text(content), columns))


def _redact_drawing(redactor: Redactor, drawing: _Drawing) -> bytes:
    first, *rest = _ROW.split(_mask_known_start(redactor, drawing))
    places, rows = rest[::2], rest[1::2]
    shown = redactor.text("\n".join(rows)).split("\n")
    shown += [""] * (len(rows) - len(shown))
    for begin, end in _wrapped(rows, drawing.columns):
        whole = redactor.text("".join(rows[begin:end]))
        if whole != "".join(map(redactor.text, rows[begin:end])):
            shown[begin:end] = [whole, *[""] * (end - begin - 1)]
    parts = [redactor.text(first), *(part for pair in zip(places, shown, strict=True) for part in pair)]
    return _encoded("".join(parts))


def _wrapped(rows: Sequence[str], columns: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rows that may be one line, as all but the last are full."""
    begin = 0
    for number, row in enumerate(rows):
        if _columns(_plain(row)) < columns or number == len(rows) - 1:
            if number > begin:
                yield begin, number + 1
            begin = number + 1


def _columns(text: str) -> int:
    """Return the width of a text without escape sequences."""
    if text.isascii():
        return len(text)
    return sum((unicodedata.east_asian_width(char) in "WF") + (not unicodedata.combining(char)) for char in text)


_PLACE = re.compile(r"\x1b\[(\d{1,5});(\d{1,5})H")
_REGION = re.compile(r"\x1b\[(\d{1,5});\d{1,5}r")
_ALTERNATE = "\x1b[?1049h"
_MAX_CONTEXT = 4 << 10


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The content of a screen, and where its visible rows and its cursor are."""

    content: str
    columns: int
    pieces: tuple[tuple[int, int, int], ...]
    """The number of a row, and the start and end of its text in the content; a row may be drawn twice."""
    rows: Mapping[int, str]
    """The text of each row, without escape sequences."""
    row: int
    """The number of the cursor's row."""
    column: int

    @property
    def before_in_row(self) -> str:
        """The text before the cursor in its row."""
        return _cut(self.rows.get(self.row, ""), self.column)

    @property
    def before(self) -> str:
        """The text before the cursor, with an unfinished escape sequence, which the next output continues."""
        above = [self.rows[number] for number in sorted(self.rows) if number < self.row]
        lines = [f"{text}\n" if _columns(text) < self.columns else text for text in above]
        return "".join([*lines, self.before_in_row, self.content[open_escape(self.content) :]])


def _read_drawing(content: str, columns: int) -> _Drawing:
    start = content.rfind(_ALTERNATE) + len(_ALTERNATE) if _ALTERNATE in content else 0
    places = list(_PLACE.finditer(content, start))
    pieces, rows = [], {}
    row = column = 0
    for place, end in zip(places, [*(place.start() for place in places[1:]), len(content)], strict=True):
        row, column = int(place[1]), int(place[2]) - 1
        if (text := _plain(content[place.end() : end])) and column == 0:
            rows[row] = text
            pieces.append((row, place.end(), end))
            column = max(columns, _columns(text)) if end == len(content) else 0
    if content.find("\x1b[?6h", start) >= 0 and (region := _REGION.search(content, start)):
        row += int(region[1]) - 1
    return _Drawing(content, columns, tuple(pieces), rows, row, column)


def _end_before_cursor(drawing: _Drawing) -> str:
    """Return as much of the text before the cursor as the redaction of the next output needs."""
    before = drawing.before
    key = before.rfind("-----BEGIN")
    return before[key:] if key >= 0 and "-----END" not in before[key:] else before[-_MAX_CONTEXT:]


def _mask_known_start(redactor: Redactor, drawing: _Drawing) -> str:
    """Return the content with the start of a known secret before the cursor masked, in the same width."""
    parts, done = [], 0
    for place in sorted(_known_start_places(redactor, drawing)):
        parts += [drawing.content[done:place], "*" * _columns(drawing.content[place])]
        done = place + 1
    return "".join([*parts, drawing.content[done:]])


def _known_start_places(redactor: Redactor, drawing: _Drawing) -> Iterator[int]:
    """Yield the positions in the content of what may be the start of a known secret before the cursor."""
    before = drawing.before
    before = before[: open_escape(before)]
    left = len(before[redactor.known_start(before) :].replace("\n", ""))
    for number in range(drawing.row, 0, -1):
        if left <= 0:
            return
        text = drawing.rows.get(number, "")
        end = len(drawing.before_in_row) if number == drawing.row else len(text)
        letters = range(max(0, end - left), min(end, len(text)))
        for begin, stop in ((begin, stop) for piece, begin, stop in drawing.pieces if piece == number):
            plain = plain_text(drawing.content[begin:stop])
            yield from (begin + (letter if plain is None else plain.place(letter)) for letter in letters)
        left -= end


def _cut(row: str, column: int) -> str:
    """Return what of a row is before a column, filled with spaces."""
    if row.isascii():
        return row[:column].ljust(column)
    width = 0
    for place, char in enumerate(row):
        width += _columns(char)
        if width > column:
            return row[:place]
    return row + " " * (column - width)


def _plain(row: str) -> str:
    plain = plain_text(row)
    return row if plain is None else plain.text


# -- The stream.


class _PaneText:
    """The output of a pane as text, redacted; ``before`` is what its screen shows before the cursor."""

    def __init__(self, redactor: Redactor, *, live: bool, before: str = "") -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._redactor = redactor
        self._stream = StreamRedactor(redactor, (lambda text: redactor.live(text)[0]) if live else None)
        self._stream.follow(before)

    @property
    def is_holding(self) -> bool:
        return self._stream.is_holding

    def feed(self, data: bytes) -> bytes:
        return _encoded(self._stream.feed(self._decoder.decode(data)))

    def release(self) -> bytes:
        """Return what can be shown after a moment without more."""
        return _encoded(self._stream.release(lambda text: self._redactor.live(text)[1]))

    def flush(self) -> bytes:
        return _encoded(self._stream.feed(self._decoder.decode(b"", final=True)) + self._stream.flush())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class RedactedPaneEvents(AsyncIterator[PaneEvent]):
    """The events of a watched pane with all secrets replaced, also those that arrive in several pieces.

    A letter that is typed is shown at once, unless it may belong to a known secret or to a token: of a known secret at
    most two letters are shown. A screen masks what may be the start of a known secret before its cursor. Text after the
    name of a secret (``password=``) is held until its line ends, or for a moment.

    Args:
        events: From :meth:`.ExecutionContext.watch_pane`.
        redactor: The redactor.
        live: False holds each word until it is complete, for what is not viewed live: output shows no letter of a
            secret.
    """

    def __init__(self, events: AsyncIterator[PaneEvent], redactor: Redactor, *, live: bool = True) -> None:
        self._live = live
        self._held_seconds = HELD_SECONDS if live else MAX_HELD_SECONDS
        self._events = events
        self._redactor = redactor
        self._text = _PaneText(redactor, live=live)
        self._ready: deque[PaneEvent] = deque()
        self._time = 0.0
        self._deadline: float | None = None
        """When held text is shown."""
        self._is_over = False

    async def __anext__(self) -> PaneEvent:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            try:
                event = await self._next()
            except StopAsyncIteration:
                self._is_over = True
                self._show(self._text.flush())
                continue
            if event is not None:
                await self._take(event)
            else:
                self._deadline = None
                self._show(self._text.release())
        return self._ready.popleft()

    async def _next(self) -> PaneEvent | None:
        """Return the next event, or None at the deadline."""
        seconds = None if self._deadline is None else self._deadline - anyio.current_time()
        if seconds is not None and seconds <= 0:
            return None
        with anyio.move_on_after(seconds):
            return await anext(self._events)
        return None

    async def _take(self, event: PaneEvent) -> None:
        self._time = event.time
        match event:
            case Output():
                self._show(await self._in_thread(self._text.feed, event.data))
                if not self._text.is_holding:
                    self._deadline = None
                elif self._deadline is None:
                    self._deadline = anyio.current_time() + self._held_seconds
            case Screen():  # it shows what was held
                self._deadline = None
                content = await self._in_thread(self._follow_screen(event.columns), event.content)
                self._ready.append(replace(event, content=content))
            case Typed():
                self._ready.append(replace(event, data=_encoded(self._redactor.text(_text(event.data)))))
            case JobStarted():
                self._show(self._text.release())
                self._ready.append(replace(event, command=self._redactor.text(event.command)))
            case _:
                self._show(self._text.release() if isinstance(event, JobEnded) else self._text.flush())
                self._ready.append(event)

    def _follow_screen(self, columns: int) -> Callable[[bytes], bytes]:
        """Return a function that redacts the content of a screen, and lets the next output continue it."""

        def follow(content: bytes) -> bytes:
            drawing = _read_drawing(_text(content), columns)
            self._text = _PaneText(self._redactor, live=self._live, before=_end_before_cursor(drawing))
            return _redact_drawing(self._redactor, drawing)

        return follow

    def _show(self, data: bytes) -> None:
        if data:
            self._ready.append(Output(self._time, data))

    @staticmethod
    async def _in_thread(redact: Callable[[bytes], bytes], data: bytes) -> bytes:
        """Redact data, much of it in a thread; a cancelled caller finds the result at its next call."""
        if len(data) <= INLINE_BYTES:
            return redact(data)
        try:
            workers = _workers.get()
        except LookupError:
            _workers.set(workers := anyio.CapacityLimiter(1))
        with anyio.CancelScope(shield=True):
            redacted = await anyio.to_thread.run_sync(redact, data, limiter=workers)
        return redacted  # noqa: RET504  # for mypy the scope may swallow an exception
