"""Calls of the file library: their replies, errors, and versions of files."""

from __future__ import annotations

import calendar
import errno
import hashlib
import math
import os
import shlex
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from harness.errors import (
    ConnectError,
    FileError,
    FileExists,
    FileNotFound,
    IsADirectory,
    NoSpace,
    NotADirectory,
    PermissionDenied,
    StaleFileError,
    UnsupportedOperation,
)
from harness.results import DirEntry, FileType
from harness.transport import Process, Transport

from ..persistent_shell import PersistentShell, ShellReply
from . import shell_library
from .shell_library import Refusal

__all__ = [
    "EntryParser",
    "FileCalls",
    "Hasher",
    "Scheme",
    "StatLine",
    "display_path",
    "fields_of",
    "file_error",
    "local_error",
    "parse_scheme",
    "parse_stat",
    "tolerable",
    "version_of",
]


# -- Translation of the target's refusals to exceptions. Pure.


@dataclass(frozen=True, slots=True)
class _Kind:
    error: type[FileError]
    text: str
    hint: str = ""


_KINDS = {
    Refusal.MISSING: _Kind(FileNotFound, "no such file or directory"),
    Refusal.DENIED: _Kind(PermissionDenied, "permission denied", "check the permissions of the target's user"),
    Refusal.IS_DIRECTORY: _Kind(IsADirectory, "is a directory", "use the path of a file"),
    Refusal.NOT_DIRECTORY: _Kind(NotADirectory, "a part of the path is not a directory"),
    Refusal.EXISTS: _Kind(FileExists, "already exists", "choose another name, or allow overwriting"),
    Refusal.NO_SPACE: _Kind(
        NoSpace, "the file system is full, read-only or over quota", "free disk space or choose another location"
    ),
    Refusal.STALE: _Kind(StaleFileError, "is not the expected version", "read it again and repeat the change"),
    Refusal.LOOP: _Kind(FileError, "is a link to itself", "fix the link"),
    Refusal.SPECIAL: _Kind(FileError, "is a pipe, a socket or a device, not a file", "use a command for it"),
    Refusal.BUSY: _Kind(
        FileError,
        "the directory is locked by another writer",
        "try again; a stale .hx-lock in it expires after a minute",
    ),
    Refusal.NO_USER: _Kind(FileNotFound, "no such user on the target", "use ./~name for a file with that name"),
    Refusal.NOT_EMPTY: _Kind(FileError, "the directory is not empty", "remove it with recursive=True"),
    Refusal.PROTECTED: _Kind(
        PermissionDenied,
        "refused: it is the root directory, the home directory or a parent of it",
        "use a command if intended",
    ),
    Refusal.OTHER_DEVICE: _Kind(FileError, "is on another file system", "copy it and remove the original"),
    Refusal.DAMAGED: _Kind(FileError, "the content arrived incomplete, nothing was changed", "try again"),
    Refusal.NO_DIGEST: _Kind(FileError, "the target cannot compute this kind of version", "read the file again"),
    Refusal.SLOW: _Kind(FileError, "could not be read within 10 s", "read it with a command that exits"),
    Refusal.UNLIKE: _Kind(
        FileError,
        "nothing was changed, as an attribute would be lost",
        "write it with a command if the attribute may be lost",
    ),
    Refusal.FIXED: _Kind(
        PermissionDenied,
        "cannot be replaced, as the target's user cannot create files in its directory",
        "append to it, or write it with a command (cat >FILE)",
    ),
    Refusal.MOUNTED: _Kind(
        FileError,
        "is a mount point, so it can be neither replaced nor removed",
        "change its content: append, or use a command (cat >FILE)",
    ),
    Refusal.READ_ONLY: _Kind(
        PermissionDenied,
        "is read-only, so it was not written",
        "write it anyway, keeping its permissions, with --force or force=True",
    ),
    Refusal.NO_TEE: _Kind(
        FileError,
        "tee is not installed where the file is to be written",
        "install it there: harness receives files of 1 MiB and more with it",
    ),
    Refusal.PARTIAL: _Kind(FileError, "could not be appended to", "check its end before you repeat the call"),
    Refusal.FORBIDDEN: _Kind(
        PermissionDenied,
        "operation not permitted",
        "it or its directory may be immutable or append-only (see lsattr), or sticky and another user's",
    ),
}

