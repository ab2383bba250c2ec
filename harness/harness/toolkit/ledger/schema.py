"""The tables of the audit, and the triggers that keep its records as they were written."""

from __future__ import annotations

__all__ = ["COLUMNS", "SCHEMA", "VERSION"]

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
