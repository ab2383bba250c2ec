"""The tables of stored conversations."""

from __future__ import annotations

__all__ = ["SCHEMA", "VERSION"]

VERSION = 1
"""``PRAGMA user_version`` of the file."""

SCHEMA = (
    # ``epoch`` is one more each time that messages were put together into a summary: those of earlier ones stay.
    """CREATE TABLE sessions (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session_id TEXT NOT NULL UNIQUE,
      created REAL NOT NULL,
      changed REAL NOT NULL,
      target TEXT NOT NULL,
      identity TEXT NOT NULL,
      tmux TEXT NOT NULL,
      pane TEXT NOT NULL,
      model TEXT NOT NULL,
      name TEXT NOT NULL,
      title TEXT NOT NULL,
      options TEXT NOT NULL,
      epoch INTEGER NOT NULL DEFAULT 0,
      turns INTEGER NOT NULL DEFAULT 0,
      messages INTEGER NOT NULL DEFAULT 0,
      bytes INTEGER NOT NULL DEFAULT 0,
      unfinished INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX sessions_by_change ON sessions (changed)",
    """CREATE TABLE messages (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
      epoch INTEGER NOT NULL,
      body TEXT NOT NULL
    )""",
    "CREATE INDEX messages_of ON messages (session, epoch)",
    """CREATE TABLE turns (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
      turn_id TEXT NOT NULL,
      prompt TEXT NOT NULL,
      origin TEXT NOT NULL,
      started REAL NOT NULL,
      ended REAL,
      status TEXT,
      usage TEXT NOT NULL DEFAULT '{}'
    )""",
    "CREATE INDEX turns_of ON turns (session, turn_id)",
    """CREATE TABLE notes (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
      at REAL NOT NULL,
      kind TEXT NOT NULL,
      text TEXT NOT NULL
    )""",
    "CREATE INDEX notes_of ON notes (session)",
)
