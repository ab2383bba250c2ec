"""Files that are copied from one target to another, or uploaded: opened here, received there, resumed and verified.

A large file is received into a partial file next to the real one. If the copy is cut, the partial file stays: the next
copy to the same path compares its hash with that of the same part of the source, and continues behind it. The target
hashes what arrives; before the partial file becomes the real one, that hash is compared with what was sent, and its
size with that of the source, so that it holds nothing of another writer. Partial files are hidden files of the shell
library: a later write in the directory removes them once they have not changed for a day.

The name of a partial file is ``PREFIX KEY.NONCE.PID``: the key is that of the path and the size, the nonce that of the
copy, and the process its writer. A copy takes over its own partial files, and those whose writer has exited or has
written nothing for a minute; never one that another user owns or may write, who could read or change the copy.

Uploads and downloads are received in the same way, but leave no partial file when they are stopped.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property

import anyio

from harness.backend import ANY, Progress, ReceivedFile, ReceiveRequest, SourceFile
from harness.errors import ConnectError, FileError, HarnessError, StaleFileError, UnsupportedOperation
from harness.system.background_tasks import open_task_group
from harness.transport import Transport

from ..persistent_shell import PersistentShell
from .content import FLUSHED, LARGE, FileWriter, OpenReply, WriteRequest, copy_content, open_file
from .file_calls import FileCalls, Hasher, display_path, fields_of, local_error
from .shell_library import INLINE_READ, STAGE_PREFIX, Refusal, call
from .transfer import Sink, collect, feed

__all__ = [
    "COPY_LIBRARY",
    "Downloads",
    "FileReceiver",
    "PosixSourceFile",
    "file_version",
    "masked_mode",
    "open_source_file",
    "set_attributes",
    "touch_times",
]

RESUMABLE = 1 << 20
"""Files of at least so many bytes leave a partial file when their copy is cut."""
HASHED_AT_ONCE = 8 << 20
"""Bytes that the persistent shell may hash; more are hashed by a process of their own."""
MAX_UNSIZED_BYTES = 64 << 20
"""Bytes of a file that says it has none, as those of ``/proc`` do; they are held in memory."""
MAX_TIME = 2.0**40
"""Seconds before and after 1970 that a file's time may be; a target may answer with any number."""
REMOVE_TIMEOUT = 10.0
_AHEAD = 4
"""Pieces that are read before they are written."""

