"""The file versions that each session has read, and writes that only replace what was read.

A tool that changes a file calls :func:`expectation`, or :func:`guarded_write`, which does all of it:

* a missing file may be written, only as a new file;
* a file that was not read is refused with ``not_read``, also if only a part was read and all of it would be replaced;
* a file that has changed since is refused with ``stale``. The last comparison is made on the target, in the same step
  as the replacement, so changes by an editor on the host or another harness are detected.

Files are compared by content, not by times and sizes, and by their real path, so a symbolic link and its destination
are the same file.
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import to_thread

from ...backend import WriteMode
from ...context import ExecutionContext
from ...deprecated_names import renamed_fields, renamed_names
from ...errors import FileError, FileNotFound, IsADirectory, StaleFileError
from ...results import FileContent, FileType, WriteResult
from ..contract import ToolContext
from ..interfaces import ReadVersions
from ..values import Advice, ToolResult

__all__ = [
    "Expected",
    "ReadTracker",
    "SessionReads",
    "WriteOutcome",
    "expectation",
    "guarded_edit",
    "guarded_write",
    "read_seen",
    "target_path",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Written="WriteOutcome")


FILES_KEPT = 10_000
"""Maximum number of files of all sessions; the least recently used is removed first."""
LARGE = 1 << 20
"""Content size in bytes from which changes are made in a thread, so that the event loop is not blocked."""


MAX_PARTS = 1_000
"""Maximum number of separate ranges of one file; those at its start are kept."""


@dataclass(frozen=True, slots=True)
class _ReadRange:
    """What was read of a version. ``parts``: the bytes of ``size`` as sorted ranges with gaps between them."""

    version: str
    whole: bool
    parts: tuple[tuple[int, int], ...] = ()
    size: int = 0

    def missing(self) -> tuple[int, int] | None:
        """Return the first gap; None without one, or if the size is unknown."""
        start = self.parts[0][1] if self.parts and self.parts[0][0] == 0 else 0
        end = next((begin for begin, _ in self.parts if begin > start), self.size)
        return (start, end) if start < end and not self.whole else None


def _with_part(parts: tuple[tuple[int, int], ...], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges with one more, merged where they touch. Pure."""
    merged: list[tuple[int, int]] = []
    for begin, stop in sorted((*parts, (start, end))):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        elif begin < stop:
            merged.append((begin, stop))
    return tuple(merged[:MAX_PARTS])


@renamed_fields(partial_read_counts="allow_overwrite_after_partial_read")
@dataclass(slots=True)
class ReadTracker:
    """What all sessions of this process have read.

    Args:
        allow_overwrite_after_partial_read: a file that was partly read may be replaced as a whole.
    """

    allow_overwrite_after_partial_read: bool = False
    _known: OrderedDict[tuple[str, str, str], _ReadRange] = field(default_factory=OrderedDict)

    def of(self, session_id: str, execution: ExecutionContext) -> SessionReads:
        """Return what one session has read on one target. A sub-agent has its own session and must read itself."""
        return SessionReads(self, session_id, execution)

    def record_read(self, key: tuple[str, str, str], seen: _ReadRange) -> None:
        """Record a read. Reading a part of a version that was read completely leaves it complete."""
        before = self._same(key, seen.version)
        self._known.pop(key, None)
        whole = seen.whole or before.whole
        self._known[key] = _ReadRange(seen.version, whole, seen.parts or before.parts, seen.size or before.size)
        if len(self._known) > FILES_KEPT:
            self._known.popitem(last=False)

    def record_partial_read(self, key: tuple[str, str, str], version: str, start: int, end: int, size: int) -> None:
        """Record a partial read. Ranges without a gap count as the complete file, in any order."""
        parts = _with_part(self._same(key, version).parts, start, end)
        whole = size == 0 or (len(parts) == 1 and parts[0][0] == 0 and parts[0][1] >= size)
        self.record_read(key, _ReadRange(version, whole, parts, size))

    def _same(self, key: tuple[str, str, str], version: str) -> _ReadRange:
        """Return what was read of this version; empty if another version was read."""
        known = self._known.get(key)
        return known if known is not None and known.version == version else _ReadRange(version, False)

    def last_read_version(self, key: tuple[str, str, str], *, whole: bool) -> str | None:
        """Return the version, if enough of it was read."""
        known = self._known.get(key)
        if known is None or (whole and not known.whole and not self.allow_overwrite_after_partial_read):
            return None
        self._known.move_to_end(key)
        return known.version

    def missing(self, key: tuple[str, str, str]) -> tuple[int, int] | None:
        """Return the first byte range of the known version that was not read."""
        known = self._known.get(key)
        return None if known is None else known.missing()

    def forget(self, key: tuple[str, str, str]) -> None:
        """Remove a file."""
        self._known.pop(key, None)


