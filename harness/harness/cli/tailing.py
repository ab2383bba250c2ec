"""A job's output as JSON, one object in each line."""

from __future__ import annotations

from collections.abc import Callable

from ..results import Job
from .output import as_json, with_base64

__all__ = ["JsonLines", "whole_characters"]


def whole_characters(data: bytes) -> int:
    """How many bytes come before a UTF-8 character that is cut at the end."""
    for back, byte in enumerate(reversed(data[-3:]), 1):
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)


class JsonLines:
    """Turns output, from byte ``offset`` on, into ``{"offset": N, "text": "..."}``, and ends with the job's status."""

    def __init__(self, write: Callable[[bytes], None], offset: int) -> None:
        self._write = write
        self._offset = offset
        self._rest = b""

    def write(self, data: bytes) -> None:
        """The next bytes; a character that they cut waits for its other half."""
        data = self._rest + data
        cut = whole_characters(data)
        self._rest = data[cut:]
        self._piece(data[:cut])

    def skip_to(self, offset: int) -> None:
        """What comes next begins at this byte: those before it were not kept."""
        self._piece(self._rest)
        self._rest = b""
        self._offset = offset

    def finish(self, job: Job) -> None:
        """There is no more for now."""
        self._piece(self._rest)
        self._rest = b""
        self._line({"offset": self._offset, "status": job.status.value, "exit_code": job.exit_code})

    def _piece(self, data: bytes) -> None:
        if data:
            self._line({"offset": self._offset, **with_base64("text", data)})
            self._offset += len(data)

    def _line(self, value: object) -> None:
        self._write(as_json(value).encode() + b"\n")
