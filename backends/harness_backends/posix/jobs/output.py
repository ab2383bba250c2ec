"""The output of a job: head and tail within a limit, ranges, and a throttled live view."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

import anyio

from harness.command import LiveView
from harness.errors import ConnectError, OutputDropped, UnsupportedOperation
from harness.results import OutputPart, ShellResult
from harness.transport import Process, Transport

from ..persistent_shell import PersistentShell, ShellReply
from .log_limit import GAP, READER

__all__ = [
    "VIEW_REST",
    "Gap",
    "HeadTail",
    "StoredOutput",
    "StoredStream",
    "ThrottledStream",
    "cut",
    "cut_kept",
    "lost_connection_notice",
    "parse_output",
    "read_gap",
    "read_kept",
    "read_output",
    "read_range",
    "split_gap",
    "with_output",
]


# -- A live view of a command's newest output, throttled to a readable rate.


WAITING = 1 << 20
"""Bytes buffered for display; older ones beyond that are skipped."""
PIECE = 64 << 10
RATE = 2 << 20
"""Bytes displayed per second."""
VIEW_REST = 128 << 10
"""Bytes at the end of a stream that are displayed after the command has ended."""


class ThrottledStream:
    """One throttled stream of a command; ``delivered[number]`` counts the displayed and skipped bytes."""

    def __init__(self, view: LiveView, delivered: list[int], number: int) -> None:
        self._view = view
        self._delivered = delivered
        self._number = number
        self._waiting = bytearray()
        self._passed = 0
        self._more = anyio.Event()

    async def read(self, receive: Callable[[], Awaitable[bytes]]) -> None:
        """Buffer all incoming data until the end of the stream."""
        while data := await receive():
            self._waiting += data
            if (over := len(self._waiting) - WAITING) > 0:
                del self._waiting[:over]
                self._passed += over
            self._more.set()

    async def show(self) -> None:
        """Display the buffered data until cancelled.

        Raises:
            Exception: the view's exception.
        """
        while True:
            if not self._waiting:
                self._more = anyio.Event()
                await self._more.wait()
            passed, self._passed = self._passed, 0
            piece = bytes(self._waiting[:PIECE])
            del self._waiting[:PIECE]
            self._delivered[self._number] += passed + len(piece)
            if passed:
                self._view.skipped(passed)
            self._view(piece)
            await anyio.sleep(len(piece) / RATE)


# -- A job's stored output: head and tail within a limit, and ranges of it.


INLINE = 256 * 1024
"""Bytes: more output than this is read over a separate channel, so that the persistent shell is not blocked."""

# hx_part FILE LIMIT: a line "SIZE HEAD TAIL", the bytes 0..HEAD and TAIL..SIZE, and a line with the gap afterwards.
_PART = (
    GAP
    + r"""
hx_part() {
  hx_s=$(($({ wc -c <"$1"; } 2>/dev/null || echo 0)))
  hx_gap "$1"
  hx_h=$hx_s hx_t=$hx_s
  if [ "$hx_lost" -gt 0 ] || [ "$hx_s" -gt "$2" ]; then
    hx_h=$(($2 - $2 / 2)) hx_g=$((hx_hole + hx_lost))
    if [ "$hx_lost" -gt 0 ]; then
      [ "$hx_g" -le "$hx_s" ] || hx_g=$hx_s
      [ $((hx_s - hx_g)) -ge $(($2 / 2)) ] || hx_h=$(($2 - hx_s + hx_g))
      [ "$hx_h" -le "$hx_hole" ] || hx_h=$hx_hole
    fi
    hx_t=$((hx_s - $2 + hx_h))
    [ "$hx_t" -ge "$hx_g" ] || hx_t=$hx_g
  fi
  printf '%s %s %s\n' "$hx_s" "$hx_h" "$hx_t"
  [ "$hx_h" -eq 0 ] || head -c "$hx_h" -- "$1"
  [ "$hx_t" -ge "$hx_s" ] || tail -c "+$((hx_t + 1))" -- "$1" | head -c $((hx_s - hx_t))
  hx_gap "$1"
  printf '\n%s %s\n' "$hx_hole" "$hx_lost"
}
"""
)

# The bytes of FILE from START on, LIMIT at most, and a line with the gap afterwards.
_BLOCK = f"""{GAP}
tail -c "+$((START_ + 1))" -- FILE_ | head -c LIMIT_
hx_gap FILE_
printf '\\n%s %s\\n' "$hx_hole" "$hx_lost"
"""

# $1 FILE, $2 START, $3 the state directory, $4 the known gap: nothing is read if it has changed.
_READ_ON = (
    READER
    + r"""
hx_root=$3
umask 077
exec 3<"$1" 2>/dev/null
hx_reads "$1" $$ || exit
hx_gap "$1"
if [ "$hx_hole $hx_lost" = "$4" ]; then
  tail -c "+$(($2 + 1))" -- "$1" 3<&3 & hx_tail=$!
  hx_reads "$1" "$hx_tail"
  exec 3<&-
  wait "$hx_tail"
  hx_read "$1" "$hx_tail"