_UNLESS_FULL = (Refusal.UNLIKE, Refusal.PARTIAL, Refusal.FIXED)
_PARTIAL = "; it may end with a part of the appended data"

_TEXTS = (
    ("no space left", Refusal.NO_SPACE),
    ("quota exceeded", Refusal.NO_SPACE),
    ("read-only file system", Refusal.NO_SPACE),
    ("file too large", Refusal.NO_SPACE),
    ("hxf: no end", Refusal.SLOW),
    ("device or resource busy", Refusal.MOUNTED),
    ("permission denied", Refusal.DENIED),
    ("operation not permitted", Refusal.FORBIDDEN),
    ("no such file", Refusal.MISSING),
    ("nonexistent directory", Refusal.MISSING),
    ("directory nonexistent", Refusal.MISSING),
    ("not a directory", Refusal.NOT_DIRECTORY),
    ("is a directory", Refusal.IS_DIRECTORY),
    ("directory not empty", Refusal.NOT_EMPTY),
    ("file exists", Refusal.EXISTS),
)

_ERRNO = {
    errno.ENOENT: Refusal.MISSING,
    errno.EACCES: Refusal.DENIED,
    errno.EPERM: Refusal.FORBIDDEN,
    errno.EISDIR: Refusal.IS_DIRECTORY,
    errno.ENOTDIR: Refusal.NOT_DIRECTORY,
    errno.EEXIST: Refusal.EXISTS,
    errno.ENOSPC: Refusal.NO_SPACE,
    errno.EDQUOT: Refusal.NO_SPACE,
    errno.EROFS: Refusal.NO_SPACE,
    errno.EBUSY: Refusal.MOUNTED,
}


def display_path(path: str) -> str:
    """Return a path for a message: unchanged if it is readable on one line, else escaped."""
    return path if path.isprintable() and path.strip() == path and path else ascii(path)


def file_error(path: str, exit_code: int, stderr: bytes, target: object) -> FileError:
    """Return the exception for a script that exited with ``exit_code``."""
    reason = _refusal(exit_code, stderr)
    if reason is not None and reason is not Refusal.UNLIKE:
        return _build(reason, path, target, _PARTIAL if exit_code == Refusal.PARTIAL else "")
    last = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if reason is Refusal.UNLIKE:
        return _build(reason, path, target, f" ({last})")
    return FileError(f"{display_path(path)}: {last or f'failed with exit code {exit_code}'}", target=target)


def local_error(path: str, error: OSError) -> FileError:
    """Return the exception for a file of this machine."""
    reason = _ERRNO.get(error.errno or 0)
    if reason is not None:
        return _build(reason, path, "this machine")
    return FileError(f"{display_path(path)}: {os.strerror(error.errno or 0).lower()}", target="this machine")


def _refusal(exit_code: int, stderr: bytes) -> Refusal | None:
    text = stderr.decode("utf-8", "replace").lower()
    told = next((reason for words, reason in _TEXTS if words in text), None)
    if exit_code in _UNLESS_FULL and told is Refusal.NO_SPACE:
        return told
    return Refusal(exit_code) if exit_code in _KINDS else told


def _build(reason: Refusal, path: str, target: object, detail: str = "") -> FileError:
    kind = _KINDS[reason]
    return kind.error(f"{display_path(path)}: {kind.text}{detail}", target=target, hint=kind.hint)


# -- Versions of file content: ``sha256:HEX``, or ``cksum:CRC:SIZE`` where the target has no program for SHA-256. Pure.
#
# The scheme is the target's, so that a version computed here equals one computed there.


Scheme = Literal["sha256", "cksum"]

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_ONES = 0xFFFFFFFF


class _Cksum:
    """The CRC of POSIX ``cksum``: zlib's polynomial with reversed bits, followed by the length."""

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
    """A hasher that computes the version of content in pieces."""

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
        """Return the version of the data added so far."""
        if self._sha256 is not None:
            return f"sha256:{self._sha256.hexdigest()}"
        assert self._cksum is not None
        return f"cksum:{self._cksum.value()}"


def version_of(content: bytes, scheme: Scheme) -> str:
    """Return the version of a complete content."""
    hasher = Hasher(scheme)
    hasher.update(content)
    return hasher.version()


