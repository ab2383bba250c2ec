"""Where the audit is kept on this machine: a private directory with the database, and the head in a file beside it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import HarnessError

__all__ = ["Head", "Place", "audit_directory", "write_head"]

DATABASE = "audit.db"
HEAD = "head"
_HEAD = re.compile(r"\s*(\d+) ([0-9a-f]{64})\n?")


def audit_directory(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/audit``, or ``~/.local/state/harness/audit``."""
    env = os.environ if environ is None else environ
    state = env.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(env.get("HOME") or Path.home()) / ".local" / "state"
    return base / "harness" / "audit"


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: how many records were ever written, and the hash of the last one."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """The head that ``COUNT:HASH`` names.

        Raises:
            ValueError: it is none.
        """
        match = re.fullmatch(r"(\d+):([0-9a-f]{64})", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no head of an audit: write COUNT:HASH, as 'harness audit verify' prints it")
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class Place:
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

    def prepare(self) -> None:
        """Make what is missing, private.

        Raises:
            HarnessError: it cannot be made, belongs to somebody else, or others may look into it.
        """
        try:
            self.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self.check()
            for path in (self.database, self.head_file):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error

    def check(self) -> None:
        """Refuse a directory that is not ours alone.

        Raises:
            HarnessError: it is a link, belongs to somebody else, or is open to others.
        """
        info = self.directory.lstat()
        if not stat.S_ISDIR(info.st_mode):
            raise self.failure("it is no directory")
        if info.st_uid != os.getuid():
            raise self.failure("it belongs to another user")
        if info.st_mode & 0o077:
            raise self.failure("other users may look into it", f"chmod 700 {self.directory}")

    def failure(self, what: str, hint: str = "") -> HarnessError:
        """The error for an audit that cannot be kept here."""
        hint = hint or "give this directory back to you alone, or set XDG_STATE_HOME to another one"
        return HarnessError(f"the audit cannot be kept in {self.directory}: {what.lower()}", hint=hint)

    def read_head(self) -> Head | None:
        """The head as the second place has it; None when it has none.

        Raises:
            ValueError: the file holds something else.
        """
        text, again = self._head_text(), self._head_text()
        while text != again:  # somebody writes it
            text, again = again, self._head_text()
        if text is None:
            return None
        match = _HEAD.fullmatch(text)
        if match is None and text.strip():
            raise ValueError("it holds no head")
        return Head(int(match[1]), match[2]) if match else None

    def _head_text(self) -> str | None:
        try:
            return self.head_file.read_text("ascii")
        except FileNotFoundError:
            return None

    def open_head(self) -> int:
        """A descriptor of the second place, for :func:`write_head`."""
        return os.open(self.head_file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def write_head(descriptor: int, head: Head) -> None:
    """Keep the head in the second place. One short write, so that no reader sees half of it."""
    os.pwrite(descriptor, f"{head.count:20d} {head.hash}\n".encode(), 0)
