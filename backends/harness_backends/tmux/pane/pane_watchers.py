"""The watchers of a pane: each gets its screen, then its output without harness's markers, and its jobs."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import anyio

from harness.errors import ConnectionLost, PaneGone, TerminalError
from harness.pane_events import Closed, JobEnded, JobStarted, Output, PaneEvent, Resized, Screen, Typed

from ..channel.control_protocol import Block
from .screen_picture import Picture, read_picture

__all__ = ["MarkerFilter", "PaneWatchers", "TakePicture", "Watcher"]

# -- Removing harness's markers. Pure.

_HEAD = b"\x1b]133;"
MAX_MARKER_BYTES = 4200
_MARKER = re.compile(rb"\x1b\]133;[^\x00-\x1f\x7f]{0,%d}(?:\x07|\x1b\\)" % MAX_MARKER_BYTES)
_OPEN_MARKER = re.compile(rb"\x1b(?:\](?:1(?:3(?:3(?:;[^\x00-\x1f\x7f]{0,%d}\x1b?)?)?)?)?)?\Z" % MAX_MARKER_BYTES)
MIN_NONCE_BYTES = 4
"""Bytes at the end of a piece that are held as the start of a nonce; fewer would hold many an echoed key."""


class MarkerFilter:
    """Removes OSC 133 sequences, whoever wrote them, and masks nonces that a program prints."""

    def __init__(self, nonces: Iterable[bytes] = ()) -> None:
        self._nonces = tuple(nonces)
        self.held = b""
        """What may be the start of a marker or a nonce."""
        self._before = b""
        """The last bytes that were shown, with which a nonce may start that arrives byte by byte."""

    def expect(self, nonces: Iterable[bytes]) -> None:
        """Mask further nonces from now on."""
        self._nonces = tuple(dict.fromkeys((*self._nonces, *nonces)))

    def restart(self) -> None:
        """Forget what was held: the next data does not follow it."""
        self.held = self._before = b""

    def split(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the data in pieces, a marker each its own, and with each piece what of it can be shown now."""
        held, buffer = len(self.held), self.held + data if self.held else data
        pieces: list[tuple[bytes, bytes]] = []
        position = 0
        for match in _MARKER.finditer(buffer) if _HEAD in buffer else ():
            start, end = match.span()
            if start > position:
                pieces.append((buffer[max(position, held) : max(start, held)], self._masked(buffer[position:start])))
            pieces.append((buffer[max(start, held) : end], b""))
            position = end
        keep = self._held_from(buffer, position)
        if position < len(buffer):
            pieces.append((buffer[max(position, held) :], self._masked(buffer[position:keep])))
        self.held = buffer[keep:]
        return pieces

    def _masked(self, data: bytes) -> bytes:
        """Return the data, which is shown next, with each nonce masked in the same length."""
        known, whole = len(self._before), self._before + data
        self._before = whole[1 - MIN_NONCE_BYTES :]
        for nonce in self._nonces:
            whole = whole.replace(nonce, b"*" * len(nonce))
        return whole[known:]

    def mask_rows(self, content: bytes) -> bytes:
        """Return a drawn screen with each nonce masked, also one that continues in the next row or is colored."""
        for nonce in self._nonces:
            between = rb"((?:\x1b\[[0-9;]*[mH])*)"
            letters = between.join(b"[%c]" % letter for letter in nonce)
            content = re.sub(letters, lambda match: b"*" + b"*".join(match.groups()) + b"*", content)
        return content

    def _held_from(self, buffer: bytes, start: int) -> int:
        """Return where the end of the buffer may be the start of a marker or a nonce; its length if it is neither."""
        floor = max(start, len(buffer) - MAX_MARKER_BYTES - len(_HEAD) - 1)
        index = buffer.rfind(b"\x1b", floor)
        if index == len(buffer) - 1 and index > floor:  # perhaps the first half of a marker's terminator
            before = buffer.rfind(_HEAD, floor, index)
            index = before if before >= 0 and _OPEN_MARKER.match(buffer, before) else index
        if index >= 0 and _OPEN_MARKER.match(buffer, index):
            return index
        text = self._before + buffer[start:] if start == 0 else buffer[start:]
        return max(start, len(buffer) - max((_begun(text, nonce) for nonce in self._nonces), default=0))


def _begun(text: bytes, nonce: bytes) -> int:
    """Return how many bytes at the end of a text may be the start of a nonce."""
    sizes = range(min(len(nonce) - 1, len(text)), MIN_NONCE_BYTES - 1, -1)
    return next((size for size in sizes if text.endswith(nonce[:size])), 0)


# -- The watchers.

EVENT_BYTES = 64
"""What an event costs in a queue, beside its bytes."""
JOINED_BYTES, JOINED_SECONDS = 64 << 10, 0.05
"""Output that waits is returned in events of up to this size, of up to this time: small ones would cost more time."""
RETRY = 1.0
"""Seconds until a picture is asked for again, after the connection was lost or the pane was not found."""

