"""What a server writes to its stderr: into our log, bounded, and its end for the message about its death."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Sequence

__all__ = ["ServerLog", "plain"]

LINE = 500
"""Characters of a line."""
LINES = 1_000
"""Lines of one run of a server that go into the log."""
KEPT = 5
SECRET = 8
"""Characters that a value must have to be taken out wherever it stands."""
SPECIAL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[\U000e0000-\U000e0fff]"
)

logger = logging.getLogger("harness.mcp.servers")


def plain(text: str) -> str:
    """A text without what changes a terminal or cannot be seen. Pure."""
    return SPECIAL.sub("", text)


class ServerLog:
    """Takes bytes as they come. ``secrets`` are texts that are never written."""

    def __init__(self, name: str, secrets: Sequence[str] = ()) -> None:
        self._name = name
        self._secrets = tuple(secret for secret in secrets if len(secret) >= SECRET)
        self._last: deque[str] = deque(maxlen=KEPT)
        self._rest = b""
        self._lines = 0

    def feed(self, chunk: bytes) -> None:
        """Some bytes of stderr."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[: 4 * LINE]
        for line in lines:
            self.note(line.decode(errors="replace"))

    def note(self, text: str) -> None:
        """One line, cut and without secrets."""
        line = self._shown(text)
        if not line:
            return
        self._last.append(line)
        self._lines += 1
        if self._lines <= LINES:
            logger.info("%s: %s", self._name, line)
        elif self._lines == LINES + 1:
            logger.warning("%s: more than %d lines; the rest is left out", self._name, LINES)

    def _shown(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[redacted]")
        return plain(text)[:LINE].strip()

    @property
    def last(self) -> str:
        """The last lines as one, empty when there was none."""
        unfinished = self._shown(self._rest.decode(errors="replace"))
        lines = [*self._last, *([unfinished] if unfinished else [])]
        return " / ".join(lines[-2:])