def parse_scheme(word: str) -> Scheme:
    """Return the version scheme that the target reported."""
    return "cksum" if word == "cksum" else "sha256"


# -- Calls into the shell library: through the persistent shell, or in a separate process if they may take long.


CALL_TIMEOUT = 120.0
MAX_SHOWN_ANSWER = 80
"""Bytes of an invalid answer that the message shows."""


class FileCalls:
    """The interface to the shell library on one target, which is sent with the first call.

    ``library`` replaces the library for targets with the usual tools. ``where`` names the target in errors, if it is
    not named by its URL.
    """

    def __init__(
        self, shell: PersistentShell, transport: Transport, home: str, library: str = "", *, where: str = ""
    ) -> None:
        self.transport = transport
        self.where: object = where or transport.target
        self.home = home
        self._shell = shell
        self._library = library or shell_library.library(home)
        self._process_library = self._library
        self._may_learn = not library
        self._defined = False
        self._scheme: Scheme | None = None

    @property
    def connected(self) -> bool:
        """True if the persistent shell is running, as far as known, so that a call does not connect."""
        return self._shell.is_open

    async def run(self, path: str, script: str) -> ShellReply:
        """Run a script in the persistent shell, in one round trip.

        Raises:
            FileError: the script refused, or failed; the message names ``path``.
            ConnectionLost: the connection was lost; the script may have run.
        """
        check_path(path, self.where)
        return self.checked(path, await self.attempt(script))

    async def attempt(self, script: str) -> ShellReply:
        """Run a script in the persistent shell, and return its reply whatever its exit code."""
        if not self._defined:
            self._shell.define(self._library)
            self._defined = True  # later calls queue behind this one, and a new shell starts with the library
            return await self._send(f"{self._library}\n", script)
        reply = await self._send("", script)
        if reply.exit_code == 127 and b"hxf_" in reply.stderr:  # the first call was cancelled before it was sent
            reply = await self._send(f"{self._library}\n", script)
        return reply

    async def _send(self, prefix: str, script: str) -> ShellReply:
        quoted = shlex.quote(script)
        return await self._shell.request(lambda number: f"{prefix}hx_call {number} {quoted}\n", timeout=CALL_TIMEOUT)

    def checked(self, path: str, reply: ShellReply) -> ShellReply:
        """Return the reply if it is a success, otherwise raise the matching FileError."""
        if reply.exit_code != 0:
            raise file_error(path, reply.exit_code, reply.stderr, self.where)
        return reply

    @contextmanager
    def understanding(self, path: str, data: bytes) -> Iterator[None]:
        """Convert parse errors of an answer inside the context to FileError.

        Raises:
            FileError: the answer is not valid output of ``stat``, ``find`` or the other programs.
        """
        try:
            yield
        except (ValueError, IndexError, OverflowError) as error:
            answer = ascii(data[:MAX_SHOWN_ANSWER].decode("utf-8", "replace"))
            raise FileError(
                f"{display_path(path)}: invalid answer of the target: {answer}",
                target=self.where,
                hint="check which programs stat, find and readlink are first in the PATH of the target's shell",
            ) from error

    async def scheme(self) -> Scheme:
        """Return how this target computes versions; separate processes then need not try out its programs again."""
        if self._scheme is None:
            reply = await self.attempt('hxf_reply "$hxf_facts" "$PATH"')
            with self.understanding(self.home, reply.stdout):
                (scheme, facts, path), _ = fields_of(reply.stdout, 3)
                self._scheme = parse_scheme(scheme)
            if self._may_learn and shell_library.FACTS.fullmatch(facts):
                self._process_library = shell_library.library(self.home, facts, path)
        return self._scheme

    async def open_script(self, script: str) -> Process | None:
        """Start a separate process for a script with the library; return None if no channel is available."""
        return await self.open_argv(shell_library.standalone(self._process_library, script))

    async def open_channel(self, script: str) -> Process:
        """Start a separate process for a script with the library.

        Raises:
            ConnectError: The target cannot be entered any more.
            ConnectionLost: The connection is lost.
            UnsupportedOperation: No channel is available.
        """
        if self.transport.max_channels == 1:
            raise UnsupportedOperation("only one channel is available", target=self.where)
        return await self.transport.open_process(shell_library.standalone(self._process_library, script))

    async def open_argv(self, argv: Sequence[str]) -> Process | None:
        """Start a separate process; return None if no channel is available."""
        if self.transport.max_channels == 1:
            return None
        try:
            return await self.transport.open_process(argv)
        except (ConnectError, UnsupportedOperation):
            return None


