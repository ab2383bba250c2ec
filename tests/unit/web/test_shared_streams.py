"""One stream for all browsers: each gets all frames in order, or a fresh screen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import anyio
import anyio.lowlevel
import pytest

from harness.errors import HarnessError
from harness.system.background_tasks import open_background_tasks
from harness.web import shared_streams as module
from harness.web.shared_streams import MAX_UNSEEN_BYTES, Frame, SharedStreams, StreamViewer

KEY = ("process", "session", "pane", "main")


class Pane:
    """A pane whose output a test writes. ``opened`` counts the streams that were opened."""

    def __init__(self) -> None:
        self.opened = 0
        self.open_now = 0
        self.text = b""
        self._more = anyio.Event()
        self.failure: HarnessError | None = None

    def write(self, data: bytes) -> None:
        self.text += data
        self._more.set()

    def fail(self, failure: HarnessError) -> None:
        self.failure = failure
        self._more.set()

    async def frames(self) -> AsyncGenerator[Frame]:
        self.opened += 1
        self.open_now += 1
        try:
            sent = len(self.text)
            yield Frame(self.text[-10:], is_fresh=True)
            while True:
                self._more = anyio.Event()
                if self.failure is not None:
                    raise self.failure
                if len(self.text) > sent:
                    sent, data = len(self.text), self.text[sent:]
                    yield Frame(data)
                else:
                    await self._more.wait()
        finally:
            self.open_now -= 1


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_INTERVAL", 0.0)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not condition():  # several tasks have to run first
            await anyio.lowlevel.checkpoint()


def drawn(viewer: StreamViewer) -> bytes:
    """Take all frames as a browser that draws at once, and return the screen."""
    screen = b""
    while (frame := viewer.take()) is not None:
        screen = frame.data if frame.is_fresh else screen + frame.data
        viewer.acknowledge(len(frame.data))
    return screen


async def test_twenty_viewers_cost_one_stream() -> None:
    pane, woken = Pane(), [0]

    def wake() -> None:
        woken[0] += 1

    async with open_background_tasks() as tasks:
        streams = SharedStreams(tasks)
        viewers = [streams.view(KEY, pane.frames, wake) for _ in range(20)]
        await until(lambda: woken[0] >= 20)
        pane.write(b"hello")
        await until(lambda: woken[0] >= 40)
        assert {drawn(viewer) for viewer in viewers} == {b"hello"}
        assert (pane.opened, pane.open_now, streams.count) == (1, 1, 1)
        for viewer in viewers:
            viewer.close()
        await until(lambda: streams.count == 0)
        assert pane.open_now == 0


async def test_a_late_viewer_gets_a_fresh_screen_over_the_same_stream() -> None:
    pane = Pane()
    async with open_background_tasks() as tasks:
        streams = SharedStreams(tasks)
        first = streams.view(KEY, pane.frames, lambda: None)
        await until(lambda: not first.needs_fresh)
        pane.write(b"0123456789ab")
        await until(lambda: drawn(first))
        late = streams.view(KEY, pane.frames, lambda: None)
        await until(lambda: not late.needs_fresh)
        assert drawn(late) == b"23456789ab"
        assert pane.open_now == 1


async def test_a_stopped_browser_loses_frames_and_then_gets_a_fresh_screen() -> None:
    pane = Pane()
    async with open_background_tasks() as tasks:
        streams = SharedStreams(tasks)
        fast, slow = (streams.view(KEY, pane.frames, lambda: None) for _ in range(2))
        await until(lambda: not slow.needs_fresh and not fast.needs_fresh)
        taken = []
        for number in range(40):
            pane.write(bytes([number]) * (MAX_UNSEEN_BYTES // 16))
            await until(lambda: fast.take() is not None)
            fast.acknowledge(1 << 30)
            if (frame := slow.take()) is not None:
                taken.append(len(frame.data))
        assert slow.needs_fresh
        assert sum(taken) <= MAX_UNSEEN_BYTES
        assert fast.dropped == 0
        pane.write(b"the end...")
        slow.acknowledge(sum(taken))
        await until(lambda: not slow.needs_fresh)
        assert drawn(slow) == b"the end..."


async def test_the_end_is_reported_with_its_reason() -> None:
    pane = Pane()
    async with open_background_tasks() as tasks:
        streams = SharedStreams(tasks)
        viewer = streams.view(KEY, pane.frames, lambda: None)
        await until(lambda: not viewer.needs_fresh)
        pane.fail(HarnessError("the pane was closed"))
        await until(lambda: viewer.ended is not None)
        assert viewer.ended == "the pane was closed"
        again = streams.view(KEY, pane.frames, lambda: None)
        await until(lambda: again.ended is not None)


async def test_the_number_of_streams_is_bounded() -> None:
    pane = Pane()
    async with open_background_tasks() as tasks:
        streams = SharedStreams(tasks)
        for number in range(module.MAX_STREAMS):
            streams.view((*KEY[:3], str(number)), pane.frames, lambda: None)
        with pytest.raises(HarnessError, match="streams are open"):
            streams.view(KEY, pane.frames, lambda: None)
