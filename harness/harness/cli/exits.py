"""Exit codes: the command's own if it has one, otherwise harness's."""

from __future__ import annotations

from typing import Final

from ..errors import FileError, HarnessError, TerminalError
from ..results import ShellResult, Status

__all__ = ["FAILED", "HARNESS_FAILED", "REFUSED", "SIGNALLED", "TIMED_OUT", "exit_code_of", "failure_code"]

FAILED: Final = 1
"""A file, pane or session operation failed on the target, or a check found a problem."""
TIMED_OUT: Final = 124
HARNESS_FAILED: Final = 125
"""Harness failed: no connection, usage error, invalid settings, no such job, unknown outcome."""
REFUSED: Final = 126
"""Denied by a policy."""
SIGNALLED: Final = 128
"""Added to the number of the signal that ended harness."""
INTERRUPTED: Final = SIGNALLED + 2


def exit_code_of(result: ShellResult, *, waited: bool = True) -> int:
    """Return the exit code for a command's result.

    The command's own code if it has one; 124 when the timeout expired, even if the command keeps running; 130 when
    interrupted; 125 when its outcome is unknown.

    Args:
        result: The command's result.
        waited: False if the command was only started, so that running is success.
    """
    if result.exit_code is not None:
        return result.exit_code
    if result.status is Status.RUNNING:
        return TIMED_OUT if waited else 0
    codes = {Status.TIMED_OUT: TIMED_OUT, Status.INTERRUPTED: INTERRUPTED}
    return codes.get(result.status, HARNESS_FAILED)


def failure_code(error: HarnessError, *, passes_codes: bool) -> int:
    """Return the exit code for an error; 1 is never used if the program passes on a command's exit code."""
    if not passes_codes and isinstance(error, FileError | TerminalError):
        return FAILED
    return HARNESS_FAILED
