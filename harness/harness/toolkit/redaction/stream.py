"""Redacts output as it arrives, holding back what may be the start of a secret."""

from __future__ import annotations

import re
from collections.abc import Callable

from .patterns import MARK
from .redactor import CONTEXT, UNSPACED, Redactor

__all__ = [
    "GAP",
    "HELD",
    "ProgressStream",
    "StreamRedactor",
]


# -- Redacting output as it arrives: a secret in two pieces is still redacted.


HELD = 8 << 10
"""Maximum held characters of one line."""
KEY_HELD = 64 << 10
"""Maximum held characters of an unfinished private key."""
_BREAK = re.compile(rf"[ \t\r\n{UNSPACED}]")
"""Characters that may end a word."""
SHORT, LONG = 64, 1 << 10
"""Held characters up to which each piece is redacted, without and with the end of a word in it."""


class StreamRedactor:
    """The redactor of one stream of one call. Not for several tasks at once.

    Args:
        redactor: The redactor.
        complete: Returns how much of an unfinished text can be shown; ``redactor.complete`` if None.
    """

    def __init__(self, redactor: Redactor, complete: Callable[[str], int] | None = None) -> None:
        self._redactor = redactor
        self._complete = complete or redactor.complete
        self._raw = ""
        """The unfinished line: first the shown part, then the held part."""
        self._shown = ""
        """The shown part, redacted."""
        self._done = 0
        """The length of the shown part."""
        self._swallow = False
        self._enough = 0
        """The number of held characters from which the text is checked again."""

    def follow(self, text: str) -> None:
        """Note what was shown before the first piece, redacted as it was then: a secret may start there."""
        self._raw, self._done = text, len(text)
        self._shown = self._redactor.text(text)

    def feed(self, text: str) -> str:
        """Add a piece, and return what can be shown now, redacted."""
        text = self._after_secret(text)
        self._raw += text
        limit = KEY_HELD if "-----BEGIN" in self._raw else HELD
        if not self._may_show(text, limit):
            return ""
        end = self._complete(self._raw)
        if len(self._raw) - max(end, self._done) > limit:
            end = self._forced()
        if end <= self._done:
            held = len(self._raw) - self._done
            self._enough = held + held // 16
            return ""
        self._enough = 0
        return self._show(end)

    def _may_show(self, text: str, limit: int) -> bool:
        """Return whether to check for text to show: checking a long word at each piece would be slow."""
        held = len(self._raw) - self._done
        if not text or held > limit or "\n" in text:
            return bool(text)
        short = LONG if _BREAK.search(text) else SHORT
        return held <= short or held > self._enough

    @property
    def is_holding(self) -> bool:
        """True if a part of the text has not been shown."""
        return len(self._raw) > self._done

    def release(self, complete: Callable[[str], int]) -> str:
        """Return more of the held text, redacted as if what ``complete`` returns were all."""
        end = complete(self._raw)
        return self._show(end) if end > self._done else ""

    @property
    def rest(self) -> str:
        """The held text, redacted as if it were complete."""
        return self._new(self._redactor.text(self._raw))

    def flush(self) -> str:
        """End the stream, and return the held text, redacted."""
        rest = self.rest
        self._raw = self._shown = ""
        self._done = self._enough = 0
        self._swallow = False
        return rest

    def _new(self, redacted: str) -> str:
        return redacted[_alike(redacted, self._shown) :]

    def _show(self, end: int) -> str:
        redacted = self._redactor.text(self._raw[:end])
        new = self._new(redacted)
        line = max(self._raw.rfind("\n", 0, end) + 1, end - CONTEXT)
        self._raw = self._raw[line:]
        self._done = end - line
        self._shown = self._redactor.text(self._raw[: self._done])
        return new

    def _forced(self) -> int:
        """Return an end that splits no secret if too much is held, or the end of the text."""
        whole = self._redactor.text(self._raw)
        for back in (HELD // 8, HELD // 4, HELD // 2):
            end = len(self._raw) - back
            if self._redactor.text(self._raw[:end]) + self._redactor.text(self._raw[end:]) == whole:
                return end
        self._swallow = whole.endswith(MARK)
        return len(self._raw)

    def _after_secret(self, text: str) -> str:
        """Return the text without the rest of a secret that was too long to be held."""
        if not self._swallow:
            return text
        rest = re.sub(r"\A[^\s\"']+", "", text)
        self._swallow = not rest
        return rest


def _alike(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    if one.startswith(other):
        return len(other)
    different = (number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(different, min(len(one), len(other)))


# -- Live output for the operator, redacted, also if a part of it was skipped.


GAP = "\n[output came faster than it is shown: some is left out here]\n"
KEPT = 64 << 10
"""Characters after a gap that are searched for a position to resume at."""
_KEY_END = "-----END"


class ProgressStream:
    """The progress of one stream of one call. Not for several tasks at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stream = StreamRedactor(redactor)
        self._behind: str | None = None
        """What has arrived since the gap and was not shown; None without a gap."""

    def feed(self, text: str) -> str:
        """Add a piece, and return what can be shown now."""
        if self._behind is None:
            return self._stream.feed(text)
        behind = (self._behind + text)[-KEPT:]
        start = safe_resume_offset(behind)
        if start is None:
            self._behind = behind
            return ""
        self._behind = None
        self._stream.feed(behind[:start])  # a secret of several lines may start there
        return GAP + self._stream.feed(behind[start:])

    def skip(self) -> None:
        """Start a gap: the next piece does not follow the last one, and is shown from its next line on."""
        self._stream = StreamRedactor(self._redactor)  # the held text may be the start of a secret
        self._behind = ""

    @property
    def rest(self) -> str:
        """The held text, redacted as if it were complete."""
        return self._stream.rest

    def flush(self) -> str:
        """End the stream, and return the held text, redacted."""
        gap = "" if self._behind is None else GAP
        self._behind = None
        return gap + self._stream.flush()


def safe_resume_offset(text: str) -> int | None:
    """Return where to resume output with a missing start: at a line in its second half, after any private key. Pure."""
    line = text.find("\n", max(text.rfind(_KEY_END), len(text) // 2))
    return line + 1 if line >= 0 else None
