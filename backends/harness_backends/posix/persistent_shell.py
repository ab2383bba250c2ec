"""A held ``sh`` on the target: many small scripts over one channel, one round trip each, pipelined.

The frames are split by a nonce that only the held shell and this module know, so no file content can imitate one.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio

from harness.errors import ConnectionLost
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.target import Target
from harness.transport import Process, Transport

from .process_scripts import IDENTITY_SCRIPT, kill_stale_shells_script, parse_shell_identity

__all__ = ["FrameReader", "PendingReply", "PersistentShell", "ShellReply", "call_line", "open_held_shell"]

CALL_TIMEOUT = 30.0
CLOSE_TIMEOUT = 1.0
EXIT_TIMEOUT = 0.1
LAST_WORDS_TIMEOUT = 0.5
LAST_WORDS = 400
MAX_REPLY_BYTES = 1 << 30
"""What one reply may take in memory; a program on the target that prints without end is ended with its shell."""

# hx_call ID SCRIPT: run SCRIPT in a subshell and frame its two streams. hx_take and hx_give let background work of the
# same shell write frames of its own without mixing; see jobs.
#
# Where sh is bash, functions that the account exports come with the environment. A function never has the name of a
# special builtin in sh, so unset is what it says; the other words are asked for here once.
WORDS = (
    "awk cat cd chmod command cp dd df du echo env fallocate false find flock getent grep head hostname id jobs kill "
    "ln ls mkdir mkfifo mktemp mv od perl printf ps pwd read readlink rm rmdir sed setsid sh sleep sort stat stty sudo "
    "tail tee test timeout tmux touch tr true tty type umask uname uniq wait wc xargs"
)
PROLOGUE = """
\\unset -f {words} 2>/dev/null
hx_nonce={nonce}
hx_lc=${{LC_ALL-unset}}
hx_locale() {{ if [ "$hx_lc" = unset ]; then unset LC_ALL; else LC_ALL=$hx_lc; fi; }}
hx_take() {{ :; }}
hx_give() {{ :; }}
hx_call() {{
  hx_take
  printf '\\n%s %s\\n' "$hx_nonce" "$1"
  ( LC_ALL=C; export LC_ALL; eval "$2" ) </dev/null 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
  set -- "$1" "$?"
  printf '\\n%s %s %s\\n' "$hx_nonce" "$1" "$2"
  printf '\\n%s %s %s\\n' "$hx_nonce" "$1" "$2" >&2
  hx_give
}}
trap 'hx_take; printf "\\n%s 0 0\\n" "$hx_nonce"; hx_give' EXIT
"""


@dataclass(frozen=True, slots=True)
class ShellReply:
    """What a script wrote, and its exit code."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "surrogateescape")


