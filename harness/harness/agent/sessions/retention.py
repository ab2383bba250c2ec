"""How long conversations are kept."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

__all__ = ["SessionRetention", "freed", "outdated"]

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class SessionRetention:
    """How much is kept: seconds since the last change, and bytes of all messages.

    One that is open is kept, and so is the newest, however large it is.
    """

    max_age: float = 366 * DAY
    max_bytes: int = 1 << 30
    least: int = 20
    """So many of the newest stay whatever their age is: a clock may be wrong."""


def outdated(db: sqlite3.Connection, limits: SessionRetention, now: float) -> tuple[str, ...]:
    """The conversations that are to go: those that are too old, and the oldest ones while there is too much."""
    rows = db.execute(
        "SELECT session_id, changed, bytes FROM sessions"
        " WHERE typeof(changed) = 'real' AND typeof(bytes) = 'integer'"  # what is damaged is left for who looks into it
        " ORDER BY changed DESC, number DESC"
    )
    kept, going = 0, []
    for place, (session_id, changed, size) in enumerate(rows):
        kept += size
        is_old = place >= limits.least and changed < now - limits.max_age
        if is_old or (place and kept > limits.max_bytes):
            going.append(session_id)
    return tuple(reversed(going))


def freed(db: sqlite3.Connection) -> None:
    """Give room that nothing needs any more back to the disk."""
    db.executescript("PRAGMA incremental_vacuum")  # as a script: execute() would free one page only
