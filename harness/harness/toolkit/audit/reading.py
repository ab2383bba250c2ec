"""Reads the audit log and verifies its hash chain."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice

from ...errors import HarnessError
from ...system.private_database import cannot_share, connect, connect_alone
from ...system.process_identity import ProcessId, ProcessState, process_state
from ..values import CallStatus, JsonObject
from .directory import AuditPaths, ChainHead
from .records import COLUMNS, GENESIS, Kind, digest, storable
from .store import unusable

__all__ = [
    "AuditCall",
    "Filters",
    "Report",
    "calls",
    "one_call",
    "open_reader",
    "reading",
    "records",
    "verify_audit",
]


# -- Reading the audit log: calls with their outcomes, and the records themselves. Everything here blocks.


CHUNK = "SELECT seq, number, body, hash FROM records WHERE seq > ? ORDER BY seq LIMIT 1000"
PROBE = "PRAGMA schema_version"
CALLS = "r.kind IN ('intent', 'refused')"
STATUS = """coalesce(r.status, (
  SELECT o.status FROM records o WHERE o.number = r.seq AND o.kind IN ('outcome', 'resolved')
  ORDER BY o.seq DESC LIMIT 1
), '')"""


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters for calls. Times are Unix times; empty and None match everything."""

    since: float | None = None
    until: float | None = None
    target: str = ""
    """A target's URL, or its complete identity."""
    tool: str = ""
    status: str = ""
    """How the call ended; ``running`` is a call of a running harness process."""
    session: str = ""


@dataclass(frozen=True, slots=True)
class AuditCall:
    """A call and its outcome. ``status`` is a :class:`.CallStatus` value or ``running``."""

    number: int
    status: str
    call: JsonObject
    """The record from before it ran, or of its refusal."""
    later: tuple[JsonObject, ...] = field(default=())
    """The later records about it."""

    @property
    def outcome(self) -> JsonObject:
        """The newest outcome; empty without one."""
        return next((one for one in reversed(self.later) if one["kind"] in ("outcome", "resolved")), {})


@contextmanager
def open_reader(place: AuditPaths) -> Iterator[sqlite3.Connection]:
    """Open the audit log for reading.

    Raises:
        FileNotFoundError: it does not exist.
        HarnessError: it cannot be read.
    """
    if place.database.exists():
        place.check()
    with reading(place) as connection:
        yield connection


@contextmanager
def reading(place: AuditPaths) -> Iterator[sqlite3.Connection]:
    """Open the audit log for reading, even if its directory is accessible to others.

    Raises:
        FileNotFoundError: it does not exist.
        HarnessError: it cannot be read.
    """
    if not place.database.exists() or not place.database.stat().st_size:  # empty: the disk was full
        raise FileNotFoundError(place.database)
    try:
        with ExitStack() as files:
            yield _opened(place, files)
    except sqlite3.Error as error:
        raise unusable(place, error) from error


def _opened(place: AuditPaths, files: ExitStack) -> sqlite3.Connection:
    """Return a readable connection, even if SQLite cannot create its shared memory file on a full or read-only disk."""
    connection = files.enter_context(closing(connect(place.database, "ro")))
    try:
        connection.execute(PROBE).fetchone()
    except sqlite3.Error as error:
        if not cannot_share(error):
            raise
        files.close()
        connection = _alone(place, files)
        connection.execute("PRAGMA temp_store = MEMORY")
        try:
            connection.execute(PROBE).fetchone()
        except sqlite3.Error:
            raise error from None
    return connection


def _alone(place: AuditPaths, files: ExitStack) -> sqlite3.Connection:
    """Return a connection without shared memory that still reads records which are only in the write-ahead log."""
    try:
        return connect_alone(place.database, files)
    except OSError as error:
        what = f"the directory is not writable, and a copy cannot be created: {error.strerror or error}"
        raise place.failure(what, "free some space for temporary files, or set TMPDIR to another directory") from error


def calls(db: sqlite3.Connection, filters: Filters, here: ProcessId, limit: int) -> list[AuditCall]:
    """Return the newest matching calls, newest last."""
    alive = _living(db, here)
    chosen = list(islice(_numbers(db, filters, alive), limit))
    return [_call(db, number, alive) for number in reversed(chosen)]


def one_call(db: sqlite3.Connection, number: int, here: ProcessId) -> AuditCall | None:
    """Return the call of that number, or None."""
    found = db.execute("SELECT 1 FROM records WHERE seq = ? AND kind IN ('intent', 'refused')", (number,)).fetchone()
    return _call(db, number, _living(db, here)) if found else None


