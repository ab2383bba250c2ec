"""Detection that an operator replaced a pane's program (``respawn-pane``). Pure.

tmux knows it at the moment in which it types, so the question goes with the keys and costs no round trip.
"""

from __future__ import annotations

from .keyboard import OTHER, as_one
from .pane import Pane

__all__ = ["REPLACED", "RESPAWNED", "first_process", "is_ours", "known_program", "replaced_by", "while_known"]

REPLACED = "an operator started another program in the pane (respawn-pane)"
RESPAWNED = "a program with which an operator replaced its shell (respawn-pane)"


def is_ours(uid: str) -> str:
    """A format of tmux: 1 when the pane was started with our program, also when a person has started that anew."""
    return f"#{{m:*pane.sh*{uid}*,#{{pane_start_command}}}}"


def known_program(pane: Pane, *, here: bool) -> str:
    """A format of tmux: 1 while the pane's first process is the one that we know.

    Args:
        here: tmux runs on this machine for another target, whose process ids it does not see.
    """
    pid = pane.wrapper.partition(":")[0]
    return f"#{{==:#{{pane_pid}},{pid}}}" if pid and not here else is_ours(pane.uid)


def while_known(pane: Pane, *commands: tuple[str, ...], here: bool) -> tuple[str, ...]:
    """The command that carries out ``commands`` unless another program is in the pane."""
    return ("if-shell", "-F", "-t", pane.pane_id, known_program(pane, here=here), as_one(*commands))


def first_process(pane: Pane) -> tuple[str, ...]:
    """The tmux command whose answer is in the form of :attr:`.Pane.wrapper`."""
    return "display-message", "-p", "-t", pane.pane_id, "#{pane_pid}:#{pane_tty}"


def replaced_by(answer: str) -> tuple[bool, str]:
    """What a :class:`.Dispatch` that typed nothing has answered.

    Returns:
        Whether it is our own program that was started anew, and its ``PID:TTY``.
    """
    ours, _, program = answer.removeprefix(OTHER).partition(":")
    return ours == "1", program
