"""A directory that a command was to run in and cannot be entered: the command did not run."""

from __future__ import annotations

from harness.errors import FileError, FileNotFound, NotADirectory, PermissionDenied

__all__ = ["MISSING", "NOT_A_DIRECTORY", "NOT_ENTERED", "cwd_error"]

MISSING, NOT_A_DIRECTORY, NOT_ENTERED = 1, 2, 3
"""Why it cannot be entered, as shells on the target tell it."""

_FAULTS: dict[int, tuple[type[FileError], str]] = {
    MISSING: (FileNotFound, "no such directory"),
    NOT_A_DIRECTORY: (NotADirectory, "not a directory"),
}


def cwd_error(fault: int, cwd: str | None, target: object) -> FileError:
    """The error that says so."""
    kind, what = _FAULTS.get(fault, (PermissionDenied, "may not be entered"))
    return kind(f"{cwd}: {what}, so nothing ran", target=target)