@dataclass(frozen=True, slots=True)
class SessionReads(ReadVersions):
    """The reads of one session on one target."""

    tracker: ReadTracker
    session_id: str
    execution: ExecutionContext

    def _key(self, path: str) -> tuple[str, str, str]:
        return (self.session_id, self.execution.identity, path)  # read each time: a container may have been recreated

    def record_read(self, path: str, version: str, *, whole: bool) -> None:
        self.tracker.record_read(self._key(path), _ReadRange(version, whole))

    def record_partial_read(self, path: str, version: str, start: int, end: int, size: int) -> None:
        self.tracker.record_partial_read(self._key(path), version, start, end, size)

    def last_read_version(self, path: str, *, whole: bool) -> str | None:
        return self.tracker.last_read_version(self._key(path), whole=whole)

    def missing(self, path: str) -> tuple[int, int] | None:
        return self.tracker.missing(self._key(path))

    def forget(self, path: str) -> None:
        self.tracker.forget(self._key(path))


@dataclass(frozen=True, slots=True)
class Expected:
    """The precondition of a write: ``version`` for ``write_file(expect=...)``, None for a missing file."""

    path: str
    version: str | None


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """A written file. ``path`` is its real path; ``before`` is what was read before an edit, else None."""

    path: str
    result: WriteResult
    before: FileContent | None = None


def target_path(ctx: ToolContext, path: str) -> str:
    """Return the path that a call means: relative to the call's directory, else to the user's home."""
    return path if ctx.cwd is None or path.startswith("~") else posixpath.join(ctx.cwd, path)


async def read_seen(ctx: ToolContext, path: str, *, offset: int = 0, limit: int | None = None) -> FileContent:
    """Read a file for the model, and record that the model has seen it. Offset and limit are in bytes.

    Raises:
        FileError: it cannot be read.
    """
    content = await ctx.execution.read_file(target_path(ctx, path), offset=offset, limit=limit)
    ctx.reads.record_partial_read(content.path, content.version, offset, offset + len(content.data), content.size)
    return content


async def expectation(ctx: ToolContext, path: str, *, whole: bool) -> Expected | ToolResult:
    """Return the precondition for changing a file, or a refusal.

    Does not check whether the file has changed: the write does, on the target.

    Args:
        ctx: the call's context.
        path: the file.
        whole: all of it is replaced.

    Raises:
        FileError: other than that there is no such file.
    """
    where = target_path(ctx, path)
    try:
        found = await ctx.execution.stat(where)
    except FileNotFound:
        return Expected(where, None)
    if found.type != "file":
        raise _no_file(ctx, where, found.type)
    real = found.path
    version = ctx.reads.last_read_version(real, whole=whole)
    return Expected(real, version) if version is not None else _not_read(ctx, path, real)


def _no_file(ctx: ToolContext, path: str, kind: FileType) -> FileError:
    target = str(ctx.execution.target)
    if kind == "dir":
        return IsADirectory(f"{path}: is a directory", target=target, hint="name a file")
    text = f"{path}: is a pipe, a socket or a device, not a file"
    return FileError(text, target=target, hint="use a command for it")


def _not_read(ctx: ToolContext, path: str, real: str) -> ToolResult:
    if ctx.reads.last_read_version(real, whole=False) is not None:
        gap = ctx.reads.missing(real)
        where = "" if gap is None else f" (bytes {gap[0]} to {gap[1]} were not read)"
        way = Advice(", or edit it", tools=("edit",))
        text = f"{path} was only partly read{where}: read all of it before replacing it{way.text}"
        return ToolResult.failure("not_read", text, advice=(way,))
    return ToolResult.failure("not_read", f"{path} exists and you have not read it: read it before changing it")


