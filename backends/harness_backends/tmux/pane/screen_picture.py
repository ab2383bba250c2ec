"""A picture of a pane's screen for a terminal emulator: what is asked of tmux, and how it is drawn. Pure.

tmux does not report the colors that the next output will have, tab stops set by programs, and before 3.4 the background
of cells that were erased and not written: these are missing until the program sets or draws them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..channel.control_protocol import Block
from ..version import TmuxVersion

__all__ = ["Picture", "picture_commands", "read_picture"]

_POSITIONS = ("pane_width", "pane_height", "cursor_x", "cursor_y")
_REGION = ("scroll_region_upper", "scroll_region_lower", "alternate_saved_x", "alternate_saved_y")
_SET_MODES = {
    "keypad_cursor_flag": b"\x1b[?1h",
    "keypad_flag": b"\x1b=",
    "insert_flag": b"\x1b[4h",
    "mouse_standard_flag": b"\x1b[?1000h",
    "mouse_button_flag": b"\x1b[?1002h",
    "mouse_all_flag": b"\x1b[?1003h",
    "mouse_utf8_flag": b"\x1b[?1005h",
    "mouse_sgr_flag": b"\x1b[?1006h",
    "bracket_paste_flag": b"\x1b[?2004h",
}
"""Modes that are off after a reset; the answer for a mode that this tmux does not know is empty."""
_UNSET_MODES = {"wrap_flag": b"\x1b[?7l", "cursor_flag": b"\x1b[?25l"}
"""Modes that are on after a reset."""
_FIELDS = (*_POSITIONS, *_REGION, *_SET_MODES, *_UNSET_MODES, "origin_flag", "alternate_on")
_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_STYLE = re.compile(rb"\x1b\[[0-9;:]*m|[\x0e\x0f]")
_PLAIN = b"\x1b[0m\x0f"
_LINE_DRAWING = b"\x1b(B\x1b)0"
"""tmux switches to line drawing by SO, which selects G1."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A pane's screen; ``pending`` is the incomplete escape sequence that the next output continues."""

    columns: int
    rows: int
    content: bytes
    pending: bytes


def picture_commands(pane: str, version: TmuxVersion) -> list[tuple[str, ...]]:
    """Return the tmux commands for :func:`read_picture`; sent together, they see the same moment."""
    rows = ("capture-pane", "-p", "-e", *(("-N",) if version.keeps_spaces else ()), "-t", pane)
    return [
        ("display-message", "-p", "-t", pane, "\t".join(f"#{{{field}}}" for field in _FIELDS)),
        rows,
        (*rows, "-a", "-q"),
        ("capture-pane", "-p", "-P", "-C", "-t", pane),
    ]


def read_picture(answers: Sequence[Block]) -> Picture | None:
    """Return the picture; None if the answers are incomplete, as the pane was closed."""
    if len(answers) != 4 or any(answer.error for answer in answers):
        return None
    values = dict(zip(_FIELDS, answers[0].text.split("\t"), strict=False))
    if len(values) != len(_FIELDS) or not all(values[name].isdecimal() for name in _POSITIONS):
        return None
    shown, saved, pending = answers[1].lines, answers[2].lines, b"\n".join(answers[3].lines)
    parts = [_LINE_DRAWING]
    if values["alternate_on"] == "1":
        parts += _rows(saved)
        parts += [_PLAIN, _place(values["alternate_saved_x"], values["alternate_saved_y"]), b"\x1b[?1049h"]
    parts += [*_rows(shown), _PLAIN, *_modes(values), *_cursor(values, shown)]
    return Picture(int(values["pane_width"]), int(values["pane_height"]), b"".join(parts), _unescaped(pending))


def _rows(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yield each row at its place; tmux's lines continue the style of the line before."""
    for number, line in enumerate(lines, 1):
        if line:
            yield b"\x1b[%d;1H%b" % (number, line)


def _modes(values: Mapping[str, str]) -> Iterator[bytes]:
    upper, lower, height = values["scroll_region_upper"], values["scroll_region_lower"], int(values["pane_height"])
    if upper.isdecimal() and lower.isdecimal() and (int(upper), int(lower)) != (0, height - 1):
        yield b"\x1b[%d;%dr" % (int(upper) + 1, int(lower) + 1)
    yield from (sequence for name, sequence in _SET_MODES.items() if values[name] == "1")


def _cursor(values: Mapping[str, str], shown: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the cursor's place, and the modes that would disturb the drawing."""
    column, row = int(values["cursor_x"]), int(values["cursor_y"])
    full_row = column >= int(values["pane_width"]) and row < len(shown)
    if full_row:  # the next character goes to the next row: only a character in the last column leaves that state
        yield b"\x1b[%d;1H" % (row + 1) + b"".join(_STYLE.findall(b"".join(shown[:row]))) + shown[row] + _PLAIN
    if values["origin_flag"] == "1":
        top = int(values["scroll_region_upper"] or 0)
        yield b"\x1b[?6h" + _place(str(column), str(row - top))
    elif not full_row:
        yield _place(str(column), str(row))
    yield from (sequence for name, sequence in _UNSET_MODES.items() if values[name] == "0")


def _place(column: str, row: str) -> bytes:
    """Return the sequence for a position counted from 0; the first one for none."""
    found = [int(value) if value.isdecimal() and len(value) < 6 else 0 for value in (row, column)]
    return b"\x1b[%d;%dH" % (found[0] + 1, found[1] + 1)


def _unescaped(data: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), data.replace(b"\\\\", b"\\134"))
