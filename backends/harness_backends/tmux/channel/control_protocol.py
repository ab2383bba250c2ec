"""The wire format of tmux control mode: quoting of commands, parsing of responses. Pure.

Facts (measured on tmux 1.8 to 3.7): every ``;``-separated command of a line gives one ``%begin``/``%end`` block; only
blocks with 1 as third number answer this client; bytes below 0x20 and the backslash come as ``\\ooo``; everything
else is raw, so lines are split on 0x0a and decoded afterwards. Single-quote splicing is a parse error before 3.0:
arguments go in double quotes. There a ``~`` at the beginning means the home directory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["OWN_PID", "Block", "ControlParser", "Notification", "Output", "control_line", "quote", "unescape"]

OWN_PID = "harness-pid"
"""The first notification, printed by the program that becomes the control client."""

_OCTAL = re.compile(rb"\\([0-3][0-7]{2})")
_BYTES = {b"%03o" % value: bytes([value]) for value in range(256)}
_BYTE = re.compile("[\udc80-\udcff]")
_PLAIN = re.compile(r"%[0-9]+|[-A-Za-z0-9_.:=@/,][-A-Za-z0-9_.:=@%/,]*")
"""Words that need no quotes; words like ``%if`` are syntax."""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "$": "\\$", "~": "\\~", "\n": "\\n", "\t": "\\t", "\r": "\\r"})


@dataclass(frozen=True, slots=True)
class Block:
    """The response to one command: its lines (without newline), and whether tmux refused it."""

    lines: tuple[bytes, ...]
    error: bool = False

    @property
    def text(self) -> str:
        """The joined lines."""
        return b"\n".join(self.lines).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that a program wrote to a pane."""

    pane: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Notification:
    """Another asynchronous line, for example ``%window-close @3``."""

    name: str
    args: tuple[str, ...]


def unescape(data: bytes) -> bytes:
    """Decode ``\\ooo``; every backslash starts an escape, so the most common ones can be replaced first."""
    if b"\\" not in data:
        return data
    data = data.replace(b"\\015\\012", b"\r\n").replace(b"\\033", b"\x1b")
    if b"\\" not in data:
        return data
    first, *rest = data.split(b"\\")
    return first + b"".join([_BYTES.get(part[:3], b"\\" + part[:3]) + part[3:] for part in rest])


def quote(argument: str) -> str:
    """Quote an argument of a tmux command in the only form that every version since 1.8 understands.

    Raises:
        ValueError: the argument contains a NUL byte.
    """
    if "\0" in argument:
        raise ValueError("a tmux argument cannot contain a NUL byte")
    return f'"{argument.translate(_ESCAPES)}"'


def control_line(*commands: tuple[str, ...], legacy: bool = False) -> bytes:
    """Return one line that runs several commands in order; every word is quoted, so none is syntax.

    ``legacy``: before 3.0 a final ``;`` of an argument ends the command even inside quotes, unless a backslash is
    before it.
    """
    if legacy:
        commands = tuple((name, *map(_guard, args)) for name, *args in commands)
    line = " ; ".join([" ".join([name, *map(_word, args)]) for name, *args in commands])
    if not legacy and not line.isascii():  # its parser takes the byte 0xff for the end of the line
        line = _BYTE.sub(lambda byte: f"\\{ord(byte[0]) - 0xDC00:03o}", line)
    return line.encode("utf-8", "surrogateescape") + b"\n"


def _guard(argument: str) -> str:
    return f"{argument[:-1]}\\;" if argument.endswith(";") else argument


def _word(argument: str) -> str:
    return argument if _PLAIN.fullmatch(argument) else quote(argument)


class ControlParser:
    """An incremental parser of a control client's blocks, output and notifications, in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._block: list[bytes] | None = None
        self._guard = b""

    def feed(self, data: bytes) -> list[Block | Output | Notification]:
        """Add bytes and return the completed items."""
        self._buffer += data
        end = self._buffer.rfind(b"\n", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            return []
        lines = bytes(self._buffer[:end]).split(b"\n")
        del self._buffer[: end + 1]
        self._scanned = len(self._buffer)
        events = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    def _line(self, line: bytes) -> Block | Output | Notification | None:
        if self._block is not None:
            return self._in_block(line)
        if line.startswith(b"%output "):
            pane, _, data = line[8:].partition(b" ")
            return Output(pane.decode("ascii", "replace"), unescape(data))
        if line.startswith(b"%extended-output "):
            head, _, data = line[17:].partition(b" : ")
            return Output(head.split(b" ", 1)[0].decode("ascii", "replace"), unescape(data))
        if line.startswith(b"%begin "):
            self._block, self._guard = [], line[7:]
            return None
        return _notification(line)

    def _in_block(self, line: bytes) -> Block | None:
        assert self._block is not None
        kind, _, guard = line.partition(b" ")
        if guard != self._guard or kind not in (b"%end", b"%error"):
            self._block.append(line)
            return None
        lines, self._block = tuple(self._block), None
        ours = guard.endswith(b" 1")
        return Block(lines, kind == b"%error") if ours else None


def _notification(line: bytes) -> Notification | None:
    if not line.startswith(b"%"):
        return None  # the DCS introducer of -CC, or noise before the first line
    name, *args = line.decode("utf-8", "surrogateescape").split(" ")
    return Notification(name[1:], tuple(args))
