"""Texts of models, targets and people as a terminal may show them: controls are spelled out, never obeyed. Pure."""

from __future__ import annotations

import re

__all__ = ["one_line", "output_lines", "printable"]

JOINERS = "\u200c\u200d"
"""What joins letters and pictures of people's writing; it has no width and moves nothing."""
_SAFE = re.compile(r"[\n\t\x20-\x7e]*")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_MOVES = re.compile(r"\x1b\[[0-9;:?<=>]*[ -/]*[@-ln-~]|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]")


def printable(text: str) -> str:
    """The text with its line ends and tabs, and everything else that is no character to see spelled out."""
    text = text.replace("\r\n", "\n")
    if _SAFE.fullmatch(text):
        return text
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t" or char in JOINERS:
        return char
    if "\udc80" <= char <= "\udcff":  # a byte that is no text
        return f"\\x{ord(char) & 0xFF:02x}"
    return repr(char)[1:-1].encode("ascii", "backslashreplace").decode()


def one_line(text: str, limit: int = 0) -> str:
    """The text as one printable line; ``limit`` characters of it where that is not 0."""
    joined = " ".join(printable(text).split())
    return joined if not limit or len(joined) <= limit else f"{joined[: max(0, limit - 1)]}…"


def output_lines(text: str) -> list[str]:
    """What a command wrote, as lines: colours and movements of the cursor are left out, and of a line that was
    written over what stands there in the end."""
    plain = _MOVES.sub("", _COLOURS.sub("", text)).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n")]
    return [printable(line).expandtabs(8) for line in lines]
