"""An incremental parser of a tar archive's first entry. Pure; it buffers one or two blocks.

``tarfile`` parses the headers but not their extended records: with it, an invalid size is 0, and one record of 64 KB of
digits takes 4 s (Python 3.11.7).
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass

from harness.results import FileType

__all__ = ["EntryReader", "TarEntry", "TarError"]

BLOCK = tarfile.BLOCKSIZE
MAX_RECORD_BYTES = 1 << 20
"""Bytes of an entry's extended headers."""
_TYPES: dict[bytes, FileType] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "dir",
    tarfile.SYMTYPE: "link",
}
_RECORDS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_LONGNAME)


class TarError(Exception):
    """The data is not a valid tar archive."""


@dataclass(frozen=True, slots=True)
class TarEntry:
    """One file in an archive; ``size`` is that of its content, ``link`` a link's target.

    ``name`` is the last part of its path, empty for the root directory.
    """

    name: str
    type: FileType
    mode: int
    size: int
    uid: int
    gid: int
    mtime: float
    link: str


class EntryReader:
    """A parser of the first entry; ``entry`` is None until it is known, ``empty`` True without one."""

    def __init__(self) -> None:
        self.entry: TarEntry | None = None
        self.empty = False
        self._held = b""
        self._left = 0
        self._records: dict[str, str] = {}

    @property
    def complete(self) -> bool:
        """True if no more data is needed."""
        return self.empty or (self.entry is not None and self._left == 0)

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the archive, and return those of the entry's content.

        Raises:
            TarError: the archive is invalid, or exceeds the limits.
        """
        if self.entry is None:
            self._held += data
            while self.entry is None and not self.empty and self._next_header():
                pass
            data, self._held = (self._held, b"") if self.entry is not None else (b"", self._held)
        content = data[: self._left]
        self._left -= len(content)
        return content

    def _next_header(self) -> bool:
        """Read one header with its records; return False while it is incomplete."""
        block = self._held[:BLOCK]
        if len(block) < BLOCK:
            return False
        if not block.strip(b"\0"):
            self.empty = True
            return False
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise TarError("invalid archive") from error
        return self._take_records(info) if info.type in _RECORDS else self._take_entry(info)

    def _take_records(self, info: tarfile.TarInfo) -> bool:
        if not 0 <= info.size <= MAX_RECORD_BYTES:
            raise TarError("invalid archive")
        end = BLOCK + -(-info.size // BLOCK) * BLOCK
        if len(self._held) < end:
            return False
        body, self._held = self._held[BLOCK : BLOCK + info.size], self._held[end:]
        if info.type == tarfile.GNUTYPE_LONGLINK:
            self._records["linkpath"] = body.rstrip(b"\0").decode("utf-8", "surrogateescape")
        elif info.type == tarfile.GNUTYPE_LONGNAME:
            self._records["path"] = body.rstrip(b"\0").decode("utf-8", "surrogateescape")
        else:
            self._records |= _parse_records(body)
        return True

    def _take_entry(self, info: tarfile.TarInfo) -> bool:
        known = self._records
        try:
            size, uid, gid = (int(known.get(name, getattr(info, name))) for name in ("size", "uid", "gid"))
            mtime = float(known.get("mtime", info.mtime))
        except ValueError as error:
            raise TarError("invalid archive") from error
        kind = _TYPES.get(info.type, "other")
        if size < 0 or info.type == tarfile.LNKTYPE:
            raise TarError("invalid archive")
        name = known.get("path", info.name).rstrip("/").rpartition("/")[2]
        self.entry = TarEntry(
            "" if name == "." else name,
            kind,
            info.mode & 0o7777,
            size,
            uid,
            gid,
            mtime,
            known.get("linkpath", info.linkname),
        )
        self._left = size if kind == "file" else 0
        self._held = self._held[BLOCK:]
        return True


def _parse_records(body: bytes) -> dict[str, str]:
    """Parse records of the form ``LENGTH NAME=VALUE`` and a newline."""
    found = {}
    while body:
        digits, _, _ = body[:20].partition(b" ")
        size = int(digits) if digits.isdigit() else 0
        name, equals, value = body[len(digits) + 1 : size - 1].partition(b"=")
        if not equals or size > len(body) or body[size - 1 : size] != b"\n":
            raise TarError("invalid archive")
        found[name.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        body = body[size:]
    return found
