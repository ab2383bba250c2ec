"""Writing files: small contents inside the script that commits them, large ones through a process of their own."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from time import monotonic

import anyio
import anyio.to_thread

from harness.backend import Any_, Progress, WriteMode
from harness.results import WriteResult
from harness.system.background_tasks import background_tasks

from .filecalls import FileCalls, check_path
from .fileparse import fields_of
from .filescript import call, encode_inline
from .fileversion import Hasher, version_of
from .filewrite import STAGE_PREFIX
from .shell import Reply
from .transfer import feed

__all__ = ["FileWriter", "WriteRequest", "slices"]

INLINE_WRITE = 12 << 10
"""How long an encoded content may be to go inside the script; some shells read scripts byte by byte."""
PIECE = 64 << 10
SWEEP_EVERY = 3600.0
_BLOCK = 256 << 10
_HASHED = 16 << 20
LARGE = 16 << 20

# The content is the standard input of the whole program, so that it is copied once.
FROM_STDIN = """
hxf_receive() { (umask 077; set -C; exec cat >"$stage"); }
hxf_into() { hxf_receive; }
"""
# The disk writes while the content is still coming, so that the fsync at the end has little left to wait for. A file
# that is opened for reading is not made again when it has gone meanwhile; fsync needs no more.
FLUSHED = """
hxf_flush() {
  while { sleep 0.1 || sleep 1; } && kill -0 $$ && [ -f "$stage" ]; do dd if=/dev/null conv=fsync 1<"$stage"; done
}
hxf_into() {
  hxf_flush </dev/null >/dev/null 2>&1 &
  hxf_receive
  code=$?
  { kill $! && wait $!; } 2>/dev/null
  return "$code"
}
"""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write, without its content."""

    path: str
    size: int
    mode: WriteMode = "overwrite"
    expect: str | Any_ | None = None
    parents: bool = True
    permissions: int | None = None
    force: bool = False

    @property
    def expectation(self) -> str:
        """The word that the library understands."""
        if isinstance(self.expect, Any_):
            return "any"
        return "none" if self.expect is None else f"={self.expect}"

    @property
    def prefix(self) -> str:
        """Shell text that goes before each call."""
        return "hxf_force=1\n" if self.force else ""

    def script(self, stage: str, how: str, sha256: str, cksum: str, *, sweep: bool) -> str:
        """The call that stages (unless that was done), compares and renames."""
        permissions = "" if self.permissions is None else f"{self.permissions:04o}"
        return self.prefix + call(
            "hxf_write", self.path, self.mode, self.expectation, int(self.parents), permissions, stage, self.size,
            sha256, cksum, how, int(sweep),
        )  # fmt: skip


class FileWriter:
    """Writes files on one target."""

    def __init__(self, calls: FileCalls) -> None:
        self._calls = calls
        self._swept: dict[str, float] = {}

    async def write(self, request: WriteRequest, content: bytes, progress: Progress | None) -> WriteResult:
        """Write a content that is in memory."""
        check_path(request.path, self._calls.transport.target)
        if len(content) <= INLINE_WRITE and len(encoded := encode_inline(content)) <= INLINE_WRITE:
            result = await self._write_inline(request, content, encoded)
            if progress is not None:
                progress(len(content), len(content))
            return result
        hasher = await self.hasher()
        async with background_tasks() as tasks:
            hashed = anyio.Event()
            tasks.start_soon(_hash, hasher, content, hashed)
            reply = await self._send(request, slices(content), progress)
            await hashed.wait()
        return _result(reply, request.size, hasher.version())

    async def hasher(self) -> Hasher:
        """A hasher for versions as this target computes them."""
        return Hasher(await self._calls.scheme())

    async def _write_inline(self, request: WriteRequest, content: bytes, encoded: str) -> WriteResult:
        sha256, cksum = version_of(content, "sha256"), version_of(content, "cksum")
        script = request.script(_stage_name(), "inline", sha256, cksum, sweep=self._sweep(request.path))
        reply = await self._calls.run(request.path, encoded + script)
        return _result(reply, request.size, cksum if reply.stdout.startswith(b"cksum\0") else sha256)

    async def stream(
        self, request: WriteRequest, chunks: AsyncIterator[bytes], hasher: Hasher, progress: Progress | None
    ) -> WriteResult:
        """Write a content of ``request.size`` bytes that comes in pieces. Fewer bytes than that change nothing.

        Who makes the pieces gives them to ``hasher`` too.
        """
        check_path(request.path, self._calls.transport.target)
        reply = await self._send(request, chunks, progress)
        return _result(reply, request.size, hasher.version())

    async def _send(self, request: WriteRequest, chunks: AsyncIterator[bytes], progress: Progress | None) -> Reply:
        stage = _stage_name()
        script = request.script(stage, "staged", "", "", sweep=self._sweep(request.path))
        how = FROM_STDIN + FLUSHED if request.size >= LARGE else FROM_STDIN
        process = await self._calls.open_script(how + script)
        counted = _observe(chunks, request.size, progress)
        if process is None:
            return await self._stream_through_shell(request, stage, counted, script)
        return self._calls.checked(request.path, await feed(process, counted))

    async def _stream_through_shell(
        self, request: WriteRequest, stage: str, chunks: AsyncIterator[bytes], script: str
    ) -> Reply:
        """The same through the held shell, one round trip per piece, for a target that gives no second channel."""
        begin = request.prefix + call(
            "hxf_chunk", request.path, request.mode, request.expectation, int(request.parents), stage
        )
        try:
            await self._calls.run(request.path, encode_inline(b"") + begin)
            async for chunk in chunks:
                for start in range(0, len(chunk), PIECE):
                    await self._calls.run(request.path, encode_inline(chunk[start : start + PIECE]) + begin)
            return await self._calls.run(request.path, script)
        except BaseException:
            with anyio.move_on_after(5, shield=True):
                await self._calls.attempt(call("hxf_unstage", request.path, stage))
            raise

    def _sweep(self, path: str) -> bool:
        """Whether to look for old leftovers: at the first write in a directory, and then once an hour."""
        directory, now = path.rpartition("/")[0], monotonic()
        due = now - self._swept.get(directory, -SWEEP_EVERY) >= SWEEP_EVERY
        if due:
            self._swept = {name: when for name, when in self._swept.items() if now - when < SWEEP_EVERY}
            self._swept[directory] = now
        return due


async def slices(content: bytes) -> AsyncIterator[bytes]:
    """A content in memory, in pieces."""
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


def _stage_name() -> str:
    return STAGE_PREFIX + secrets.token_hex(12)


def _result(reply: Reply, size: int, version: str) -> WriteResult:
    (_, created, _, on_target), _ = fields_of(reply.stdout, 4)
    return WriteResult(size, created == "1", on_target or version)
