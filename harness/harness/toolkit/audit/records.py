"""Records of the audit log: their canonical form, and the tables that hold them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import cast

from ..interfaces import CallEntry
from ..values import CallStatus, Json, JsonObject

__all__ = [
    "COLUMNS",
    "GENESIS",
    "SCHEMA",
    "VERSION",
    "Kind",
    "canonical",
    "digest",
    "intent_fields",
    "job_fields",
    "outcome_fields",
    "refusal_fields",
    "resolution_fields",
    "shortened",
    "storable",
]


# -- The tables of the audit, and the triggers that keep its records as they were written.


VERSION = 1
"""``PRAGMA user_version`` of the file."""
COLUMNS = ("kind", "number", "at", "status", "backend", "tool", "session_id")
"""Fields of a record that are columns, too, to be searched; :mod:`.verify` compares them."""

SCHEMA = """
-- One row for each thing that happened. ``body`` is the record and holds the hash before it; ``hash`` is its SHA-256.
-- ``number`` is the row of the call that it is about; a call itself has none.
CREATE TABLE records (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  number INTEGER,
  at REAL NOT NULL,
  status TEXT,
  backend TEXT,
  tool TEXT,
  session_id TEXT,
  body TEXT NOT NULL,
  hash TEXT NOT NULL
);
CREATE INDEX calls ON records (seq, at, backend, tool, session_id, status) WHERE kind IN ('intent', 'refused');
CREATE INDEX ends ON records (number, seq, kind, status) WHERE number IS NOT NULL;
CREATE INDEX drops ON records (seq) WHERE kind = 'retention';

-- Where the chain begins and ends. ``first`` moves when old records are dropped.
CREATE TABLE chain (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  hash TEXT NOT NULL
);

-- Calls without an outcome, and those that change something and have an unknown one.
CREATE TABLE unsettled (
  number INTEGER PRIMARY KEY,
  state TEXT NOT NULL CHECK (state IN ('running', 'unknown')),
  mutating INTEGER NOT NULL,
  backend TEXT NOT NULL,
  process TEXT NOT NULL,
  job_id TEXT NOT NULL DEFAULT ''
);

CREATE VIEW intents AS
  SELECT seq AS number, at, backend, tool, session_id, body FROM records WHERE kind = 'intent';
CREATE VIEW outcomes AS
  SELECT number, seq, at, status, body FROM records WHERE kind IN ('outcome', 'resolved');

CREATE TRIGGER records_are_not_changed BEFORE UPDATE ON records
  BEGIN SELECT RAISE(ABORT, 'a record of the audit is never changed'); END;
CREATE TRIGGER records_are_not_removed BEFORE DELETE ON records WHEN OLD.seq >= (SELECT first FROM chain)
  BEGIN SELECT RAISE(ABORT, 'a record of the audit is never removed'); END;
CREATE TRIGGER records_are_appended BEFORE INSERT ON records WHEN NEW.seq <= (SELECT last FROM chain)
  BEGIN SELECT RAISE(ABORT, 'a record of the audit is only appended'); END;
CREATE TRIGGER the_chain_only_grows BEFORE UPDATE ON chain WHEN NEW.first < OLD.first OR NEW.last < OLD.last
  BEGIN SELECT RAISE(ABORT, 'the chain of the audit only grows'); END;
CREATE TRIGGER the_chain_stays BEFORE DELETE ON chain
  BEGIN SELECT RAISE(ABORT, 'the chain of the audit only grows'); END;
