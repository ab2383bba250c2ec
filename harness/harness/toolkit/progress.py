"""Output that people see while it comes, without secrets, also where a part of it was passed over."""

from __future__ import annotations

from .seams import Redactor
from .secrets_stream import StreamRedactor

__all__ = ["GAP", "ProgressStream"]

GAP = "\n[output came faster than it is shown: some is left out here]\n"
KEPT = 64 << 10
"""Characters behind a gap that are looked at, for a place to go on from."""
_KEY_END = "-----END"


class ProgressStream:
    """One stream of one call. Not for several tasks at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stream = StreamRedactor(redactor)
        self._behind: str | None = None
        """What came since the gap and was not shown; None where there is no gap."""

    def feed(self, text: str) -> str:
        """The next piece; returns what can be shown now."""
        if self._behind is None:
            return self._stream.feed(text)
        behind = (self._behind + text)[-KEPT:]
        start = resumption(behind)
        if start is None:
            self._behind = behind
            return ""
        self._behind = None
        self._stream.feed(behind[:start])  # a secret of several lines may have begun there
        return GAP + self._stream.feed(behind[start:])

    def skip(self) -> None:
        """What comes next does not follow what came: it is shown from a line on."""
        self._stream = StreamRedactor(self._redactor)  # what it holds may be the beginning of a secret
        self._behind = ""

    @property
    def rest(self) -> str:
        """What is held, redacted as if nothing followed."""
        return self._stream.rest

    def flush(self) -> str:
        """The same, as the end of the stream: nothing is held any more."""
        gap = "" if self._behind is None else GAP
        self._behind = None
        return gap + self._stream.flush()


def resumption(text: str) -> int | None:
    """Where output whose beginning is not there goes on: at a line of its second half, behind any private key. Pure."""
    line = text.find("\n", max(text.rfind(_KEY_END), len(text) // 2))
    return line + 1 if line >= 0 else None