fi
hx_read "$1" $$
"""
)


@dataclass(frozen=True, slots=True)
class Gap:
    """The dropped bytes of a stream; of size 0 if all were stored."""

    start: int = 0
    size: int = 0

    @property
    def end(self) -> int:
        """The byte after the last dropped one."""
        return self.start + self.size

    def before(self, data: bytes, start: int) -> bytes:
        """Return the part of data read from ``start`` that precedes the gap."""
        return data if not self.size or start >= self.end else data[: max(0, self.start - start)]

    def after(self, data: bytes, start: int) -> bytes:
        """Return the part of data read from ``start`` that follows the gap."""
        return data[max(0, self.end - start) :] if self.size else data


@dataclass(frozen=True, slots=True)
class StoredStream:
    """The available data of one stream, its full size in bytes, and the ``gap`` that the target has dropped."""

    data: bytes = b""
    size: int = 0
    gap: Gap = Gap()
    head: int = 0
    """The bytes of ``data`` before the omitted ones, if there are any."""

    @property
    def omission(self) -> tuple[int, int] | None:
        """The position of the omitted bytes in ``data`` and their number; None if nothing is omitted."""
        return (self.head, self.omitted) if self.omitted else None

    @property
    def omitted(self) -> int:
        """The number of bytes omitted between head and tail."""
        return self.size - len(self.data)


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """The available data of both streams."""

    stdout: StoredStream = StoredStream()
    stderr: StoredStream = StoredStream()


def with_output(result: ShellResult, output: StoredOutput) -> ShellResult:
    """Return a result with this output, and a notice about dropped bytes of a stream, if any."""
    out, err = output.stdout, output.stderr
    dropped = [
        f"bytes {gap.start} to {gap.end} of {name} were dropped (job_log_max_bytes)"
        for name, gap in (("stdout", out.gap), ("stderr", err.gap))
        if gap.size
    ]
    return replace(
        result,
        stdout_bytes=out.data,
        stderr_bytes=err.data,
        truncated=out.omitted + err.omitted,
        stdout_gap=out.omission,
        stderr_gap=err.omission,
        notices=(*result.notices, *dropped),
    )


def lost_connection_notice(job_id: str) -> str:
    """Return the notice of a command whose connection was lost while it ran."""
    check = f"check it with: harness jobs show {job_id}"
    return (
        f"connection lost while the command was running; {check}; "
        "the output ends where the connection was lost, and there may be more"
    )


def cut(data: bytes, limit: int) -> StoredStream:
    """Return head and tail of ``data``, at most ``limit`` bytes together."""
    if len(data) <= limit:
        return StoredStream(data, len(data))
    tail = limit // 2
    return StoredStream(data[: limit - tail] + data[len(data) - tail :], len(data), head=limit - tail)


def cut_kept(kept: StoredStream, limit: int) -> StoredStream:
    """Return head and tail of a stream of which the middle may be omitted already; ``limit`` is as for :func:`cut`."""
    shorter = cut(kept.data, limit)
    return StoredStream(shorter.data, kept.size, kept.gap, shorter.head if shorter.omitted else kept.head)


class HeadTail:
    """A buffer for head and tail of a stream, at most ``limit`` bytes together, that counts all bytes."""

    def __init__(self, limit: int) -> None:
        self._tail_limit = limit // 2
        self._head_limit = limit - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    @property
    def held(self) -> int:
        """The number of bytes in memory."""
        return len(self._head) + len(self._tail)

    @property
    def is_full(self) -> bool:
        """Whether further bytes would be omitted, or replace others."""
        return self.size >= self._head_limit + self._tail_limit

    def feed(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_limit + 65536:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]

    def kept(self) -> StoredStream:
        """Return the current head and tail."""
        self._trim()
        return StoredStream(bytes(self._head + self._tail), self.size, head=len(self._head))

    def part(self, start: int, limit: int) -> OutputPart:
        """Return at most ``limit`` bytes from byte ``start``: up to the omitted part, or from its end on."""
        kept, head = self.kept(), len(self._head)
        start = min(start, kept.size)
        if start < head or not kept.omitted:
            whole = kept.data[:head] if kept.omitted else kept.data
            return OutputPart(whole[start : start + limit], start, kept.size)
        first = max(start, head + kept.omitted)
        begin = first - kept.omitted
        return OutputPart(kept.data[begin : begin + limit], first, kept.size, first - start)


def output_script(out: str, err: str, limit: int) -> str:
    """Return the script that prints head and tail of both stored streams, for :func:`parse_output`."""
    return f"{_PART}\nhx_part {shlex.quote(out)} {limit}\nhx_part {shlex.quote(err)} {limit} >&2"


def parse_output(reply: ShellReply) -> StoredOutput:
    """Parse the output of :func:`output_script`."""
    return StoredOutput(_kept(reply.stdout), _kept(reply.stderr))


def _kept(text: bytes) -> StoredStream:
    line, _, rest = text.partition(b"\n")
    data, gap = split_gap(rest)
    words = line.split()
    if len(words) != 3 or gap is None:
        return StoredStream()
    size, head, tail = map(int, words)
    first = gap.before(data[:head], 0)
    return StoredStream(first + gap.after(data[head:], tail), max(size, gap.end), gap, len(first))


def split_gap(text: bytes) -> tuple[bytes, Gap | None]:
    """Split a script's output into data and the gap in its last line; the gap is None if that line is missing."""
    data, _, line = text[:-1].rpartition(b"\n")
    words = line.split()
    if not text.endswith(b"\n") or len(words) != 2 or not all(map(bytes.isdigit, words)):
        return b"", None
    return data, Gap(*map(int, words))


