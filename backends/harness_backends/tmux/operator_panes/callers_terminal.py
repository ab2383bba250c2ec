"""What the kernel says about terminals: whether an operator is at this one, and whether one asks for a password."""

from __future__ import annotations

import os
import termios

__all__ = ["foreground_terminal", "hides_input"]


def foreground_terminal() -> str:
    """Return the terminal whose operator started this program and waits for it; empty without one.

    A program that opens a terminal it does not belong to, as one that an agent runs may do, has none.
    """
    for descriptor in (0, 1, 2):
        try:
            if os.tcgetpgrp(descriptor) == os.getpgrp():  # an error unless it controls this process's session
                return os.ttyname(descriptor)
        except OSError:
            continue
    return ""


def hides_input(tty: str) -> bool:
    """Return whether a program reads a line from a terminal without echo, as prompts for passwords do.

    Raises:
        OSError: The terminal cannot be opened.
    """
    descriptor = os.open(tty, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        modes = termios.tcgetattr(descriptor)[3]
    except termios.error as error:
        raise OSError(*error.args) from None
    finally:
        os.close(descriptor)
    return not modes & termios.ECHO and bool(modes & termios.ICANON)
