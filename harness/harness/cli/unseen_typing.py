"""Hide and drop what an operator types at a question of a running command, which does not read this terminal.

The question of a program on the target, such as that of ``sudo``, is output like any other. Whoever types a password
there would see it on the screen, and the shell would run it as the next command.
"""

from __future__ import annotations

import os
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["unseen_typing"]

_LOCAL_MODES = 3
"""The place of the local modes in what ``tcgetattr`` returns."""


@contextmanager
def unseen_typing(keyboard: int = 0, screen: int = 1) -> Iterator[Callable[[bytes], None]]:
    """Let a terminal show nothing that is typed, from the first output that ends within a line until the end.

    harness's own questions set the modes that they need. What is typed otherwise is dropped at the end. Does nothing
    without a terminal, or in the background, where changing its modes would stop this process.

    Args:
        keyboard: The file descriptor of the input.
        screen: That of the output.

    Yields:
        A function to call before each part of the output is written.
    """
    echo = 0

    def shown(output: bytes) -> None:
        nonlocal echo
        if not echo and output and not output.endswith(b"\n") and os.isatty(screen) and _in_foreground(keyboard):
            with suppress(termios.error):
                echo = _change_echo(keyboard, 0, termios.TCSANOW)

    try:
        yield shown
    finally:
        if echo and _in_foreground(keyboard):
            with suppress(termios.error):  # the terminal was closed
                _change_echo(keyboard, echo, termios.TCSAFLUSH)


def _in_foreground(keyboard: int) -> bool:
    try:
        return os.tcgetpgrp(keyboard) == os.getpgrp()
    except OSError:  # not a terminal, or not ours
        return False


def _change_echo(keyboard: int, echo: int, when: int) -> int:
    """Set the mode and return the earlier one."""
    modes = termios.tcgetattr(keyboard)
    before: int = modes[_LOCAL_MODES]
    modes[_LOCAL_MODES] = before & ~termios.ECHO | echo
    termios.tcsetattr(keyboard, when, modes)
    return before & termios.ECHO
