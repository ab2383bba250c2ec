"""Prompt markers, which delimit each command's output in a pane's byte stream. Pure.

The shell in a pane writes OSC 133 sequences with the pane's nonce and the job's id; they are invisible on the screen,
but present in the pane's log and the control-mode stream. A marker with another nonce is data::

    ESC ] 133 ; C ; NONCE ; ID BEL                    the command of job ID starts; with ``;x`` after the ID: soon
    ESC ] 133 ; O ; NONCE ; ID ; SECRET BEL           its output has ended; D follows, but fish writes in between
    ESC ] 133 ; D ; CODE ; NONCE ; ID ; SECRET BEL    it ended with this exit code (ID 0: a command that an operator
                                                      typed); zsh and dash pass on the argument of ``return``, also
                                                      -1 or 1000; with ``;b`` or ``;n`` after the secret: the prompt
                                                      reports that the line was aborted after, or before, its start
    ESC ] 133 ; A ; NONCE ; ID BEL                    the shell shows its prompt; ID is the last job
    ESC ] 133 ; P ; NONCE BEL                         the shell shows its continuation prompt
    ESC ] 133 ; W ; NONCE ; TEXT BEL                  a fact, e.g. the working directory just before an end
    ESC ] 133 ; X ; CODE ; NONCE BEL                  the shell itself exited; a new one follows

The secret proves that the shell itself wrote the marker: see :mod:`end_proof`. Nested shells have no secret.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ANSWERED", "NewlineUnmapper", "PromptMarker", "PromptMarkerScanner", "answered", "from_keyboard"]

Kind = Literal["start", "over", "end", "prompt", "continue", "cwd", "exit"]

_KINDS: dict[bytes, Kind] = {
    b"C": "start",
    b"O": "over",
    b"A": "prompt",
    b"D": "end",
    b"P": "continue",
    b"W": "cwd",
    b"X": "exit",
}
_FIELDS = {
    "job": ("id", "secret"),
    "end": ("code", "id", "secret", "broken"),
    "more": (),
    "told": ("text",),
    "exit": ("code",),
}
"""The groups of each form of a marker, besides its nonce."""
_HEAD = b"\x1b]133;"
_PRINTING = re.compile(rb"[^\x00-\x1f]*")
_MAX_MARKER_BYTES = 4200
_ECHO_WITHIN = 1 << 16


@dataclass(frozen=True, slots=True)
class PromptMarker:
    """One harness marker in the stream; ``nonce`` identifies which of the nested shells wrote it."""

    kind: Kind
    job: int = 0
    code: int | None = None
    text: str = ""
    nonce: str = ""
    secret: str = ""
    soon: bool = False
    """True for an announced start: what precedes the next start is not output of the command."""
    broken: str = ""
    """For an end that the prompt reports: ``b`` if the command had started, ``n`` if not."""
    raw: bytes = field(default=b"", compare=False)
    """The original bytes, for a marker that turns out to be a program's output."""


class PromptMarkerScanner:
    """A scanner that splits a byte stream into data and markers; a possible partial marker at the end is buffered."""

    def __init__(self, *nonces: str) -> None:
        secret = b"(?:" + b"|".join(re.escape(nonce.encode()) for nonce in nonces) + b")"
        forms = (
            rb"(?P<job>[CAO]);(?P<job_nonce>%b);(?P<job_id>\d{1,18})(?:;(?P<job_secret>[0-9a-z]{0,64}))?",
            rb"(?P<end>D);(?P<end_code>-?\d{1,10});(?P<end_nonce>%b);(?P<end_id>\d{1,18})"
            rb"(?:;(?P<end_secret>[0-9a-z]{0,64})(?:;(?P<end_broken>[bn]))?)?",
            rb"(?P<more>P);(?P<more_nonce>%b)",
            rb"(?P<told>W);(?P<told_nonce>%b);(?P<told_text>[^\x00-\x1f\x7f]{0,4096})",
            rb"(?P<exit>X);(?P<exit_code>-?\d{1,10});(?P<exit_nonce>%b)",
        )
        body = b"|".join(form % secret for form in forms)
        self._pattern = re.compile(_HEAD + b"(?:" + body + rb")(?:\x07|\x1b\\)")
        self._held = b""

    def feed(self, data: bytes) -> list[bytes | PromptMarker]:
        """Return the data and markers that are certain now; data keeps the pieces in which it arrived, never empty."""
        buffer = self._held + data if self._held else data
        pieces: list[bytes | PromptMarker] = []
        position = 0
        for match in self._pattern.finditer(buffer):
            if match.start() > position:
                pieces.append(buffer[position : match.start()])
            pieces.append(_mark(match))
            position = match.end()
        keep = _partial(buffer, position)
        if keep > position:
            pieces.append(buffer[position:keep])
        self._held = buffer[keep:]
        return pieces

    def flush(self) -> bytes:
        """Return the buffered rest at the end of the stream, as data."""
        held, self._held = self._held, b""
        return held


