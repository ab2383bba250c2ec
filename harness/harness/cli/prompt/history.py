"""What was entered before: one file for the user alone, a JSON text in each line, the oldest first."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

from ...local_directories import make_directories
from ...state_home import state_home

__all__ = ["EnteredBefore", "history_path"]

KEPT = 2000
"""Entries; when there are twice as many, the older ones go."""
READ = 8 << 20
"""Bytes at the end of the file that are looked at."""
LONGEST = 20_000
"""Characters of an entry that is kept."""


def history_path(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/prompt-history``, or below ``~/.local/state``."""
    return state_home(environ) / "prompt-history"


class EnteredBefore(History):
    """The history of the prompt. What begins with a space is not kept. A file that cannot be had is done without.

    Args:
        redact: takes secrets out of what is kept on the disk; None: nothing can yet, and entries wait.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] | None = str) -> None:
        super().__init__()
        self._path = path
        self._redact = redact
        self._early: list[str] = []

    def redacts(self, redact: Callable[[str], str]) -> None:
        """Take secrets out with ``redact`` from now on, also of what was entered before there was one."""
        self._redact = redact
        early, self._early = self._early, []
        for text in early:
            self.store_string(text)

    def load_history_strings(self) -> Iterable[str]:
        """The entries, the newest first."""
        lines = self._lines()
        if len(lines) > 2 * KEPT:
            self._rewrite(lines[-KEPT:])
        return [text for line in reversed(lines[-KEPT:]) if (text := _entry(line)) is not None]

    def store_string(self, string: str) -> None:
        """Keep an entry."""
        if self._redact is None:
            self._early.append(string)
            return
        text = self._redact(string)
        if not text.strip() or text[0] == " " or len(text) > LONGEST:
            return
        with suppress(OSError):
            make_directories(self._path.parent)
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, _line_end(descriptor) + json.dumps(text).encode() + b"\n")
            finally:
                os.close(descriptor)

    def _lines(self) -> list[bytes]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                info = os.fstat(descriptor)
                if not stat.S_ISREG(info.st_mode):  # a pipe that nobody writes to would hold up the prompt
                    return []
                file.seek(max(0, info.st_size - READ))
                return file.read(READ).splitlines()
        except OSError:
            return []

    def _rewrite(self, lines: list[bytes]) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(line + b"\n" for line in lines)
            new.replace(self._path)


def _line_end(descriptor: int) -> bytes:
    """What ends the last line, of which a full disk may have taken a part only."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""


def _entry(line: bytes) -> str | None:
    with suppress(ValueError):
        text = json.loads(line)
        return text if isinstance(text, str) else None
    return None
