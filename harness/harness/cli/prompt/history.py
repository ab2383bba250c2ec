"""What was entered before: one file for the user alone, a JSON text in each line, the oldest first."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import History

from ...state_home import state_home

__all__ = ["EnteredBefore", "history_path"]

KEPT = 2000
"""Entries; when there are twice as many, the older ones go."""
LONGEST = 20_000
"""Characters of an entry that is kept."""


def history_path(environ: Mapping[str, str] | None = None) -> Path:
    """``$XDG_STATE_HOME/harness/prompt-history``, or below ``~/.local/state``."""
    return state_home(environ) / "prompt-history"


class EnteredBefore(History):
    """The history of the prompt. What begins with a space is not kept. A file that cannot be had is done without.

    Args:
        redact: takes secrets out of what is kept on the disk.
    """

    def __init__(self, path: Path, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._path = path
        self.redact = redact

    def load_history_strings(self) -> Iterable[str]:
        """The entries, the newest first."""
        lines = self._lines()
        if len(lines) > 2 * KEPT:
            self._rewrite(lines[-KEPT:])
        return [text for line in reversed(lines[-KEPT:]) if (text := _entry(line)) is not None]

    def store_string(self, string: str) -> None:
        """Keep an entry."""
        text = self.redact(string)
        if not text.strip() or text[0] == " " or len(text) > LONGEST:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, json.dumps(text).encode() + b"\n")
            finally:
                os.close(descriptor)

    def _lines(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except OSError:
            return []

    def _rewrite(self, lines: list[bytes]) -> None:
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(line + b"\n" for line in lines)
            new.replace(self._path)


def _entry(line: bytes) -> str | None:
    with suppress(ValueError):
        text = json.loads(line)
        return text if isinstance(text, str) else None
    return None
