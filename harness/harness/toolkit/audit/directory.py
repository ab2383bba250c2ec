"""Where the audit is kept on this machine: a private directory with the database and the head in a file, and the head
once more in a file beside the directory."""

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
"""Bytes of a head's file that are looked at."""
_HEAD = re.compile(r"\s*(\d+) ([0-9a-f]{64})\n?")


def audit_directory(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/audit``, or ``~/.local/state/harness/audit``."""
    return state_home(environ) / "audit"


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of the chain: how many records were ever written, and the hash of the last one."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> ChainHead:
        """The head that ``COUNT:HASH`` names.

        Raises:
            ValueError: it is none.
        """
        match = re.fullmatch(r"(\d+):([0-9a-f]{64})", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no head of an audit: write COUNT:HASH, as 'harness audit verify' prints it")
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class AuditPaths:
    """The files of one audit."""

    directory: Path

    @property
    def database(self) -> Path:
        """The database; SQLite keeps two more files beside it."""
        return self.directory / DATABASE

    @property
    def head_file(self) -> Path:
        """The second place of the head."""
        return self.directory / HEAD

    @property
    def witness(self) -> Path:
        """The third place of the head: an older copy of the whole directory does not bring it back."""
        return self.directory.with_name(f"{self.directory.name}.head")

    def prepare(self) -> None:
        """Make what is missing, private.

        Raises:
            HarnessError: it cannot be made, belongs to somebody else, or others may look into it.
        """
        try:
            make_private(self.directory, DATABASE, HEAD, failure=self.failure)
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error

    def check(self) -> None:
        """Refuse a directory that is not ours alone.

        Raises:
            HarnessError: it is a link, belongs to somebody else, or is open to others.
        """
        check_private(self.directory, failure=self.failure)

    def wrong_rights(self) -> str:
        """What is wrong with the rights of the directory, and what mends it; nothing when they are right.

        Raises:
            HarnessError: it is a link, belongs to somebody else, or cannot be looked at.
        """
        try:
            check_own(self.directory, failure=self.unreadable)
            is_open = is_open_to_others(self.directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self.unreadable(error.strerror or str(error)) from error
        says = f"other users may look into {self.directory}, and no call runs until it is yours alone"
        return f"{says}: chmod 700 {self.directory}" if is_open else ""

    def unreadable(self, what: str, hint: str = "") -> HarnessError:
        """The error for an audit of which nobody knows whether it is whole."""
        hint = hint or "give this directory back to you alone, with all files in it"
        return HarnessError(f"the audit in {self.directory} cannot be checked: {what.lower()}", hint=hint)

    def failure(self, what: str, hint: str = "") -> HarnessError:
        """The error for an audit that cannot be kept here."""
        hint = hint or "give this directory back to you alone, or set XDG_STATE_HOME to another one"
        return HarnessError(f"the audit cannot be kept in {self.directory}: {what.lower()}", hint=hint)

    def heads(self) -> dict[str, ChainHead]:
        """The head as each of the files has it that has one, by the file's name.

        Raises:
            ValueError: a file holds something else.
            OSError: a file cannot be read.
        """
        found = {path.name: _read_head(path) for path in (self.head_file, self.witness)}
        return {name: head for name, head in found.items() if head is not None}

    def open_head(self) -> int:
        """A descriptor of the second place, to write it."""
        return os.open(self.head_file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _read_head(path: Path) -> ChainHead | None:
    """What a file says; None when it says nothing."""
    text, again = _head_text(path), _head_text(path)
    while text != again:  # somebody writes it
        text, again = again, _head_text(path)
    if text is None:
        return None
    match = _HEAD.fullmatch(text)
    if match is None and text.strip():
        raise ValueError(f"{path}: it holds no head")
    return ChainHead(int(match[1]), match[2]) if match else None


def _head_text(path: Path) -> str | None:
    """What the file holds; None when there is none, or something else, of which a reading might never end."""
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
    """The second and the third place of the head, open to be written.

    Raises:
        OSError: the second cannot be opened. Without the third it goes on: it is outside of the audit's directory.
    """

    def __init__(self, place: AuditPaths) -> None:
        self._files = {place.head_file: place.open_head()}
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            self._files[place.witness] = os.open(place.witness, flags, 0o600)
        except OSError as error:
            logger.warning("the head of the audit cannot be kept in %s: %s", place.witness, error)

    def keep(self, head: ChainHead) -> None:
        """Keep the head. What was written is written, whatever becomes of this: the next time brings it up to date."""
        text = f"{head.count:20d} {head.hash}\n".encode()  # one short write, so that no reader sees half of it
        for path, descriptor in self._files.items():
            try:
                os.pwrite(descriptor, text, 0)
            except OSError as error:
                logger.warning("the head of the audit cannot be kept in %s: %s", path, error)

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._files.values():
            os.close(descriptor)
