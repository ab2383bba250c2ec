"""The retention of audit records, and its settings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from ...command import parse_duration
from ...errors import ConfigError
from ...settings import SettingsTable
from ...settings_schema import parse_size, suggest
from .records import Kind
from .store import AuditDatabase, PendingRecord

__all__ = [
    "Retention",
    "apply_step",
    "plan",
    "retention_of",
]


# -- Dropping old records, so that the audit log stays within its limits and the rest can still be verified.
#
# First a record announces up to which number older ones are dropped; then they are dropped, a few thousand in each
# transaction, so that no call waits for long. A call without an outcome, and everything after it, is kept until it
# exceeds the maximum age.


DAY = 86400.0
STEP = 5_000
"""Records that one transaction drops."""
ROOM = 0.9
"""The share of the maximum size that is left after the size was exceeded."""
LEAP = 60 * DAY
"""Seconds. After a longer gap, ages count from the last record: the clock may be wrong."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits: maximum age in seconds, and maximum size of the database in bytes."""

    max_age: float = 366 * DAY
    max_bytes: int = 1 << 30


def plan(store: AuditDatabase, limits: Retention, now: float) -> int:
    """Announce in the chain which records to drop, and return the number of the last one; 0 for none."""
    db = store.connection
    first, last = db.execute("SELECT first, last FROM chain").fetchone()
    now = _plausible(db, now)
    through = max(_by_age(db, now - limits.max_age), _by_size(db, limits.max_bytes, first, last))
    oldest = db.execute(
        "SELECT min(u.number) FROM unsettled u JOIN records r ON r.seq = u.number WHERE r.at >= ?",
        (now - limits.max_age,),
    ).fetchone()[0]
    through = min(through, (oldest or last) - 1, last - 1)
    if through < first:
        return _announced(db, first)
    (text,) = db.execute("SELECT hash FROM records WHERE seq = ?", (through,)).fetchone()
    (forgotten,) = db.execute("SELECT count(*) FROM unsettled WHERE number <= ?", (through,)).fetchone()
    fields = {"kind": Kind.RETENTION, "at": round(now, 6), "through": through, "hash": text, "unsettled": forgotten}
    store.write([PendingRecord(fields, durable=True)])
    return int(through)


def _plausible(db: sqlite3.Connection, now: float) -> float:
    newest = db.execute("SELECT at FROM records ORDER BY seq DESC LIMIT 1").fetchone()
    return float(newest[0]) if newest and now - newest[0] > LEAP else now


def _by_age(db: sqlite3.Connection, before: float) -> int:
    """Return the last record before the first young one; a clock that was set back keeps more, never less."""
    young = db.execute("SELECT seq FROM records WHERE at >= ? ORDER BY seq LIMIT 1", (before,)).fetchone()
    (last,) = db.execute("SELECT last FROM chain").fetchone()
    return int(young[0] if young else last) - 1


def _by_size(db: sqlite3.Connection, limit: int, first: int, last: int) -> int:
    pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGES)
    used = (pages - free) * size
    if used <= limit:
        return 0
    return first + int((last - first + 1) * (1 - ROOM * limit / used)) - 1


_PAGES = ("page_count", "freelist_count", "page_size")


def _announced(db: sqlite3.Connection, first: int) -> int:
    """Return the number that an earlier, uncompleted plan announced, or 0."""
    row = db.execute("SELECT body FROM records WHERE kind = 'retention' ORDER BY seq DESC LIMIT 1").fetchone()
    if row is None:
        return 0
    through = int(json.loads(row[0])["through"])
    return through if through >= first else 0


def apply_step(store: AuditDatabase, through: int) -> bool:
    """Drop some of the records up to ``through`` and return whether there are more."""
    db = store.connection
    db.execute("BEGIN IMMEDIATE")
    try:
        (first,) = db.execute("SELECT first FROM chain").fetchone()
        end = min(through, first + STEP - 1)
        if end >= first:
            db.execute("UPDATE chain SET first = ?", (end + 1,))
            db.execute("DELETE FROM unsettled WHERE number <= ?", (end,))
            db.execute("DELETE FROM records WHERE seq <= ?", (end,))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.executescript("PRAGMA incremental_vacuum")  # as a script: execute() would only free one page
    return bool(end < through)


# -- The ``[audit]`` table of the settings files.


_READERS: Mapping[str, tuple[Callable[[str | int], float], float, str]] = {
    "max_age": (parse_duration, 3600.0, "a time of an hour or more: seconds, or 12h, 90d"),
    "max_bytes": (parse_size, 1 << 20, "a size of 1 MiB or more: bytes, or 256MiB, 2G"),
}


def retention_of(tables: Iterable[SettingsTable]) -> Retention:
    """Combine the limits of all files in order; later values take precedence.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or the file is not trusted: the author of a directory must
            not decide how soon the records about it are dropped.
    """
    limits = Retention()
    for table in tables:
        table.check_trusted("[audit]")
        changes = {name: _value(name, value, table.origin) for name, value in table.values.items()}
        limits = replace(limits, **changes)  # type: ignore[arg-type]  # each reader returns its field's type
    return limits


def _value(name: str, value: object, origin: str) -> float:
    if name not in _READERS:
        known = ", ".join(_READERS)
        raise ConfigError(
            f"{origin}: unknown key 'audit.{name}'", hint=suggest(name, tuple(_READERS)) or f"known: {known}"
        )
    read, least, meaning = _READERS[name]
    try:
        found = read(cast("str | int", value)) if isinstance(value, str | int | float) else 0
    except ValueError:
        found = 0
    if found < least or isinstance(value, bool):
        raise ConfigError(f"{origin}: audit.{name}: {value!r} is not {meaning}")
    return found
