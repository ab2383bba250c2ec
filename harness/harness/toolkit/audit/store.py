"""The database of the audit log: one connection, used by one thread at a time. Everything here blocks.

Several processes write one file. Each transaction takes the write lock first, reads the end of the chain, and appends
to it, so that there is only one chain.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from ...errors import HarnessError
from ...system.private_database import connect, retry_while_locked, transaction, use_write_ahead_log
from ...system.process_identity import ProcessId
from ..values import Json, JsonObject
from .directory import AuditPaths, ChainHead, HeadFiles
from .records import GENESIS, SCHEMA, VERSION, Kind, canonical, digest, storable

__all__ = [
    "AuditDatabase",
    "PendingRecord",
    "UnresolvedRow",
    "damage",
    "open_store",
    "unusable",
]

logger = logging.getLogger(__name__)

_INSERT = (
    "INSERT INTO records (seq, kind, number, at, status, backend, tool, session_id, body, hash)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(slots=True, eq=False)
class PendingRecord:
    """A record to write. ``about`` is the record of the call that it belongs to, if that is another record."""

    fields: JsonObject
    durable: bool = False
    """It must be on disk before the write returns, even if the machine crashes."""
    about: PendingRecord | None = None
    number: int = 0
    """The number of an earlier call that it belongs to; for a call's own record, set when it is written."""
    void: bool = False
    """It was cancelled before it was written: records about it are not written either."""


@dataclass(frozen=True, slots=True)
class UnresolvedRow:
    """A call without a known outcome."""

    number: int
    state: str
    mutating: bool
    process: ProcessId
    job_id: str
    record: JsonObject = field(default_factory=dict)
    """The record from before it ran."""


class AuditDatabase:
    """An open audit log, for one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, heads: HeadFiles, place: AuditPaths, process: ProcessId) -> None:
        self._db = connection
        self._heads = heads
        self._place = place
        self.process = process
        self._is_full = True
        self._is_compared = False
        self._is_behind = False
        self._file = _identity(place)
        self._last = ChainHead(0, GENESIS)

    # -- Writing.

    def write(self, items: Sequence[PendingRecord]) -> None:
        """Write all records in order, or none.

        Raises:
            sqlite3.Error, OSError: nothing was written.
        """
        durable = not self._is_compared or any(item.durable for item in items)  # a process's first: the log may be new
        self._synchronous(full=durable)
        with self._transaction() as chain:
            numbers = [(item, chain.add(item)) for item in items if not _is_void(item)]
        for item, number in numbers:
            item.number = number
        self._is_behind = not durable
        if durable and chain.head.count:
            self._heads.keep(chain.head)

    def finish(self) -> None:
        """Sync earlier non-durable writes to disk, and update the head files.

        Raises:
            sqlite3.Error, OSError: it failed; the written records are still there.
        """
        if not self._is_behind:
            return
        self._synchronous(full=True)
        with self._transaction() as chain:
            pass
        self._heads.keep(chain.head)
        self._is_behind = False

    def _synchronous(self, *, full: bool) -> None:
        if full != self._is_full:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
            self._is_full = full

    @contextmanager
    def _transaction(self) -> Iterator[_Chain]:
        if _identity(self._place) != self._file:  # records would be written to a deleted file
            raise OSError(f"{self._place.database} was deleted or replaced while it was open; restart harness")
        with transaction(self._db):
            chain = _Chain(self._db, self.process)
            if not self._is_compared or _is_older(chain.head, self._last):
                self._compare(chain)
            yield chain
            chain.close()
        self._is_compared, self._last = True, chain.head

    def _compare(self, chain: _Chain) -> None:
        """Record in the chain that its end differs from the head files, before the next write hides it."""
        what = damage(self._db, self._place)
        if not what and _is_older(chain.head, self._last):
            what = _fewer(self._last.count, chain.head.count, "this process")
        if what:
            logger.error("the audit log in %s is damaged: %s; see 'harness audit verify'", self._place.directory, what)
            chain.append({"kind": Kind.DAMAGE, "at": round(time.time(), 6), "text": what})

    # -- Calls without a known outcome.

    def unsettled(self, backend: str | None = None) -> list[UnresolvedRow]:
        """Return calls without a known outcome, oldest first; of one target or all."""
        rows = self._db.execute(
            "SELECT u.number, u.state, u.mutating, u.process, u.job_id, r.body FROM unsettled u"
            " LEFT JOIN records r ON r.seq = u.number WHERE :backend IS NULL OR u.backend = :backend ORDER BY u.number",
            {"backend": backend},
        )
        return [
            UnresolvedRow(number, state, bool(mutating), ProcessId.from_text(process), job_id, json.loads(body or "{}"))
            for number, state, mutating, process, job_id, body in rows
        ]

    def siblings(self, call: UnresolvedRow) -> list[tuple[JsonObject, str]]:
        """Return the other calls of the same process on the same target: each one's job, or else its arguments.

        Calls of all tools are included: another tool may have run the same command.
        """
        record = call.record  # the query repeats the condition of the partial index, so that SQLite uses the index
        rows = self._db.execute(
            "SELECT seq, body FROM records WHERE kind = 'intent' AND kind IN ('intent', 'refused')"
            " AND backend = ? AND seq != ? AND instr(body, ?)",
            (record["backend"], call.number, canonical({"owner": record["owner"]})[1:-1]),
        )
        found: list[tuple[JsonObject, str]] = []
        for number, body in rows:  # may be many: if the job is known, the arguments are not needed
            job_id = self._job_of(number)
            found.append(({}, job_id) if job_id else ({"arguments": json.loads(body)["arguments"]}, ""))
        return found

    def _job_of(self, number: int) -> str:
        rows = self._db.execute("SELECT body FROM records WHERE number = ? AND seq > number", (number,))
        known = [json.loads(body).get("job_id", "") for (body,) in rows]
        return next((job_id for job_id in known if job_id), "")

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection, for :mod:`.retention`."""
        return self._db


