"""Reading the audit: calls with what came of them, and the records themselves. Everything here blocks."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from ..values import CallStatus, JsonObject
from .place import Place
from .process import Life, ProcessId, life_of
from .store import connect, unusable

__all__ = ["AuditCall", "Filters", "calls", "one_call", "open_reader", "reading", "records"]

CHUNK = "SELECT seq, number, body, hash FROM records WHERE seq > ? ORDER BY seq LIMIT 1000"
PROBE = "PRAGMA schema_version"
NO_SHARING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
ALONE_LIMIT = 500
"""Milliseconds to wait for a process that has the audit open: then SQLite's files are there, and were not readable."""
CALLS = "r.kind IN ('intent', 'refused')"
STATUS = """coalesce(r.status, (
  SELECT o.status FROM records o WHERE o.number = r.seq AND o.kind IN ('outcome', 'resolved')
  ORDER BY o.seq DESC LIMIT 1
), '')"""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which calls are asked for. Times are seconds since the epoch; empty and None mean any."""

    since: float | None = None
    until: float | None = None
    target: str = ""
    """A target's URL, or its whole identity."""
    tool: str = ""
    status: str = ""
    """How it ended; ``running`` is a call of a harness that still runs."""
    session: str = ""


@dataclass(frozen=True, slots=True)
class AuditCall:
    """A call and what came of it. ``status`` is :class:`.CallStatus`'s, or ``running``."""

    number: int
    status: str
    call: JsonObject
    """What was recorded before it ran, or when it was refused."""
    later: tuple[JsonObject, ...] = field(default=())
    """What was recorded about it since."""

    @property
    def outcome(self) -> JsonObject:
        """The newest outcome; empty when there is none."""
        return next((one for one in reversed(self.later) if one["kind"] in ("outcome", "resolved")), {})


@contextmanager
def open_reader(place: Place) -> Iterator[sqlite3.Connection]:
    """Open the audit to read.

    Raises:
        FileNotFoundError: there is none.
        HarnessError: it cannot be read.
    """
    if place.database.exists():
        place.check()
    with reading(place) as connection:
        yield connection


@contextmanager
def reading(place: Place) -> Iterator[sqlite3.Connection]:
    """Open the audit to read, whoever else may look into its directory.

    Raises:
        FileNotFoundError: there is none.
        HarnessError: it cannot be read.
    """
    if not place.database.exists() or not place.database.stat().st_size:  # empty: there was no room to make it
        raise FileNotFoundError(place.database)
    try:
        with ExitStack() as files:
            yield _opened(place, files)
    except sqlite3.Error as error:
        raise unusable(place, error) from error


def _opened(place: Place, files: ExitStack) -> sqlite3.Connection:
    """A connection that can read; on a full or read-only disk SQLite cannot make the file that its readers share."""
    connection = files.enter_context(closing(connect(place, "ro")))
    try:
        connection.execute(PROBE).fetchone()
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in NO_SHARING:
            raise
        files.close()
        connection = files.enter_context(closing(_alone(place, files)))
        connection.execute("PRAGMA temp_store = MEMORY")
        try:
            connection.execute(PROBE).fetchone()
        except sqlite3.Error:
            raise error from None
    return connection


def _alone(place: Place, files: ExitStack) -> sqlite3.Connection:
    """A connection that shares nothing with other processes, and still reads what only the write-ahead log has."""
    log = place.directory / f"{place.database.name}-wal"
    if os.access(place.directory, os.W_OK):
        connection = connect(place, "rw")
        connection.execute(f"PRAGMA busy_timeout = {ALONE_LIMIT}")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        return connection
    if not log.exists() or not log.stat().st_size:
        return connect(place, "ro", immutable=True)
    try:
        copy = Place(Path(files.enter_context(TemporaryDirectory(prefix="harness-audit-"))))
        for path in (place.database, log):
            shutil.copyfile(path, copy.directory / path.name)
    except OSError as error:
        what = f"nothing can be written there, and a copy cannot be made: {error.strerror or error}"
        raise place.failure(what, "free some space for temporary files, or set TMPDIR to another directory") from error
    return connect(copy, "rw")


def calls(db: sqlite3.Connection, filters: Filters, here: ProcessId, limit: int) -> list[AuditCall]:
    """The newest calls that fit, newest last."""
    alive = _living(db, here)
    chosen = list(islice(_numbers(db, filters, alive), limit))
    return [_call(db, number, alive) for number in reversed(chosen)]


def one_call(db: sqlite3.Connection, number: int, here: ProcessId) -> AuditCall | None:
    """The call of that number."""
    found = db.execute("SELECT 1 FROM records WHERE seq = ? AND kind IN ('intent', 'refused')", (number,)).fetchone()
    return _call(db, number, _living(db, here)) if found else None


def records(db: sqlite3.Connection, filters: Filters, here: ProcessId) -> Iterator[tuple[str, str]]:
    """Each record's text and hash, oldest first: all of them, or those about the calls that fit."""
    chosen = None if filters == Filters() else frozenset(_numbers(db, filters, _living(db, here)))
    last = 0
    while rows := db.execute(CHUNK, (last,)).fetchall():  # a reader that pauses must not hold up who tidies the log
        for seq, number, body, text in rows:
            if chosen is None or seq in chosen or number in chosen:
                yield body, text
        last = rows[-1][0]


def _numbers(db: sqlite3.Connection, filters: Filters, alive: frozenset[int]) -> Iterator[int]:
    """The calls that fit, newest first."""
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
    """The calls that run, or may run where it cannot be seen."""
    rows = db.execute("SELECT number, process FROM unsettled WHERE state = 'running'")
    return frozenset(number for number, process in rows if life_of(ProcessId.from_text(process), here) is not Life.DEAD)


def _shown(status: str, is_alive: bool) -> str:
    return status or ("running" if is_alive else CallStatus.UNKNOWN.value)


def _call(db: sqlite3.Connection, number: int, alive: frozenset[int]) -> AuditCall:
    (body,) = db.execute("SELECT body FROM records WHERE seq = ?", (number,)).fetchone()
    rows = db.execute("SELECT body FROM records WHERE number = ? ORDER BY seq", (number,))
    found = AuditCall(number, "", json.loads(body), tuple(json.loads(text) for (text,) in rows))
    status = str(found.outcome.get("status", "") or found.call.get("status", ""))
    return AuditCall(number, _shown(status, number in alive), found.call, found.later)
