"""Which process goes on with a conversation: a lock that ends with its owner, however that ends. Blocks."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...toolkit.database import PrivateDatabase
from ...toolkit.ledger import this_process
from .values import SessionInUse

__all__ = ["locked"]

LOCKS = "locks"
"""A directory beside the database, with one file for each conversation that a process writes."""
HELD = (errno.EAGAIN, errno.EACCES)


@contextmanager
def locked(database: PrivateDatabase, session_id: str) -> Iterator[None]:
    """Hold the lock of a conversation.

    Raises:
        SessionInUse: another process, or another part of this one, holds it.
        HarnessError: there can be no locks in that directory.
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
        with suppress(OSError):  # a disk that has become read-only: the lock ends all the same
            path.unlink()  # before it is let go: whoever has opened it already sees that it is gone
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
    """Whether that is still the file of that name: its last owner may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(held), path.lstat())
    except FileNotFoundError:
        return False


def _sign(held: int) -> None:
    """Say who holds it, for others to read; a full disk does not keep it from being held."""
    try:
        os.ftruncate(held, 0)
        os.pwrite(held, f"{this_process().owner}\n".encode(), 0)
    except OSError:
        pass


def _in_use(session_id: str, owner: str) -> SessionInUse:
    who = f"process {owner.rpartition(':')[2]} ({owner.rpartition(':')[0]})" if ":" in owner else "another process"
    hint = "end that one, or begin a new conversation"
    return SessionInUse(f"the conversation {session_id} is open in {who}", hint=hint)
