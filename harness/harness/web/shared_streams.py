"""Live streams of harness processes, each fetched once however many browsers see it.

A browser that does not keep up delays nothing. Beyond a limit its frames are dropped; when it has taken what was sent,
it gets a fresh screen: the stream is opened again, whose first frame is the screen.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import anyio

from ..errors import HarnessError
from ..system.background_tasks import BackgroundTasks

__all__ = ["Frame", "FrameSource", "SharedStream", "SharedStreams", "StreamKey", "StreamViewer"]

MAX_UNSEEN_BYTES = 512 << 10
"""Bytes that a browser may leave unseen before frames are dropped."""
RESUME_BYTES = 64 << 10
"""Unseen bytes below which a browser that lost frames gets a fresh screen."""
REFRESH_INTERVAL = 0.5
"""Minimum seconds between two fresh screens of a stream."""
MAX_STREAMS = 100
log = logging.getLogger(__name__)

StreamKey = tuple[str, str, str, str]
"""The process, the session, the kind of the stream, and what it is about, such as a pane."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of a stream. Without ``is_fresh`` it continues the one before; one with it starts a new one."""

    data: bytes
    is_fresh: bool = False


FrameSource = Callable[[], AsyncGenerator[Frame]]
"""Opens a stream, whose first frame is a fresh one."""


class StreamViewer:
    """One browser's view of a stream.

    Args:
        stream: The stream.
        wakeup: Called when there is something to send.
    """

    def __init__(self, stream: SharedStream, wakeup: Callable[[], None]) -> None:
        self._stream = stream
        self._wakeup = wakeup
        self._waiting: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._unseen = 0
        self.needs_fresh = True
        """Whether frames were dropped, so that the next one has to be a fresh one."""
        self.dropped = 0
        """How many frames were dropped."""
        self.ended: str | None = None
        """Why the stream has ended; None while it has not."""

    def offer(self, frame: Frame) -> None:
        """Add a frame, or drop it if the browser is too slow."""
        if frame.is_fresh:
            self._waiting.clear()
            self._waiting_bytes = 0
            self.needs_fresh = self._unseen > MAX_UNSEEN_BYTES
        if self.needs_fresh:
            self.dropped += 1
            return
        if self._unseen + self._waiting_bytes + len(frame.data) > MAX_UNSEEN_BYTES and not frame.is_fresh:
            self._waiting.clear()
            self._waiting_bytes = 0
            self.needs_fresh = True
            self.dropped += 1
            self._ask()
            return
        self._waiting.append(frame)
        self._waiting_bytes += len(frame.data)
        self._wakeup()

    def end(self, reason: str) -> None:
        """Note that the stream has ended."""
        self.ended = reason
        self._wakeup()

    def take(self) -> Frame | None:
        """Return the next frame to send; None without one."""
        if not self._waiting:
            return None
        frame = self._waiting.popleft()
        self._waiting_bytes -= len(frame.data)
        self._unseen += len(frame.data)
        return frame

    def acknowledge(self, size: int) -> None:
        """Note that the browser has drawn this many bytes."""
        self._unseen = max(0, self._unseen - max(0, size))
        self._ask()

    def _ask(self) -> None:
        if self.needs_fresh and self._unseen <= RESUME_BYTES:
            self._stream.refresh()

    def close(self) -> None:
        """Stop viewing."""
        self._stream.leave(self)


class SharedStream:
    """One stream, and its viewers."""

    def __init__(self, source: FrameSource) -> None:
        self._source = source
        self.viewers: set[StreamViewer] = set()
        self.is_over = False
        """Whether it has ended, or is about to, so that no one can view it any more."""
        self._opened_at = -REFRESH_INTERVAL
        self._is_opening = True
        self._whole = anyio.CancelScope()
        self._fetching = anyio.CancelScope()

    def refresh(self) -> None:
        """Have the stream opened again, for a fresh screen."""
        if not self._is_opening:
            self._is_opening = True
            self._fetching.cancel()

    def leave(self, viewer: StreamViewer) -> None:
        """Remove a viewer; without any, the stream is closed."""
        self.viewers.discard(viewer)
        if not self.viewers:
            self.is_over = True
            self._whole.cancel()

    async def run(self) -> None:
        """Fetch the stream until it ends, or has no viewers."""
        reason = ""
        with self._whole:
            try:
                while await self._fetch():
                    pass
            except HarnessError as error:
                reason = error.message
        self.is_over = True
        for viewer in tuple(self.viewers):
            viewer.end(reason)

    async def _fetch(self) -> bool:
        """Fetch until the stream has ended, or is to be opened again, which is returned."""
        await anyio.sleep(max(0.0, self._opened_at + REFRESH_INTERVAL - time.monotonic()))
        self._opened_at, self._is_opening, self._fetching = time.monotonic(), True, anyio.CancelScope()
        with self._fetching:
            async with aclosing(self._source()) as frames:
                async for frame in frames:
                    self._is_opening = False
                    for viewer in tuple(self.viewers):
                        viewer.offer(frame)
        return self._fetching.cancelled_caught


class SharedStreams:
    """All streams that browsers see now.

    Args:
        tasks: Run the streams.
    """

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._streams: dict[StreamKey, SharedStream] = {}

    @property
    def count(self) -> int:
        """How many streams are fetched."""
        return len(self._streams)

    def view(self, key: StreamKey, source: FrameSource, wakeup: Callable[[], None]) -> StreamViewer:
        """View a stream, which is opened if no one views it yet.

        Raises:
            HarnessError: Too many are open.
        """
        stream = self._streams.get(key)
        is_new = stream is None or stream.is_over
        if stream is None or stream.is_over:
            if len(self._streams) >= MAX_STREAMS:
                raise HarnessError(f"more than {MAX_STREAMS} streams are open", hint="close some pages")
            stream = self._streams[key] = SharedStream(source)
        viewer = StreamViewer(stream, wakeup)
        stream.viewers.add(viewer)
        if is_new:
            self._tasks.start_soon(self._run, key, stream)
        else:
            stream.refresh()
        return viewer

    async def _run(self, key: StreamKey, stream: SharedStream) -> None:
        try:
            await stream.run()
        except Exception:
            log.exception("a stream failed")
            stream.is_over = True
            for viewer in stream.viewers:
                viewer.end("it failed; see the log of the server")
        finally:
            if self._streams.get(key) is stream:
                del self._streams[key]
