"""Hide and drop what an operator types at a question of a running command, which does not read this terminal.

The question of a program on the target, such as that of ``sudo``, is output like any other. Whoever types a password
there would see it on the screen, and the shell would run it as the next command.
"""

from __future__ import annotations

import os
import select
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

__all__ = ["UnseenTyping", "unseen_typing"]

_LOCAL_MODES = 3
"""The place of the local modes in what ``tcgetattr`` returns."""


@dataclass(slots=True)
class UnseenTyping:
    """A terminal that shows nothing that is typed, from the first output that ends within a line until the end."""

    keyboard: int
    screen: int
    _modes: int | None = None
    """The local modes before; None while nothing is hidden."""
    _questioning: bool = False
    """True while the output ends within a line, and no line had been typed when it was shown."""
    _answered: bool = False

    def before_output(self, output: bytes) -> None:
        """Prepare the terminal for a part of the output, which is written next."""
        if not output or not (os.isatty(self.screen) and _in_foreground(self.keyboard)):
            return
        unfinished = not output.endswith(b"\n")
        with suppress(termios.error, OSError):  # the terminal was closed
            self._look()
            if unfinished and self._modes is None:
                self._modes = _change_modes(self.keyboard, termios.ECHO, 0, termios.TCSANOW)
            self._questioning = unfinished and not _has_input(self.keyboard)

    def restore(self) -> None:
        """Show what is typed again, and drop what was typed at a question; lines that were typed before it stay."""
        if self._modes is None or not _in_foreground(self.keyboard):
            return
        if self._questioning:  # only lines count in the canonical mode
            _change_modes(self.keyboard, termios.ICANON, 0, termios.TCSANOW)
        self._look()
        when = termios.TCSAFLUSH if self._answered else termios.TCSADRAIN
        _change_modes(self.keyboard, termios.ECHO | termios.ICANON, self._modes, when)

    def _look(self) -> None:
        self._answered = self._answered or (self._questioning and _has_input(self.keyboard))


@contextmanager
def unseen_typing(keyboard: int = 0, screen: int = 1) -> Iterator[UnseenTyping]:
    """Hide what is typed at a question in the output of a command, and drop it at the end.

    harness's own questions set the modes that they need. Does nothing without a terminal, or in the background, where
    changing its modes would stop this process.

    Args:
        keyboard: The file descriptor of the input.
        screen: That of the output.

    Yields:
        What is told of each part of the output before it is written.
    """
    typing = UnseenTyping(keyboard, screen)
    try:
        yield typing
    finally:
        with suppress(termios.error, OSError):  # the terminal was closed
            typing.restore()


def _in_foreground(keyboard: int) -> bool:
    try:
        return os.tcgetpgrp(keyboard) == os.getpgrp()
    except OSError:  # not a terminal, or not ours
        return False


def _has_input(keyboard: int) -> bool:
    return bool(select.select([keyboard], [], [], 0)[0])


def _change_modes(keyboard: int, which: int, values: int, when: int) -> int:
    """Set some of the local modes, and return all as they were."""
    modes = termios.tcgetattr(keyboard)
    before: int = modes[_LOCAL_MODES]
    modes[_LOCAL_MODES] = before & ~which | values & which
    termios.tcsetattr(keyboard, when, modes)
    return before
