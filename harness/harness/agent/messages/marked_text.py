"""The two lines that mark untrusted text from outside as data."""

from __future__ import annotations

import os

__all__ = ["marked", "new_mark"]


def new_mark() -> str:
    """Return a random mark, which the author of the data cannot guess."""
    return os.urandom(4).hex()


def marked(text: str, mark: str = "") -> str:
    """Return the text between a start line and an end line.

    Args:
        text: the untrusted text.
        mark: the mark in both lines; empty makes a new one.
    """
    mark = mark or new_mark()
    return f"[untrusted output {mark}]\n{text}\n[end of output {mark}]"