def records(db: sqlite3.Connection, filters: Filters, here: ProcessId) -> Iterator[tuple[str, str]]:
    """Yield each record's text and hash, oldest first: all records, or those about matching calls."""
    chosen = None if filters == Filters() else frozenset(_numbers(db, filters, _living(db, here)))
    last = 0
    while rows := db.execute(CHUNK, (last,)).fetchall():  # in chunks: a slow reader must not block the cleanup
        for seq, number, body, text in rows:
            if chosen is None or seq in chosen or number in chosen:
                yield body, text
        last = rows[-1][0]


def _numbers(db: sqlite3.Connection, filters: Filters, alive: frozenset[int]) -> Iterator[int]:
    """Yield the matching calls, newest first."""
    where, values = _condition(filters)
    query = f"SELECT r.seq, {STATUS} FROM records r WHERE {where} ORDER BY r.seq DESC"  # noqa: S608  # values are bound
    for number, status in db.execute(query, values):
        if filters.status in ("", _shown(status, number in alive)):
            yield number


def _condition(filters: Filters) -> tuple[str, dict[str, str | float]]:
    parts = {
        "since": "r.at >= :since",
        "until": "r.at < :until",
        "target": "(r.backend = :target OR substr(r.backend, 1, length(:target) + 1) = :target || '#')",
        "tool": "r.tool = :tool",
        "session": "r.session_id = :session",
    }
    given = {name: getattr(filters, name) for name in parts if getattr(filters, name) not in ("", None)}
    return " AND ".join([CALLS, *(parts[name] for name in given)]), given


def _living(db: sqlite3.Connection, here: ProcessId) -> frozenset[int]:
    """Return the calls that are running, or may be running on another machine."""
    rows = db.execute("SELECT number, process FROM unsettled WHERE state = 'running'")
    return frozenset(
        number for number, process in rows if process_state(ProcessId.from_text(process), here) is not ProcessState.DEAD
    )


def _shown(status: str, is_alive: bool) -> str:
    return status or ("running" if is_alive else CallStatus.UNKNOWN.value)


def _call(db: sqlite3.Connection, number: int, alive: frozenset[int]) -> AuditCall:
    (body,) = db.execute("SELECT body FROM records WHERE seq = ?", (number,)).fetchone()
    rows = db.execute("SELECT body FROM records WHERE number = ? ORDER BY seq", (number,))
    found = AuditCall(number, "", json.loads(body), tuple(json.loads(text) for (text,) in rows))
    status = str(found.outcome.get("status", "") or found.call.get("status", ""))
    return AuditCall(number, _shown(status, number in alive), found.call, found.later)


# -- Verifying that the audit log is unchanged: every record intact, in its position, none missing. Blocks.


PROBLEMS = 100
"""Maximum number of listed problems."""
OUT_OF_REACH = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN)
"""Errors that do not mean damage, such as a full disk on which SQLite cannot even read."""


@dataclass(slots=True)
class Report:
    """The result of a verification. ``problems`` are sentences; empty if the log is intact."""

    first: int = 1
    """The oldest stored record; older ones were dropped by the retention settings."""
    head: ChainHead = field(default_factory=lambda: ChainHead(0, GENESIS))
    records: int = 0
    unsettled: int = 0
    problems: list[str] = field(default_factory=list)
    wrong_rights: str = ""
    """What is wrong with the directory's permissions; this says nothing about the records."""

    @property
    def is_whole(self) -> bool:
        """Whether no problems were found."""
        return not self.problems


def verify_audit(place: AuditPaths, receipt: ChainHead | None = None) -> Report:
    """Verify the audit log.

    Args:
        place: its files.
        receipt: a chain head from an earlier verification: the records up to it must be unchanged.

    Raises:
        HarnessError: it cannot be read at all.
    """
    report = Report(wrong_rights=place.wrong_rights())
    known = [("receipt", receipt)] if receipt is not None else []
    try:
        heads = place.heads()  # before the database: a head file is never newer
        known += [(f"file {name!r}", head) for name, head in heads.items()]
        with reading(place) as db:
            db.execute("BEGIN")  # a consistent snapshot
            _Check(db, report, dict(known)).run(has_head_file=place.head_file.name in heads)
    except FileNotFoundError:
        if known:
            report.problems.append(
                f"{place.database} is missing, but records were written: the chain head was {known[0][1]}"
            )
    except OSError as error:  # the log may be intact
        raise place.unreadable(f"{error.strerror or error}: {error.filename or place.database}") from error
    except (ValueError, HarnessError) as error:
        if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in OUT_OF_REACH:
            raise  # the log may be intact
        report.problems.append(str(error))
    return report