def check_path(path: str, target: object) -> None:
    """Reject an invalid path.

    Raises:
        ValueError: the path contains a NUL byte.
        FileNotFound: the path is empty.
    """
    if "\0" in path:
        raise ValueError(f"{path!r}: a path cannot contain a NUL byte")
    if not path:
        raise FileNotFound("the path is empty", target=target, hint="pass the path of a file")


# -- Parsers of the shell library's replies. Pure.


_TYPES: dict[int, FileType] = {0x8: "file", 0x4: "dir", 0xA: "link"}
_LETTERS: dict[str, FileType] = {"f": "file", "d": "dir", "l": "link", "L": "link"}
_HARMLESS = ("permission denied", "no such file or directory", "not a directory", "symbolic links", "loop")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


MAX_RECORD_BYTES = 64 << 10
"""Bytes of one entry; longer than any path."""


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
    """Return the first ``count`` NUL-terminated fields as text, and the bytes after them."""
    *fields, rest = data.split(b"\0", count)
    return [field.decode("utf-8", "surrogateescape") for field in fields], rest


def parse_stat(line: str, now: float | None = None) -> StatLine:
    """Parse ``TYPE PERMISSIONS SIZE UID GID MTIME``: the mode in hexadecimal, the permissions in octal."""
    raw, bits, size, uid, gid, mtime = line.split()
    return StatLine(
        _type_of(raw), int(bits, 8) & 0o7777, int(size), int(uid), int(gid), _parse_time(mtime, now or time.time())
    )


def _type_of(raw: str) -> FileType:
    return _TYPES.get(int(raw, 16) >> 12, "other")


def _parse_time(text: str, now: float) -> float:
    """Parse seconds, or the date of ``ls -l`` in UTC (``Nov_21_22:12`` for recent months, or ``Nov_21_2024``)."""
    if "_" not in text:
        seconds = float(text)
        if not math.isfinite(seconds):
            raise ValueError(f"{text} is not a time")
        return seconds
    month, day, rest = text.split("_")
    number = MONTHS.index(month) + 1
    if ":" not in rest:
        return float(calendar.timegm((int(rest), number, int(day), 0, 0, 0)))
    hour, minute = map(int, rest.split(":"))
    year = time.gmtime(now).tm_year
    seconds = calendar.timegm((year, number, int(day), hour, minute, 0))
    return float(seconds if seconds <= now + 86400 else calendar.timegm((year - 1, number, int(day), hour, minute, 0)))


class EntryParser:
    """A parser of ``hxf_entry`` records: an unguessable mark, then ``TYPE SIZE NAME`` and a newline.

    Anything else raises ``ValueError``, as an unexpected program wrote it.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._buffer = b""
        self._started = False

    def feed(self, data: bytes) -> list[DirEntry]:
        """Add data and return the completed entries; an entry is complete only when the next one starts."""
        *whole, self._buffer = (self._buffer + data).split(self._mark)
        if whole and not self._started:
            self._started, before = True, whole.pop(0)
            if before:
                raise ValueError("unexpected text before the first entry")
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise ValueError("an entry is longer than any name")
        return [_parse_entry(record) for record in whole]

    def finish(self) -> list[DirEntry]:
        """Return the last entry, at the end of the data."""
        record, self._buffer = self._buffer, b""
        if record and not self._started:
            raise ValueError("unexpected text before the first entry")
        return [_parse_entry(record)] if record else []


def _parse_entry(record: bytes) -> DirEntry:
    kind, size, name = record.decode("utf-8", "surrogateescape").removesuffix("\n").split(" ", 2)
    if not kind.startswith("x"):
        return DirEntry(name, _LETTERS.get(kind, "other"), int(size))
    return DirEntry(name.removeprefix("./"), _type_of(kind[1:]), int(size))


def tolerable(stderr: bytes) -> bool:
    """Return True if a search reported only inaccessible directories, or files that were deleted meanwhile."""
    lines = stderr.decode("utf-8", "replace").lower().splitlines()
    return all(any(words in line for words in _HARMLESS) for line in lines)