# What arrives is hashed on its way, by openssl where it can: it uses the processor's instructions for SHA-256, and is
# several times as fast as many a sha256sum. A full disk ends the copy at once through /dev/fd, or where tee knows
# --output-error; another tee alone reads to the end.
COPY_LIBRARY = r"""
hxf_version_of() {
  hxf_abs "$1"
  hxf_readable
  [ "$3" = "$hxf_scheme" ] || { [ "$3" = cksum ] && hxf_has cksum; } || exit 85
  hxf_scheme=$3
  if [ -z "$2" ]; then
    hxf_hash "$real"
  else
    hash=$(hxf_head "$2" <"$real" | hxf_sum_large | hxf_first) || exit 1
    hxf_scheme_hash
  fi
  hxf_reply "$hash"
}
hxf_is_written() {
  case $1 in '' | *[!0-9]*) return 1 ;; esac
  kill -0 "$1" 2>/dev/null && [ -z "$(find "$2" -prune -mmin +1 2>/dev/null)" ]
}
hxf_is_private() {
  set -- $(ls -ldn "$1" 2>/dev/null)
  [ "$2:$3" = "1:$hxf_uid" ] || return 1
  case $1 in -????-??-*) ;; *) return 1 ;; esac
}
hxf_partial() {
  hxf_begin "$1" "$5" any "$4" "$2.$3.x"
  for old in "$dir/$2.$3".* "$dir/$2".*; do
    [ -f "$old" ] && [ ! -L "$old" ] && [ -w "$old" ] && hxf_is_private "$old" || continue
    case $old in
      "$stage") break ;;
      "$dir/$2.$3".*) ;;
      *) ! hxf_is_written "${old##*.}" "$old" || continue ;;
    esac
    mv -f "$old" "$stage" 2>/dev/null && break
  done
  size=0
  if [ -f "$stage" ]; then
    set -- $(hxf_stat "$stage")
    size=$3
  fi
  hxf_reply "$dir" "$size" "$hxf_made"
}
hxf_into() { hxf_receive; }
hxf_receive() {
  hash=$({ { hxf_split || echo failed >&4; } 3>&1 >/dev/null | hxf_sum_large; } 4>&1) || return 1
  case $hash in *failed*) return 1 ;; esac
}
hxf_split() {
  umask 077
  if tee --output-error=exit </dev/null >/dev/null 2>&1; then tee --output-error=exit -a "$stage" >&3
  elif [ -w /dev/fd/3 ]; then tee /dev/fd/3 | cat >>"$stage"; else tee -a "$stage" >&3; fi
}
hxf_scheme_hash() {
  set -- $hash
  case $hxf_scheme in sha256) hash=sha256:$1 ;; cksum) hash=cksum:$1:$2 ;; esac
}
hxf_sum_large() {
  case $hxf_scheme:$(openssl dgst -sha256 -r 2>/dev/null </dev/null | hxf_first) in
    sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855*) openssl dgst -sha256 -r ;;
    *) hxf_sum ;;
  esac
}
hxf_sum() { case $hxf_scheme in sha256) hxf_digest ;; cksum) cksum ;; esac; }
hxf_fill() {
  hxf_has tee || exit 94
  dir=$1 real=$1 stage=$1/$2.$$ hxf_staged= hxf_added= hxf_locked= whole=$4 hxf_made=$5
  if [ -n "$whole" ]; then
    hxf_staged=$stage
    trap hxf_drop 0
    trap 'exit 143' 1 2 13 15
  fi
  if [ "$3" = 0 ]; then
    rm -f "$1/$2.x"
    (umask 077; set -C; : >"$stage") || exit 1
  else
    mv "$1/$2.x" "$stage" 2>/dev/null || exit 76
    offset=$3
    set -- $(hxf_stat "$stage")
    [ "$3" = "$offset" ] || exit 76
  fi
  hxf_copy hxf_into
  hxf_scheme_hash
  if [ -n "$whole" ]; then
    set -- $(hxf_stat "$stage")
    [ "$3" = "$whole" ] || exit 84
    hxf_staged=
  fi
  hxf_reply "$$" "$hash"
}
hxf_remove_partial() {
  dir=$1 hxf_made=$3
  rm -f "$1"/"$2".*
  hxf_unmake
}
hxf_attributes() {
  hxf_abs "$1"
  hxf_existing
  [ -z "$2" ] || chmod "$2" "$real" || exit 1
  [ -z "$3" ] || TZ=UTC0 touch -m -d "$3" "$real" 2>/dev/null || TZ=UTC0 touch -m -t "$4" "$real" || exit 1
}
"""


# -- The source.


class PosixSourceFile(SourceFile):
    """A file that was opened with its metadata, and its content if that is small."""

    def __init__(
        self, calls: FileCalls, path: str, opened: OpenReply, *, own_channel: bool, may_grow: bool = False
    ) -> None:
        self.path = path
        self.size = opened.stat.size if opened.data is None else len(opened.data)
        self.mode = opened.stat.mode & 0o777
        self.mtime = opened.stat.mtime
        self.data = opened.data
        self._calls = calls
        self._opened = opened
        self._own_channel = own_channel
        self._may_grow = may_grow

    async def copy(self, offset: int, sink: Sink) -> None:
        length = self.size - offset
        done = await copy_content(
            self._calls, self.path, self._opened, offset, length, sink, None, own_channel=self._own_channel
        )
        if done != length:
            raise _changed(self.path, self._calls.where)

    async def version(self, length: int, scheme: str) -> str | None:
        return await file_version(self._calls, self._opened.real, length, scheme)

    async def check_unchanged(self) -> None:
        if self._may_grow:  # a file that shrank cannot be read to its end
            return
        now = (await open_file(self._calls, self._opened.real, 0, 0)).stat
        if (now.size, now.mtime) != (self._opened.stat.size, self._opened.stat.mtime):
            raise _changed(self.path, self._calls.where)


def _changed(path: str, target: object) -> FileError:
    return FileError(f"{display_path(path)}: changed while it was copied", target=target, hint="copy it again")


