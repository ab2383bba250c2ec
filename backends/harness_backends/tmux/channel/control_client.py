"""The control client: one long-lived ``tmux -C`` over the transport, for all commands and output."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from harness.errors import ConnectionLost, TerminalError
from harness.transport import Process

from .command_channel import REPLY_TIMEOUT, OnAnswer, ResponseLost
from .control_protocol import OWN_PID, Block, ControlParser, Notification, Output, control_line

__all__ = ["ControlClient", "Event"]

SEND_TIMEOUT = 10.0
LEAVE_GRACE = 0.5

Event = Output | Notification


@dataclass(slots=True)
class _Waiter:
    token: bytes
    blocks: list[Block] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)
    lost: bool = False
    on_answer: OnAnswer | None = None


class ControlClient:
    """A control-mode client that matches responses to commands, and passes everything else to ``on_event``.

    One command may produce several blocks (``if-shell``), and after an error the later ones do not run, so each request
    ends with a line that prints a unique token: all blocks before the token are the response.
    """

    def __init__(
        self, process: Process, on_event: Callable[[Event], None], target: object, *, legacy: bool = False
    ) -> None:
        self._process = process
        self._on_event = on_event
        self._target = target
        self._legacy = legacy
        self._waiters: deque[_Waiter] = deque()
        self._sending = anyio.Lock()
        self.closed = anyio.Event()
        self.last_error = b""
        self.pid = ""
        """Its process id on the target, from its first line; empty if it did not start."""

    async def pump(self) -> None:
        """Read until the client exits; the owner runs this in a task."""
        parser = ControlParser()
        try:
            while data := await self._process.receive(1 << 18):
                for event in parser.feed(data):
                    if isinstance(event, Block):
                        self._answer(event)
                    elif isinstance(event, Notification) and event.name == OWN_PID:
                        self.pid = self.pid or " ".join(event.args)
                    else:
                        self._on_event(event)
        finally:
            self._lose()

    async def drain_errors(self) -> None:
        """Read standard error, so that it never fills up; keep the end for messages."""
        while data := await self._process.receive_stderr():
            self.last_error = (self.last_error + data)[-2000:]

    async def request(
        self,
        *commands: tuple[str, ...],
        timeout: float = REPLY_TIMEOUT,
        on_answer: OnAnswer | None = None,
    ) -> list[Block]:
        """Run commands in order like :meth:`.CommandClient.request`.

        Raises:
            ConnectionLost: the client has exited, and nothing ran.
            ResponseLost: the client exited or did not answer in time; the commands may have run.
            TerminalError: tmux refused one of them.
        """
        waiter = await self.send(*commands, on_answer=on_answer)
        try:
            with anyio.fail_after(timeout):
                await waiter.done.wait()
        except TimeoutError:
            await self.aclose()
            raise ResponseLost(f"tmux did not answer within {timeout:g} s", target=self._target) from None
        if waiter.lost:
            raise ResponseLost(self._why(), target=self._target)
        for block in waiter.blocks:
            if block.error:
                raise TerminalError(f"tmux: {block.text}", target=self._target)
        return waiter.blocks

    async def send(self, *commands: tuple[str, ...], on_answer: OnAnswer | None = None) -> _Waiter:
        """Send commands like :meth:`request`, without waiting for the answer."""
        token = b"hx-" + secrets.token_hex(4).encode()
        line = control_line(*commands, legacy=self._legacy) + b"display-message -p " + token + b"\n"
        waiter = _Waiter(token, on_answer=on_answer)
        async with self._sending:
            if self.closed.is_set():
                raise ConnectionLost(self._why(), target=self._target)
            self._waiters.append(waiter)
            await self._write(line)
        return waiter

    async def _write(self, line: bytes) -> None:
        """Write a whole line, as a partial one would corrupt the next; abandon a client that does not read."""
        try:
            with anyio.move_on_after(SEND_TIMEOUT, shield=True) as writing:
                await self._process.send(line)
        except BrokenPipeError:
            self._lose()
        if writing.cancelled_caught:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the client: pending requests fail, and reading ends.

        At the end of its input the client detaches once no other one is attaching; it gets a grace period for that.
        """
        self._lose()
        with anyio.move_on_after(LEAVE_GRACE, shield=True), suppress(ConnectionLost, BrokenPipeError):
            await self._process.send_eof()
            await self._process.wait()
        await self._process.aclose()

    def _answer(self, block: Block) -> None:
        if not self._waiters:
            return
        waiter = self._waiters[0]
        if block.lines == (waiter.token,):
            self._waiters.popleft()
            if waiter.on_answer is not None:
                waiter.on_answer(waiter.blocks)
            waiter.done.set()
        else:
            waiter.blocks.append(block)

    def _lose(self) -> None:
        self.closed.set()
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.lost = True
            waiter.done.set()

    def _why(self) -> str:
        words = self.last_error.decode("utf-8", "replace").strip().splitlines()
        return f"connection to tmux lost: {words[-1]}" if words else "connection to tmux lost"
