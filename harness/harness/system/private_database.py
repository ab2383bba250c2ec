"""SQLite databases shared by all processes of a user: private, durable, and readable even on read-only disks.

Everything here blocks. Committed data is on disk.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeVar
from urllib.parse import quote

from ..errors import HarnessError
from .private_files import Failure, check_private, make_private

__all__ = [
    "BUSY_LIMIT",
    "DatabaseSchema",
    "PrivateDatabase",
    "cannot_share",
    "connect",
    "connect_alone",
    "retry_while_locked",
    "transaction",
    "use_write_ahead_log",
]

BUSY_LIMIT = 5.0
"""Seconds to wait for a lock of another process."""
PAUSE = 0.02
ALONE_LIMIT = 500
"""Milliseconds to wait for exclusive access; another process has the database open only if its files are unreadable."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
NO_SHARING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""Errors of SQLite if it cannot create its shared files, as on a full or read-only disk."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """The schema of a database: its name for errors, its file, its version and its statements.

    A file of up to ``looked_through`` bytes is checked for corruption before it is written.
    """

    name: str
    file: str
    version: int
    schema: tuple[str, ...]
    looked_through: float = math.inf


@dataclass(frozen=True, slots=True)
class PrivateDatabase:
    """One database in a private directory."""

    directory: Path
    content: DatabaseSchema

    @property
    def path(self) -> Path:
        """The file; SQLite keeps two more next to it while it is open."""
        return self.directory / self.content.file

    def read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        """Run ``work`` and return its result; without a database return ``empty`` and create none.

        Raises:
            HarnessError: The database cannot be read.
        """

        def known(db: sqlite3.Connection) -> T:
            return work(db) if self._version(db) else empty  # version 0: its creation has not finished

        try:
            if not self.path.stat().st_size:  # a full disk stopped its creation
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
        """Run ``work`` in one transaction, which is on disk when this returns.

        Raises:
            HarnessError: The database cannot be written; nothing has changed.
        """
        with closing(self.open()) as db:
            try:
                with transaction(db):
                    return work(db)
            except (sqlite3.Error, UnicodeError) as error:
                raise self.unusable(error) from error

    def open(self) -> sqlite3.Connection:
        """Open a connection for writing, for one thread at a time; create the database if it is missing.

        Raises:
            HarnessError: The database cannot be opened.
        """
        try:
            self._prepare()
            db = connect(self.path, "rw")
            try:
                retry_while_locked(lambda: self._set_up(db))
            except BaseException:
                db.close()
                raise
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error
        except (sqlite3.Error, UnicodeError) as error:
            raise self.unusable(error) from error
        return db

    # -- errors

    def failure(self, what: str, hint: str = "") -> HarnessError:
        """Return the error for a database that cannot be used."""
        hint = hint or "free some space there, or set XDG_STATE_HOME to another directory"
        return HarnessError(f"{self.content.name} in {self.directory} cannot be used: {what}", hint=hint)

    def damaged(self, what: object) -> HarnessError:
        """Return the error for a corrupt database."""
        said = " ".join(str(what).split())
        return self.failure(f"the file is damaged ({said})", f"move {self.path} away to begin a new one")

    def unusable(self, error: sqlite3.Error | UnicodeError) -> HarnessError:
        """Return the error for an SQLite error or for invalid UTF-8."""
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
        """Refuse an empty file with a log, which has lost its content, as SQLite would remove the log, too."""
        log = self.directory / f"{self.content.file}-wal"
        if log.exists() and log.stat().st_size and not self.path.stat().st_size:
            raise self.damaged("it is empty, and its log is not")

    def _set_up(self, db: sqlite3.Connection) -> None:
        version = _consistent(db, self._version)  # another process may create the tables between the two reads
        if not version:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        elif self.path.stat().st_size <= self.content.looked_through:
            self._look_through(db)
        use_write_ahead_log(db, failure=self.failure)
        for pragma in ("foreign_keys = ON", "secure_delete = ON"):
            db.execute(f"PRAGMA {pragma}")
        if not version:
            self._create(db)

    def _look_through(self, db: sqlite3.Connection) -> None:
        """Refuse a corrupt file, because a write could destroy recoverable data."""
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
            with closing(connect(self.path, "rw" if os.access(self.directory, os.W_OK) else "ro")) as db:
                return retry_while_locked(lambda: _consistent(db, work))
        except sqlite3.Error as error:
            if not cannot_share(error):
                raise
            with ExitStack() as files:
                return _consistent(connect_alone(self.path, files), work)


# -- Connections.


def connect(file: Path, mode: Literal["ro", "rw"], *, immutable: bool = False) -> sqlite3.Connection:
    """Connect without implicit transactions; several threads may use the connection, one at a time.

    Args:
        file: an existing database.
        mode: read-only or read-write.
        immutable: no process can write the file, and it has no write-ahead log.
    """
    uri = f"file:{quote(str(file))}?mode={mode}{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_LIMIT, isolation_level=None, check_same_thread=False)


def cannot_share(error: sqlite3.Error) -> bool:
    """Return whether SQLite could not create its shared files, so that :func:`connect_alone` may still read."""
    return _code(error) in NO_SHARING


def connect_alone(file: Path, files: ExitStack) -> sqlite3.Connection:
    """Connect for reading without SQLite's shared files: with exclusive access, as an immutable file, or to a copy.

    Args:
        file: the database.
        files: closes the connection, and deletes the copy.

    Raises:
        OSError: A copy is necessary, and cannot be created.
    """
    log = file.with_name(f"{file.name}-wal")
    if os.access(file.parent, os.W_OK):
        db = files.enter_context(closing(connect(file, "rw")))
        db.execute(f"PRAGMA busy_timeout = {ALONE_LIMIT}")
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        return db
    if not log.exists() or not log.stat().st_size:
        return files.enter_context(closing(connect(file, "ro", immutable=True)))
    directory = Path(files.enter_context(TemporaryDirectory(prefix="harness-")))
    for path in (file, log):
        shutil.copyfile(path, directory / path.name)
    return files.enter_context(closing(connect(directory / file.name, "rw")))


def use_write_ahead_log(db: sqlite3.Connection, *, failure: Failure) -> None:
    """Enable the write-ahead log, so that a commit is on disk when it returns.

    Raises:
        HarnessError: The file system does not support it.
    """
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise failure(f"its file system does not support a write-ahead log ({mode})", "")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")


def _consistent(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run ``work`` on a consistent snapshot."""
    db.execute("BEGIN")
    try:
        return work(db)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the statements inside in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def retry_while_locked(work: Callable[[], T]) -> T:
    """Retry ``work`` while the file is locked, as SQLite itself does not wait while the file is opened or closed."""
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
