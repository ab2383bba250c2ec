"""The store of conversations: its database, locks between processes, and retention."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import to_thread

from ...errors import HarnessError
from ...system.private_database import DatabaseSchema, PrivateDatabase
from ...system.private_files import state_home
from ...toolkit.audit import this_process
from . import rows
from .conversation_log import CLOSE_LIMIT, StoredLog
from .rows import SCHEMA, VERSION
from .values import (
    ConversationInUse,
    ConversationList,
    ConversationNotFound,
    ConversationSummary,
    NewConversation,
    StoredConversation,
    is_session_id,
    new_session_id,
    normalize_id_prefix,
)

if TYPE_CHECKING:
    from .document import Imported

__all__ = [
    "ConversationRetention",
    "ConversationStore",
    "expired",
    "freed",
    "locked",
    "sessions_database",
    "sessions_directory",
]


# -- The database


CONTENT = DatabaseSchema(
    name="the conversations", file="sessions.db", version=VERSION, schema=SCHEMA, looked_through=8 << 20
)


def sessions_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/harness/sessions``, or ``~/.local/state/harness/sessions``."""
    return state_home(environ) / "sessions"


def sessions_database(directory: Path | None = None) -> PrivateDatabase:
    """Return the database of a directory, by default :func:`sessions_directory`."""
    return PrivateDatabase(directory or sessions_directory(), CONTENT)


# -- A lock per conversation, so that one process continues it; it ends with its owner. Blocks.


LOCKS = "locks"
"""A directory next to the database, with one file for each conversation that a process writes."""
HELD = (errno.EAGAIN, errno.EACCES)


@contextmanager
def locked(database: PrivateDatabase, session_id: str) -> Iterator[None]:
    """Hold the lock of a conversation.

    Raises:
        ConversationInUse: another process, or another part of this one, holds it.
        HarnessError: the directory does not support locks.
    """
    path = database.directory / LOCKS / session_id
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        held = _acquired(path, session_id)
    except OSError as error:
        raise database.failure(f"{path.name} cannot be locked: {error.strerror or error}") from error
    try:
        _sign(held)
        yield
    finally:
        with suppress(OSError):  # on a read-only disk the file stays; closing it releases the lock
            path.unlink()  # before the release, so that a process that has opened it sees that it was deleted
        os.close(held)


def _acquired(path: Path, session_id: str) -> int:
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_there(held, path):
                return held
        except OSError as error:
            owner = os.pread(held, 200, 0).decode("utf-8", "replace").strip()
            os.close(held)
            if error.errno in HELD:
                raise _in_use(session_id, owner) from None
            raise
        os.close(held)


def _is_there(held: int, path: Path) -> bool:
    """Return whether the open file still has that name: its last owner may have deleted it."""
    try:
        return os.path.samestat(os.fstat(held), path.lstat())
    except FileNotFoundError:
        return False


def _sign(held: int) -> None:
    """Write the owner into the file, for other processes to read; errors are ignored."""
    try:
        os.ftruncate(held, 0)
        os.pwrite(held, f"{this_process().owner}\n".encode(), 0)
    except OSError:
        pass


def _in_use(session_id: str, owner: str) -> ConversationInUse:
    who = f"process {owner.rpartition(':')[2]} ({owner.rpartition(':')[0]})" if ":" in owner else "another process"
    hint = "exit that process, or start a new conversation"
    return ConversationInUse(f"the conversation {session_id} is open in {who}", hint=hint)


# -- Retention


DAY = 86400.0


@dataclass(frozen=True, slots=True)
class ConversationRetention:
    """Limits of the stored conversations: seconds since the last change, and bytes of all messages.

    Open conversations are kept, and so is the newest, whatever its size.
    """

    max_age: float = 366 * DAY
    max_bytes: int = 1 << 30
    least: int = 20
    """The number of newest conversations that are kept at any age: the clock may be wrong."""


