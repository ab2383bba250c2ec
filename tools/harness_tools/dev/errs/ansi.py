"""Text without what terminals take for commands."""

from __future__ import annotations

import re

__all__ = ["without_escapes"]

# Every alternative begins with a fixed character, and what may follow each other are disjoint sets: one pass.
# A sequence whose end is missing ends with its line, so that it takes nothing else away.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def without_escapes(text: str) -> str:
    """The text without escape sequences and control characters; tabs and the ends of lines stay. Pure, linear."""
    if "\x1b" in text or not text.isascii():
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)
