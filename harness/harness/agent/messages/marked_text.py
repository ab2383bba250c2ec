"""The two lines between which stands what came from outside: data, whatever it says."""

from __future__ import annotations

import os

__all__ = ["marked", "new_mark"]


def new_mark() -> str:
    """A mark that nobody who wrote the data can know."""
    return os.urandom(4).hex()


def marked(text: str, mark: str = "") -> str:
    """The text between a line that begins it and one that ends it.

    Args:
        mark: what both lines hold; without one it is a new one.
    """
    mark = mark or new_mark()
    return f"[untrusted output {mark}]\n{text}\n[end of output {mark}]"
