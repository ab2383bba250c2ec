"""Reading files: small ones in the reply of one call, large ones through a process of their own."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass

from harness.backend import Progress
from harness.errors import FileError
from harness.results import FileContent

from .filecalls import FileCalls
from .fileerrors import file_error, shown
from .fileparse import StatLine, fields_of, parse_stat
from .filescript import INLINE_READ, call
from .fileversion import Hasher, Scheme, parse_scheme, version_of
from .transfer import Sink, drain

__all__ = ["Opened", "copy_content", "open_file", "read_file"]

CAT = '[ -f "$1" ] || exit 70; if [ "$2" = 0 ]; then exec cat "$1"; else exec tail -c "+$(($2 + 1))" "$1"; fi'

ROOM_LIMIT = 1 << 30
"""Most bytes that are set aside for a file on the word of its size alone."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The first answer about a file: what it is, and its content when that was small (``data``, else None)."""

    scheme: Scheme
    stat: StatLine
    real: str
    version: str
    sized: bool
    data: bytes | None


async def read_file(
    calls: FileCalls, path: str, offset: int, limit: int | None, progress: Progress | None
) -> FileContent:
    """Read a file or a part of it."""
    if offset < 0 or (limit is not None and limit < 0):
        raise ValueError("offset and limit may not be negative")
    opened = await open_file(calls, path, offset, limit)
    if not opened.sized:
        return await _read_unsized(calls, path, opened, offset, limit, progress)
    whole = offset == 0 and (limit is None or limit >= opened.stat.size)
    hasher = Hasher(opened.scheme) if whole else None
    data = opened.data
    if data is None:
        length = max(0, opened.stat.size - offset)
        data = await _collect(
            calls, path, opened, offset, min(length, length if limit is None else limit), progress, hasher
        )
    elif hasher is not None:
        hasher.update(data)
    if progress is not None and opened.data is not None:
        progress(len(data), len(data))
    size = len(data) if whole else max(opened.stat.size, offset + len(data) if data else 0)
    return FileContent(data, size, opened.stat.mode, hasher.version() if hasher else opened.version, opened.real)


async def open_file(
    calls: FileCalls, path: str, offset: int = 0, limit: int | None = None, inline: int = INLINE_READ
) -> Opened:
    """Ask for a file; the answer holds its content when that is at most ``inline`` bytes."""
    script = call("hxf_read", path, offset, "" if limit is None else limit, inline)
    reply = await calls.run(path, script)
    with calls.understanding(path, reply.stdout):
        (scheme, line, real, version, how), data = fields_of(reply.stdout, 5)
        stat, known = parse_stat(line), parse_scheme(scheme)
    if reply.stderr:
        raise file_error(path, 1, reply.stderr, calls.transport.target)
    here = how == "here" or (how == "unsized" and len(data) <= inline)
    return Opened(known, stat, real, version, how != "unsized", data if here else None)


async def _read_unsized(
    calls: FileCalls, path: str, opened: Opened, offset: int, limit: int | None, progress: Progress | None
) -> FileContent:
    """A file that says it is empty: an empty one, or one of ``/proc``, whose size only its end tells."""
    data = opened.data
    if data is None:
        data = await _collect(calls, path, opened, 0, None, progress, None)
    part = data[offset:] if limit is None else data[offset : offset + limit]
    return FileContent(part, len(data), opened.stat.mode, version_of(data, opened.scheme), opened.real)


async def _collect(
    calls: FileCalls,
    path: str,
    opened: Opened,
    offset: int,
    length: int | None,
    progress: Progress | None,
    hasher: Hasher | None,
) -> bytes:
    buffer = _room(length)

    async def keep(data: bytes) -> None:
        buffer.write(data)
        if hasher is not None:
            hasher.update(data)

    await copy_content(calls, path, opened, offset, length, keep, progress)
    buffer.truncate()
    return buffer.getvalue()


def _room(length: int | None) -> io.BytesIO:
    """A buffer that has its size from the start: one that grows leaves holes of half that size in the heap."""
    buffer = io.BytesIO()
    if length:
        buffer.seek(min(length, ROOM_LIMIT) - 1)
        buffer.write(b"\0")
        buffer.seek(0)
    return buffer


async def copy_content(
    calls: FileCalls, path: str, opened: Opened, offset: int, length: int | None, sink: Sink, progress: Progress | None
) -> int:
    """Stream ``length`` bytes (None: all) from ``offset`` to ``sink``; returns how many there were."""
    done = 0

    async def count(data: bytes) -> None:
        nonlocal done
        await sink(data)
        done += len(data)
        if progress is not None:
            progress(done, length)

    process = await calls.open_argv(["sh", "-c", f"LC_ALL=C; export LC_ALL; {CAT}", "sh", opened.real, str(offset)])
    if process is not None:
        calls.checked(path, await drain(process, count, length))
        return done
    async for piece in _pieces(calls, path, opened.real, offset, length):
        await count(piece)
    return done


async def _pieces(calls: FileCalls, path: str, real: str, offset: int, length: int | None) -> AsyncIterator[bytes]:
    """The same through the held shell, one round trip per piece, for a target that gives no second channel."""
    first = None
    end = None if length is None else offset + length
    while end is None or offset < end:
        size = INLINE_READ if end is None else min(INLINE_READ, end - offset)
        reply = await calls.run(path, call("hxf_piece", real, offset, size))
        with calls.understanding(path, reply.stdout):
            (_, inode), data = fields_of(reply.stdout, 2)
        if reply.stderr:
            raise file_error(path, 1, reply.stderr, calls.transport.target)
        if first not in (None, inode):
            raise FileError(
                f"{shown(path)}: was replaced while it was read", target=calls.transport.target, hint="try again"
            )
        first = inode
        if not data:
            return
        offset += len(data)
        yield data