def _identity(place: AuditPaths) -> tuple[int, int]:
    """Return the device and inode of the database; zeros if it does not exist."""
    try:
        info = os.stat(place.database)
    except FileNotFoundError:
        return 0, 0
    return info.st_dev, info.st_ino


def _is_older(head: ChainHead, known: ChainHead) -> bool:
    return head.count < known.count or (head.count == known.count and head.hash != known.hash)


def damage(db: sqlite3.Connection, place: AuditPaths) -> str:
    """Return how the end of the chain differs from the head files; empty if it does not."""
    try:
        heads = place.heads()
    except (OSError, ValueError) as error:
        return f"the chain head cannot be read: {error}"
    (last,) = db.execute("SELECT last FROM chain").fetchone()
    return next((what for name, head in heads.items() if (what := _misfit(db, last, name, head))), "")


def _misfit(db: sqlite3.Connection, last: int, name: str, head: ChainHead) -> str:
    if head.count > last:
        return _fewer(head.count, last, f"the file {name!r}")
    found = db.execute("SELECT hash FROM records WHERE seq = ?", (head.count,)).fetchone()
    if found and found[0] != head.hash:
        return f"record {head.count} differs from the one in the file {name!r}"
    return ""


def _fewer(written: int, there: int, who: str) -> str:
    return f"{written} records were written according to {who}, but there are {there}"


def _is_void(item: PendingRecord) -> bool:
    return item.void or (item.about is not None and item.about.void)


