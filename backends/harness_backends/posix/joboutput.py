"""A job's kept output: head and tail within a limit, and ranges of it."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio

from harness.errors import ConnectError, UnsupportedOperation
from harness.results import OutputPart
from harness.transport import Process, Transport

from .shell import HeldShell, Reply

__all__ = ["HeadTail", "JobOutput", "Kept", "cut", "parse_output", "read_output", "read_range"]

INLINE = 256 * 1024
"""More than this goes over a channel of its own, so that it does not hold up the held shell."""

_PART = r"""
hx_part() {
  hx_s=$(($({ wc -c <"$1"; } 2>/dev/null || echo 0)))
  printf '%s\n' "$hx_s"
  if [ "$hx_s" -eq 0 ]; then
    :
  elif [ "$hx_s" -le "$2" ]; then
    head -c "$hx_s" -- "$1"
  else
    head -c $(($2 - $2 / 2)) -- "$1"
    tail -c "+$((hx_s - $2 / 2 + 1))" -- "$1" | head -c $(($2 / 2))
  fi
}
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is had of one stream, and its true size in bytes."""

    data: bytes = b""
    size: int = 0

    @property
    def omitted(self) -> int:
        """How many bytes are between head and tail."""
        return self.size - len(self.data)


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Both streams."""

    stdout: Kept = Kept()
    stderr: Kept = Kept()


def cut(data: bytes, limit: int) -> Kept:
    """Head and tail of ``data``, at most ``limit`` bytes together."""
    if len(data) <= limit:
        return Kept(data, len(data))
    tail = limit // 2
    return Kept(data[: limit - tail] + data[len(data) - tail :], len(data))


class HeadTail:
    """Keeps the head and the tail of a stream, at most ``limit`` bytes together, and counts all of it."""

    def __init__(self, limit: int) -> None:
        self._tail_limit = limit // 2
        self._head_limit = limit - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

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

    def kept(self) -> Kept:
        """What is kept now."""
        self._trim()
        return Kept(bytes(self._head + self._tail), self.size)

    def part(self, start: int, limit: int) -> OutputPart:
        """From byte ``start`` of the stream on, at most ``limit`` bytes: up to the gap, or from its other side on."""
        kept, head = self.kept(), len(self._head)
        start = min(start, kept.size)
        if start < head or not kept.omitted:
            whole = kept.data[:head] if kept.omitted else kept.data
            return OutputPart(whole[start : start + limit], start, kept.size)
        first = max(start, head + kept.omitted)
        begin = first - kept.omitted
        return OutputPart(kept.data[begin : begin + limit], first, kept.size, first - start)


def output_script(out: str, err: str, limit: int) -> str:
    """A script that writes, on each stream, the size of the kept one in a line, then its head and tail."""
    return f"{_PART}\nhx_part {shlex.quote(out)} {limit}\nhx_part {shlex.quote(err)} {limit} >&2"


def parse_output(reply: Reply) -> JobOutput:
    """Read what :func:`output_script` wrote."""
    return JobOutput(_kept(reply.stdout), _kept(reply.stderr))


def _kept(text: bytes) -> Kept:
    size, _, data = text.partition(b"\n")
    return Kept(data, int(size)) if size.isdigit() else Kept()


async def read_output(transport: Transport, shell: HeldShell, out: str, err: str, limit: int) -> JobOutput:
    """Head and tail of both kept streams of a job, each within ``limit`` bytes."""
    if limit > INLINE:
        try:
            return parse_output(await run_script(transport, output_script(out, err, limit)))
        except (ConnectError, UnsupportedOperation):  # no second channel: take what fits into the first
            limit = INLINE
    return parse_output(await shell.call(output_script(out, err, limit)))


async def run_script(transport: Transport, script: str) -> Reply:
    """Run a script in a process of its own and collect what it writes."""
    stdout, stderr = bytearray(), bytearray()
    async with await transport.open_process(["sh", "-c", script]) as process:
        await process.send_eof()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process, stdout, False)
            tasks.start_soon(_collect, process, stderr, True)
        return Reply(await process.wait(), bytes(stdout), bytes(stderr))


async def _collect(process: Process, into: bytearray, errors: bool) -> None:
    receive = process.receive_stderr if errors else process.receive
    while data := await receive():
        into += data


async def read_range(transport: Transport, shell: HeldShell, path: str, start: int) -> AsyncIterator[bytes]:
    """A file from byte ``start`` to its present end, in pieces.

    Raises:
        ConnectionLost: the link was lost on the way.
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


async def _read_blocks(shell: HeldShell, quoted: str, start: int, block: bytes) -> AsyncIterator[bytes]:
    while block:
        yield block
        start += len(block)
        block = (await shell.call(f"tail -c +{start + 1} -- {quoted} | head -c {INLINE}")).stdout
