"""The audit log for the dashboard: the newest calls, searched, and one with its records. Everything here blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import HarnessError
from ..toolkit.audit import AuditPaths, Filters, audit_directory, calls, one_call, open_reader, this_process
from ..toolkit.audit.reading import AuditCall

__all__ = ["MAX_CALLS", "audit_calls", "audit_record"]

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
    """Return a call with its later records; None if it does not exist.

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
