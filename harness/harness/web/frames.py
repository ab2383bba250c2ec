"""The streams of a session as frames for browsers: what a pane shows, and what the agent does."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio

from ..errors import HarnessError
from ..live.client import open_stream
from ..system.background_tasks import open_background_tasks
from .shared_streams import Frame

__all__ = [
    "JSON",
    "OUTPUT",
    "SCREEN",
    "conversation_frames",
    "frame_of_item",
    "host_frames",
    "json_frame",
    "pane_frames",
]

OUTPUT, SCREEN, JSON = 0, 1, 2
"""The first byte of a frame. A screen continues with its columns and rows, each two bytes, the high one first."""
MAX_SIDE = 1000
"""Maximum columns and rows of a pane that is drawn."""
MAX_EVENTS = 2_000


def json_frame(document: Mapping[str, Any], *, is_fresh: bool = False) -> Frame:
    """Return a JSON object as a frame."""
    return Frame(bytes([JSON]) + json.dumps(document, separators=(",", ":")).encode(), is_fresh)


def frame_of_item(item: Mapping[str, Any]) -> Frame:
    """Return an item of the live stream ``pane`` as a frame. Pure.

    Raises:
        HarnessError: The item is not valid.
    """
    kind = item.get("type")
    try:
        if kind == "screen":
            sides = (min(max(int(item[name]), 1), MAX_SIDE) for name in ("columns", "rows"))
            return Frame(struct.pack("!BHH", SCREEN, *sides) + base64.b64decode(item["content"]), is_fresh=True)
        if kind == "output":
            return Frame(bytes([OUTPUT]) + base64.b64decode(item["data"]))
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise HarnessError("the process sent a frame that cannot be read") from None
    return json_frame(item)


async def pane_frames(path: Path, session: str, pane: str) -> AsyncGenerator[Frame]:
    """Yield what a pane shows, the screen first.

    Raises:
        HarnessError: The pane cannot be watched, or no longer.
    """
    async with aclosing(open_stream(path, session, "pane", {"pane": pane})) as items:
        async for item in items:
            yield frame_of_item(item)


async def host_frames(path: Path, session: str) -> AsyncGenerator[Frame]:
    """Yield the hosts of a command on many, whole each time.

    Raises:
        HarnessError: They cannot be followed, or no longer.
    """
    async with aclosing(open_stream(path, session, "hosts")) as items:
        async for item in items:
            yield json_frame(item, is_fresh=True)


History = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
"""Returns the stored items of a conversation."""


async def conversation_frames(path: Path, session: str, history: History) -> AsyncGenerator[Frame]:
    """Yield the stored conversation of a session in one frame, then its events.

    Raises:
        HarnessError: The session cannot be followed, or no longer.
    """
    waiting: deque[Mapping[str, Any]] = deque(maxlen=MAX_EVENTS)
    more, ended = anyio.Event(), False
    problem: HarnessError | None = None

    async def fetch() -> None:
        nonlocal ended, problem
        try:
            async with aclosing(open_stream(path, session, "events")) as items:
                async for item in items:
                    waiting.append(item)
                    more.set()
        except HarnessError as error:
            problem = error
        ended = True
        more.set()

    async with open_background_tasks() as tasks:
        tasks.start_soon(fetch)  # before the stored part is read: what happens meanwhile is in both, not in neither
        yield json_frame({"type": "history", "items": list(await history())}, is_fresh=True)
        while not ended or waiting:
            while waiting:
                yield json_frame(waiting.popleft())
            more = anyio.Event()
            if not ended:
                await more.wait()
    if problem is not None:
        raise problem
