"""Redaction of output as it comes: what may be the beginning of a secret is held back."""

from __future__ import annotations

import re

from ..interfaces import Redactor
from .named_secrets import OPEN_LINE, TRIGGER, lowered
from .patterns import MARK, compiled

__all__ = [
    "GAP",
    "HELD",
    "ProgressStream",
    "StreamRedactor",
    "safe_end",
]


# -- Redacting output while it comes: a secret that arrives in two pieces is still taken out.


HELD = 8 << 10
"""Characters of one line that are held back, at most."""
KEY_HELD = 64 << 10
"""Characters of a private key that has not ended."""
CONTEXT = 2 << 10
"""Characters of the line that were shown already and are looked at again with what follows."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff"
_BEFORE_UNSPACED = re.compile(rf"[A-Za-z0-9_.,!?{_UNSPACED}-]*[{_UNSPACED}]")
"""The beginning of a word up to its last sign of a script that writes no spaces, and before anything such as ``://``."""
_BREAK = re.compile(rf"[ \t\r\n{_UNSPACED}]")
"""What may end a word."""
SHORT, LONG = 64, 1 << 10
"""Held characters up to which each piece is looked at, without and with the end of a word in it."""
_OPEN_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\:,.-]*\Z")


def safe_end(text: str) -> int:
    """How much of a text, whose end has not come, can be shown: what follows will not make a secret of it. Pure.

    Whole lines are, but for a private key that has not ended, and for one that says that the next holds a secret. Of
    the last line it is all but its last word, and only what stands before the first name of a secret, or right
    after that. Where a script writes no spaces, as those of China and Japan, each of its signs ends a word: no secret
    of a known form has one.
    """
    line = text.rfind("\n") + 1
    tail = text[line:]
    word = max(tail.rfind(" "), tail.rfind("\t"), tail.rfind("\r")) + 1
    if not tail.isascii() and (unspaced := _BEFORE_UNSPACED.match(tail, word)):
        word = unspaced.end()
    trigger = compiled(TRIGGER).search(lowered(tail))
    end = line + (min(word, trigger.end()) if trigger else word)
    before = max(0, text.rfind("\n", 0, max(0, line - 1)) + 1, line - CONTEXT)
    if line and (opened := compiled(OPEN_LINE).search(lowered(text[before:]))):
        end = min(end, before + opened.start())
    begin = text.rfind("-----BEGIN")
    if begin >= 0 and (begin >= line or _OPEN_KEY.match(text, begin)):
        end = min(end, begin)
    return end


class StreamRedactor:
    """One stream of one call. Not for several tasks at once."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._raw = ""
        """The line that has begun: first what was shown of it, then what is held."""
        self._shown = ""
        """What was shown of it, redacted."""
        self._done = 0
        """How much of it was shown."""
        self._swallow = False
        self._enough = 0
        """So many characters are held when it is looked again whether some can be shown."""

    def feed(self, text: str) -> str:
        """The next piece; returns what can be shown now, redacted."""
        text = self._after_secret(text)
        self._raw += text
        limit = KEY_HELD if "-----BEGIN" in self._raw else HELD
        if not self._may_show(text, limit):
            return ""
        end = self._redactor.complete(self._raw)
        if len(self._raw) - max(end, self._done) > limit:
            end = self._forced()
        if end <= self._done:
            held = len(self._raw) - self._done
            self._enough = held + held // 16
            return ""
        self._enough = 0
        return self._show(end)

    def _may_show(self, text: str, limit: int) -> bool:
        """Whether to look: at each piece of a word of megabytes it would be a long look, and for nothing."""
        held = len(self._raw) - self._done
        if not text or held > limit or "\n" in text:
            return bool(text)
        short = LONG if _BREAK.search(text) else SHORT
        return held <= short or held > self._enough

    @property
    def rest(self) -> str:
        """What is held, redacted as if nothing followed."""
        return self._new(self._redactor.text(self._raw))

    def flush(self) -> str:
        """The same, as the end of the stream: nothing is held any more."""
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
        """Too much is held: a place where no secret is split, or all of it."""
        whole = self._redactor.text(self._raw)
        for back in (HELD // 8, HELD // 4, HELD // 2):
            end = len(self._raw) - back
            if self._redactor.text(self._raw[:end]) + self._redactor.text(self._raw[end:]) == whole:
                return end
        self._swallow = whole.endswith(MARK)
        return len(self._raw)

    def _after_secret(self, text: str) -> str:
        """The text without the rest of a secret that was too long to be held."""
        if not self._swallow:
            return text
        rest = re.sub(r"\A[^\s\"']+", "", text)
        self._swallow = not rest
        return rest


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    if one.startswith(other):
        return len(other)
    return next(number for number, pair in enumerate(zip(one, other + "\0", strict=False)) if pair[0] != pair[1])


# -- Output that people see while it comes, without secrets, also where a part of it was passed over.


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
        start = safe_resume_offset(behind)
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


def safe_resume_offset(text: str) -> int | None:
    """Where output whose beginning is not there goes on: at a line of its second half, behind any private key. Pure."""
    line = text.find("\n", max(text.rfind(_KEY_END), len(text) // 2))
    return line + 1 if line >= 0 else None
