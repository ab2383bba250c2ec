"""Taking apart the stream of a process without a terminal, as an engine's API multiplexes it. Pure.

Each frame is a header of eight bytes (the stream's number, three zeros, the length as a big-endian number) and that
many bytes. What has arrived of a frame is passed on at once.
"""

from __future__ import annotations

from harness.errors import ConnectionLost

__all__ = ["Demultiplexer"]

_HEADER = 8
_STREAMS = (0, 1, 2, 3)
_PADDING = b"\0\0\0"


class Demultiplexer:
    """Splits the bytes of an attached process into its streams: 1 is standard output, 2 is standard error.

    Stream 0 is an echo of the input, which engines do not send; stream 3 is an error of the engine itself.
    """

    def __init__(self) -> None:
        self._header = b""
        self._left = 0
        self._stream = 0

    @property
    def inside(self) -> bool:
        """True in the middle of a frame: a stream that ends here was cut off."""
        return self._left > 0 or bool(self._header)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add bytes; return what they hold, in order, as (stream, bytes), without empty parts.

        Raises:
            ConnectionLost: this is no such stream.
        """
        parts: list[tuple[int, bytes]] = []
        while data:
            if self._left == 0:
                data = self._begin(data)
                continue
            part, data = data[: self._left], data[self._left :]
            self._left -= len(part)
            parts.append((self._stream, part))
        return parts

    def _begin(self, data: bytes) -> bytes:
        missing = _HEADER - len(self._header)
        self._header += data[:missing]
        if len(self._header) == _HEADER:
            if self._header[0] not in _STREAMS or self._header[1:4] != _PADDING:
                raise ConnectionLost("the engine sent something that is not a process's output")
            self._stream = self._header[0]
            self._left = int.from_bytes(self._header[4:], "big")
            self._header = b""
        return data[missing:]
