"""Terminal output that only draws: what would act on the operator's terminal is removed. Pure.

Only known sequences pass: text, cursor movement, colors, erasing, scrolling, and the modes of drawing. Titles, the
clipboard (OSC 52), links, device queries, mouse and paste modes, printing, resizing and everything unknown do not.
"""

from __future__ import annotations

import re
from itertools import takewhile

__all__ = ["InertOutput", "plain_lines"]

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f-\x9f]+)"
    r"|(?P<control>[\x08-\x0f])"
    r"|\x1b\[(?P<parameters>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|\x1b(?P<string>[\]PX^_])(?P<content>[^\x07\x1b]*)(?:\x07|\x1b\\|(?=\x1b))"
    r"|\x1b(?P<charset>[()*+][0-9A-Za-z])"
    r"|\x1b(?P<simple>[78DEMc=>])"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x1f\x7f-\x9f]"
)
_OPEN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
MAX_HELD_CHARS = 1 << 16
"""Maximum characters of an unfinished sequence; a longer one is dropped."""
_FINALS = frozenset("@ABCDEFGHIJKLMPSTXZ`abdefmr")
_PARAMETERS = re.compile(r"[0-9]{0,5}(?:[;:][0-9]{0,5})*")
_MODES = frozenset({"?1", "?6", "?7", "?25", "?47", "?1047", "?1048", "?1049", "4"})
"""Modes of drawing: cursor keys, origin, wrapping, cursor, alternate screen, insertion."""
_CLEARED = "\x1b[r\x1b[0m\x1b(B\x1b[?7h\x1b[?25h\x1b[?1049l\x1b[2J\x1b[H"
"""For a full reset, which would also reset the operator's settings."""


class InertOutput:
    """Filters the output of one recording, in pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what of the output only draws."""
        text = self._held + text
        end = _open_sequence(text)
        self._held = text[end:] if len(text) - end <= MAX_HELD_CHARS else ""
        # Not finditer(text, 0, end): what follows tells whether a sequence before it has ended.
        return "".join(map(_inert, takewhile(lambda match: match.start() < end, _TOKEN.finditer(text))))


def _open_sequence(text: str) -> int:
    """Return where an unfinished sequence at the end of a text starts; the length of the text without one."""
    last = text.rfind("\x1b")
    before = text.rfind("\x1b", 0, last) if last == len(text) - 1 else -1  # the last one may be half a terminator
    starts = [start for start in (before, last) if start >= 0 and _OPEN.match(text, start)]
    return min(starts, default=len(text))


def _inert(match: re.Match[str]) -> str:
    found = match.groupdict()
    if found["final"] is not None:
        return _control_sequence(match[0], found["parameters"] or "", found["between"] or "", found["final"])
    if found["simple"] == "c":
        return _CLEARED
    draws = any(found[name] is not None for name in ("text", "control", "charset", "simple"))
    return match[0] if draws else ""


def _control_sequence(whole: str, parameters: str, between: str, final: str) -> str:
    if between:
        return ""
    if final in _FINALS:
        return whole if _PARAMETERS.fullmatch(parameters) else ""
    if final in "hl":
        sign = "?" if parameters.startswith("?") else ""
        modes = [mode for mode in parameters.removeprefix("?").split(";") if sign + mode in _MODES]
        return f"\x1b[{sign}{';'.join(modes)}{final}" if modes else ""
    return whole if final in "su" and not parameters else ""


_ROW_START = re.compile(r"\x1b\[\d*(?:;\d*)?[Hf]")
_ANY_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()*+][0-9A-Za-z]|[78DEHM=>])|[\x0e\x0f]")


def plain_lines(text: str) -> str:
    """Return inert output as plain text: each line as it was last written, and positioned text on lines of its own."""
    text = _ROW_START.sub("\n", text.replace("\r\n", "\n"))
    lines = (_written(_ANY_SEQUENCE.sub("", line)) for line in text.split("\n"))
    return "\n".join(line.rstrip() for line in lines)


def _written(line: str) -> str:
    """Return a line after its returns and backspaces: later characters replace earlier ones."""
    if "\r" not in line and "\b" not in line:
        return line
    cells: list[str] = []
    column = 0
    for char in line:
        if char == "\r":
            column = 0
        elif char == "\b":
            column = max(0, column - 1)
        else:
            cells[column : column + 1] = [char]
            column += 1
    return "".join(cells)
