"""SQLite databases that all processes of a user share: private, durable, and read even where nothing can be written.

Everything here blocks. What is committed is on the disk.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from urllib.parse import quote

from ..errors import HarnessError
from .private_files import check_private, make_private

__all__ = ["BUSY_LIMIT", "DatabaseSchema", "PrivateDatabase", "transaction"]

BUSY_LIMIT = 5.0
"""Seconds to wait for another process that writes."""
PAUSE = 0.02
ALONE_LIMIT = 500
"""Milliseconds to wait for a process that has the database open: then its files are there, and were not readable."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
NO_SHARING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""What SQLite says where it cannot make the files that its processes share: on a full or read-only disk."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """What a database holds: what errors call it, its file, the statements that make it, and their version.

    It is looked through for damage before it is written to, up to ``looked_through`` bytes.
    """

    name: str
    file: str
    version: int
    schema: tuple[str, ...]
    looked_through: float = math.inf


@dataclass(frozen=True, slots=True)
class PrivateDatabase:
    """One database, in a directory that is its user's alone."""

    directory: Path
    content: DatabaseSchema

    @property
    def path(self) -> Path:
        """The file; SQLite keeps two more beside it while it is open."""
        return self.directory / self.content.file

    def read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        """Do ``work``; without a database the answer is ``empty``, and none is made.

        Raises:
            HarnessError: it cannot be read.
        """

        def known(db: sqlite3.Connection) -> T:
            return work(db) if self._version(db) else empty  # whoever began to make it has not come to its end

        try:
            if not self.path.stat().st_size:  # there was no room to make it
                self._check_log()
                return empty
            return self._read(known)
        except FileNotFoundError:
            return empty
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error
        except (sqlite3.Error, UnicodeError) as error:
            raise self.unusable(error) from error

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` in one transaction, which is on the disk when this returns.

        Raises:
            HarnessError: it could not be written; nothing has changed.
        """
        with closing(self.open()) as db:
            try:
                with transaction(db):
                    return work(db)
            except (sqlite3.Error, UnicodeError) as error:
                raise self.unusable(error) from error

    def open(self) -> sqlite3.Connection:
        """A connection to write with, for one thread at a time; the database is made when there is none.

        Raises:
            HarnessError: it cannot be opened.
        """
        try:
            self._prepare()
            db = self._connect("mode=rw")
            try:
                _patiently(lambda: self._set_up(db))
            except BaseException:
                db.close()
                raise
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error
        except (sqlite3.Error, UnicodeError) as error:
            raise self.unusable(error) from error
        return db

    # -- what went wrong

    def failure(self, what: str, hint: str = "") -> HarnessError:
        """The error for one that cannot be used."""
        hint = hint or "free some space there, or set XDG_STATE_HOME to another directory"
        return HarnessError(f"{self.content.name} in {self.directory} cannot be used: {what}", hint=hint)

    def damaged(self, what: object) -> HarnessError:
        """The error for one that holds what nobody wrote."""
        said = " ".join(str(what).split())
        return self.failure(f"the file is damaged ({said})", f"move {self.path} away to begin a new one")

    def unusable(self, error: sqlite3.Error | UnicodeError) -> HarnessError:
        """The error for what SQLite said, also of a text or a message that is no UTF-8."""
        if isinstance(error, UnicodeError) or str(error).startswith("Could not decode"):
            return self.damaged("a text in it is none")
        if _code(error) in BUSY:
            return self.failure("another process has held the file for too long", "see which one, and try again")
        return self.damaged(error) if _code(error) in DAMAGED else self.failure(str(error))

    # -- opening

    def _prepare(self) -> None:
        make_private(self.directory, self.content.file, failure=self.failure)
        if not self.path.stat().st_size:
            self._check_log()

    def _check_log(self) -> None:
        """An empty file with a log beside it has lost what it held: SQLite would remove the log, too."""
        log = self.directory / f"{self.content.file}-wal"
        if log.exists() and log.stat().st_size and not self.path.stat().st_size:
            raise self.damaged("it is empty, and its log is not")

    def _connect(self, how: str) -> sqlite3.Connection:
        uri = f"file:{quote(str(self.path))}?{how}"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_LIMIT, isolation_level=None, check_same_thread=False)

    def _set_up(self, db: sqlite3.Connection) -> None:
        version = self._version(db)
        if not version:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        elif self.path.stat().st_size <= self.content.looked_through:
            self._look_through(db)
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise self.failure(f"its file system gives no write-ahead log ({mode})")
        for pragma in ("synchronous = FULL", "fullfsync = ON", "foreign_keys = ON", "secure_delete = ON"):
            db.execute(f"PRAGMA {pragma}")
        if not version:
            self._create(db)

    def _look_through(self, db: sqlite3.Connection) -> None:
        """A damaged file is left as it is, for whoever repairs it: a write could land on what can be saved."""
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise self.damaged(found)

    def _version(self, db: sqlite3.Connection) -> int:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > self.content.version:
            raise self.failure(f"a newer harness made it (version {version})", "use that harness")
        if version <= 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            raise self.damaged("it has tables and no version")
        return int(version)

    def _create(self, db: sqlite3.Connection) -> None:
        with transaction(db):
            if not self._version(db):  # another process may have been faster
                for statement in self.content.schema:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {self.content.version}")

    # -- reading

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        check_private(self.directory, failure=self.failure)
        try:
            with closing(self._connect("mode=rw" if os.access(self.directory, os.W_OK) else "mode=ro")) as db:
                return _patiently(lambda: _consistent(db, work))
        except sqlite3.Error as error:
            if _code(error) not in NO_SHARING:
                raise
            return self._read_alone(work)

    def _read_alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Without the files that processes share: all of it for us alone, as it is, or a copy with its log."""
        log = self.directory / f"{self.content.file}-wal"
        if os.access(self.directory, os.W_OK):
            with closing(self._connect("mode=rw")) as db:
                db.execute(f"PRAGMA busy_timeout = {ALONE_LIMIT}")
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
                return _consistent(db, work)
        if not log.exists() or not log.stat().st_size:
            with closing(self._connect("mode=ro&immutable=1")) as db:
                return _consistent(db, work)
        with TemporaryDirectory(prefix="harness-") as place:
            copy = PrivateDatabase(Path(place), self.content)
            shutil.copyfile(self.path, copy.path)
            shutil.copyfile(log, copy.directory / log.name)
            with closing(copy._connect("mode=rw")) as db:
                return _consistent(db, work)


def _consistent(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """All of it as it is at one moment."""
    db.execute("BEGIN")
    try:
        return work(db)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """What is done inside is done as a whole, or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _patiently(work: Callable[[], T]) -> T:
    """SQLite itself does not wait while another process opens or closes the file as the first or the last."""
    give_up = time.monotonic() + BUSY_LIMIT
    while True:
        try:
            return work()
        except sqlite3.Error as error:
            if _code(error) not in BUSY or time.monotonic() > give_up:
                raise
            time.sleep(PAUSE)


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
