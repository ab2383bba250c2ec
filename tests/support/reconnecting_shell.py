"""``harness shell`` in a real terminal, as tests start, use and leave it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pexpect

from .program import Program

__all__ = ["RECONNECTED", "detached", "ended", "opened", "shows"]

RECONNECTED = r"reconnected after \d+ s"


def opened(ops: Program, *words: str, command: Sequence[str] = ("shell",), **variables: str) -> Any:
    """Start ``harness shell``, or another command, in a terminal."""
    argv: Any = [*ops.always, *command, *words]
    environ: Any = ops.environ | variables
    child: Any = pexpect.spawn(ops.path, argv, env=environ, cwd=str(ops.home), timeout=60, dimensions=(50, 170))
    child.str_last_chars = 1500
    return child


def shows(child: Any, number: int) -> None:
    """Type a command into the session and wait for its output."""
    child.send(f"echo shown$(({number} + 0))x\r")
    child.expect(f"shown{number}x")


def detached(child: Any) -> int:
    """Detach, and return the exit code."""
    for _ in range(5):  # tmux 3.3a takes a prefix for pasted text if much was typed at once before it
        child.sendcontrol("b")
        child.send("d")
        if child.expect(["detached", pexpect.TIMEOUT], timeout=3) == 0:
            break
    return ended(child)


def ended(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus is not None, child.signalstatus
    return int(child.exitstatus)
