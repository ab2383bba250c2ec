"""Versions of file content: ``sha256:HEX``, or ``cksum:CRC:SIZE`` where the target has no program for SHA-256. Pure.

The scheme is the target's, so that a version computed here equals one computed there.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Literal

__all__ = ["Hasher", "Scheme", "parse_scheme", "version_of"]

Scheme = Literal["sha256", "cksum"]

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_ONES = 0xFFFFFFFF


class _Cksum:
    """The CRC of POSIX ``cksum``: zlib's polynomial with the bits in the opposite order, and the length at the end."""

    def __init__(self) -> None:
        self._crc = _ONES
        self._size = 0

    def update(self, data: bytes | memoryview) -> None:
        self._crc = zlib.crc32(bytes(data).translate(_REVERSED), self._crc)
        self._size += len(data)

    def value(self) -> str:
        length = self._size.to_bytes((self._size.bit_length() + 7) // 8, "little")
        crc = zlib.crc32(length.translate(_REVERSED), self._crc)
        return f"{int(f'{crc:032b}'[::-1], 2)}:{self._size}"


class Hasher:
    """Computes the version of content that comes in pieces."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self._sha256 = hashlib.sha256() if scheme == "sha256" else None
        self._cksum = _Cksum() if scheme == "cksum" else None

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        if self._sha256 is not None:
            self._sha256.update(data)
        if self._cksum is not None:
            self._cksum.update(data)

    def version(self) -> str:
        """The version of what was added so far."""
        if self._sha256 is not None:
            return f"sha256:{self._sha256.hexdigest()}"
        assert self._cksum is not None
        return f"cksum:{self._cksum.value()}"


def version_of(content: bytes, scheme: Scheme) -> str:
    """The version of a whole content."""
    hasher = Hasher(scheme)
    hasher.update(content)
    return hasher.version()


def parse_scheme(word: str) -> Scheme:
    """The scheme that the target names."""
    return "cksum" if word == "cksum" else "sha256"