class _Chain:
    """The chain inside one transaction."""

    def __init__(self, db: sqlite3.Connection, process: ProcessId) -> None:
        self._db = db
        self._process = process
        last, text = db.execute("SELECT last, hash FROM chain").fetchone()
        self.head = ChainHead(last, text)
        self._numbers: dict[int, int] = {}

    def add(self, item: PendingRecord) -> int:
        """Append a record and return the number of its call; 0 if the record was no longer needed."""
        kind, fields = str(item.fields["kind"]), item.fields
        number = self._about(item)
        if kind in _SETTLING and not self._settle(number, fields):
            return 0
        seq = self.append(fields, number)
        if kind == Kind.INTENT:
            self._open(seq, fields)
        elif kind == Kind.JOB:
            job_id = storable(str(fields["job_id"]))
            self._db.execute("UPDATE unsettled SET job_id = ? WHERE number = ?", (job_id, number))
        self._numbers[id(item)] = seq
        return number or seq

    def _about(self, item: PendingRecord) -> int:
        if item.about is not None:
            return self._numbers.get(id(item.about)) or item.about.number
        return item.number

    def append(self, fields: JsonObject, number: int = 0) -> int:
        """Append a record without updating the list of unresolved calls."""
        seq, kind = self.head.count + 1, str(fields["kind"])
        body = canonical({**fields, "seq": seq, "prev": self.head.hash, **({"number": number} if number else {})})
        text = digest(body)
        found = (_text(fields.get(name)) for name in ("status", "backend", "tool", "session_id"))
        self._db.execute(_INSERT, (seq, kind, number or None, fields["at"], *found, body, text))
        self.head = ChainHead(seq, text)
        return seq

    def _open(self, number: int, fields: JsonObject) -> None:
        self._db.execute(
            "INSERT INTO unsettled (number, state, mutating, backend, process) VALUES (?, 'running', ?, ?, ?)",
            (number, int(bool(fields["mutating"])), _text(fields["backend"]), self._process.to_text()),
        )

    def _settle(self, number: int, fields: JsonObject) -> bool:
        """Mark a call as settled; return False if another process already did."""
        if fields["status"] == "unknown":  # a read-only call can be repeated and needs no decision
            job_id = storable(str(fields.get("job_id", "")))
            kept = self._db.execute(
                "UPDATE unsettled SET state = 'unknown', job_id = CASE :job WHEN '' THEN job_id ELSE :job END"
                " WHERE number = :number AND state = 'running' AND mutating",
                {"job": job_id, "number": number},
            )
            if kept.rowcount:
                return True
            gone = self._db.execute("DELETE FROM unsettled WHERE number = ? AND NOT mutating", (number,))
        else:
            gone = self._db.execute("DELETE FROM unsettled WHERE number = ?", (number,))
        return bool(gone.rowcount)

    def close(self) -> None:
        """Store the new end of the chain."""
        self._db.execute("UPDATE chain SET last = ?, hash = ?", (self.head.count, self.head.hash))


_SETTLING = frozenset({Kind.OUTCOME, Kind.RESOLVED})


def _text(value: Json) -> str | None:
    return storable(value) if isinstance(value, str) and value else None


# -- Opening.


@contextmanager
def open_store(place: AuditPaths, process: ProcessId) -> Iterator[AuditDatabase]:
    """Open the audit log for writing, and create it if it is missing.

    Raises:
        HarnessError: it cannot be opened, so no call may run.
    """
    place.prepare()
    try:
        connection = connect(place.database, "rw")
    except sqlite3.Error as error:
        raise unusable(place, error) from error
    with closing(connection):
        try:
            retry_while_locked(lambda: _set_up(connection, place))
        except sqlite3.Error as error:
            raise unusable(place, error) from error
        with closing(HeadFiles(place)) as heads:
            yield AuditDatabase(connection, heads, place, process)


def _set_up(connection: sqlite3.Connection, place: AuditPaths) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise place.failure(
            f"it was created by a newer harness (version {version})", "use that harness, or another directory"
        )
    if not version:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    use_write_ahead_log(connection, failure=place.failure)
    if not version:
        _create(connection)


def _create(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        if not connection.execute("PRAGMA user_version").fetchone()[0]:  # another process may have been faster
            for statement in _statements(SCHEMA):
                connection.execute(statement)
            connection.execute("INSERT INTO chain (one, first, last, hash) VALUES (1, 1, 0, ?)", (GENESIS,))
            connection.execute(f"PRAGMA user_version = {VERSION}")


def _statements(script: str) -> Iterable[str]:
    """Yield the statements of a script; unlike ``executescript``, they run in the open transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def unusable(place: AuditPaths, error: Exception) -> HarnessError:
    """Return the error for a database that does not work."""
    if "not a database" in str(error) or "malformed" in str(error):
        hint = f"move {place.database} away to create a new one, and find out what changed it"
        return place.failure(f"the file is damaged ({error})", hint)
    return place.failure(str(error), "free some space there, or set XDG_STATE_HOME to another directory")