"""


# -- What a record of the audit holds, its one canonical form as text, and its hash. Pure.


GENESIS = "0" * 64
"""What the first record has for the hash of the one before it."""
TEXT_LIMIT = 16 << 10
"""Characters of one text that are kept."""
ARGUMENTS_LIMIT = 64 << 10
"""Characters of all arguments of a call, as JSON, that are kept."""
DEPTH_LIMIT = 50

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class Kind:
    """The kinds of records."""

    INTENT = "intent"
    """A call that is about to run."""
    OUTCOME = "outcome"
    """What came of it; a later one, of a reconciliation, counts more."""
    REFUSED = "refused"
    """A call that was not allowed."""
    JOB = "job"
    """Which job on the target does the work of a call."""
    RESOLVED = "resolved"
    """What an operator decided about a call with an unknown outcome."""
    RETENTION = "retention"
    """Older records were dropped, as the settings say."""
    DAMAGE = "damage"
    """The end of the chain was not where it should be when a process began to write."""


def canonical(fields: JsonObject) -> str:
    """The one text of a record: JSON, ASCII, keys sorted, no blanks. What JSON cannot say becomes text."""
    try:
        return _ENCODER.encode(fields)
    except (ValueError, TypeError, RecursionError):
        return _ENCODER.encode(_plain(fields, DEPTH_LIMIT))


def digest(text: str) -> str:
    """The hash of a record's canonical text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def storable(text: str) -> str:
    """A text that a database takes: halves of surrogate pairs are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: object, depth: int) -> Json:
    if value is None or isinstance(value, bool | str | int | float):
        return _plain_scalar(value)
    if not depth:
        return "[too deep]"
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value]
    return f"[{type(value).__name__}]"


def _plain_scalar(value: bool | str | int | float | None) -> Json:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"{value:#x}"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def shortened(arguments: JsonObject) -> JsonObject:
    """The arguments with long texts cut; a cut one says how long it was and what its hash is."""
    short = cast("dict[str, Json]", _short(arguments, DEPTH_LIMIT))
    text = canonical(short)
    return short if len(text) <= ARGUMENTS_LIMIT else {"cut": _cut(text)}


def _short(value: object, depth: int) -> Json:
    if isinstance(value, str):
        return value if len(value) <= TEXT_LIMIT else _cut(value)
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "[too deep]"
    if isinstance(value, Mapping):
        return {str(key): _short(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item, depth - 1) for item in value]
    return cast(Json, value)


def _cut(text: str) -> str:
    return f"{text[:TEXT_LIMIT]}[... {len(text) - TEXT_LIMIT} characters left out; sha256 of all: {digest(text)}]"


def _call_fields(entry: CallEntry, kind: str, owner: str) -> dict[str, Json]:
    call = entry.call
    arguments: JsonObject = {"text": call.arguments} if isinstance(call.arguments, str) else call.arguments
    fields: dict[str, Json] = {
        "kind": kind,
        "at": round(entry.started, 6),
        "owner": owner,
        "backend": entry.backend,
        "tool": call.name,
        "arguments": dict(shortened(arguments)),
        "mutating": entry.mutating,
        "decided_by": entry.verdict.by,
        "reason": entry.verdict.reason[:TEXT_LIMIT],
        "call_id": call.call_id,
    }
    optional = {"session_id": entry.session_id, "message_id": call.message_id, "agent_id": call.agent_id}
    fields |= {name: text for name, text in optional.items() if text}
    return fields | ({"details": dict(shortened(entry.details))} if entry.details else {})


def intent_fields(entry: CallEntry, owner: str) -> JsonObject:
    """A call that is about to run; ``owner`` is ``user@host:pid`` of this process."""
    return _call_fields(entry, Kind.INTENT, owner)


def refusal_fields(entry: CallEntry, owner: str) -> JsonObject:
    """A call that was refused."""
    return _call_fields(entry, Kind.REFUSED, owner) | {"status": entry.status.value}


def outcome_fields(at: float, status: CallStatus, summary: str, job_id: str, by: str = "") -> JsonObject:
    """What came of a call. ``by`` says who found out, when it was not the call itself."""
    fields: dict[str, Json] = {
        "kind": Kind.OUTCOME,
        "at": round(at, 6),
        "status": status.value,
        "summary": summary[:TEXT_LIMIT],
    }
    return fields | {name: text for name, text in {"job_id": job_id, "by": by}.items() if text}


def job_fields(at: float, job_id: str) -> JsonObject:
    """The job of a call is known."""
    return {"kind": Kind.JOB, "at": round(at, 6), "job_id": job_id}


def resolution_fields(at: float, status: CallStatus, decision: str, note: str, by: str) -> JsonObject:
    """An operator's decision about a call whose outcome nobody knows."""
    return {
        "kind": Kind.RESOLVED,
        "at": round(at, 6),
        "status": status.value,
        "decision": decision,
        "summary": note[:TEXT_LIMIT],
        "by": by,
    }