def expired(db: sqlite3.Connection, limits: ConversationRetention, now: float) -> tuple[str, ...]:
    """Return the conversations to delete: those that are too old, and the oldest if all are too large."""
    rows = db.execute(
        "SELECT session_id, changed, bytes FROM sessions"
        " WHERE typeof(changed) = 'real' AND typeof(bytes) = 'integer'"  # damaged rows are kept for inspection
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
    """Return unused space of the database to the disk."""
    db.executescript("PRAGMA incremental_vacuum")  # execute() would free one page only


# -- The store: one database that all processes of a user share


SHOWN = 5
"""Conversations that an error about an ambiguous name lists."""

T = TypeVar("T")


class ConversationStore:
    """Stored conversations.

    Every method raises :class:`~harness.errors.HarnessError` if the database cannot be read or written. Nothing is
    created on disk before the first conversation.

    ::

        summary = await store.create(NewConversation(target=str(ctx.target), identity=ctx.identity))
        async with store.writing(summary.session_id) as log:      # ConversationInUse: another process has it open
            await log.append([dumped(message)])

    Args:
        directory: the default is ``$XDG_STATE_HOME/harness/sessions``.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._database = sessions_database(directory)

    # -- writing

    async def create(self, start: NewConversation) -> ConversationSummary:
        """Create a conversation and return it with its id."""
        at = time()

        return await self._write(lambda db: rows.insert(db, new_session_id(), start, at))

    @asynccontextmanager
    async def writing(self, session_id: str) -> AsyncIterator[StoredLog]:
        """Open the log of a conversation, exclusively for this process.

        Raises:
            ConversationNotFound: no conversation has that id.
            ConversationInUse: another process has it open; the message names it.
        """
        held = ExitStack()
        try:
            log = await to_thread.run_sync(self._open, session_id, held)
            try:
                yield log
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_LIMIT):
                    await log.finish()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_LIMIT):
                await to_thread.run_sync(held.close, abandon_on_cancel=True)

    def _open(self, session_id: str, held: ExitStack) -> StoredLog:
        if not is_session_id(session_id):
            raise self._missing(session_id)
        db = held.enter_context(closing(self._database.open()))
        held.enter_context(locked(self._database, session_id))
        try:
            number = rows.number_of(db, session_id)
        except (sqlite3.Error, UnicodeError) as error:
            raise self._database.unusable(error) from error
        if number is None:
            raise self._missing(session_id)
        return StoredLog(session_id, self._database, db, number)

    async def check_free(self, session_id: str) -> None:
        """Check that :meth:`writing` could open the conversation now, before anything else is opened.

        Raises:
            ConversationInUse: another process has it open; the message names it.
        """

        def look() -> None:
            with locked(self._database, session_id):
                pass

        await to_thread.run_sync(look)

    # -- finding

    async def list(
        self, *, identity: str | None = None, limit: int | None = None, text: str = ""
    ) -> tuple[ConversationSummary, ...]:
        """Return the readable conversations; arguments as for :meth:`listed`."""
        return (await self.listed(identity=identity, limit=limit, text=text)).found

    async def listed(
        self, *, identity: str | None = None, limit: int | None = None, text: str = ""
    ) -> ConversationList:
        """Return conversations, the last changed first, and the damaged ones.

        Args:
            identity: only those on that target (``ExecutionContext.identity``).
            limit: the maximum number.
            text: only those with this text in their name or title.
        """
        return await self._read(partial(rows.listed, identity=identity, limit=limit, text=text), ConversationList())

    async def find(self, text: str) -> ConversationSummary:
        """Return the conversation whose name or id is ``text``, or whose id starts with it.

        Raises:
            ConversationNotFound: none matches, or several do.
            ConversationCorrupt: it is damaged.
        """
        nothing: tuple[ConversationSummary, ...] = ()
        found, name, prefix = nothing, text.strip(), normalize_id_prefix(text)
        if is_session_id(name):  # an id has precedence over an equal name
            found = await self._read(lambda db: rows.begun_with(db, name), nothing)
        if name and not found:
            found = await self._read(lambda db: rows.named(db, name), nothing)
        if not found and prefix is not None:
            found = await self._read(lambda db: rows.begun_with(db, prefix), nothing)
        if len(found) != 1:
            raise self._missing(text, *found)
        return found[0]

    async def last(self, identity: str | None = None, *, target: str = "") -> ConversationSummary | None:
        """Return the last used conversation, or None; with ``identity`` or ``target`` (a URL), only on that target."""
        return await self._read(lambda db: rows.last(db, identity=identity, target=target), None)

    async def load(self, session_id: str) -> StoredConversation:
        """Return a whole conversation.

        Raises:
            ConversationNotFound: no conversation has that id.
            ConversationCorrupt: it is damaged.
        """
        found = await self._read(lambda db: rows.conversation(db, session_id), None)
        if found is None:
            raise self._missing(session_id)
        return found

    # -- managing

    async def rename(self, session_id: str, name: str) -> ConversationSummary:
        """Set the name of a conversation, by which it can be found; an empty name removes it.

        Raises:
            ConversationNotFound: no conversation has that id.
            HarnessError: another conversation has that name.
        """
        name = " ".join(name.split())
        found = await self._write(lambda db: _renamed(db, session_id, name))
        if found is None:
            raise self._missing(session_id)
        return found

    async def move(self, session_id: str, place: NewConversation) -> ConversationSummary:
        """Move a conversation to the target and tmux session of ``place``; its model and name are kept.

        Raises:
            ConversationNotFound: no conversation has that id.
        """
        found = await self._write(lambda db: rows.move(db, session_id, place))
        if found is None:
            raise self._missing(session_id)
        return found

    async def delete(self, session_id: str) -> None:
        """Delete a conversation; its content is overwritten on disk.

        Raises:
            ConversationNotFound: no conversation has that id.
            ConversationInUse: a process has it open.
        """
        if not is_session_id(session_id) or not await to_thread.run_sync(self._delete, session_id):
            raise self._missing(session_id)

    async def prune(self, limits: ConversationRetention) -> int:
        """Delete conversations beyond the limits, except open ones, and return their number."""
        nothing: tuple[str, ...] = ()
        going = await self._read(lambda db: expired(db, limits, time()), nothing)
        count = 0
        for session_id in going:
            try:
                count += await to_thread.run_sync(self._delete, session_id)
            except ConversationInUse:
                continue
        if count:
            await to_thread.run_sync(self._free)
        return count

    def _delete(self, session_id: str) -> bool:
        if not self._database.path.exists():
            return False
        self._database.open().close()
        with locked(self._database, session_id):
            return self._database.write(lambda db: rows.delete(db, session_id))

    def _free(self) -> None:
        with closing(self._database.open()) as db:
            try:
                freed(db)
            except (sqlite3.Error, UnicodeError) as error:
                raise self._database.unusable(error) from error

    # -- export and import

    async def exported(self, session_id: str) -> str:
        """Return a conversation as one JSON document. Raises :class:`ConversationNotFound`."""
        from .document import portable

        return portable(await self.load(session_id))

    async def imported(self, document: str, *, check: Callable[[str], object] | None = None) -> ConversationSummary:
        """Store the content of a document from :meth:`exported` under a new id.

        Args:
            document: the text of the document.
            check: raises an error for the text of a message that cannot be sent to a model.

        Raises:
            InvalidDocument: it is not harness's document, is damaged, or is from a newer harness; nothing is stored.
        """
        from .document import parsed  # building its pydantic models takes time

        given = await to_thread.run_sync(parsed, document, check)
        at = time()
        return await self._write(lambda db: _insert_whole(db, given, at))

    def _missing(self, text: str, *found: ConversationSummary) -> ConversationNotFound:
        if not found:
            return ConversationNotFound(f"conversation {text!r} not found", hint="harness resume --list shows them")
        names = ", ".join(one.session_id for one in found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        return ConversationNotFound(f"{text!r} matches {len(found)} conversations: {names}", hint="write more of it")

    async def _read(self, work: Callable[[sqlite3.Connection], T], empty: T) -> T:
        return await to_thread.run_sync(self._database.read, work, empty)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await to_thread.run_sync(self._database.write, work)


def _renamed(db: sqlite3.Connection, session_id: str, name: str) -> ConversationSummary | None:
    if name and any(one.session_id != session_id for one in rows.named(db, name)):
        raise HarnessError(f"another conversation has the name {name!r}", hint="choose another name")
    return rows.rename(db, session_id, name)


def _insert_whole(db: sqlite3.Connection, given: Imported, at: float) -> ConversationSummary:
    start = given.start if _is_free(db, given.start.name) else replace(given.start, name="")
    session_id = rows.insert(db, new_session_id(), start, at).session_id
    number = rows.number_of(db, session_id)
    assert number is not None
    for turn in given.turns:
        rows.start_turn(db, number, turn)
    for note in given.notes:
        rows.add_note(db, number, note.kind, note.text, note.at)
    rows.add_messages(db, number, given.messages, at)
    rows.touch(db, number, at)  # imported turns may have times in the future
    found = rows.summary_of(db, session_id)
    assert found is not None
    return found


def _is_free(db: sqlite3.Connection, name: str) -> bool:
    """Return whether a name matches no other conversation."""
    prefix = normalize_id_prefix(name)
    return not rows.named(db, name) and (prefix is None or not rows.begun_with(db, prefix))