async def open_source_file(
    calls: FileCalls, path: str, *, own_channel: bool, may_grow: bool = False
) -> PosixSourceFile:
    """Open a regular file to be copied; files of ``/proc``, whose size is unknown in advance, are read at once.

    With ``may_grow``, it is read up to the size that it has now, also if it grows meanwhile, as a log does.
    """
    opened = await open_file(calls, path, inline=INLINE_READ)
    if not opened.sized and opened.data is None:
        opened = replace(opened, data=await _read_unsized(calls, path, opened))
    return PosixSourceFile(calls, path, opened, own_channel=own_channel, may_grow=may_grow)


async def _read_unsized(calls: FileCalls, path: str, opened: OpenReply) -> bytes:
    content = bytearray()

    async def keep(data: bytes) -> None:
        content.extend(data)

    await copy_content(calls, path, opened, 0, MAX_UNSIZED_BYTES + 1, keep, None)
    if len(content) > MAX_UNSIZED_BYTES:
        raise FileError(
            f"{display_path(path)}: has no size, and more than {MAX_UNSIZED_BYTES >> 20} MiB of content",
            target=calls.where,
            hint="read it with a command",
        )
    return bytes(content)


async def file_version(calls: FileCalls, path: str, length: int | None, scheme: str) -> str | None:
    """Return the hash of a file, or of its first ``length`` bytes.

    Returns:
        The version; None if the target has no program for the scheme.
    """
    script = COPY_LIBRARY + call("hxf_version_of", path, "" if length is None else length, scheme)
    if length is not None and length <= HASHED_AT_ONCE:
        reply = await calls.attempt(script)
    else:
        process = await calls.open_script(script)
        reply = await collect(process) if process is not None else await calls.attempt(script)
    if reply.exit_code == Refusal.NO_DIGEST:
        return None
    calls.checked(path, reply)
    with calls.understanding(path, reply.stdout):
        (_, version), _ = fields_of(reply.stdout, 2)
    return version


async def set_attributes(calls: FileCalls, path: str, mode: str, mtime: float | None) -> None:
    """Set the mode, as ``chmod`` takes it, and the time of the last change; what is empty or None stays."""
    exact, short = ("", "") if mtime is None else touch_times(mtime)
    await calls.run(path, COPY_LIBRARY + call("hxf_attributes", path, mode, exact, short))