def _mark(match: re.Match[bytes]) -> PromptMarker:
    form = next(name for name in _FIELDS if match[name])
    fields = {field: match[f"{form}_{field}"] for field in _FIELDS[form]}
    code, kind, last = fields.get("code"), _KINDS[match[form]], (fields.get("secret") or b"").decode()
    return PromptMarker(
        kind,
        job=int(fields.get("id") or 0),
        code=None if code is None else int(code),
        text=(fields.get("text") or b"").decode("utf-8", "surrogateescape"),
        nonce=match[f"{form}_nonce"].decode(),
        secret="" if kind == "start" else last,
        soon=kind == "start" and last == "x",
        broken=(fields.get("broken") or b"").decode(),
        raw=match[0],
    )


def _partial(buffer: bytes, start: int) -> int:
    """Return the index of a possible partial marker at the end of ``buffer``, or its length."""
    floor = max(start, len(buffer) - _MAX_MARKER_BYTES)
    index = buffer.rfind(b"\x1b", floor)
    if index < 0:
        return len(buffer)
    if index == len(buffer) - 1:  # the first half of a two-byte terminator, or of another marker
        before = buffer.rfind(_HEAD, floor, index)
        return before if before >= 0 and _PRINTING.fullmatch(buffer, before + 1, index) else index
    tail = buffer[index:]
    plausible = _HEAD.startswith(tail) or (tail.startswith(_HEAD) and _PRINTING.fullmatch(tail, 1))
    return index if plausible else len(buffer)


class NewlineUnmapper:
    """A filter that converts ``\\r\\n`` back to ``\\n`` across pieces, as a terminal adds ``\\r`` to each newline."""

    def __init__(self) -> None:
        self._carry = b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that are certain now; a final ``\\r`` is buffered until the next call."""
        data = self._carry + data
        self._carry = b"\r" if data.endswith(b"\r") else b""
        if self._carry:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n")

    def flush(self) -> bytes:
        """Return the buffered ``\\r``."""
        carry, self._carry = self._carry, b""
        return carry


def from_keyboard(code: int | None, output: bytes) -> bool:
    """Return whether a C-c at the terminal probably ended a command, by its exit code and the echoed key."""
    return code == 128 + signal.SIGINT and b"^C" in output[-_ECHO_WITHIN:]


ANSWERED = "a program queried the terminal; the output contains the terminal's answer"
_QUESTION = re.compile(rb"\x1b(?:\[[?>=]?[\d;]*(?:[cnqt]|\$p)|\]\d+;(?:\d+;)?\?|P[+$]q)")
_ANSWER = re.compile(rb"\^\[(?:\[[?>=]?[\d;]*(?:[Rcnt]|\$y)|\]\d+;|P)")


def answered(output: bytes) -> bool:
    """Return whether a program queried the terminal (cursor position, capabilities) and the answer was echoed."""
    if b"^[" not in output:
        return False
    question = _QUESTION.search(output)
    return question is not None and _ANSWER.search(output, question.end()) is not None
