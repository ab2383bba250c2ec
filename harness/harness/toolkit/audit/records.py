"""Records of the audit log: their canonical form, and the tables that store them."""

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


# -- The tables of the audit log, and the triggers that prevent changes of its records.


VERSION = 1
"""``PRAGMA user_version`` of the file."""
COLUMNS = ("kind", "number", "at", "status", "backend", "tool", "session_id")
"""Fields of a record that are also columns, for searching; :mod:`.reading` compares them."""

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


# -- The fields of an audit record, its canonical text, and its hash. Pure.


GENESIS = "0" * 64
"""The previous hash in the first record."""
TEXT_LIMIT = 16 << 10
"""Maximum stored characters of one text."""
ARGUMENTS_LIMIT = 64 << 10
"""Maximum stored characters of all arguments of a call, as JSON."""
DEPTH_LIMIT = 50

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class Kind:
    """The kinds of records."""

    INTENT = "intent"
    """A call that is about to run."""
    OUTCOME = "outcome"
    """The outcome of a call; a later one from a reconciliation takes precedence."""
    REFUSED = "refused"
    """A call that was not allowed."""
    JOB = "job"
    """The job on the target that runs a call."""
    RESOLVED = "resolved"
    """An operator's decision about a call with an unknown outcome."""
    RETENTION = "retention"
    """Older records were dropped according to the settings."""
    DAMAGE = "damage"
    """The end of the chain differed from the expected one when a process started to write."""


def canonical(fields: JsonObject) -> str:
    """Return the canonical text of a record: ASCII JSON, sorted keys, no spaces; unsupported values become text."""
    try:
        return _ENCODER.encode(fields)
    except (ValueError, TypeError, RecursionError):
        return _ENCODER.encode(_plain(fields, DEPTH_LIMIT))


def digest(text: str) -> str:
    """Return the SHA-256 of a record's canonical text in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def storable(text: str) -> str:
    """Return a text that a database accepts: single surrogates are escaped."""
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
    """Truncate long texts in arguments, adding the number of omitted characters and the hash of the complete text."""
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
    """Return the record of a call that is about to run; ``owner`` is ``user@host:pid`` of this process."""
    return _call_fields(entry, Kind.INTENT, owner)


def refusal_fields(entry: CallEntry, owner: str) -> JsonObject:
    """Return the record of a call that was refused."""
    return _call_fields(entry, Kind.REFUSED, owner) | {"status": entry.status.value}


def outcome_fields(at: float, status: CallStatus, summary: str, job_id: str, by: str = "") -> JsonObject:
    """Return the record of a call's outcome. ``by`` is who determined it, if not the call itself."""
    fields: dict[str, Json] = {
        "kind": Kind.OUTCOME,
        "at": round(at, 6),
        "status": status.value,
        "summary": summary[:TEXT_LIMIT],
    }
    return fields | {name: text for name, text in {"job_id": job_id, "by": by}.items() if text}


def job_fields(at: float, job_id: str) -> JsonObject:
    """Return the record of a call's job."""
    return {"kind": Kind.JOB, "at": round(at, 6), "job_id": job_id}


def resolution_fields(at: float, status: CallStatus, decision: str, note: str, by: str) -> JsonObject:
    """Return the record of an operator's decision about a call with an unknown outcome."""
    return {
        "kind": Kind.RESOLVED,
        "at": round(at, 6),
        "status": status.value,
        "decision": decision,
        "summary": note[:TEXT_LIMIT],
        "by": by,
    }
