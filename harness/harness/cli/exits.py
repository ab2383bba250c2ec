"""Exit codes: the command's own where there is one, and ours where there is none."""

from __future__ import annotations

from typing import Final

from ..errors import FileError, HarnessError, TerminalError
from ..results import ShellResult, Status

__all__ = ["FAILED", "HARNESS_FAILED", "REFUSED", "SIGNALLED", "TIMED_OUT", "exit_code_of", "failure_code"]

FAILED: Final = 1
"""The target refused a file, pane or session operation, or a check found a fault."""
TIMED_OUT: Final = 124
HARNESS_FAILED: Final = 125
"""Harness could not do its work: no connection, wrong usage, wrong settings, no such job, outcome unknown."""
REFUSED: Final = 126
"""A policy forbids it."""
SIGNALLED: Final = 128
"""Added to the number of the signal that ended harness."""
INTERRUPTED: Final = SIGNALLED + 2


def exit_code_of(result: ShellResult, *, waited: bool = True) -> int:
    """The exit code that stands for a command's result.

    The command's own code when it has one; 124 when the time ran out, also when the command goes on; 130 interrupted;
    125 when its outcome is unknown. ``waited`` False: it was only to be started, so running is success.
    """
    if result.exit_code is not None:
        return result.exit_code
    if result.status is Status.RUNNING:
        return TIMED_OUT if waited else 0
    codes = {Status.TIMED_OUT: TIMED_OUT, Status.INTERRUPTED: INTERRUPTED}
    return codes.get(result.status, HARNESS_FAILED)


def failure_code(error: HarnessError, *, passes_codes: bool) -> int:
    """The exit code for an error; a command that passes on another's code never uses 1 for its own failures."""
    if not passes_codes and isinstance(error, FileError | TerminalError):
        return FAILED
    return HARNESS_FAILED