TakePicture = Callable[[Callable[[Sequence[Block]], None]], Awaitable[None]]
"""Asks tmux for a picture; the callback gets the answers in their place among the output, before what follows."""


def _size(event: PaneEvent) -> int:
    match event:
        case Output() | Typed():
            return EVENT_BYTES + len(event.data)
        case Screen():
            return EVENT_BYTES + len(event.content)
        case JobStarted():
            return EVENT_BYTES + len(event.command)
    return EVENT_BYTES


class Watcher(AsyncIterator[PaneEvent]):
    """One watcher's queue, which is bounded in bytes."""

    def __init__(self, watchers: PaneWatchers, max_bytes: int) -> None:
        self._watchers = watchers
        self._max_bytes = max_bytes
        self._queue: deque[PaneEvent] = deque()
        self._bytes = 0
        self._wakeup = anyio.Event()
        self.is_stale = True
        """True if the next output is of no use without a new screen."""
        self.is_new = True
        """True until the first screen."""
        self._is_ending = False
        self._has_asked_at_end = False
        self.skip = 0
        """The bytes of the next output that its screen already shows."""

    async def __anext__(self) -> PaneEvent:
        while not self._queue:
            if self._watchers.closed or (self._is_ending and not self.is_new and not self._needs_last_screen):
                raise StopAsyncIteration
            if self.is_stale:
                self._has_asked_at_end = self._is_ending
                await self._watchers.refresh(self)
            else:
                await self.wait()
        event = self._take()
        return self._joined(event) if isinstance(event, Output) else event

    def _take(self) -> PaneEvent:
        event = self._queue.popleft()
        self._bytes -= _size(event)
        return event

    def _joined(self, first: Output) -> Output:
        """Return the output with that which waits behind it."""
        parts, size = [first.data], len(first.data)
        while self._queue and isinstance(event := self._queue[0], Output):
            size += len(event.data)
            if size > JOINED_BYTES or event.time - first.time > JOINED_SECONDS:
                break
            self._take()
            parts.append(event.data)
        return first if len(parts) == 1 else Output(first.time, b"".join(parts))

    async def start(self) -> None:
        """Wait for the first screen."""
        while self.is_new and not self._watchers.closed:
            await self._watchers.refresh(self)

    def end(self) -> None:
        """End the iteration after what has arrived, and after a screen if it is the first, or if output was dropped."""
        self._is_ending = True
        self.wake()

    @property
    def _needs_last_screen(self) -> bool:
        """Whether the end is delayed for a screen instead of output that was dropped; it is asked for once."""
        return self.is_stale and not self._watchers.is_hidden and not self._has_asked_at_end

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until something has changed for this watcher."""
        wakeup = self._wakeup
        with anyio.move_on_after(seconds):
            await wakeup.wait()

    def wake(self) -> None:
        """Let the watcher check its state."""
        self._wakeup.set()
        self._wakeup = anyio.Event()

    def add(self, event: PaneEvent) -> None:
        """Add an event; output that does not fit is dropped, with all that was not taken before it."""
        if self.is_new and not isinstance(event, Closed):  # its screen shows it
            return
        if isinstance(event, Output):
            if self.is_stale:
                return
            if self.skip:
                event, self.skip = Output(event.time, event.data[self.skip :]), max(0, self.skip - len(event.data))
                if not event.data:
                    return
        self._queue.append(event)
        self._bytes += _size(event)
        if self._bytes > self._max_bytes:
            self._drop()
        self.wake()

    def _drop(self) -> None:
        """Drop all but the jobs, and of these the oldest if they are too many."""
        self._queue = deque(event for event in self._queue if isinstance(event, JobStarted | JobEnded | Closed))
        self.is_stale = True
        self._bytes = sum(map(_size, self._queue))
        while self._bytes > self._max_bytes:
            self._bytes -= _size(self._queue.popleft())

    def show(self, screen: Screen, skip: int, running: JobStarted | None) -> None:
        """Continue with a new screen."""
        self.is_stale, self.skip = False, skip
        self._queue.append(screen)  # even if it alone is more than the watcher's bytes
        self._bytes += _size(screen)
        is_first, self.is_new = self.is_new, False
        if is_first and running is not None:
            self.add(running)
        self.wake()


@dataclass(frozen=True, slots=True)
class JobReport:
    """What of a job is reported; ``status`` is empty while it runs."""

    job_id: str
    command: str
    status: str = ""
    exit_code: int | None = None


class PaneWatchers:
    """All watchers of one pane, fed with its output in order; it asks for pictures, and does no other I/O."""

    def __init__(self, nonces: Iterable[str], take_picture: TakePicture, running: JobReport | None) -> None:
        self._filter = MarkerFilter()
        self.expect(nonces)
        self._take_picture = take_picture
        self._asking = anyio.Lock()
        self._running: dict[str, JobStarted] = {}
        self._watchers: list[Watcher] = []
        self._size: tuple[int, int] | None = None
        self._is_in_step = False
        """True if the filter has seen all output since the last picture."""
        self._tail = b""
        self.is_hidden = False
        """True while harness types into the pane what nobody should see."""
        self.closed = False
        if running is not None:
            self._running[running.job_id] = JobStarted(time.time(), running.job_id, running.command)

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def open(self, max_bytes: int) -> Watcher:
        """Add a watcher."""
        watcher = Watcher(self, max_bytes)
        self._watchers.append(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self._watchers.remove(watcher)

    def expect(self, nonces: Iterable[str]) -> None:
        """Keep these nonces from the watchers."""
        self._filter.expect(nonce.encode() for nonce in nonces)

    # -- what happens in the pane

    def split(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the output in pieces, and with each piece what watchers see of it."""
        self._tail = (self._tail + data)[-4:]
        return self._filter.split(data)

    def add_output(self, data: bytes) -> None:
        """Show output."""
        if data and self._is_in_step and not self.is_hidden:
            self._add(Output(time.time(), data))

    def add_typed(self, data: bytes) -> None:
        """Report keys that harness typed."""
        self._add(Typed(time.time(), data))

    def add_job(self, job: JobReport) -> None:
        """Report a job that has started or ended, once each."""
        if not job.status:
            if job.job_id not in self._running:
                self._running[job.job_id] = JobStarted(time.time(), job.job_id, job.command)
                self._add(self._running[job.job_id])
        elif self._running.pop(job.job_id, None) is not None:
            self._add(JobEnded(time.time(), job.job_id, job.exit_code, job.status))

    def hide(self) -> None:
        """Show nothing of what follows."""
        self.is_hidden = True
        self.lose_step()

    def unhide(self) -> None:
        """Show the pane again."""
        self.is_hidden = False
        self.lose_step()

    def lose_step(self) -> None:
        """Record that output is missing here: each watcher needs a new screen."""
        self._is_in_step = False
        for watcher in self._watchers:
            watcher.is_stale = True
            watcher.wake()

    def close(self) -> None:
        """Report that the pane was closed."""
        if not self.closed:
            self._add(Closed(time.time()))
            self.closed = True

    def _add(self, event: PaneEvent) -> None:
        for watcher in self._watchers:
            watcher.add(event)

    # -- pictures

    async def refresh(self, watcher: Watcher) -> None:
        """Ask for a new screen unless another watcher has; return when the watcher's state may have changed."""
        if self.is_hidden:
            await watcher.wait()
            return
        async with self._asking:
            if not watcher.is_stale or self.is_hidden or self.closed:
                return
            try:
                await self._take_picture(self._pictured)
            except PaneGone:  # the session has ended, and is not created again
                self.close()
                return
            except (ConnectionLost, TerminalError):
                pass
        if watcher.is_stale and not self.closed:
            await watcher.wait(RETRY)

    async def look_at_size(self) -> None:
        """Check the pane's size, as its window has changed."""
        async with self._asking:
            await self._take_picture(self._pictured)

    def _pictured(self, answers: Sequence[Block]) -> None:
        """Take a picture at its place in the stream."""
        picture = read_picture(answers)
        if picture is None or self.is_hidden or self.closed:
            return
        screen, skip = self._screen(picture)
        size, before = (picture.columns, picture.rows), self._size
        self._size = size
        running = next(reversed(self._running.values()), None)
        for watcher in self._watchers:
            if before not in (None, size) and not watcher.is_new:
                watcher.add(Resized(screen.time, *size))
            if watcher.is_stale or before not in (None, size):
                watcher.show(screen, skip, running)

    def _screen(self, picture: Picture) -> tuple[Screen, int]:
        """Return the screen, and how many held bytes it shows although other watchers have yet to get them."""
        if not self._is_in_step:
            self._filter.restart()
            self._tail = b""
            begun = b"".join(shown for _, shown in self._filter.split(picture.pending))
            self._is_in_step, skip = True, 0
        elif picture.pending.endswith(self._filter.held):
            begun, skip = picture.pending[: len(picture.pending) - len(self._filter.held)], 0
        else:  # the start of a nonce is on the screen, and not pending
            begun, skip = picture.pending, 0 if self._filter.held.startswith(b"\x1b") else len(self._filter.held)
        content = self._filter.mask_rows(picture.content) + begun + _open_character(self._tail)
        return Screen(time.time(), picture.columns, picture.rows, content), skip


def _open_character(tail: bytes) -> bytes:
    """Return the start of a character at the end of the output, whose other bytes are yet to come. Pure."""
    for size in range(1, min(3, len(tail)) + 1):
        first = tail[-size]
        if first >= 0xC0:
            needed = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return tail[-size:] if size < needed else b""
        if first < 0x80:
            return b""
    return b""
