"""Our standard input for a command: in memory while it is small, else in a file that nobody can name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import HarnessError

__all__ = ["MOST_HELD", "given_input"]

MOST_HELD = 1 << 20
"""Bytes that are held in memory."""
CHUNK = 1 << 18


@contextmanager
def given_input(*, read: bool) -> Iterator[bytes | Path | None]:
    """All of our standard input, read to its end; None when it is not to be read. A path is good inside only.

    The file has no name in any directory: nothing is left of it, however this process ends.

    Raises:
        HarnessError: the input is closed, which must not pass for empty, or there is no space for it.
    """
    if not read:
        yield None
        return
    if sys.stdin is None:
        raise HarnessError("standard input is closed", hint="give it a file, a pipe or /dev/null")
    source = sys.stdin.buffer
    head = source.read(MOST_HELD + 1)
    if len(head) <= MOST_HELD:
        yield head
        return
    import tempfile  # slow to load, as start-up goes, and seldom needed

    with tempfile.TemporaryFile(buffering=0) as file:
        _fill(file, head, source)
        yield Path(f"/dev/fd/{file.fileno()}")


def _fill(file: BinaryIO, data: bytes, source: BinaryIO) -> None:
    while data:
        _put(file, data)
        data = source.read(CHUNK)
    file.seek(0)


def _put(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        why = (error.strerror or "error").lower()
        raise HarnessError(
            f"the standard input could not be stored on this machine: {why}",
            hint="free some space, or set TMPDIR to a directory that has it",
        ) from error