def _stale(path: str, expected: Expected) -> ToolResult:
    if expected.version is None:
        return ToolResult.failure("stale", f"{path} was created in the meantime: read it before changing it")
    return ToolResult.failure("stale", f"{path} has changed since you read it, and nothing was written: read it again")


async def guarded_write(
    ctx: ToolContext,
    path: str,
    content: bytes,
    *,
    mode: WriteMode = "overwrite",
    parents: bool = True,
    permissions: int | None = None,
    permissions_if_new: int | None = None,
    force: bool = False,
) -> WriteOutcome | ToolResult:
    """Write ``content`` over a file, to a new one, or at its end; or return a refusal.

    Overwriting requires that all of the file was read, appending that a part was read, and ``create`` that there is no
    file. The written content then counts as read. ``permissions_if_new`` does not apply to an existing file. A
    read-only file requires ``force``.

    Raises:
        FileError: it cannot be written; ``FileExists`` with ``create``.
    """
    expected = await _expected(ctx, path, mode)
    if isinstance(expected, ToolResult):
        return expected
    bits = permissions_if_new if permissions is None and expected.version is None else permissions
    whole = (
        mode != "append"
        or expected.version is None
        or ctx.reads.last_read_version(expected.path, whole=True) is not None
    )

    async def write() -> WriteResult:
        return await ctx.execution.write_file(
            expected.path,
            content,
            mode=mode,
            expect=expected.version,
            parents=parents,
            permissions=bits,
            force=force,
        )

    return await _write(ctx, path, expected, write, whole=whole)


async def _expected(ctx: ToolContext, path: str, mode: WriteMode) -> Expected | ToolResult:
    if mode == "create":  # the target checks that the file does not exist
        return Expected(target_path(ctx, path), None)
    return await expectation(ctx, path, whole=mode == "overwrite")


async def guarded_edit(
    ctx: ToolContext,
    path: str,
    make_content: Callable[[FileContent], bytes | ToolResult],
    *,
    most: int | None = None,
    force: bool = False,
) -> WriteOutcome | ToolResult:
    """Replace a file's content by the result of ``make_content``, or return a refusal. A part must have been read.

    ``make_content`` is pure; if it returns a result, that is the refusal (``no_match``), and nothing is written. A file
    of more than ``most`` bytes is refused (``too_big``) and not fetched completely. A read-only file requires
    ``force``.

    Raises:
        FileError: it does not exist, or cannot be read or written.
    """
    expected = await expectation(ctx, path, whole=False)
    if isinstance(expected, ToolResult):
        return expected
    current = await ctx.execution.read_file(expected.path, limit=None if most is None else most + 1)
    if most is not None and current.size > most:
        text = f"{path} has {current.size} bytes, more than the limit of {most} for edits: use a command"
        return ToolResult.failure("too_big", text)
    if expected.version is None or _differ(expected.version, current.version):
        return _stale(path, expected)
    large = current.size > LARGE
    made = await to_thread.run_sync(make_content, current) if large else make_content(current)
    if isinstance(made, ToolResult):
        return made
    whole = ctx.reads.last_read_version(current.path, whole=True) is not None

    async def write() -> WriteResult:
        return await ctx.execution.write_file(current.path, made, expect=expected.version, parents=False, force=force)

    return await _write(ctx, path, expected, write, whole=whole, before=current)


def _differ(one: str, other: str) -> bool:
    """Return whether two versions are of different contents; the target decides for other kinds (``stat:``)."""
    same_kind = one.partition(":")[0] == other.partition(":")[0]
    return same_kind and one != other


async def _write(
    ctx: ToolContext,
    path: str,
    expected: Expected,
    write: Callable[[], Awaitable[WriteResult]],
    *,
    whole: bool,
    before: FileContent | None = None,
) -> WriteOutcome | ToolResult:
    try:
        result = await write()
    except StaleFileError:
        return _stale(path, expected)
    real = expected.path if expected.version is not None else await _real(ctx, expected.path)
    ctx.reads.record_read(real, result.version, whole=whole)
    return WriteOutcome(real, result, before)


async def _real(ctx: ToolContext, path: str) -> str:
    """Return the real path of a new file, or the given path if that fails: the file was written in any case."""
    try:
        return (await ctx.execution.stat(path)).path
    except FileError:
        return path
