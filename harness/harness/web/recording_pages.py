"""Recordings for the dashboard: the list, and one to play. Everything here blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import HarnessError
from ..recordings.directory import RecordingSummary, list_recordings, read_recording

__all__ = ["played_recording", "recording_list"]

MAX_PLAYED_CHARS = 20_000_000
"""Characters of output that are sent to a browser; the rest of a longer recording is left out."""


def recording_list() -> dict[str, Any]:
    """Return all recordings, the newest first."""
    return {"recordings": [_summary(one) for one in reversed(list_recordings())]}


def played_recording(name: str) -> dict[str, Any] | None:
    """Return the events of a recording of the list; None if it is not in the list.

    Raises:
        HarnessError: It cannot be read.
    """
    found = next((one for one in list_recordings() if one.id == name), None)
    if found is None:
        return None
    try:
        recording = read_recording(Path(found.path))
    except OSError as error:
        raise HarnessError(f"cannot read the recording: {error.strerror or error}") from error
    events, total = [], 0
    for event in recording.events:
        total += len(event.data)
        if total > MAX_PLAYED_CHARS:
            break
        events.append([event.time, event.code, event.data])
    return {**_summary(found), "events": events, "is_complete": total <= MAX_PLAYED_CHARS}


def _summary(one: RecordingSummary) -> dict[str, Any]:
    title = " · ".join(part for part in (one.host or one.target.removesuffix(":"), one.pane) if part) or one.id
    names = ("id", "state", "session", "started", "seconds", "columns", "rows", "jobs", "bytes")
    return {"title": title, **{name: getattr(one, name) for name in names}}
