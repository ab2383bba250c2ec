"""Proving that the audit is what was written: every record unchanged, in its place, none missing. Blocks."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field

from ...errors import HarnessError
from ..values import CallStatus, JsonObject
from .place import Head, Place
from .reading import reading
from .records import GENESIS, Kind, digest, storable
from .schema import COLUMNS

__all__ = ["Report", "verify"]

PROBLEMS = 100
"""Problems that are listed."""
OUT_OF_REACH = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN)
"""Errors that say nothing of what is written: a full disk, say, on which SQLite cannot even read."""


@dataclass(slots=True)
class Report:
    """What a check found. ``problems`` are sentences; there are none when everything is as it was written."""

    first: int = 1
    """The oldest record that is kept; those before it were dropped by the settings."""
    head: Head = field(default_factory=lambda: Head(0, GENESIS))
    records: int = 0
    unsettled: int = 0
    problems: list[str] = field(default_factory=list)
    wrong_rights: str = ""
    """What is wrong with the rights of the directory; it says nothing of the records."""

    @property
    def is_whole(self) -> bool:
        """Nothing was found."""
        return not self.problems


def verify(place: Place, receipt: Head | None = None) -> Report:
    """Check everything.

    Args:
        receipt: a head that an earlier check printed: the records up to it must still be the same.

    Raises:
        HarnessError: it cannot be read at all.
    """
    report = Report(wrong_rights=place.wrong_rights())
    known = [("receipt", receipt)] if receipt is not None else []
    try:
        heads = place.heads()  # before the database: the head in a file is never newer
        known += [(f"file {name!r}", head) for name, head in heads.items()]
        with reading(place) as db:
            db.execute("BEGIN")  # all of it as it is at one moment
            _Check(db, report, dict(known)).run(has_head_file=place.head_file.name in heads)
    except FileNotFoundError:
        if known:
            report.problems.append(
                f"there is no {place.database}, and records were written: the head was {known[0][1]}"
            )
    except OSError as error:  # it may be whole
        raise place.unreadable(f"{error.strerror or error}: {error.filename or place.database}") from error
    except (ValueError, HarnessError) as error:
        if getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in OUT_OF_REACH:
            raise  # it may be whole
        report.problems.append(str(error))
    return report


class _Check:
    def __init__(self, db: sqlite3.Connection, report: Report, known: dict[str, Head]) -> None:
        self._db = db
        self._report = report
        self._known = known
        self._open: set[int] = set()
        self._dropped: dict[int, str] = {}

    def run(self, *, has_head_file: bool) -> None:
        first, last, text = self._db.execute("SELECT first, last, hash FROM chain").fetchone()
        self._report.first, self._report.head = first, Head(last, text)
        before = self._start(first)
        end = self._records(first, before)
        if end != self._report.head:
            what = "missing" if end.count < last else "not those that were written"
            self._problem(f"the last records are {what}: the chain should end with {last}, and ends with {end.count}")
        self._anchors(first, before)
        self._heads(last)
        self._unsettled()
        if last and not has_head_file:
            self._problem("the file 'head' beside the database is missing or empty")

    def _problem(self, text: str) -> None:
        if len(self._report.problems) < PROBLEMS:
            self._report.problems.append(text)

    def _start(self, first: int) -> str:
        """The hash before the oldest record, as that one has it."""
        if first == 1:
            return GENESIS
        row = self._db.execute("SELECT body FROM records WHERE seq = ?", (first,)).fetchone()
        return str(_load(row[0]).get("prev", "")) if row else ""

    def _records(self, first: int, before: str) -> Head:
        columns = ", ".join(COLUMNS)
        rows = self._db.execute(f"SELECT seq, body, hash, {columns} FROM records ORDER BY seq")  # noqa: S608  # names of columns
        expected, previous = first, before
        for seq, body, text, *found in rows:
            if seq != expected:
                missing = f"{expected} to {seq - 1}" if seq > expected + 1 else f"{expected}"
                self._problem(f"missing: {missing}" if seq > expected else f"record {seq} was dropped, and is there")
            self._record(seq, body, text, found, previous if seq == expected else None)
            expected, previous = seq + 1, text
            self._report.records += 1
        return Head(expected - 1, previous)

    def _record(self, seq: int, body: str, text: str, found: list[object], previous: str | None) -> None:
        fields = _load(body)
        if digest(body) != text:
            self._problem(f"record {seq} was changed")
        elif fields.get("seq") != seq:
            self._problem(f"record {seq} is in another's place: it was written as {fields.get('seq')}")
        elif previous is not None and fields.get("prev") != previous:
            self._problem(f"record {seq} does not follow the one before it: one of them was changed or replaced")
        elif [fields.get(name) for name in COLUMNS] != found and [_column(fields, name) for name in COLUMNS] != found:
            self._problem(f"record {seq} is listed under something else than it says")
        for what, head in self._known.items():
            if seq == head.count and text != head.hash:
                self._problem(f"record {seq} is another than the one that the {what} knows")
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
            self._problem(f"record {seq} says that damage was found: {fields.get('text')}")

    def _is_mutating(self, number: int) -> bool:
        row = self._db.execute("SELECT body FROM records WHERE seq = ?", (number,)).fetchone()
        return bool(row and _load(row[0]).get("mutating"))

    def _anchors(self, first: int, before: str) -> None:
        """What is no longer there was dropped by the settings, and that was recorded."""
        if first == 1:
            return
        announced = self._dropped.get(first - 1)
        if announced is not None and announced != before:
            self._problem(f"what was dropped before record {first} is not what record {first} follows")
        elif announced is None and not any(through >= first for through in self._dropped):
            self._problem(f"the records before {first} are missing, and no record says that they were dropped")

    def _heads(self, last: int) -> None:
        for what, head in self._known.items():
            if head.count > last:
                self._problem(f"{head.count} records were written, as the {what} knows, and {last} are there")

    def _unsettled(self) -> None:
        listed = {number for (number,) in self._db.execute("SELECT number FROM unsettled")}
        self._report.unsettled = len(listed)
        for number in sorted(self._open - listed):
            self._problem(f"call {number} has no known outcome, and is not listed among those")
        for number in sorted(listed - self._open):
            self._problem(f"call {number} is listed as one without a known outcome, and is none")


def _load(body: str) -> JsonObject:
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _column(fields: JsonObject, name: str) -> object:
    value = fields.get(name)
    return (storable(value) or None) if isinstance(value, str) else value
