"""What the target says about a refused file operation, turned into the matching exception. Pure."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from harness.errors import (
    FileError,
    FileExists,
    FileNotFound,
    IsADirectory,
    NoSpace,
    NotADirectory,
    PermissionDenied,
    StaleFileError,
)

from .filescript import Refusal

__all__ = ["file_error", "local_error", "shown"]


@dataclass(frozen=True, slots=True)
class _Kind:
    error: type[FileError]
    text: str
    hint: str = ""


_KINDS = {
    Refusal.MISSING: _Kind(FileNotFound, "no such file or directory"),
    Refusal.DENIED: _Kind(PermissionDenied, "permission denied", "the target's user may not do this here"),
    Refusal.IS_DIRECTORY: _Kind(IsADirectory, "is a directory", "name a file"),
    Refusal.NOT_DIRECTORY: _Kind(NotADirectory, "a part of the path is not a directory"),
    Refusal.EXISTS: _Kind(FileExists, "exists already", "choose another name, or allow it to be overwritten"),
    Refusal.NO_SPACE: _Kind(
        NoSpace, "the file system is full, read-only or over quota", "free some space or choose another place"
    ),
    Refusal.STALE: _Kind(StaleFileError, "is not the version that was expected", "read it again and repeat the change"),
    Refusal.LOOP: _Kind(FileError, "is a link that leads to itself", "repair the link"),
    Refusal.SPECIAL: _Kind(FileError, "is a pipe, a socket or a device, not a file", "use a command for it"),
    Refusal.BUSY: _Kind(
        FileError,
        "its directory stayed locked by another writer",
        "try again; a .hx-lock there that is left is broken after a minute",
    ),
    Refusal.NO_USER: _Kind(FileNotFound, "no such user on the target", "write ./~name for a file of that name"),
    Refusal.NOT_EMPTY: _Kind(FileError, "the directory is not empty", "remove it with recursive=True"),
    Refusal.PROTECTED: _Kind(
        PermissionDenied, "refused: it is the root, the home directory or above it", "use a command if you mean it"
    ),
    Refusal.OTHER_DEVICE: _Kind(FileError, "is on another file system", "copy it and remove the original"),
    Refusal.DAMAGED: _Kind(FileError, "not all of the content arrived, nothing was changed", "try again"),
    Refusal.NO_DIGEST: _Kind(FileError, "the target cannot compute this kind of version", "read the file again"),
    Refusal.SLOW: _Kind(FileError, "did not end within 10 s", "read it with a command that stops"),
    Refusal.UNLIKE: _Kind(
        FileError, "nothing was changed, as it would lose an attribute", "write it with a command that may lose it"
    ),
    Refusal.FIXED: _Kind(
        PermissionDenied,
        "cannot be replaced, as its directory takes no new file from the target's user",
        "append to it, or write it with a command (cat >FILE)",
    ),
    Refusal.MOUNTED: _Kind(
        FileError,
        "something is mounted there, so that it can be neither replaced nor removed",
        "change what is in it: append, or use a command (cat >FILE)",
    ),
    Refusal.READ_ONLY: _Kind(
        PermissionDenied,
        "is read-only, so it was not written",
        "force writes it all the same and keeps its permissions: --force, force=True",
    ),
    Refusal.PARTIAL: _Kind(FileError, "could not be added to", "look at its end before you repeat it"),
    Refusal.FORBIDDEN: _Kind(
        PermissionDenied,
        "operation not permitted",
        "it or its directory may be immutable or append-only (see lsattr), or sticky and another user's",
    ),
}

_UNLESS_FULL = (Refusal.UNLIKE, Refusal.PARTIAL, Refusal.FIXED)
_PARTIAL = "; its end may hold a part of what was to be added"

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


def shown(path: str) -> str:
    """A path for a message: as it is when that is readable on one line, else escaped."""
    return path if path.isprintable() and path.strip() == path and path else ascii(path)


def file_error(path: str, exit_code: int, stderr: bytes, target: object) -> FileError:
    """The exception for a script that ended with ``exit_code``."""
    reason = _refusal(exit_code, stderr)
    if reason is not None and reason is not Refusal.UNLIKE:
        return _build(reason, path, target, _PARTIAL if exit_code == Refusal.PARTIAL else "")
    last = stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if reason is Refusal.UNLIKE:
        return _build(reason, path, target, f" ({last})")
    return FileError(f"{shown(path)}: {last or f'failed with exit code {exit_code}'}", target=target)


def local_error(path: str, error: OSError) -> FileError:
    """The exception for a file of this machine."""
    reason = _ERRNO.get(error.errno or 0)
    if reason is not None:
        return _build(reason, path, "this machine")
    return FileError(f"{shown(path)}: {os.strerror(error.errno or 0).lower()}", target="this machine")


def _refusal(exit_code: int, stderr: bytes) -> Refusal | None:
    text = stderr.decode("utf-8", "replace").lower()
    told = next((reason for words, reason in _TEXTS if words in text), None)
    if exit_code in _UNLESS_FULL and told is Refusal.NO_SPACE:
        return told
    return Refusal(exit_code) if exit_code in _KINDS else told


def _build(reason: Refusal, path: str, target: object, detail: str = "") -> FileError:
    kind = _KINDS[reason]
    return kind.error(f"{shown(path)}: {kind.text}{detail}", target=target, hint=kind.hint)
