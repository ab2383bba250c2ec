"""Read and write the content of files."""

from __future__ import annotations

import io
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import anyio
import anyio.to_thread

from harness.backend import AnyVersion, Progress, WriteMode
from harness.errors import FileError, HarnessError
from harness.results import FileContent, WriteResult
from harness.system.background_tasks import open_background_tasks

from ..persistent_shell import ShellReply
from .file_calls import (
    FileCalls,
    Hasher,
    Scheme,
    StatLine,
    check_path,
    display_path,
    fields_of,
    file_error,
    parse_scheme,
    parse_stat,
    version_of,
)
from .shell_library import INLINE_READ, STAGE_PREFIX, call, encode_inline
from .transfer import Sink, collect, drain, feed

__all__ = [
    "FileWriter",
    "WriteRequest",
    "copy_content",
    "open_file",
    "read_file",
    "slices",
    "stage_name",
]


# -- Reading: small files in the reply of one call, large ones through a separate process.


CAT = '[ -f "$1" ] || exit 70; if [ "$2" = 0 ]; then exec cat "$1"; else exec tail -c "+$(($2 + 1))" "$1"; fi'

ROOM_LIMIT = 1 << 30
"""Maximum bytes that are preallocated for a file by its reported size."""


@dataclass(frozen=True, slots=True)
class OpenReply:
    """The first reply about a file: its metadata, and its content if that is small (``data``, else None)."""

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
) -> OpenReply:
    """Query a file; the reply contains its content if that has at most ``inline`` bytes."""
    script = call("hxf_read", path, offset, "" if limit is None else limit, inline)
    reply = await calls.run(path, script)
    with calls.understanding(path, reply.stdout):
        (scheme, line, real, version, how), data = fields_of(reply.stdout, 5)
        stat, known = parse_stat(line), parse_scheme(scheme)
    if reply.stderr:
        raise file_error(path, 1, reply.stderr, calls.where)
    here = how == "here" or (how == "unsized" and len(data) <= inline)
    return OpenReply(known, stat, real, version, how != "unsized", data if here else None)


async def _read_unsized(
    calls: FileCalls, path: str, opened: OpenReply, offset: int, limit: int | None, progress: Progress | None
) -> FileContent:
    """Read a file of size 0: an empty one, or one of ``/proc``, whose size is unknown in advance."""
    data = opened.data
    if data is None:
        data = await _collect(calls, path, opened, 0, None, progress, None)
    part = data[offset:] if limit is None else data[offset : offset + limit]
    return FileContent(part, len(data), opened.stat.mode, version_of(data, opened.scheme), opened.real)


