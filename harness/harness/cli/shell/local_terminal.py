"""The operator's terminal between two clients of tmux: its modes, and one line about the connection."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...login import on_sigcont
from ..output import readable

__all__ = ["LocalTerminal"]

_MODES = (1, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026, 2031, 7727)
"""Private modes of tmux: cursor keys, mouse, focus events, bracketed paste, synchronized output, colors, Escape."""
_RESET = "".join(
    (
        "\x1b\\",  # ends a sequence that was cut
        "\x1b7\x1b[?1049l",  # the main screen; the saved cursor is for terminals that show it already
        *(f"\x1b[?{mode}l" for mode in _MODES),
        "\x1b>\x1b[>4m",  # numeric keypad, and keys without modifiers in sequences
        "\x1b7\x1b[r\x1b8",  # the whole screen scrolls; setting that moves the cursor
        "\x1b(B\x0f\x1b[0m\x1b[?25h\x1b[0 q",  # ASCII, no attributes, a visible cursor of the terminal's shape
    )
)
"""Undoes what a client that was cut off has set."""
_INPUT, _LOCAL, _CONTROL_KEYS = 0, 3, 6
"""Fields of the terminal's attributes."""
_DISABLED = b"\0"


class LocalTerminal:
    """The terminal of the operator, which clients of tmux share with this program one after the other.

    Args:
        name: The target's name, for the line about the connection.
        keyboard: The descriptor of its input.
        screen: The descriptor of its output.
    """

    def __init__(self, name: str, keyboard: int = 0, screen: int = 1) -> None:
        self._name = name
        self._keyboard = keyboard
        self._screen = screen
        self._attributes: list[Any] = []
        self._waiting = False
        self._is_plain = os.environ.get("TERM", "dumb") == "dumb"
        self._shown = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Restore the terminal at the end; drop what was typed since the connection was lost."""
        self._attributes = termios.tcgetattr(self._keyboard)
        try:
            with on_sigcont(self._keyboard, self._set_again):
                yield
        finally:
            if self._waiting:
                self.end_line()
                self.give_back()
            else:
                self._set(self._attributes)

    def take_over(self) -> None:
        """Reset the terminal after a client; from now on typed keys are dropped, except Ctrl-C."""
        if not self._waiting:
            self._waiting = True
            self._set_again()
            self._drop_input()
            self._write("\n" if self._is_plain else _RESET)

    def give_back(self) -> None:
        """Prepare the terminal for a client, or for the shell."""
        if self._waiting:
            self._waiting = False
            self._drop_input()
            self._set(self._attributes)

    def show(self, text: str, *, is_update: bool = False) -> None:
        """Replace the line about the connection; an update is not shown where lines cannot be replaced."""
        line = readable(f"{self._name}: {text}")
        if line == self._shown or (is_update and self._is_plain):
            return
        if self._is_plain:
            self._write(f"{line}\n")
        else:
            self._write(f"\r\x1b[K{line[: max(_columns(self._screen) - 1, 20)]}")
        self._shown = line

    def end_line(self) -> None:
        """Leave the line about the connection unchanged; later output starts below it."""
        if self._shown:
            self._shown = ""
            self._write("" if self._is_plain else "\n")

    def _set_again(self) -> None:
        if self._waiting:
            self._set(_quiet(self._attributes))

    def _set(self, attributes: list[Any]) -> None:
        with suppress(termios.error):  # the terminal was closed; a signal ends this process
            termios.tcsetattr(self._keyboard, termios.TCSANOW, attributes)  # at once: the output may be stopped

    def _drop_input(self) -> None:
        with suppress(termios.error):
            termios.tcflush(self._keyboard, termios.TCIFLUSH)

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with suppress(OSError):
            while data:
                data = data[os.write(self._screen, data) :]


def _quiet(attributes: list[Any]) -> list[Any]:
    """Return attributes with which keys are not shown, Ctrl-C interrupts, and Ctrl-Z, Ctrl-\\ and Ctrl-S do nothing."""
    quiet = [*attributes]
    quiet[_INPUT] &= ~termios.IXON
    quiet[_LOCAL] = (quiet[_LOCAL] | termios.ISIG | termios.ICANON) & ~termios.ECHO
    keys = list(quiet[_CONTROL_KEYS])
    keys[termios.VSUSP] = keys[termios.VQUIT] = _DISABLED
    quiet[_CONTROL_KEYS] = keys
    return quiet


def _columns(screen: int) -> int:
    with suppress(OSError):
        return os.get_terminal_size(screen).columns or 80
    return 80
