"""The events of a session as a stream: each one as ``harness exec --json`` prints it, in order."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio

from ...errors import HarnessError
from ...toolkit.events import Event, EventBus, event_json

__all__ = ["event_items", "progress_items"]

MAX_EVENTS = 2_000
"""Events that wait for a slow client; beyond it, its stream ends."""
MAX_TEXT_CHARS = (200_000, 20_000, 2_000, 200)
"""Characters of each text of an event; longer ones are cut. The later limits are for events that are still too long."""
MAX_ITEM_BYTES = 900_000
"""Bytes of an event; a message has a limit."""


async def event_items(events: EventBus) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the events from now on, redacted as they are published.

    Raises:
        HarnessError: They are fetched too slowly.
    """
    waiting: deque[Event] = deque()
    more = anyio.Event()
    overflowed = False

    def heard(event: Event) -> None:
        nonlocal overflowed
        overflowed = overflowed or len(waiting) >= MAX_EVENTS
        if not overflowed:
            waiting.append(event)
        more.set()

    with events.listening(heard):
        while True:
            while waiting:
                yield _item(event_json(waiting.popleft()))
            if overflowed:
                raise HarnessError("the client reads too slowly for the events", hint="open the stream again")
            more = anyio.Event()
            await more.wait()


async def progress_items(events: EventBus, call_id: str) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield the output of a running call from now on, until it ends, redacted as it is published."""
    async for event in event_items(events):
        if event["type"] == "tool_call_progress" and event["call_id"] == call_id:
            yield {"stream": event["stream"], "text": event["text"]}
        elif event["type"] == "tool_call_completed" and event["outcome"]["call"]["call_id"] == call_id:
            return


def _item(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with its long texts cut, so that a message has room for it."""
    item: Mapping[str, Any] = {}
    for limit in MAX_TEXT_CHARS:
        item = _bounded(event, limit)
        if len(json.dumps(item)) <= MAX_ITEM_BYTES:
            break
    return item


def _bounded(value: Any, limit: int) -> Any:
    """Return a JSON value with its long texts cut."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]} … [cut]"
    if isinstance(value, Mapping):
        return {name: _bounded(item, limit) for name, item in value.items()}
    return [_bounded(item, limit) for item in value] if isinstance(value, list | tuple) else value
