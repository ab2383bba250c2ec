"""A database of one user: damage is found before anything is written, up to the size that its content names."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

import pytest

from harness.errors import HarnessError
from harness.system.private_database import DatabaseSchema, PrivateDatabase, connect

SCHEMA = ("CREATE TABLE words (word TEXT NOT NULL)", "CREATE INDEX by_word ON words (word)")
ADD = "INSERT INTO words VALUES (?)"


def database(directory: Path, looked_through: float = math.inf) -> PrivateDatabase:
    return PrivateDatabase(directory, DatabaseSchema("the words", "words.db", 1, SCHEMA, looked_through))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A directory with a database in which an index lacks what its table has."""
    directory = tmp_path / "words"
    database(directory).write(lambda db: db.executemany(ADD, [(f"word {number}",) for number in range(50)]))
    with closing(sqlite3.connect(directory / "words.db")) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'by_word'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (directory / "words.db").open("r+b") as file:
        file.seek((root - 1) * size + 3)
        file.write(b"\xff\xff")
    return directory


def test_a_damaged_database_is_not_written_to(damaged: Path) -> None:
    before = (damaged / "words.db").read_bytes()
    with pytest.raises(HarnessError, match=r"the words in .* the file is damaged"):
        database(damaged).write(lambda db: db.execute(ADD, ("more",)))
    assert (damaged / "words.db").read_bytes() == before


def test_a_database_beyond_the_size_that_is_looked_through_is_opened_as_it_is(damaged: Path) -> None:
    with closing(database(damaged, looked_through=0).open()) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_nothing_is_made_to_read(tmp_path: Path) -> None:
    assert database(tmp_path / "none").read(lambda db: 1, 0) == 0
    assert not (tmp_path / "none").exists()


def test_a_database_that_another_process_creates_at_the_same_time_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = database(tmp_path)
    tried: list[bool] = []

    def create(statement: str) -> None:
        """Create the tables, as the other process does, after the version was read and before the tables are."""
        if "sqlite_master" not in statement or tried:
            return
        tried.append(True)
        with closing(sqlite3.connect(made.path, timeout=0, isolation_level=None)) as other, suppress(sqlite3.Error):
            other.executescript("BEGIN IMMEDIATE;" + ";".join(SCHEMA) + ";PRAGMA user_version = 1;COMMIT;")

    def watched(file: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
        db = connect(file, mode)
        db.set_trace_callback(create)
        return db

    monkeypatch.setattr("harness.system.private_database.connect", watched)
    made.open().close()
    assert tried
