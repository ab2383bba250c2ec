"""Our standard streams, also where the caller closed some of them, or the locale cannot write what we print."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final, TextIO

__all__ = ["UNWRITABLE", "abandon_stdout", "finish_stderr", "prepare_streams"]

UNWRITABLE: Final = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""What a write to our output fails with."""


def prepare_streams() -> None:
    """Take the places of streams that are closed, before another file does: output would be written into that.

    What is written to a closed standard output is an error, as with any program; a closed standard error swallows it.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdout = _usable(sys.stdout, 1)
    sys.stderr = _usable(sys.stderr, 2)


def _usable(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:
        return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # for good
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def abandon_stdout() -> None:
    """What is still to be written can go nowhere; the interpreter would complain of that as it exits."""
    _abandon(1)


def finish_stderr() -> None:
    """Write what is left for standard error, or give it up: the interpreter would exit with 120 instead of our code."""
    try:
        sys.stderr.flush()
    except OSError:
        _abandon(2)


def _abandon(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