async def _collect(
    calls: FileCalls,
    path: str,
    opened: OpenReply,
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
    """Return a preallocated buffer; a growing one would fragment the heap."""
    buffer = io.BytesIO()
    if length:
        buffer.seek(min(length, ROOM_LIMIT) - 1)
        buffer.write(b"\0")
        buffer.seek(0)
    return buffer


async def copy_content(
    calls: FileCalls,
    path: str,
    opened: OpenReply,
    offset: int,
    length: int | None,
    sink: Sink,
    progress: Progress | None,
    *,
    own_channel: bool = True,
) -> int:
    """Stream ``length`` bytes (None: all) from ``offset`` to ``sink``, and return their count.

    Without ``own_channel``, they come through the persistent shell.
    """
    done = 0

    async def count(data: bytes) -> None:
        nonlocal done
        await sink(data)
        done += len(data)
        if progress is not None:
            progress(done, length)

    argv = ["sh", "-c", f"LC_ALL=C; export LC_ALL; {CAT}", "sh", opened.real, str(offset)]
    process = await calls.open_argv(argv) if own_channel else None
    if process is not None:
        calls.checked(path, await drain(process, count, length))
        return done
    async for piece in _pieces(calls, path, opened.real, offset, length):
        await count(piece)
    return done


async def _pieces(calls: FileCalls, path: str, real: str, offset: int, length: int | None) -> AsyncIterator[bytes]:
    """Yield content through the persistent shell, one round trip per piece, without a second channel."""
    first = None
    end = None if length is None else offset + length
    while end is None or offset < end:
        size = INLINE_READ if end is None else min(INLINE_READ, end - offset)
        reply = await calls.run(path, call("hxf_piece", real, offset, size))
        with calls.understanding(path, reply.stdout):
            (_, inode), data = fields_of(reply.stdout, 2)
        if reply.stderr:
            raise file_error(path, 1, reply.stderr, calls.where)
        if first not in (None, inode):
            raise FileError(
                f"{display_path(path)}: was replaced while it was read", target=calls.where, hint="try again"
            )
        first = inode
        if not data:
            return
        offset += len(data)
        yield data


# -- Writing: small contents inside the script that commits them, large ones through a separate process.


INLINE_WRITE = 12 << 10
"""Bytes of encoded content that may go inside the script; some shells read scripts byte by byte."""
PIECE = 64 << 10
UNSTAGE_TIMEOUT = 10.0
KILLED = 128
"""Exit codes from this one on mean death by a signal."""
SWEEP_EVERY = 3600.0
_BLOCK = 256 << 10
_HASHED = 16 << 20
LARGE = 16 << 20

# The content is the standard input of the program itself, so that it is copied only once.
FROM_STDIN = """
hxf_receive() { (umask 077; set -C; exec cat >"$stage"); }
hxf_into() { hxf_receive; }
"""
# Writes to disk while the content is still arriving, so that the final fsync is short. The file is opened for reading,
# which is enough for fsync, so that it is not recreated if it was removed meanwhile. It ends by KILL: a shell's child
# briefly has the traps of its parent, and drops any other signal that arrives then.
FLUSHED = """
hxf_flush() {
  while { sleep 0.1 || sleep 1; } && kill -0 $$ && [ -f "$stage" ]; do dd if=/dev/null conv=fsync 1<"$stage"; done
}
hxf_into() {
  hxf_flush </dev/null >/dev/null 2>&1 &
  hxf_receive
  code=$?
  { kill -9 $! && wait $!; } 2>/dev/null
  return "$code"
}
"""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write, without its content."""

    path: str
    size: int
    mode: WriteMode = "overwrite"
    expect: str | AnyVersion | None = None
    parents: bool = True
    permissions: int | None = None
    force: bool = False
    new_mode: str = ""
    """The mode of a file that does not exist, as ``chmod`` takes it; empty is read and write, less the umask."""

    @property
    def expectation(self) -> str:
        """The library's argument for the expected version."""
        if isinstance(self.expect, AnyVersion):
            return "any"
        return "none" if self.expect is None else f"={self.expect}"

    @property
    def prefix(self) -> str:
        """Shell code to put before each call."""
        force = "hxf_force=1\n" if self.force else ""
        return f"{force}hxf_new={self.new_mode}\n" if self.new_mode else force

    def script(self, stage: str, how: str, sha256: str, cksum: str, *, sweep: bool) -> str:
        """Return the call that stages (unless already done), compares and renames."""
        permissions = "" if self.permissions is None else f"{self.permissions:04o}"
        return self.prefix + call(
            "hxf_write", self.path, self.mode, self.expectation, int(self.parents), permissions, stage, self.size,
            sha256, cksum, how, int(sweep),
        )  # fmt: skip


class FileWriter:
    """A writer of files on one target."""

    def __init__(self, calls: FileCalls) -> None:
        self._calls = calls
        self._swept: dict[str, float] = {}

    async def write(self, request: WriteRequest, content: bytes, progress: Progress | None) -> WriteResult:
        """Write content from memory."""
        check_path(request.path, self._calls.where)
        if len(content) <= INLINE_WRITE and len(encoded := encode_inline(content)) <= INLINE_WRITE:
            result = await self._write_inline(request, content, encoded)
            if progress is not None:
                progress(len(content), len(content))
            return result
        hasher = await self.hasher()
        async with open_background_tasks() as tasks:
            hashed = anyio.Event()
            tasks.start_soon(_hash, hasher, content, hashed)
            reply = await self._send(request, slices(content), progress)
            await hashed.wait()
        return _result(reply, request.size, hasher.version())

    async def write_verified(self, request: WriteRequest, content: bytes, progress: Progress | None) -> WriteResult:
        """Write content from memory whose hash is compared on the target before it becomes the file."""
        check_path(request.path, self._calls.where)
        if len(content) <= INLINE_WRITE and len(encode_inline(content)) <= INLINE_WRITE:
            return await self.write(request, content, progress)
        version = version_of(content, await self._calls.scheme())
        return _result(await self._send(request, slices(content), progress, version), request.size, version)

    async def commit(self, request: WriteRequest, stage: str, version: str, *, keep: bool) -> WriteResult:
        """Let a staged file in the request's directory, whose content was compared, become the file if it is complete.

        A failure removes it; with ``keep``, it stays if the connection is lost meanwhile.
        """
        script = request.script(stage, "staged", "", "", sweep=self.sweep_due(request.path))
        script = f"hxf_keep=1\n{script}" if keep else script
        process = await self._calls.open_script(script)
        reply = await self._calls.attempt(script) if process is None else await collect(process)
        return _result(self._calls.checked(request.path, reply), request.size, version)

    async def hasher(self) -> Hasher:
        """Return a hasher for this target's version scheme."""
        return Hasher(await self._calls.scheme())

    async def _write_inline(self, request: WriteRequest, content: bytes, encoded: str) -> WriteResult:
        sha256, cksum = version_of(content, "sha256"), version_of(content, "cksum")
        script = request.script(stage_name(), "inline", sha256, cksum, sweep=self.sweep_due(request.path))
        reply = await self._calls.run(request.path, encoded + script)
        return _result(reply, request.size, cksum if reply.stdout.startswith(b"cksum\0") else sha256)

    async def stream(
        self, request: WriteRequest, chunks: AsyncIterator[bytes], hasher: Hasher, progress: Progress | None
    ) -> WriteResult:
        """Write ``request.size`` bytes that arrive in pieces; fewer bytes change nothing.

        The producer of the pieces also passes them to ``hasher``.
        """
        check_path(request.path, self._calls.where)
        reply = await self._send(request, chunks, progress)
        return _result(reply, request.size, hasher.version())

    async def _send(
        self, request: WriteRequest, chunks: AsyncIterator[bytes], progress: Progress | None, version: str = ""
    ) -> ShellReply:
        stage = stage_name()
        script = request.script(stage, "staged", version, version, sweep=self.sweep_due(request.path))
        how = FROM_STDIN + FLUSHED if request.size >= LARGE else FROM_STDIN
        process = await self._calls.open_script(how + script)
        counted = _observe(chunks, request.size, progress)
        if process is None:
            return await self._stream_through_shell(request, stage, counted, script)
        ended = False
        try:
            reply = await feed(process, counted)
            ended = reply.exit_code < KILLED
        finally:
            if not ended and self._calls.connected:  # after a lost connection the program cleans up itself
                await self.unstage(request.path, stage)
        return self._calls.checked(request.path, reply)

    async def _stream_through_shell(
        self, request: WriteRequest, stage: str, chunks: AsyncIterator[bytes], script: str
    ) -> ShellReply:
        """Write through the persistent shell, one round trip per piece, without a second channel."""
        begin = request.prefix + call(
            "hxf_chunk", request.path, request.mode, request.expectation, int(request.parents), stage
        )
        made = 0
        try:
            reply = await self._calls.run(request.path, encode_inline(b"") + begin)
            with self._calls.understanding(request.path, reply.stdout):
                made = int(reply.stdout)
            async for chunk in chunks:
                for start in range(0, len(chunk), PIECE):
                    await self._calls.run(request.path, encode_inline(chunk[start : start + PIECE]) + begin)
            return await self._calls.run(request.path, script)
        except BaseException:
            await self.unstage(request.path, stage, made)
            raise

    async def unstage(self, path: str, stage: str, made: int = 0) -> None:
        """Remove the staged file or directory of a killed program, which may not have had the time to clean up.

        ``made`` directories were created for the file.
        """
        with anyio.move_on_after(UNSTAGE_TIMEOUT, shield=True), suppress(HarnessError):
            await self._calls.attempt(call("hxf_unstage", path, stage, made))

    def sweep_due(self, path: str) -> bool:
        """Return whether to search for old hidden files: at the first write in a directory, then hourly."""
        directory, now = path.rpartition("/")[0], monotonic()
        due = now - self._swept.get(directory, -SWEEP_EVERY) >= SWEEP_EVERY
        if due:
            self._swept = {name: when for name, when in self._swept.items() if now - when < SWEEP_EVERY}
            self._swept[directory] = now
        return due


async def slices(content: bytes) -> AsyncIterator[bytes]:
    """Yield a content in memory in pieces."""
    for start in range(0, len(content), _BLOCK):
        yield content[start : start + _BLOCK]


async def _hash(hasher: Hasher, content: bytes, hashed: anyio.Event) -> None:
    """Hash in a thread, while the content is sent; in pieces, so that it can be cancelled."""
    view = memoryview(content)
    for start in range(0, len(view), _HASHED):
        await anyio.to_thread.run_sync(hasher.update, view[start : start + _HASHED])
    hashed.set()


async def _observe(chunks: AsyncIterator[bytes], size: int, progress: Progress | None) -> AsyncIterator[bytes]:
    done = 0
    async for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, size)


def stage_name() -> str:
    """Return a new name of a hidden file or directory."""
    return STAGE_PREFIX + secrets.token_hex(12)


def _result(reply: ShellReply, size: int, version: str) -> WriteResult:
    (_, created, _, on_target), _ = fields_of(reply.stdout, 4)
    return WriteResult(size, created == "1", on_target or version)
