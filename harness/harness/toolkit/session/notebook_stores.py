"""The notebook in a database of this machine."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from ...system.private_database import DatabaseSchema, PrivateDatabase
from ...system.private_files import state_home
from .notebook import Memory, MemoryLocation, MemoryScope, Notebook, NotebookFull, Todo, TodoStatus, todos_json

__all__ = [
    "PLACE_LIMIT",
    "SqliteNotebook",
    "notebook_database",
    "notebook_directory",
]


# -- The location of the notebook on this machine, and its database schema.


CONTENT = DatabaseSchema(
    name="the notebook",
    file="notebook.db",
    version=1,
    schema=(
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
    ),
)


def notebook_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/harness/notebook``, or ``~/.local/state/harness/notebook``."""
    return state_home(environ) / "notebook"


def notebook_database(directory: Path | None = None) -> PrivateDatabase:
    """Return the notebook in a directory; the default is :func:`notebook_directory`."""
    return PrivateDatabase(directory or notebook_directory(), CONTENT)


# -- The notebook of this machine: one database for all processes of a user.


PLACE_LIMIT = 200
"""Maximum memories in one location: a model receives all of them."""
SESSIONS_KEPT = 500
"""Maximum sessions with stored to-do lists; the least recently changed is deleted first."""
SESSION_MEMORIES_KEPT = 2_000
"""Maximum memories of all sessions together; the oldest are deleted first."""

COLUMNS = "number, scope, session_id, target, cwd, content, created, author"
IN_PLACE = "scope = ? AND session_id = ? AND target = ? AND cwd = ?"
INSERT = f"INSERT INTO memories ({COLUMNS}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # values are bound
SELECT = f"SELECT {COLUMNS} FROM memories"  # noqa: S608  # names of columns
COUNT = f"SELECT count(*) FROM memories WHERE {IN_PLACE}"  # noqa: S608  # values are bound

T = TypeVar("T")
Row = tuple[int, str, str, str, str, str, float, str]


class SqliteNotebook(Notebook):
    """A notebook in a private directory of this machine, created on the first write.

    Args:
        directory: the default is ``$XDG_STATE_HOME/harness/notebook``.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._files = notebook_database(directory)

    async def todos(self, session_id: str) -> tuple[Todo, ...]:
        """See :class:`Notebook`."""
        items = await self._read(lambda db: _items(db, session_id), "[]")
        try:
            return _todos_of(items)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._files.damaged(f"the list of session {session_id}") from error

    async def set_todos(self, session_id: str, todos: Sequence[Todo]) -> None:
        """See :class:`Notebook`."""
        items = json.dumps(todos_json(todos))
        await self._write(lambda db: _set_items(db, session_id, items if todos else ""))

    async def remember(self, place: MemoryLocation, content: str, *, author: str = "") -> Memory:
        """See :class:`Notebook`."""
        return await self._write(lambda db: _remember(db, place, content, author))

    async def forget(self, number: int, place: MemoryLocation | None = None) -> Memory | None:
        """See :class:`Notebook`."""
        if await self._read(lambda db: _numbered(db, number, place), None) is None:
            return None  # does not create a notebook
        return await self._write(lambda db: _forget(db, number, place))

    async def memories(self, places: Sequence[MemoryLocation] | None = None) -> tuple[Memory, ...]:
        """See :class:`Notebook`."""
        return await self._read(lambda db: _memories(db, places), ())

    async def _read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        return await to_thread.run_sync(self._files.read, work, empty)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await to_thread.run_sync(self._files.write, work)


# -- To-do lists.


def _items(db: sqlite3.Connection, session_id: str) -> str:
    row = db.execute("SELECT items FROM todos WHERE session_id = ?", (session_id,)).fetchone()
    return str(row[0]) if row else "[]"


def _todos_of(items: str) -> tuple[Todo, ...]:
    return tuple(
        Todo(item["content"], TodoStatus(item["status"]), item.get("active_form", ""), item.get("priority", ""))
        for item in json.loads(items)
    )


def _set_items(db: sqlite3.Connection, session_id: str, items: str) -> None:
    db.execute("DELETE FROM todos WHERE session_id = ?", (session_id,))
    if items:
        db.execute("INSERT INTO todos (session_id, items) VALUES (?, ?)", (session_id, items))
        newest = "SELECT changed FROM todos ORDER BY changed DESC LIMIT ?"
        db.execute(f"DELETE FROM todos WHERE changed NOT IN ({newest})", (SESSIONS_KEPT,))  # noqa: S608  # a constant


# -- Memories.


def _remember(db: sqlite3.Connection, place: MemoryLocation, content: str, author: str) -> Memory:
    known = [memory for memory in _memories(db, [place]) if memory.content == content]
    if known:
        return known[0]
    _make_room(db, place)
    created = time.time()
    done = db.execute(INSERT, (*_key(place), content, created, author))
    assert done.lastrowid is not None
    return Memory(done.lastrowid, place, content, created, author)


def _make_room(db: sqlite3.Connection, place: MemoryLocation) -> None:
    (count,) = db.execute(COUNT, _key(place)).fetchone()
    if count >= PLACE_LIMIT:
        raise NotebookFull(f"this {place.scope} already has {count} memories; forget one first")
    if place.scope is MemoryScope.SESSION:
        newest = "SELECT number FROM memories WHERE scope = 'session' ORDER BY number DESC LIMIT ?"
        kept = f"DELETE FROM memories WHERE scope = 'session' AND number NOT IN ({newest})"  # noqa: S608  # a constant
        db.execute(kept, (SESSION_MEMORIES_KEPT - 1,))


def _forget(db: sqlite3.Connection, number: int, place: MemoryLocation | None) -> Memory | None:
    found = _numbered(db, number, place)
    if found is not None:
        db.execute("DELETE FROM memories WHERE number = ?", (number,))
    return found


def _numbered(db: sqlite3.Connection, number: int, place: MemoryLocation | None) -> Memory | None:
    row = db.execute(f"{SELECT} WHERE number = ?", (number,)).fetchone()
    found = _memory(row) if row else None
    return found if found is not None and place in (None, found.place) else None


def _memories(db: sqlite3.Connection, places: Sequence[MemoryLocation] | None) -> tuple[Memory, ...]:
    if places is None:
        rows = db.execute(f"{SELECT} ORDER BY number").fetchall()
        return tuple(_memory(row) for row in rows)
    found = [
        _memory(row) for place in places for row in db.execute(f"{SELECT} WHERE {IN_PLACE}", _key(place)).fetchall()
    ]
    return tuple(sorted(found, key=lambda memory: memory.number))


def _memory(row: Row) -> Memory:
    number, scope, session_id, target, cwd, content, created, author = row
    return Memory(number, MemoryLocation(MemoryScope(scope), session_id, target, cwd), content, created, author)


def _key(place: MemoryLocation) -> tuple[str, str, str, str]:
    return place.scope.value, place.session_id, place.target, place.cwd
