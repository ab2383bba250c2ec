"""Detection that an operator replaced a pane's program (``respawn-pane``). Pure.

tmux checks it when it types, so the check is sent with the keys and needs no round trip of its own.
"""

from __future__ import annotations

from .keyboard import OTHER, as_one
from .pane_state import Pane

__all__ = ["REPLACED", "RESPAWNED", "first_process", "is_ours", "known_program", "replaced_by", "while_known"]

REPLACED = "an operator started another program in the pane (respawn-pane)"
RESPAWNED = "a program with which an operator replaced its shell (respawn-pane)"


def is_ours(uid: str) -> str:
    """Return a tmux format that is 1 if the pane's program is harness's, even after an operator restarted it."""
    return f"#{{m:*pane.sh*{uid}*,#{{pane_start_command}}}}"


def known_program(pane: Pane, *, here: bool) -> str:
    """Return a tmux format that is 1 while the pane's first process is the known one.

    Args:
        here: True if tmux runs on this machine for another target, whose process ids it does not know.
    """
    pid = pane.wrapper.partition(":")[0]
    return f"#{{==:#{{pane_pid}},{pid}}}" if pid and not here else is_ours(pane.uid)


def while_known(pane: Pane, *commands: tuple[str, ...], here: bool) -> tuple[str, ...]:
    """Return a command that runs ``commands`` unless another program is in the pane."""
    return ("if-shell", "-F", "-t", pane.pane_id, known_program(pane, here=here), as_one(*commands))


def first_process(pane: Pane) -> tuple[str, ...]:
    """Return the tmux command whose answer has the format of :attr:`.Pane.wrapper`."""
    return "display-message", "-p", "-t", pane.pane_id, "#{pane_pid}:#{pane_tty}"


def replaced_by(answer: str) -> tuple[bool, str]:
    """Parse the answer of a :class:`.Dispatch` that typed nothing.

    Returns:
        Whether the new program is harness's own, restarted, and its ``PID:TTY``.
    """
    ours, _, program = answer.removeprefix(OTHER).partition(":")
    return ours == "1", program
