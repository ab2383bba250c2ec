"""Notifications by the terminal that harness runs in: its bell, and the escape sequences that some terminals show."""

from __future__ import annotations

import base64
import os
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress

from ..system.descriptor_stream import write_when_ready
from .channel import Channel, NotificationError
from .notification import Notification, short_line
from .settings import TerminalProtocol

__all__ = ["TerminalChannel", "choose_protocol", "notification_sequence"]

BELL = b"\a"
STRING_END = b"\033\\"
MAX_CHARS = 200
"""Characters of a text in a sequence: some terminals ignore long ones."""
OSC_777_TERMINALS = ("wezterm", "ghostty", "foot", "rxvt", "konsole", "contour", "vte")


# -- The sequences. Pure.


def choose_protocol(environ: Mapping[str, str]) -> TerminalProtocol:
    """Return the sequence that a terminal most likely shows.

    kitty has its own, iTerm2 shows OSC 9 only, Windows Terminal OSC 777 only. Terminals ignore sequences that they do
    not know.
    """
    names = " ".join(environ.get(name, "") for name in ("TERM", "TERM_PROGRAM", "LC_TERMINAL")).lower()
    if "kitty" in names or environ.get("KITTY_WINDOW_ID"):
        return "osc99"
    if "iterm" in names:
        return "osc9"
    if any(name in names for name in OSC_777_TERMINALS) or environ.get("WT_SESSION") or environ.get("VTE_VERSION"):
        return "osc777"
    return "osc9"


def notification_sequence(protocol: TerminalProtocol, title: str, text: str, *, in_tmux: bool = False) -> bytes:
    """Return the escape sequence of a notification; empty for ``off``.

    Args:
        protocol: The sequence, not ``auto``.
        title: One line.
        text: Further lines.
        in_tmux: Whether tmux is between harness and the terminal; it passes the sequence on if its option
            ``allow-passthrough`` is on, and drops it otherwise.
    """
    title, text = short_line(title, MAX_CHARS), short_line(text, MAX_CHARS)
    if protocol == "osc9":  # without a title; ConEmu takes a text that starts with a number and ; as a command
        made = b"\033]9;" + _plain(f"{title}: {text}" if text else title) + STRING_END
    elif protocol == "osc99":
        first = b"\033]99;i=harness:e=1:d=0;" + _encoded(title) + STRING_END
        made = first + b"\033]99;i=harness:e=1:p=body:d=1;" + _encoded(text) + STRING_END
    elif protocol == "osc777":
        made = b"\033]777;notify;" + _plain(title.replace(";", ",")) + b";" + _plain(text) + STRING_END
    else:
        return b""
    return b"\033Ptmux;" + made.replace(b"\033", b"\033\033") + STRING_END if in_tmux else made


def _plain(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _encoded(text: str) -> bytes:
    return base64.b64encode(_plain(text))


# -- Writing.


class TerminalChannel(Channel):
    """The terminal of standard error.

    It is reopened and never waited for in another thread: while the terminal is stopped, only this task waits.

    Args:
        bell: Whether to ring the bell.
        protocol: The escape sequence.
        descriptor: A descriptor of the terminal.
    """

    name = "terminal"
    writes_to_stderr = True

    def __init__(self, *, bell: bool, protocol: TerminalProtocol, descriptor: int = 2) -> None:
        self._bell = bell
        self._protocol = choose_protocol(os.environ) if protocol == "auto" else protocol
        self._descriptor = descriptor

    @staticmethod
    def is_possible() -> bool:
        """Return whether standard error is a terminal that knows escape sequences."""
        return sys.stderr is not None and os.isatty(2) and os.environ.get("TERM", "") not in ("", "dumb")

    async def send(self, notification: Notification) -> str:
        """See :class:`Channel`."""
        text = notification.text.replace("\n", "; ")
        in_tmux = bool(os.environ.get("TMUX"))
        data = notification_sequence(self._protocol, notification.title, text, in_tmux=in_tmux)
        data += BELL if self._bell else b""
        try:
            terminal = self._open()
        except OSError as error:
            raise NotificationError(f"cannot open the terminal: {(error.strerror or str(error)).lower()}") from error
        try:
            if _would_stop(terminal):
                raise NotificationError("harness runs in the background of a terminal that stops programs which write")
            await write_when_ready(terminal, data, lambda rest: os.write(terminal, rest))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise NotificationError(f"cannot write to the terminal: {why}") from error
        finally:
            os.close(terminal)
        return " and ".join([*(["bell"] if self._bell else []), *([self._protocol] if self._protocol != "off" else [])])

    def _open(self) -> int:
        """Return a non-blocking descriptor of its own; a change of the existing one would concern other processes."""
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(os.ttyname(self._descriptor), flags)
        except OSError:  # after su it belongs to another user; in a container it may have no name
            return os.open("/dev/tty", flags)


def _would_stop(terminal: int) -> bool:
    """Return whether writing would stop this process, as ``stty tostop`` asks for in the background."""
    with suppress(OSError, termios.error):
        return bool(termios.tcgetattr(terminal)[3] & termios.TOSTOP) and os.tcgetpgrp(terminal) != os.getpgrp()
    return False
