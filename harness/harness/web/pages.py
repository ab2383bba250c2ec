"""Recordings and the audit log for the dashboard. Everything here blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import HarnessError
from ..recordings.directory import RecordingSummary, list_recordings, read_recording
from ..toolkit.audit import AuditPaths, Filters, audit_directory, calls, one_call, open_reader, this_process
from ..toolkit.audit.reading import AuditCall

__all__ = ["MAX_CALLS", "audit_calls", "audit_record", "played_recording", "recording_list"]


# -- Recordings.

MAX_PLAYED_CHARS = 20_000_000
"""Characters of output that are sent to a browser; the rest of a longer recording is left out."""


def recording_list() -> dict[str, Any]:
    """Return all recordings, the newest first."""
    return {"recordings": [_summary(one) for one in reversed(list_recordings())]}


def played_recording(name: str) -> dict[str, Any] | None:
    """Return the events of a recording of the list; None if there is none.

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


# -- The audit log.

MAX_CALLS = 200
"""Maximum calls of an answer."""
MAX_SEARCHED = 5_000
"""Newest calls that a text is searched in."""
MAX_SHOWN_CHARS = 400
HIDDEN = ("prev", "seq", "number")


def audit_calls(query: Mapping[str, str], redact: Callable[[str], str]) -> dict[str, Any]:
    """Return the newest matching calls, the newest first.

    Args:
        query: ``text``, which any field may contain; ``target``, ``tool``, ``status``, ``session``; ``since`` and
            ``until``, Unix times.
        redact: Replaces secrets.

    Raises:
        HarnessError: The log cannot be read, or a time is not a number.
    """
    names = ("target", "tool", "status", "session")
    chosen: dict[str, Any] = {name: query[name] for name in names if query.get(name)}
    try:
        chosen.update({name: float(query[name]) for name in ("since", "until") if query.get(name)})
    except ValueError:
        raise HarnessError("since and until are Unix times") from None
    text = query.get("text", "").casefold()
    try:
        with open_reader(AuditPaths(audit_directory())) as db:
            found = calls(db, Filters(**chosen), this_process(), MAX_SEARCHED if text else MAX_CALLS + 1)
    except FileNotFoundError:
        found = []
    matching = [call for call in reversed(found) if not text or text in _searched(call)]
    return {"calls": [_row(call, redact) for call in matching[:MAX_CALLS]], "has_more": len(matching) > MAX_CALLS}


def audit_record(number: int, redact: Callable[[str], str]) -> dict[str, Any] | None:
    """Return a call with its later records; None if there is none.

    Raises:
        HarnessError: The log cannot be read.
    """
    try:
        with open_reader(AuditPaths(audit_directory())) as db:
            call = one_call(db, number, this_process())
    except FileNotFoundError:
        call = None
    if call is None:
        return None
    records = [{name: value for name, value in one.items() if name not in HIDDEN} for one in (call.call, *call.later)]
    return {"number": number, "status": call.status, "records": json.loads(redact(json.dumps(records)))}


def _searched(call: AuditCall) -> str:
    return json.dumps([call.status, call.call, *call.later], ensure_ascii=False).casefold()


def _row(call: AuditCall, redact: Callable[[str], str]) -> dict[str, Any]:
    record = call.call
    arguments = record.get("arguments")
    given = arguments if isinstance(arguments, dict) else {}
    texts = [value for name, value in given.items() if isinstance(value, str)]
    what = next((given[name] for name in ("command", "path", "url") if isinstance(given.get(name), str)), None)
    text = redact(str(what if what is not None else (texts or [""])[0]))
    return {
        "number": call.number,
        "status": call.status,
        "at": record.get("at"),
        "target": str(record.get("backend", "")),
        "tool": str(record.get("tool", "")),
        "session": str(record.get("session_id", "")),
        "decided_by": str(record.get("decided_by", "")),
        "text": text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]} …",
    }