def touch_times(mtime: float) -> tuple[str, str]:
    """Return a time in UTC as ``touch -d`` and, in whole seconds, ``touch -t`` take it."""
    mtime = min(max(mtime, -MAX_TIME), MAX_TIME)
    whole = int(mtime // 1)
    parts = time.gmtime(whole)
    exact = f"{time.strftime('%Y-%m-%dT%H:%M:%S', parts)}.{int((mtime - whole) * 1e9):09}Z"
    return exact, time.strftime("%Y%m%d%H%M.%S", parts)


def masked_mode(mode: int) -> str:
    """Return mode bits less those of the target's umask, as ``chmod`` takes them: ``=rwx,u-x,g-wx,o-rwx``."""
    removed = []
    for who, shift in (("u", 6), ("g", 3), ("o", 0)):
        missing = "".join(letter for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if not mode >> shift & bit)
        removed += [f"{who}-{missing}"] if missing else []
    return ",".join(["=rwx", *removed])


# -- The target that receives it.


class FileReceiver:
    """Receives files on one target."""

    def __init__(self, calls: FileCalls, writer: FileWriter) -> None:
        self._calls = calls
        self._writer = writer

    async def receive(self, source: SourceFile, request: ReceiveRequest, progress: Progress | None) -> ReceivedFile:
        """Write a file with the content of the source, atomically and verified by hash."""
        received = await self._receive(source, request, progress)
        if request.mtime is not None:
            await set_attributes(self._calls, request.path, "", request.mtime)
        return received

    async def _receive(self, source: SourceFile, request: ReceiveRequest, progress: Progress | None) -> ReceivedFile:
        new_mode = "" if request.new_permissions is None else masked_mode(request.new_permissions)
        write = WriteRequest(
            request.path,
            source.size,
            "overwrite" if request.overwrite else "create",
            expect=ANY,
            parents=request.parents,
            permissions=request.permissions,
            force=request.force,
            new_mode=new_mode,
        )
        if source.data is not None or source.size < RESUMABLE:
            content = await _content_of(source)
            _report(progress, 0, source.size)
            result = await self._writer.write_verified(write, content, progress)
            return ReceivedFile(source.size, result.created, version=result.version)
        try:
            return await _PartialCopy(self._calls, self._writer, source, write, request).run(progress)
        except UnsupportedOperation:  # no second channel
            pass
        except ConnectError:
            if request.resume:  # later
                raise
        return await self._receive_in_pieces(source, write, progress)

    async def _receive_in_pieces(
        self, source: SourceFile, write: WriteRequest, progress: Progress | None
    ) -> ReceivedFile:
        """Receive a file without a second channel; a cut leaves nothing to resume."""
        hasher = await self._writer.hasher()
        _report(progress, 0, source.size)
        async with _pieces_of(source, 0) as pieces:
            result = await self._writer.stream(write, _hashed(pieces, hasher), hasher, progress)
        if await file_version(self._calls, write.path, source.size, hasher.scheme) != hasher.version():
            raise _damaged(write.path, self._calls.where)
        await source.check_unchanged()
        return ReceivedFile(source.size, result.created, version=result.version)


def _absolute(path: str) -> str:
    """Return a path of this machine as its shell takes it, which starts in another directory.

    Raises:
        FileError: The working directory was deleted.
    """
    try:
        return path if path.startswith("/") else f"{os.getcwd().rstrip('/')}/{path}"
    except OSError as error:
        raise local_error(path, error) from error


class Downloads:
    """Receives files on this machine, in a shell that starts with the first one.

    Args:
        shell: The persistent shell of the target, which owns the tasks of the one here.
        local: Returns a transport to this machine.
    """

    def __init__(self, shell: PersistentShell, local: Callable[[], Transport]) -> None:
        self._tasks = shell.tasks
        self._local = local
        self._here: PersistentShell | None = None

    async def receive(
        self, source: SourceFile, path: str, progress: Progress | None, *, force: bool, overwrite: bool
    ) -> int:
        """Write a file with the content and the mode of the source, and return its size.

        Args:
            source: The file.
            path: The file here; it may be relative to the working directory.
            progress: Called with the received bytes and the size.
            force: Replace even a read-only file.
            overwrite: Replace a file that exists.
        """
        absolute = _absolute(path)
        request = ReceiveRequest(absolute, source.mode, force=force, resume=False, overwrite=overwrite)
        try:
            received = await self._receiver.receive(source, request, progress)
        except FileError as error:
            error.message = error.message.replace(display_path(absolute), display_path(path), 1)
            raise
        return received.size

    async def prepare(self) -> None:
        """Start the shell here while a file is opened on the target; a failure is reported by the download."""
        with suppress(HarnessError):
            await self._calls.scheme()

    @cached_property
    def _calls(self) -> FileCalls:
        transport = self._local()
        self._here = PersistentShell(transport, self._tasks)
        return FileCalls(self._here, transport, "/", where="this machine")

    @cached_property
    def _receiver(self) -> FileReceiver:
        return FileReceiver(self._calls, FileWriter(self._calls))

    async def aclose(self) -> None:
        """End the shell here."""
        if self._here is not None:
            await self._here.aclose()


def _report(progress: Progress | None, done: int, size: int) -> None:
    if progress is not None:
        progress(done, size)


def _damaged(path: str, target: object) -> FileError:
    return FileError(f"{display_path(path)}: has another content than what was sent", target=target, hint="try again")


class _PartialCopy:
    """One large file, received into a partial file and renamed when its hash is right."""

    def __init__(
        self, calls: FileCalls, writer: FileWriter, source: SourceFile, write: WriteRequest, request: ReceiveRequest
    ) -> None:
        self._calls = calls
        self._writer = writer
        self._source = source
        self._write = write
        key = hashlib.sha256(f"{write.path.rpartition('/')[2]}\0{write.size}".encode("utf-8", "surrogateescape"))
        self._key = STAGE_PREFIX + key.hexdigest()[:24]
        self._nonce = request.nonce or ("copy" if request.resume else secrets.token_hex(6))
        self._stem = f"{self._key}.{self._nonce}"
        self._resume = request.resume
        self._made = 0
        """The number of directories that were created for the file."""

    async def run(self, progress: Progress | None) -> ReceivedFile:
        hasher = await self._writer.hasher()
        directory, offset = await self._find_partial(hasher.scheme)
        _report(progress, offset, self._write.size)
        try:
            try:
                stage = await self._send(directory, offset, hasher, progress)
            except StaleFileError:  # another copy has taken the partial file over meanwhile
                offset, hasher = 0, await self._writer.hasher()
                stage = await self._send(directory, offset, hasher, progress)
            await self._source.check_unchanged()
            result = await self._writer.commit(self._write, stage, hasher.version(), keep=self._resume)
        except BaseException as error:
            is_useless = isinstance(error, FileError | UnsupportedOperation)  # such as on a full disk; a cut is not
            if (is_useless or not self._resume) and self._calls.connected:
                await self._remove(directory)
            raise
        return ReceivedFile(self._write.size, result.created, offset, result.version)

    async def _find_partial(self, scheme: str) -> tuple[str, int]:
        """Take over a partial file of an earlier copy, and return its directory and how much of it is right."""
        script = (
            self._write.prefix
            + COPY_LIBRARY
            + call("hxf_partial", self._write.path, self._key, self._nonce, int(self._write.parents), self._write.mode)
        )
        reply = await self._calls.run(self._write.path, script)
        with self._calls.understanding(self._write.path, reply.stdout):
            (_, directory, text, made), _ = fields_of(reply.stdout, 4)
            size, self._made = int(text), int(made)
        if not 0 < size <= self._write.size:
            return directory, 0
        partial = f"{directory}/{self._stem}.x"
        expected = await self._source.version(size, scheme)
        if expected is None or await file_version(self._calls, partial, size, scheme) != expected:
            return directory, 0
        return directory, size

    async def _send(self, directory: str, offset: int, hasher: Hasher, progress: Progress | None) -> str:
        """Send what is missing, and return the name of the partial file."""
        size = self._write.size
        flushed = FLUSHED if size - offset >= LARGE else ""
        whole = "" if self._resume else size
        script = COPY_LIBRARY + flushed + call("hxf_fill", directory, self._stem, offset, whole, self._made)
        process = await self._calls.open_channel(script)
        async with _pieces_of(self._source, offset) as pieces:
            reply = await feed(process, _counted(_hashed(pieces, hasher), offset, size, progress))
        self._calls.checked(self._write.path, reply)
        with self._calls.understanding(self._write.path, reply.stdout):
            (_, pid, version), _ = fields_of(reply.stdout, 3)
            stage = f"{self._stem}.{int(pid)}"
        if version != hasher.version():
            raise _damaged(self._write.path, self._calls.where)
        return stage

    async def _remove(self, directory: str) -> None:
        with anyio.move_on_after(REMOVE_TIMEOUT, shield=True), suppress(HarnessError):
            await self._calls.attempt(COPY_LIBRARY + call("hxf_remove_partial", directory, self._stem, self._made))


# -- The content on its way, with a bounded number of pieces in memory.


async def _content_of(source: SourceFile) -> bytes:
    if source.data is not None:
        return source.data
    pieces: list[bytes] = []

    async def keep(piece: bytes) -> None:
        pieces.append(piece)

    await source.copy(0, keep)
    await source.check_unchanged()
    return b"".join(pieces)


@asynccontextmanager
async def _pieces_of(source: SourceFile, offset: int) -> AsyncIterator[AsyncIterator[bytes]]:
    """Read the source in a task of its own while the context is open.

    Yields:
        An iterator over the content, which raises what the reading raises.
    """
    send, receive = anyio.create_memory_object_stream[bytes](_AHEAD)
    failures: list[Exception] = []

    async def read() -> None:
        async with send:
            try:
                await source.copy(offset, send.send)
            except anyio.BrokenResourceError:
                pass  # the receiver has ended, and knows why
            except Exception as error:
                failures.append(error)

    async def pieces() -> AsyncIterator[bytes]:
        async for piece in receive:
            yield piece
        if failures:
            raise failures[0]

    async with open_task_group() as tasks:
        tasks.start_soon(read)
        with receive:
            yield pieces()
        tasks.cancel_scope.cancel()


async def _hashed(pieces: AsyncIterator[bytes], hasher: Hasher) -> AsyncIterator[bytes]:
    async for piece in pieces:
        hasher.update(piece)
        yield piece


async def _counted(
    pieces: AsyncIterator[bytes], done: int, size: int, progress: Progress | None
) -> AsyncIterator[bytes]:
    async for piece in pieces:
        yield piece
        done += len(piece)
        if progress is not None:
            progress(done, size)