async def read_output(transport: Transport, shell: PersistentShell, out: str, err: str, limit: int) -> StoredOutput:
    """Read head and tail of both stored streams of a job, each within ``limit`` bytes."""
    if limit > INLINE:
        try:
            return parse_output(await run_script(transport, output_script(out, err, limit)))
        except (ConnectError, UnsupportedOperation):  # no second channel: read what fits into the first
            limit = INLINE
    return parse_output(await shell.call(output_script(out, err, limit)))


async def read_kept(transport: Transport, shell: PersistentShell, path: str, start: int) -> AsyncIterator[bytes]:
    """Yield one stored stream of a job from byte ``start`` to its current end, in pieces.

    Raises:
        OutputDropped: the next bytes were dropped.
        ConnectionLost: the connection was lost meanwhile.
    """
    single = False
    while True:
        data, gap = await _block(shell, path, start)
        known = gap.before(data, start)
        if len(known) <= INLINE or single:
            if known:
                yield known
            start += len(known)
            if gap.start <= start < gap.end:
                raise OutputDropped(f"bytes {start} to {gap.end} were dropped", start=start, end=gap.end)
            if len(data) <= INLINE:
                return
            continue
        begin = start
        async with aclosing(_beside(transport, path, start, gap)) as pieces:
            async for piece in pieces:
                start += len(piece)
                yield piece
        single = start == begin


async def _beside(transport: Transport, path: str, start: int, gap: Gap) -> AsyncGenerator[bytes]:
    """Continue over a separate channel, up to the end or the gap; yield nothing if no channel is available."""
    root = path.rpartition("/jobs/")[0]
    try:
        process = await transport.open_process(
            ["sh", "-c", _READ_ON, "sh", path, str(start), root, f"{gap.start} {gap.size}"]
        )
    except (ConnectError, UnsupportedOperation):
        return
    async with process:
        await process.send_eof()
        while data := gap.before(await process.receive(), start):
            start += len(data)
            yield data


async def _block(shell: PersistentShell, path: str, start: int) -> tuple[bytes, Gap]:
    script = _BLOCK.replace("FILE_", shlex.quote(path)).replace("START_", str(start))
    data, gap = split_gap((await shell.call(script.replace("LIMIT_", str(INLINE + 1)))).stdout)
    return data, gap or Gap()


async def read_gap(shell: PersistentShell, path: str) -> Gap:
    """Return the dropped range of a stream."""
    _, gap = split_gap((await shell.call(f"{GAP}\nhx_gap {shlex.quote(path)}\necho\necho $hx_hole $hx_lost")).stdout)
    return gap or Gap()


async def run_script(transport: Transport, script: str) -> ShellReply:
    """Run a script in a separate process and collect its output."""
    stdout, stderr = bytearray(), bytearray()
    async with await transport.open_process(["sh", "-c", script]) as process:
        await process.send_eof()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process, stdout, False)
            tasks.start_soon(_collect, process, stderr, True)
        return ShellReply(await process.wait(), bytes(stdout), bytes(stderr))


async def _collect(process: Process, into: bytearray, errors: bool) -> None:
    receive = process.receive_stderr if errors else process.receive
    while data := await receive():
        into += data


async def read_range(transport: Transport, shell: PersistentShell, path: str, start: int) -> AsyncIterator[bytes]:
    """Yield a file from byte ``start`` to its current end, in pieces.

    Raises:
        ConnectionLost: the connection was lost meanwhile.
    """
    quoted = shlex.quote(path)
    reply = await shell.call(f"tail -c +{start + 1} -- {quoted} | head -c {INLINE + 1}")
    if len(reply.stdout) <= INLINE:
        if reply.stdout:
            yield reply.stdout
        return
    try:
        process = await transport.open_process(["tail", "-c", f"+{start + 1}", "--", path])
    except (ConnectError, UnsupportedOperation):
        async for data in _read_blocks(shell, quoted, start, reply.stdout):
            yield data
        return
    async with process:
        await process.send_eof()
        while data := await process.receive():
            yield data
        await process.wait()


async def _read_blocks(shell: PersistentShell, quoted: str, start: int, block: bytes) -> AsyncIterator[bytes]:
    while block:
        yield block
        start += len(block)
        block = (await shell.call(f"tail -c +{start + 1} -- {quoted} | head -c {INLINE}")).stdout