class _Check:
    def __init__(self, db: sqlite3.Connection, report: Report, known: dict[str, ChainHead]) -> None:
        self._db = db
        self._report = report
        self._known = known
        self._open: set[int] = set()
        self._dropped: dict[int, str] = {}

    def run(self, *, has_head_file: bool) -> None:
        first, last, text = self._db.execute("SELECT first, last, hash FROM chain").fetchone()
        self._report.first, self._report.head = first, ChainHead(last, text)
        before = self._start(first)
        end = self._records(first, before)
        if end != self._report.head:
            what = "missing" if end.count < last else "different from the written ones"
            self._problem(f"the last records are {what}: the chain should end with {last}, but ends with {end.count}")
        self._anchors(first, before)
        self._heads(last)
        self._unsettled()
        if last and not has_head_file:
            self._problem("the file 'head' next to the database is missing or empty")

    def _problem(self, text: str) -> None:
        if len(self._report.problems) < PROBLEMS:
            self._report.problems.append(text)

    def _start(self, first: int) -> str:
        """Return the hash before the oldest record, as stored in that record."""
        if first == 1:
            return GENESIS
        row = self._db.execute("SELECT body FROM records WHERE seq = ?", (first,)).fetchone()
        return str(_load(row[0]).get("prev", "")) if row else ""

    def _records(self, first: int, before: str) -> ChainHead:
        columns = ", ".join(COLUMNS)
        rows = self._db.execute(f"SELECT seq, body, hash, {columns} FROM records ORDER BY seq")  # noqa: S608  # names of columns
        expected, previous = first, before
        for seq, body, text, *found in rows:
            if seq != expected:
                missing = f"{expected} to {seq - 1}" if seq > expected + 1 else f"{expected}"
                self._problem(f"missing: {missing}" if seq > expected else f"record {seq} was dropped, but exists")
            self._record(seq, body, text, found, previous if seq == expected else None)
            expected, previous = seq + 1, text
            self._report.records += 1
        return ChainHead(expected - 1, previous)

    def _record(self, seq: int, body: str, text: str, found: list[object], previous: str | None) -> None:
        fields = _load(body)
        if digest(body) != text:
            self._problem(f"record {seq} was changed")
        elif fields.get("seq") != seq:
            self._problem(f"record {seq} is in the wrong position: it was written as {fields.get('seq')}")
        elif previous is not None and fields.get("prev") != previous:
            self._problem(f"record {seq} does not follow the previous one: one of them was changed or replaced")
        elif [fields.get(name) for name in COLUMNS] != found and [_column(fields, name) for name in COLUMNS] != found:
            self._problem(f"record {seq} has index columns that differ from its content")
        for what, head in self._known.items():
            if seq == head.count and text != head.hash:
                self._problem(f"record {seq} differs from the one in the {what}")
        self._follow(seq, fields)

    def _follow(self, seq: int, fields: JsonObject) -> None:
        kind, number = fields.get("kind"), fields.get("number")
        if kind == Kind.INTENT:
            self._open.add(seq)
        elif kind in (Kind.OUTCOME, Kind.RESOLVED) and isinstance(number, int):
            is_unknown = fields.get("status") == CallStatus.UNKNOWN.value
            if not is_unknown or not self._is_mutating(number):
                self._open.discard(number)
        elif kind == Kind.RETENTION and isinstance(through := fields.get("through"), int):
            self._dropped[through] = str(fields.get("hash"))
        elif kind == Kind.DAMAGE:
            self._problem(f"record {seq} reports damage: {fields.get('text')}")

    def _is_mutating(self, number: int) -> bool:
        row = self._db.execute("SELECT body FROM records WHERE seq = ?", (number,)).fetchone()
        return bool(row and _load(row[0]).get("mutating"))

    def _anchors(self, first: int, before: str) -> None:
        """Check that missing old records were dropped by the settings, and that this was recorded."""
        if first == 1:
            return
        announced = self._dropped.get(first - 1)
        if announced is not None and announced != before:
            self._problem(f"the records dropped before record {first} are not those that it follows")
        elif announced is None and not any(through >= first for through in self._dropped):
            self._problem(f"the records before {first} are missing, but no record announces that they were dropped")

    def _heads(self, last: int) -> None:
        for what, head in self._known.items():
            if head.count > last:
                self._problem(f"{head.count} records were written according to the {what}, but there are {last}")

    def _unsettled(self) -> None:
        listed = {number for (number,) in self._db.execute("SELECT number FROM unsettled")}
        self._report.unsettled = len(listed)
        for number in sorted(self._open - listed):
            self._problem(f"call {number} has no known outcome, but is not listed as such")
        for number in sorted(listed - self._open):
            self._problem(f"call {number} is listed without a known outcome, but has one")


def _load(body: str) -> JsonObject:
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _column(fields: JsonObject, name: str) -> object:
    value = fields.get(name)
    return (storable(value) or None) if isinstance(value, str) else value
