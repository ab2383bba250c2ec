"""A pseudo-terminal with a child on it: size, modes, and non-blocking reads and writes of the controlling side."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Mapping

import anyio

__all__ = ["Pty", "on_terminal"]

# RFC 4254, section 8: opcodes of the encoded terminal modes.
_CHARACTERS = {
    1: termios.VINTR,
    2: termios.VQUIT,
    3: termios.VERASE,
    4: termios.VKILL,
    5: termios.VEOF,
    6: termios.VEOL,
    7: termios.VEOL2,
    8: termios.VSTART,
    9: termios.VSTOP,
    10: termios.VSUSP,
    12: termios.VREPRINT,
    13: termios.VWERASE,
    14: termios.VLNEXT,
    18: termios.VDISCARD,
}
_IFLAG, _OFLAG, _CFLAG, _LFLAG, _CC = 0, 1, 2, 3, 6
_FLAGS = {
    30: (_IFLAG, termios.IGNPAR),
    31: (_IFLAG, termios.PARMRK),
    32: (_IFLAG, termios.INPCK),
    33: (_IFLAG, termios.ISTRIP),
    34: (_IFLAG, termios.INLCR),
    35: (_IFLAG, termios.IGNCR),
    36: (_IFLAG, termios.ICRNL),
    38: (_IFLAG, termios.IXON),
    39: (_IFLAG, termios.IXANY),
    40: (_IFLAG, termios.IXOFF),
    41: (_IFLAG, termios.IMAXBEL),
    42: (_IFLAG, 0o40000),  # IUTF8, which the termios module does not name
    50: (_LFLAG, termios.ISIG),
    51: (_LFLAG, termios.ICANON),
    53: (_LFLAG, termios.ECHO),
    54: (_LFLAG, termios.ECHOE),
    55: (_LFLAG, termios.ECHOK),
    56: (_LFLAG, termios.ECHONL),
    57: (_LFLAG, termios.NOFLSH),
    58: (_LFLAG, termios.TOSTOP),
    59: (_LFLAG, termios.IEXTEN),
    60: (_LFLAG, termios.ECHOCTL),
    61: (_LFLAG, termios.ECHOKE),
    70: (_OFLAG, termios.OPOST),
    72: (_OFLAG, termios.ONLCR),
    73: (_OFLAG, termios.OCRNL),
    74: (_OFLAG, termios.ONOCR),
    75: (_OFLAG, termios.ONLRET),
    92: (_CFLAG, termios.PARENB),
    93: (_CFLAG, termios.PARODD),
}
_DISABLED = 255


class Pty:
    """Both sides of a new pseudo-terminal. Close the child's side once the child has it."""

    def __init__(self, size: tuple[int, int], modes: Mapping[int, int]) -> None:
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.name = os.ttyname(self.slave)
        self.resize(*size)
        self._set_modes(modes)

    def resize(self, width: int, height: int) -> None:
        """Set the window size, in characters; the child's foreground group gets SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height or 24, width or 80, 0, 0))

    def _set_modes(self, modes: Mapping[int, int]) -> None:
        attributes = termios.tcgetattr(self.slave)
        for opcode, value in modes.items():
            if opcode in _CHARACTERS:
                attributes[_CC][_CHARACTERS[opcode]] = bytes([0 if value == _DISABLED else value & 255])
            elif opcode in _FLAGS:
                field, bit = _FLAGS[opcode]
                attributes[field] = attributes[field] | bit if value else attributes[field] & ~bit
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)

    async def read(self) -> bytes:
        """The next output; ``b""`` once nothing holds the child's side."""
        while True:
            try:
                return os.read(self.master, 65536)
            except BlockingIOError:
                await anyio.wait_readable(self.master)
            except OSError:  # EIO: the child's side is closed
                return b""

    async def write(self, data: bytes) -> None:
        """Type all of ``data``."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.master, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self.master)

    def close_slave(self) -> None:
        """Leave the child's side to the child."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def close(self) -> None:
        """Hang up."""
        self.close_slave()
        if self.master >= 0:
            anyio.notify_closing(self.master)
            os.close(self.master)
            self.master = -1


def on_terminal(name: str, argv: list[str]) -> list[str]:
    """A command that takes terminal ``name`` as its controlling one and becomes ``argv``.

    It must be started as a session leader: such a process acquires the first terminal that it opens.
    """
    return ["/bin/sh", "-c", 'exec <>"$1" >&0 2>&0; shift; exec "$@"', "sh", name, *argv]
