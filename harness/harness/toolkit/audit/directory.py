"""The files of the audit log: a private directory with the database and the chain head, and a copy of the head."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import HarnessError
from ...system.private_files import check_own, check_private, is_open_to_others, make_private, state_home

__all__ = ["AuditPaths", "ChainHead", "HeadFiles", "audit_directory"]

logger = logging.getLogger(__name__)

DATABASE = "audit.db"
HEAD = "head"
_LONGEST = 4096
"""Maximum bytes read from a head file."""
_HEAD = re.compile(r"\s*(\d+) ([0-9a-f]{64})\n?")


def audit_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_STATE_HOME/harness/audit``, or ``~/.local/state/harness/audit``."""
    return state_home(environ) / "audit"


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of the hash chain: the number of records ever written, and the hash of the last one."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> ChainHead:
        """Parse a chain head from ``COUNT:HASH``.

        Raises:
            ValueError: the text is not a chain head.
        """
        match = re.fullmatch(r"(\d+):([0-9a-f]{64})", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a chain head: write COUNT:HASH, as printed by 'harness audit verify'")
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class AuditPaths:
    """The files of an audit log."""

    directory: Path

    @property
    def database(self) -> Path:
        """The database; SQLite adds two more files next to it."""
        return self.directory / DATABASE

    @property
    def head_file(self) -> Path:
        """The second copy of the chain head."""
        return self.directory / HEAD

    @property
    def witness(self) -> Path:
        """The third copy of the chain head: restoring an older copy of the directory does not change it."""
        return self.directory.with_name(f"{self.directory.name}.head")

    def prepare(self) -> None:
        """Create missing files, private to the user.

        Raises:
            HarnessError: a file cannot be created, belongs to another user, or is accessible to others.
        """
        try:
            make_private(self.directory, DATABASE, HEAD, failure=self.failure)
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error

    def check(self) -> None:
        """Refuse a directory that is not private to the user.

        Raises:
            HarnessError: it is a symbolic link, belongs to another user, or is accessible to others.
        """
        check_private(self.directory, failure=self.failure)

    def wrong_rights(self) -> str:
        """Return what is wrong with the directory's permissions and how to fix it; empty if they are right.

        Raises:
            HarnessError: it is a symbolic link, belongs to another user, or cannot be examined.
        """
        try:
            check_own(self.directory, failure=self.unreadable)
            is_open = is_open_to_others(self.directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self.unreadable(error.strerror or str(error)) from error
        says = f"{self.directory} is accessible to other users, and no call runs until it is private"
        return f"{says}: chmod 700 {self.directory}" if is_open else ""

    def unreadable(self, what: str, hint: str = "") -> HarnessError:
        """Return the error for an audit log that cannot be verified."""
        hint = hint or "make this directory and all files in it private to your user"
        return HarnessError(f"the audit log in {self.directory} cannot be verified: {what.lower()}", hint=hint)

    def failure(self, what: str, hint: str = "") -> HarnessError:
        """Return the error for an audit log that cannot be written."""
        hint = hint or "make this directory private to your user, or set XDG_STATE_HOME to another one"
        return HarnessError(f"the audit log cannot be written in {self.directory}: {what.lower()}", hint=hint)

    def heads(self) -> dict[str, ChainHead]:
        """Return the chain head in each of the head files that have one, by file name.

        Raises:
            ValueError: a file has invalid content.
            OSError: a file cannot be read.
        """
        found = {path.name: _read_head(path) for path in (self.head_file, self.witness)}
        return {name: head for name, head in found.items() if head is not None}

    def open_head(self) -> int:
        """Open the second copy of the chain head for writing and return the descriptor."""
        return os.open(self.head_file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read_head(path: Path) -> ChainHead | None:
    """Return the chain head in a file; None if the file is missing or empty."""
    text, again = _head_text(path), _head_text(path)
    while text != again:  # another process is writing it
        text, again = again, _head_text(path)
    if text is None:
        return None
    match = _HEAD.fullmatch(text)
    if match is None and text.strip():
        raise ValueError(f"{path} does not contain a chain head")
    return ChainHead(int(match[1]), match[2]) if match else None


def _head_text(path: Path) -> str | None:
    """Return the file's text; None if it is missing or not a regular file, whose reading might block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, _LONGEST).decode("ascii") if is_file else None
    finally:
        os.close(descriptor)


class HeadFiles:
    """The second and third copy of the chain head, open for writing.

    Raises:
        OSError: the second copy cannot be opened. The third one, outside of the audit directory, may be missing.
    """

    def __init__(self, place: AuditPaths) -> None:
        self._files = {place.head_file: place.open_head()}
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            self._files[place.witness] = os.open(place.witness, flags, 0o600)
        except OSError as error:
            logger.warning("the chain head of the audit log cannot be written to %s: %s", place.witness, error)

    def keep(self, head: ChainHead) -> None:
        """Write the chain head. Errors are only logged: the records are stored, and the next write updates the head."""
        text = f"{head.count:20d} {head.hash}\n".encode()  # one short write, so that no reader sees a part of it
        for path, descriptor in self._files.items():
            try:
                os.pwrite(descriptor, text, 0)
            except OSError as error:
                logger.warning("the chain head of the audit log cannot be written to %s: %s", path, error)

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._files.values():
            os.close(descriptor)
