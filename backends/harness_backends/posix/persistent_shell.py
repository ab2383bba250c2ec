"""The persistent shell: a long-lived ``sh`` on the target that runs many scripts, pipelined, over one channel.

Replies are delimited by a nonce that only the shell and this module know, so no file content can imitate a frame.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from harness.errors import ConnectionLost
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.target import Target
from harness.transport import Process, Transport

from .process_scripts import IDENTITY, identity_line, kill_stale_shells_script, parse_shell_identity

__all__ = ["FrameReader", "PendingReply", "PersistentShell", "ShellReply", "call_line", "open_held_shell"]

CALL_TIMEOUT = 30.0
CLOSE_TIMEOUT = 1.0
EXIT_TIMEOUT = 0.1
LAST_WORDS_TIMEOUT = 0.5
LAST_WORDS = 400
MAX_REPLY_BYTES = 1 << 30
"""The limit of one reply in memory; a program that prints without end is killed with its shell."""

# hx_call ID SCRIPT: run SCRIPT in a subshell and frame its two streams. hx_take and hx_give are a lock that keeps
# frames of the shell's background processes apart; see jobs.
#
# Where sh is bash, functions that the account exports are inherited. In sh a function cannot replace a special builtin,
# so unset itself is safe; functions with the names of these commands are removed.
WORDS = (
    "awk cat cd chmod command cp dd df du echo env fallocate false find flock getent grep head hostname id jobs kill "
    "ln ls mkdir mkfifo mktemp mv od perl printf ps pwd read readlink rm rmdir sed setsid sh sleep sort stat stty sudo "
    "tail tee test timeout tmux touch tr true tty type umask uname uniq wait wc xargs"
)
PROLOGUE = """
\\unset -f {words} 2>/dev/null
hx_nonce={nonce}
hx_nl="
"
hx_lc=${{LC_ALL-unset}}
hx_locale() {{ if [ "$hx_lc" = unset ]; then unset LC_ALL; else LC_ALL=$hx_lc; fi; }}
hx_take() {{ :; }}
hx_give() {{ :; }}
hx_call() {{
  hx_take
  echo "$hx_nl$hx_nonce $1"
  ( LC_ALL=C; export LC_ALL; eval "$2" ) </dev/null 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
  hx_end_frame "$1" "$?"
}}
hx_end_frame() {{
  echo "$hx_nl$hx_nonce $1 $2"
  echo "$hx_nl$hx_nonce $1 $2" >&2
  hx_give
}}
trap 'hx_take; echo "$hx_nl$hx_nonce 0 0"; hx_give' EXIT
"""

# These shells read a script from a pipe byte by byte, which takes longer than all else at the start; dd reads a block.
# If there is no dd, nothing has been read, and they read what follows as any other line.
_READ_AT_ONCE = """\
hx_source=
if [ -n "${{BASH_VERSION-}}${{KSH_VERSION-}}${{ZSH_VERSION-}}" ]; then \
while hx_left=$(({size} - ${{#hx_source}})) && [ "$hx_left" -gt 0 ] && \
hx_block=$(dd bs="$hx_left" count=1 2>/dev/null && echo .) && [ "$hx_block" != . ]; do \
hx_source=$hx_source${{hx_block%.}}; done; fi; eval "$hx_source"
"""


def _at_once(source: str) -> str:
    """Return a script with a line before it by which shells read it at once."""
    return _READ_AT_ONCE.format(size=len(source)) + source


class ShellReply(NamedTuple):
    """The output and exit code of a script."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "surrogateescape")


class Frame(NamedTuple):
    """The reply to a line on one stream; ``alone``: the other stream has none."""

    number: int
    exit_code: int
    body: bytes
    alone: bool = False


class FrameReader:
    """A parser of frames ``\\nNONCE ID\\n`` body ``\\nNONCE ID CODE\\n``. Pure; searches only new bytes.

    In a stream without opening lines (standard error), a frame is what lies between two closing lines. A third number
    in the closing line says that the other stream has no frame.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = b"\n" + nonce.encode() + b" "
        self._buffer = bytearray()
        self._scanned = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Add bytes and return the completed frames."""
        self._buffer += data
        frames = []
        while (found := self._next_mark()) is not None:
            start, fields, end = found
            body = bytes(self._buffer[:start])
            del self._buffer[:end]
            self._scanned = 0
            if len(fields) > 1:
                frames.append(Frame(fields[0], fields[1], body, len(fields) > 2))
        return frames

    @property
    def size(self) -> int:
        """The number of bytes after the last complete frame."""
        return len(self._buffer)

    @property
    def rest(self) -> bytes:
        """The bytes after the last complete frame."""
        return bytes(self._buffer)

    def _next_mark(self) -> tuple[int, list[int], int] | None:
        start = self._buffer.find(self._mark, self._scanned)
        if start < 0:
            self._scanned = max(0, len(self._buffer) - len(self._mark))
            return None
        end = self._buffer.find(b"\n", start + 1)
        if end < 0:
            self._scanned = start
            return None
        fields = [int(word) for word in self._buffer[start + len(self._mark) : end].split()]
        return start, fields, end + 1


@dataclass(slots=True)
class _Pending:
    done: anyio.Event = field(default_factory=anyio.Event)
    stdout: bytes | None = None
    stderr: bytes | None = None
    exit_code: int = 0
    lost: bool = False


class _Channel:
    """One instance of the persistent shell, until its exit or the loss of its connection."""

    def __init__(self, process: Process, nonce: str, target: Target) -> None:
        self.process = process
        self.target = target
        self.nonce = nonce
        self.alive = True
        self.ended = anyio.Event()
        self.pending: dict[int, _Pending] = {}
        self.who: PendingReply | None = None
        self._lost = anyio.Event()
        self._said = anyio.Event()
        self._words = b""
        self._status: int | None = None

    async def pump(self, receive: Callable[[], Awaitable[bytes]], stream: str) -> None:
        reader = FrameReader(self.nonce)
        with anyio.CancelScope(shield=True):  # other callers still need answers; closing the process ends this
            while data := await receive():
                for frame in reader.feed(data):
                    self._deliver(frame, stream)
                if reader.size > MAX_REPLY_BYTES:
                    self._words = b"a program on the target prints without end"
                    self.lose()
                    await self.process.aclose()
                    return
            if stream == "stderr":
                self._words = reader.rest
                self._said.set()
                return
            self.alive = False
            with anyio.move_on_after(LAST_WORDS_TIMEOUT), suppress(ConnectionLost):
                await self._said.wait()
                self._status = await self.process.wait()
        self.lose()

    def error(self) -> ConnectionLost:
        """Return the error for replies that can no longer arrive."""
        words = " ".join(self._words[-LAST_WORDS:].decode("utf-8", "replace").split())
        said = f": {words}" if words else ""
        if self._status is None:
            return ConnectionLost(f"connection to the target lost{said}", target=self.target)
        return ConnectionLost(
            f"the shell on the target exited with status {self._status}{said}",
            target=self.target,
            hint="check the account's shell, start-up files and limits, and the free disk space",
        )

    def _deliver(self, frame: Frame, stream: str) -> None:
        if frame.number == 0:
            self.ended.set()
        entry = self.pending.get(frame.number)
        if entry is None:
            return
        entry.exit_code = frame.exit_code
        if stream == "stderr":
            entry.stderr = frame.body
        else:
            entry.stdout = frame.body
            entry.stderr = b"" if frame.alone else entry.stderr
        if entry.stdout is not None and entry.stderr is not None:
            del self.pending[frame.number]
            entry.done.set()

    async def disconnect_after_grace(self) -> None:
        """Abandon a shell that does not accept input, after a grace period for its exit message."""
        self.alive = False
        with anyio.move_on_after(2 * LAST_WORDS_TIMEOUT):
            await self._lost.wait()
        self.lose()

    def lose(self) -> None:
        self.alive = False
        self.ended.set()
        self._lost.set()
        for entry in self.pending.values():
            entry.lost = True
            entry.done.set()
        self.pending.clear()


class PendingReply:
    """A line that was sent to the persistent shell, and its pending reply."""

    def __init__(self, number: int, entry: _Pending, start: _Pending, channel: _Channel) -> None:
        self.number = number
        self.channel = channel
        self._entry = entry
        self._start = start

    @property
    def acknowledged(self) -> bool:
        """True if the acknowledgement has arrived."""
        return self._start.done.is_set() and not self._start.lost

    @property
    def done(self) -> bool:
        """True if the reply has arrived, or can no longer arrive."""
        return self._entry.done.is_set()

    @property
    def text(self) -> str:
        """The reply's standard output if it has arrived."""
        return (self._entry.stdout or b"").decode("utf-8", "replace")

    async def reply(self) -> ShellReply:
        """Wait for the reply; it can be awaited again after a cancellation.

        Raises:
            ConnectionLost: the connection was lost first; the line may have been executed.
        """
        return await self._arrived(self._entry)

    async def started(self) -> ShellReply:
        """Wait for the acknowledgement, as :meth:`reply` does for the reply."""
        return await self._arrived(self._start)

    async def _arrived(self, entry: _Pending) -> ShellReply:
        await entry.done.wait()
        if entry.lost:
            raise self.channel.error()
        return ShellReply(entry.exit_code, entry.stdout or b"", entry.stderr or b"")

    def forget(self) -> None:
        """Drop the reply when it arrives."""
        self.channel.pending.pop(self.number, None)
        self.channel.pending.pop(-self.number, None)


def call_line(script: str) -> Callable[[int], str]:
    """Return the line that :meth:`PersistentShell.call` sends, for :meth:`PersistentShell.submit`."""
    return lambda number: f"hx_call {number} {shlex.quote(script)}\n"


class PersistentShell:
    """A long-lived ``sh`` on the target that runs scripts, and is restarted after a lost connection.

    Scripts run one at a time in the order of submission; callers need not wait for each other. A stale shell never
    executes what it had not executed yet: its successor kills it first, where ``/proc`` identifies it reliably.
    """

    def __init__(self, transport: Transport, tasks: BackgroundTasks) -> None:
        self.transport = transport
        self._tasks = tasks
        self._channel: _Channel | None = None
        self._opening = anyio.Lock()
        self._sending = anyio.Lock()
        self._numbers = 0
        self._prologue: deque[str] = deque()
        self._former: list[tuple[str, str, str]] = []
        self._closed = False

    def define(self, source: str) -> None:
        """Add shell functions to the prologue of every instance; call it before the first :meth:`call`."""
        self._prologue.append(source)

    @property
    def tasks(self) -> BackgroundTasks:
        """The tasks that end with the shell."""
        return self._tasks

    @property
    def is_open(self) -> bool:
        """True if a shell is running, as far as known, so that a call does not connect."""
        return self._channel is not None and self._channel.alive

    async def call(self, script: str, *, timeout: float = CALL_TIMEOUT) -> ShellReply:
        """Run a POSIX ``sh`` script in a subshell with empty input and locale C, and return its output.

        Raises:
            ConnectionLost: the connection was lost, or the script did not finish within ``timeout`` seconds; it may
                have run.
        """
        return await self.request(call_line(script), timeout=timeout)

    async def request(self, line: Callable[[int], str], *, timeout: float | None) -> ShellReply:
        """Send a line that causes one frame with the given id on each stream, and wait for both."""
        return await self.reply_to(await self.submit(line), timeout=timeout)

    async def reply_to(self, ticket: PendingReply, *, timeout: float | None = CALL_TIMEOUT) -> ShellReply:
        """Wait for a reply, and abandon a shell that does not answer in time; raises like :meth:`call`."""
        try:
            with anyio.fail_after(timeout):
                return await ticket.reply()
        except TimeoutError:
            await self._drop(ticket.channel)
            raise ConnectionLost(
                f"no answer within {timeout:g} s",
                target=self.transport.target,
                hint="the target or the network is not responding",
            ) from None
        finally:
            ticket.forget()

    async def submit(self, line: Callable[[int], str], *, acknowledged: bool = False) -> PendingReply:
        """Send a line like :meth:`request`, and return its pending reply without waiting.

        With ``acknowledged`` the line first causes a frame with the negative id; see :meth:`PendingReply.started`.

        Raises:
            ConnectionLost, ConnectError: nothing was sent. A later loss is reported by the pending reply.
        """
        channel = await self._open()
        self._numbers += 1
        entry = channel.pending[self._numbers] = _Pending()
        start = channel.pending.setdefault(-self._numbers, _Pending()) if acknowledged else entry
        ticket = PendingReply(self._numbers, entry, start, channel)
        await self._send(channel, line(ticket.number).encode("utf-8", "surrogateescape"))
        return ticket

    async def add(self, ticket: PendingReply, line: str) -> None:
        """Send a further line for a pending reply, which reports a lost connection."""
        await self._send(ticket.channel, line.encode("utf-8", "surrogateescape"))

    async def _send(self, channel: _Channel, data: bytes) -> None:
        try:
            async with self._sending:
                with anyio.CancelScope(shield=True):  # a partial line would corrupt every later one
                    await channel.process.send(data)
        except BrokenPipeError:
            self._tasks.start_soon(channel.disconnect_after_grace)

    async def _open(self) -> _Channel:
        async with self._opening:
            if self._closed:
                raise ConnectionLost("the connection was closed by this process", target=self.transport.target)
            if self._channel is not None and not self._channel.alive:
                await self._give_up(self._channel)
            channel = self._channel or await self._begin()
            if self._former:
                await self._end_former(channel)
            return channel

    async def _begin(self) -> _Channel:
        process = await self.transport.open_process(["sh"])
        channel = self._channel = _Channel(process, os.urandom(12).hex(), self.transport.target)
        self._tasks.start_soon(channel.pump, process.receive, "stdout")
        self._tasks.start_soon(channel.pump, process.receive_stderr, "stderr")
        prologue = PROLOGUE.format(nonce=channel.nonce, words=WORDS) + IDENTITY + "\n".join(self._prologue) + "\n"
        with anyio.CancelScope(shield=True):
            await self._send(channel, _at_once(prologue).encode())
            channel.who = await self._ask(channel, identity_line)
        return channel

    async def _give_up(self, channel: _Channel) -> None:
        who = parse_shell_identity(channel.who.text) if channel.who else None
        if who is not None and who not in self._former:
            self._former.append(who)
        await channel.process.aclose()
        self._channel = None

    async def _end_former(self, channel: _Channel) -> None:
        """Kill stale shells, which may still receive lines that were reported as lost; raises like :meth:`call`."""
        ticket = await self._ask(channel, call_line(kill_stale_shells_script(self._former)))
        await self.reply_to(ticket)
        self._former.clear()

    async def _ask(self, channel: _Channel, line: Callable[[int], str]) -> PendingReply:
        self._numbers += 1
        entry = channel.pending[self._numbers] = _Pending()
        await self._send(channel, line(self._numbers).encode())
        return PendingReply(self._numbers, entry, entry, channel)

    async def _drop(self, channel: _Channel) -> None:
        channel.lose()
        await channel.process.aclose()

    async def aclose(self) -> None:
        """Close the shell for good, within bounds, by end of file, so that its background jobs keep running."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is None:
            return
        with anyio.CancelScope(shield=True):
            await channel.process.send_eof()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await channel.ended.wait()  # not its exit status: background jobs keep the streams open
                with anyio.move_on_after(EXIT_TIMEOUT), suppress(ConnectionLost):
                    await channel.process.wait()
            await self._drop(channel)


@asynccontextmanager
async def open_held_shell(transport: Transport) -> AsyncIterator[PersistentShell]:
    """Provide a persistent shell, which connects at the first call and is closed when the context exits."""
    async with open_background_tasks() as tasks:
        shell = PersistentShell(transport, tasks)
        try:
            yield shell
        finally:
            await shell.aclose()
