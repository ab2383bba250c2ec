"""Redacts what watchers of a pane see, before it leaves the process."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace

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
"""The same for what nobody sees at once."""
INLINE_BYTES = 512
"""More than these are redacted in a thread, so that nothing else waits for it."""
_workers: RunVar[anyio.CapacityLimiter] = RunVar("harness pane redaction")
"""One thread for all panes: several would take the time of the event loop."""


# -- Screens. Pure.

_ROW = re.compile(r"(\x1b\[\d{1,5};1H)")


def redact_screen(redactor: Redactor, content: bytes, columns: int) -> bytes:
    """Return the content of a :class:`.Screen` with each secret replaced, also one that continues in the next row.

    Rows stay where they are, except below a private key.
    """
    first, *rest = _ROW.split(_text(content))
    places, rows = rest[::2], rest[1::2]
    shown = redactor.text("\n".join(rows)).split("\n")
    shown += [""] * (len(rows) - len(shown))
    for begin, end in _wrapped(rows, columns):
        whole = redactor.text("".join(rows[begin:end]))
        if whole != "".join(map(redactor.text, rows[begin:end])):
            shown[begin:end] = [whole, *[""] * (end - begin - 1)]
    parts = [redactor.text(first), *(part for pair in zip(places, shown, strict=True) for part in pair)]
    return _encoded("".join(parts))


def _wrapped(rows: Sequence[str], columns: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rows that may be one line, as all but the last are full."""
    begin = 0
    for number, row in enumerate(rows):
        if _columns(row) < columns or number == len(rows) - 1:
            if number > begin:
                yield begin, number + 1
            begin = number + 1


def _columns(row: str) -> int:
    text = _plain(row)
    return sum((unicodedata.east_asian_width(char) in "WF") + (not unicodedata.combining(char)) for char in text)


_PLACE = re.compile(r"\x1b\[(\d{1,5});(\d{1,5})H")
_REGION = re.compile(r"\x1b\[(\d{1,5});\d{1,5}r")
_MAX_CONTEXT = 4 << 10


def text_before_cursor(content: bytes, columns: int) -> str:
    """Return the end of the text before the cursor of a :class:`.Screen`, which the next output continues."""
    drawn = _text(content).rpartition("\x1b[?1049h")[2]
    places = list(_PLACE.finditer(drawn))
    rows: dict[int, str] = {}
    row = column = 0
    for place, end in zip(places, [*(place.start() for place in places[1:]), len(drawn)], strict=True):
        row, column = int(place[1]), int(place[2]) - 1
        if (text := _plain(drawn[place.end() : end])) and column == 0:
            rows[row], column = text, max(columns, _columns(text)) if end == len(drawn) else 0
    if "\x1b[?6h" in drawn and (region := _REGION.search(drawn)):
        row += int(region[1]) - 1
    lines = [f"{text}\n" if _columns(text) < columns else text for number, text in sorted(rows.items()) if number < row]
    before = "".join(lines) + _cut(rows.get(row, ""), column) + drawn[open_escape(drawn) :]
    key = before.rfind("-----BEGIN")
    return before[key:] if key >= 0 and "-----END" not in before[key:] else before[-_MAX_CONTEXT:]


def _cut(row: str, column: int) -> str:
    """Return what of a row is before a column, filled with spaces."""
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
    most two letters are shown. Text after the name of a secret (``password=``) is held until its line ends, or for a
    moment.

    Args:
        events: From :meth:`.ExecutionContext.watch_pane`.
        redactor: The redactor.
        live: False holds each word until it is complete, for what nobody sees at once: no letter of a secret is shown.
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
                before = text_before_cursor(event.content, event.columns)
                self._text, self._deadline = _PaneText(self._redactor, live=self._live, before=before), None
                content = await self._in_thread(self._redacted_screen(event.columns), event.content)
                self._ready.append(replace(event, content=content))
            case Typed():
                self._ready.append(replace(event, data=_encoded(self._redactor.text(_text(event.data)))))
            case JobStarted():
                self._show(self._text.release())
                self._ready.append(replace(event, command=self._redactor.text(event.command)))
            case _:
                self._show(self._text.release() if isinstance(event, JobEnded) else self._text.flush())
                self._ready.append(event)

    def _redacted_screen(self, columns: int) -> Callable[[bytes], bytes]:
        return lambda content: redact_screen(self._redactor, content, columns)

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