class FrameReader:
    """Splits a stream into frames ``\\nNONCE ID\\n`` body ``\\nNONCE ID CODE\\n``. Pure; searches only new bytes.

    A stream without opening lines (standard error) gives the bytes between two closing lines.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = b"\n" + nonce.encode() + b" "
        self._buffer = bytearray()
        self._scanned = 0

    def feed(self, data: bytes) -> list[tuple[int, int, bytes]]:
        """Add bytes; return the frames that are now whole, as (id, exit code, body)."""
        self._buffer += data
        frames = []
        while (found := self._next_mark()) is not None:
            start, fields, end = found
            body = bytes(self._buffer[:start])
            del self._buffer[:end]
            self._scanned = 0
            if len(fields) == 2:
                frames.append((fields[0], fields[1], body))
        return frames

    @property
    def size(self) -> int:
        """Bytes after the last whole frame."""
        return len(self._buffer)

    @property
    def rest(self) -> bytes:
        """What followed the last whole frame."""
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
    """One life of the held shell: from its start until its end or the loss of the link."""

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
        with anyio.CancelScope(shield=True):  # a cancelled caller still needs answers; closing the process ends this
            while data := await receive():
                for number, code, body in reader.feed(data):
                    self._deliver(number, code, body, stream)
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
        """What to say to those whose replies can no longer come."""
        words = " ".join(self._words[-LAST_WORDS:].decode("utf-8", "replace").split())
        said = f": {words}" if words else ""
        if self._status is None:
            return ConnectionLost(f"the link to the target was lost{said}", target=self.target)
        return ConnectionLost(
            f"the shell on the target ended with status {self._status}{said}",
            target=self.target,
            hint="check the account's shell, start-up files and limits, and what space is left",
        )

    def _deliver(self, number: int, code: int, body: bytes, stream: str) -> None:
        if number == 0:
            self.ended.set()
        entry = self.pending.get(number)
        if entry is None:
            return
        entry.exit_code = code
        if stream == "stdout":
            entry.stdout = body
        else:
            entry.stderr = body
        if entry.stdout is not None and entry.stderr is not None:
            del self.pending[number]
            entry.done.set()

    async def disconnect_after_grace(self) -> None:
        """Give up on a shell that takes no input, after a moment in which its end may say why."""
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
    """A line that was sent to the held shell, and the reply that is to come."""

    def __init__(self, number: int, entry: _Pending, start: _Pending, channel: _Channel) -> None:
        self.number = number
        self.channel = channel
        self._entry = entry
        self._start = start

    @property
    def acknowledged(self) -> bool:
        """True when the acknowledgement is here."""
        return self._start.done.is_set() and not self._start.lost

    @property
    def done(self) -> bool:
        """True when the reply is here, or can no longer come."""
        return self._entry.done.is_set()

    @property
    def text(self) -> str:
        """What is here of the reply's standard output."""
        return (self._entry.stdout or b"").decode("utf-8", "replace")

    async def reply(self) -> ShellReply:
        """Wait for the reply. Cancelling loses nothing.

        Raises:
            ConnectionLost: the link was lost first; the line may have been carried out.
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
        """Drop the reply when it comes."""
        self.channel.pending.pop(self.number, None)
        self.channel.pending.pop(-self.number, None)


def call_line(script: str) -> Callable[[int], str]:
    """The line of :meth:`PersistentShell.call`, for :meth:`PersistentShell.submit`."""
    return lambda number: f"hx_call {number} {shlex.quote(script)}\n"


class PersistentShell:
    """Runs scripts on the target through one long-lived ``sh``; opens it anew after a loss.

    Scripts run one after the other, in the order in which they were given; callers need not wait for each other.
    What a lost one had not carried out yet, it never will: the next one ends it first, where
    there is ``/proc`` to tell it from a later process of its number.
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
        """Shell functions that every life of the held shell starts with. Call it before the first :meth:`call`."""
        self._prologue.append(source)

    @property
    def is_open(self) -> bool:
        """There is one, as far as we know: nothing needs to be connected for it."""
        return self._channel is not None and self._channel.alive

    async def call(self, script: str, *, timeout: float = CALL_TIMEOUT) -> ShellReply:
        """Run a POSIX ``sh`` script in a subshell with empty input and locale C; return what it wrote.

        Raises:
            ConnectionLost: the link was lost, or the script did not end in ``timeout`` seconds; it may have run.
        """
        return await self.request(call_line(script), timeout=timeout)

    async def request(self, line: Callable[[int], str], *, timeout: float | None) -> ShellReply:
        """Send a line that will lead to one frame with the given id on each stream; wait for both."""
        return await self.reply_to(await self.submit(line), timeout=timeout)

    async def reply_to(self, ticket: PendingReply, *, timeout: float | None = CALL_TIMEOUT) -> ShellReply:
        """Wait for a reply; a shell that does not answer in time is given up. Raises what :meth:`call` does."""
        try:
            with anyio.fail_after(timeout):
                return await ticket.reply()
        except TimeoutError:
            await self._drop(ticket.channel)
            raise ConnectionLost(
                f"no answer within {timeout:g} s", target=self.transport.target, hint="the target or the link hangs"
            ) from None
        finally:
            ticket.forget()

    async def submit(self, line: Callable[[int], str], *, acknowledged: bool = False) -> PendingReply:
        """Send such a line; its reply can be awaited later, as often and as long as one likes.

        With ``acknowledged`` the line leads to a frame with the negative id first; see :meth:`PendingReply.started`.

        Raises:
            ConnectionLost, ConnectError: nothing was sent. A link that is lost later shows in the ticket.
        """
        channel = await self._open()
        self._numbers += 1
        entry = channel.pending[self._numbers] = _Pending()
        start = channel.pending.setdefault(-self._numbers, _Pending()) if acknowledged else entry
        ticket = PendingReply(self._numbers, entry, start, channel)
        await self._send(channel, line(ticket.number).encode("utf-8", "surrogateescape"))
        return ticket

    async def add(self, ticket: PendingReply, line: str) -> None:
        """Send a further line for a ticket. A link that is lost shows in the ticket."""
        await self._send(ticket.channel, line.encode("utf-8", "surrogateescape"))

    async def _send(self, channel: _Channel, data: bytes) -> None:
        try:
            async with self._sending:
                with anyio.CancelScope(shield=True):  # half a line would spoil every later one
                    await channel.process.send(data)
        except BrokenPipeError:
            self._tasks.start_soon(channel.disconnect_after_grace)

    async def _open(self) -> _Channel:
        async with self._opening:
            if self._closed:
                raise ConnectionLost("the connection was closed here", target=self.transport.target)
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
        prologue = PROLOGUE.format(nonce=channel.nonce, words=WORDS) + "\n".join(self._prologue) + "\n"
        with anyio.CancelScope(shield=True):
            await self._send(channel, prologue.encode())
            channel.who = await self._ask(channel, IDENTITY_SCRIPT)
        return channel

    async def _give_up(self, channel: _Channel) -> None:
        who = parse_shell_identity(channel.who.text) if channel.who else None
        if who is not None and who not in self._former:
            self._former.append(who)
        await channel.process.aclose()
        self._channel = None

    async def _end_former(self, channel: _Channel) -> None:
        """End those who may still be sent what we know to be lost. Raises what :meth:`call` does."""
        ticket = await self._ask(channel, kill_stale_shells_script(self._former))
        await self.reply_to(ticket)
        self._former.clear()

    async def _ask(self, channel: _Channel, script: str) -> PendingReply:
        self._numbers += 1
        entry = channel.pending[self._numbers] = _Pending()
        await self._send(channel, call_line(script)(self._numbers).encode())
        return PendingReply(self._numbers, entry, entry, channel)

    async def _drop(self, channel: _Channel) -> None:
        channel.lose()
        await channel.process.aclose()

    async def aclose(self) -> None:
        """Let the shell end by itself, so that background jobs of it live on; bounded. It is not opened again."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is None:
            return
        with anyio.CancelScope(shield=True):
            await channel.process.send_eof()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await channel.ended.wait()  # not its exit status: background jobs hold the streams open
                with anyio.move_on_after(EXIT_TIMEOUT), suppress(ConnectionLost):
                    await channel.process.wait()
            await self._drop(channel)


@asynccontextmanager
async def open_held_shell(transport: Transport) -> AsyncIterator[PersistentShell]:
    """A held shell that is closed when this is left. It connects at the first call."""
    async with open_background_tasks() as tasks:
        shell = PersistentShell(transport, tasks)
        try:
            yield shell
        finally:
            await shell.aclose()
