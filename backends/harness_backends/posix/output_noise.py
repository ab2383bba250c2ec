"""A filter for what start-up files write before a program. Pure."""

from __future__ import annotations

from typing import Literal

__all__ = ["NoiseFilter"]

NOISE_KEPT = 400


class NoiseFilter:
    """A filter that drops a stream's bytes up to and including the nonce's line. Pure; memory is bounded."""

    def __init__(self, nonce: str, stream: Literal["stdout", "stderr"]) -> None:
        self._mark = f"{nonce}{'o' if stream == 'stdout' else 'e'}\n".encode()
        self._kept = b""
        self.passed = False
        """True once the nonce was seen: the program is starting."""

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the stream and return those that the program wrote."""
        if self.passed:
            return data
        self._kept += data
        before, mark, after = self._kept.partition(self._mark)
        if not mark:
            self._kept = self._kept[-(NOISE_KEPT + len(self._mark)) :]
            return b""
        self.passed = True
        self._kept = before[-NOISE_KEPT:]
        return after

    @property
    def noise(self) -> bytes:
        """The last dropped bytes, for messages."""
        return self._kept
