"""Replies of the shell library, turned into values. Pure."""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass

from harness.results import DirEntry, FileType

__all__ = ["EntryParser", "StatLine", "fields_of", "parse_stat", "tolerable"]

_TYPES: dict[int, FileType] = {0x8: "file", 0x4: "dir", 0xA: "link"}
_LETTERS: dict[str, FileType] = {"f": "file", "d": "dir", "l": "link", "L": "link"}
_HARMLESS = ("permission denied", "no such file or directory", "not a directory", "symbolic links", "loop")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


MAX_RECORD_BYTES = 64 << 10
"""Bytes of one entry, more than any path has."""


@dataclass(frozen=True, slots=True)
class StatLine:
    """One file as ``hxf_stat`` reports it."""

    type: FileType
    mode: int
    size: int
    uid: int
    gid: int
    mtime: float


def fields_of(data: bytes, count: int) -> tuple[list[str], bytes]:
    """The first ``count`` NUL-terminated fields as text, and the bytes after them."""
    *fields, rest = data.split(b"\0", count)
    return [field.decode("utf-8", "surrogateescape") for field in fields], rest


def parse_stat(line: str, now: float | None = None) -> StatLine:
    """Read ``TYPE PERMISSIONS SIZE UID GID MTIME``: the mode in hexadecimal, the permissions in octal."""
    raw, bits, size, uid, gid, mtime = line.split()
    return StatLine(
        _type_of(raw), int(bits, 8) & 0o7777, int(size), int(uid), int(gid), _parse_time(mtime, now or time.time())
    )


def _type_of(raw: str) -> FileType:
    return _TYPES.get(int(raw, 16) >> 12, "other")


def _parse_time(text: str, now: float) -> float:
    """Seconds, or the date of ``ls -l`` in UTC (``Nov_21_22:12``, within the last months, or ``Nov_21_2024``)."""
    if "_" not in text:
        return float(text)
    month, day, rest = text.split("_")
    number = MONTHS.index(month) + 1
    if ":" not in rest:
        return float(calendar.timegm((int(rest), number, int(day), 0, 0, 0)))
    hour, minute = map(int, rest.split(":"))
    year = time.gmtime(now).tm_year
    seconds = calendar.timegm((year, number, int(day), hour, minute, 0))
    return float(seconds if seconds <= now + 86400 else calendar.timegm((year - 1, number, int(day), hour, minute, 0)))


class EntryParser:
    """Reads the records of ``hxf_entry``: each is an unguessable mark, then ``TYPE SIZE NAME`` and a newline.

    Anything else raises ``ValueError``: another program than the usual one wrote it.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._buffer = b""
        self._started = False

    def feed(self, data: bytes) -> list[DirEntry]:
        """The entries that are whole now; the last one is whole only when the next begins."""
        *whole, self._buffer = (self._buffer + data).split(self._mark)
        if whole and not self._started:
            self._started, before = True, whole.pop(0)
            if before:
                raise ValueError("something stands before the first entry")
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise ValueError("an entry is longer than any name")
        return [_parse_entry(record) for record in whole]

    def finish(self) -> list[DirEntry]:
        """The last entry, once there is no more data."""
        record, self._buffer = self._buffer, b""
        if record and not self._started:
            raise ValueError("something stands before the first entry")
        return [_parse_entry(record)] if record else []


def _parse_entry(record: bytes) -> DirEntry:
    kind, size, name = record.decode("utf-8", "surrogateescape").removesuffix("\n").split(" ", 2)
    if not kind.startswith("x"):
        return DirEntry(name, _LETTERS.get(kind, "other"), int(size))
    return DirEntry(name.removeprefix("./"), _type_of(kind[1:]), int(size))


def tolerable(stderr: bytes) -> bool:
    """True when a search complained only about what it may not enter, or about what vanished meanwhile."""
    lines = stderr.decode("utf-8", "replace").lower().splitlines()
    return all(any(words in line for words in _HARMLESS) for line in lines)
