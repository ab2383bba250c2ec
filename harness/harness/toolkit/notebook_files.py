"""Where the notebook is kept on this machine, and how its database is opened. Everything here blocks.

Each operation opens the database, does one transaction and closes it: nothing is held between operations, and what was
committed is on the disk.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from ..errors import HarnessError

__all__ = ["NotebookFiles", "notebook_directory"]

DATABASE = "notebook.db"
VERSION = 1
"""``PRAGMA user_version`` of the file."""
BUSY_LIMIT = 5.0
"""Seconds to wait for another process that writes."""
PAUSE = 0.02
NO_SHARING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
"""What SQLite says where it cannot make the files that its processes share: on a full or read-only disk."""

SCHEMA = (
    """CREATE TABLE todos (
      changed INTEGER PRIMARY KEY AUTOINCREMENT,
      session_id TEXT NOT NULL UNIQUE,
      items TEXT NOT NULL
    )""",
    """CREATE TABLE memories (
      number INTEGER PRIMARY KEY AUTOINCREMENT,
      scope TEXT NOT NULL CHECK (scope IN ('session', 'project', 'host', 'global')),
      session_id TEXT NOT NULL,
      target TEXT NOT NULL,
      cwd TEXT NOT NULL,
      content TEXT NOT NULL,
      created REAL NOT NULL,
      author TEXT NOT NULL
    )""",
    "CREATE INDEX places ON memories (scope, session_id, target, cwd)",
)

T = TypeVar("T")


def notebook_directory(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/notebook``, or ``~/.local/state/harness/notebook``."""
    env = os.environ if environ is None else environ
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(env.get("HOME") or Path.home()) / ".local" / "state"
    return base / "harness" / "notebook"


@dataclass(frozen=True, slots=True)
class NotebookFiles:
    """The files of one notebook, in a directory that is its user's alone."""

    directory: Path

    @property
    def database(self) -> Path:
        """The database; SQLite keeps two more files beside it while it is open."""
        return self.directory / DATABASE

    def read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        """Do ``work``; without a notebook the answer is ``empty``, and none is made.

        Raises:
            HarnessError: it cannot be read.
        """

        def known(db: sqlite3.Connection) -> T:
            return work(db) if _version(db) else empty  # whoever began to make it has not come to its end

        try:
            if not self.database.stat().st_size:  # there was no room to make it
                return empty
            return self._do(known, writes=False)
        except FileNotFoundError:
            return empty
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error
        except sqlite3.Error as error:
            return self._read_alone(known, error)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` in one transaction, which is on the disk when this returns.

        Raises:
            HarnessError: it could not be written; nothing has changed.
        """
        try:
            self._prepare()
            return self._do(work, writes=True)
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _do(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        give_up = time.monotonic() + BUSY_LIMIT
        while True:
            try:
                self._check(self.directory.lstat())
                with _transaction(self, writes=writes) as db:
                    return work(db)
            except sqlite3.Error as error:
                # SQLite itself does not wait while another process opens or closes the file as the first or the last
                if not _is_busy(error) or time.monotonic() > give_up:
                    raise
                time.sleep(PAUSE)

    def _read_alone(self, work: Callable[[sqlite3.Connection], T], error: sqlite3.Error) -> T:
        """Without the files that processes share; what only the write-ahead log has cannot be read so."""
        log = self.directory / f"{DATABASE}-wal"
        if _code(error) not in NO_SHARING or (log.exists() and log.stat().st_size):
            raise self._unusable(error) from error
        try:
            with closing(_connect(self, "mode=ro&immutable=1")) as db:
                return work(db)
        except sqlite3.Error as again:
            raise self._unusable(again) from again

    def _prepare(self) -> None:
        self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.mkdir(mode=0o700, exist_ok=True)
        self._check(self.directory.lstat())
        os.close(os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))

    def _check(self, info: os.stat_result) -> None:
        if not stat.S_ISDIR(info.st_mode):
            raise self.failure("it is no directory")
        if info.st_uid != os.geteuid():
            raise self.failure("it belongs to another user")
        if info.st_mode & 0o077:
            raise self.failure("other users may look into it", f"chmod 700 {self.directory}")

    def failure(self, what: str, hint: str = "") -> HarnessError:
        """The error for a notebook that cannot be used."""
        hint = hint or "free some space there, or set XDG_STATE_HOME to another directory"
        return HarnessError(f"the notebook in {self.directory} cannot be used: {what}", hint=hint)

    def damaged(self, what: object) -> HarnessError:
        """The error for one that holds what nobody wrote."""
        said = " ".join(str(what).split())
        return self.failure(f"the file is damaged ({said})", f"move {self.database} away to begin a new one")

    def _unusable(self, error: sqlite3.Error) -> HarnessError:
        if _is_busy(error):
            return self.failure("another process has held it for too long", "see which one, and try again")
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            return self.failure(str(error))
        return self.damaged(error)


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _connect(files: NotebookFiles, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(files.database))}?{how}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_LIMIT, isolation_level=None)


@contextmanager
def _transaction(files: NotebookFiles, *, writes: bool) -> Iterator[sqlite3.Connection]:
    with closing(_connect(files, "mode=rw")) as db:
        _set_up(db, files, writes=writes)
        db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            if writes:
                _check_pages(db, files)
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _set_up(db: sqlite3.Connection, files: NotebookFiles, *, writes: bool) -> None:
    version = _version(db)
    if version > VERSION:
        raise files.failure(f"a newer harness made it (version {version})", "use that harness")
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise files.failure(f"its file system gives no write-ahead log ({mode})")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA fullfsync = ON")
    if writes and not version:
        _create(db)


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _create(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _version(db):  # another process may have been faster
            for statement in SCHEMA:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _check_pages(db: sqlite3.Connection, files: NotebookFiles) -> None:
    """A damaged file is left as it is, for whoever repairs it: a write could land on top of what can be saved."""
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise files.damaged(found)
