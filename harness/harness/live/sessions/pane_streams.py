"""The live stream of a pane for dashboards: its redacted events as JSON objects."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from dataclasses import fields, replace
from typing import Any

from ...context import ExecutionContext
from ...pane_events import Closed, JobEnded, JobStarted, Output, PaneEvent, Resized, Screen, Typed
from ...toolkit.redaction.pane_stream import RedactedPaneEvents
from ...toolkit.redaction.redactor import Redactor

__all__ = ["pane_items"]

TYPES = {
    Screen: "screen",
    Output: "output",
    Resized: "resized",
    JobStarted: "job_started",
    JobEnded: "job_ended",
    Closed: "closed",
}
PIECE_BYTES = 256 << 10
"""Bytes of a screen or of output in one item; a message has a limit."""


async def pane_items(
    execution: ExecutionContext, pane: str | None, redactor: Redactor
) -> AsyncGenerator[Mapping[str, Any]]:
    """Yield what a pane shows, redacted: its screen first, then each change.

    Bytes are in base64. A slow client delays nothing: it gets a new screen instead of what it has missed.

    Raises:
        HarnessError: The pane cannot be watched.
    """
    async with execution.watch_pane(pane) as events:
        async for event in RedactedPaneEvents(events, redactor):
            if isinstance(event, Typed):  # perhaps a password, which the screen does not show
                continue
            for piece in _pieces(event):
                yield _item(piece)


def _pieces(event: PaneEvent) -> list[PaneEvent]:
    """Return an event with its bytes spread over several; output continues what a screen started. Pure."""
    if isinstance(event, Screen):
        rest = event.content[PIECE_BYTES:]
        first: PaneEvent = replace(event, content=event.content[:PIECE_BYTES])
    elif type(event) not in TYPES:
        return []  # what was typed may be a password, and is for recordings that were asked for
    elif isinstance(event, Output):
        rest, first = event.data[PIECE_BYTES:], replace(event, data=event.data[:PIECE_BYTES])
    else:
        return [event]
    starts = range(0, len(rest), PIECE_BYTES)
    return [first, *(Output(event.time, rest[start : start + PIECE_BYTES]) for start in starts)]


def _item(event: PaneEvent) -> dict[str, Any]:
    values = {one.name: getattr(event, one.name) for one in fields(event)}
    encoded = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in values.items()
    }
    return {"type": TYPES[type(event)], **encoded}
