"""The control client: one ``tmux -C`` held open over the transport. It carries every command and every byte of output."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from harness.errors import ConnectionLost, TerminalError
from harness.transport import Process

from .protocol import Block, ControlParser, Notification, Output, control_line

__all__ = ["ControlClient"]

REPLY_TIMEOUT = 20.0

Event = Output | Notification


@dataclass(slots=True)
class _Waiter:
    token: bytes
    blocks: list[Block] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)
    lost: bool = False


class ControlClient:
    """Sends command lines and gives each the blocks that answer it; hands everything else to ``on_event``.

    One command may produce several blocks (``if-shell``), or none of the later ones may run after an error, so each
    request ends with a line that prints a token of its own: what comes before that token answers the request.
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

    async def pump(self) -> None:
        """Read until the client ends. The owner runs this in a task."""
        parser = ControlParser()
        try:
            while data := await self._process.receive(1 << 18):
                for event in parser.feed(data):
                    if isinstance(event, Block):
                        self._answer(event)
                    else:
                        self._on_event(event)
        finally:
            self._lose()

    async def drain_errors(self) -> None:
        """Read standard error, so that it never fills; keeps the last words for messages."""
        while data := await self._process.receive_stderr():
            self.last_error = (self.last_error + data)[-2000:]

    async def request(self, *commands: tuple[str, ...], timeout: float = REPLY_TIMEOUT) -> list[Block]:
        """Run commands in order; the first that fails ends the line.

        Raises:
            ConnectionLost: the client is gone, or gave no answer in time; the commands may have run.
            TerminalError: tmux refused one of them.
        """
        waiter = await self.send(*commands)
        try:
            with anyio.fail_after(timeout):
                await waiter.done.wait()
        except TimeoutError:
            raise ConnectionLost(f"tmux gave no answer within {timeout:g} s", target=self._target) from None
        if waiter.lost:
            raise self._lost()
        for block in waiter.blocks:
            if block.error:
                raise TerminalError(f"tmux: {block.text}", target=self._target)
        return waiter.blocks

    async def send(self, *commands: tuple[str, ...]) -> _Waiter:
        """As :meth:`request`, without waiting for the answer."""
        token = b"hx-" + secrets.token_hex(4).encode()
        line = control_line(*commands, legacy=self._legacy) + b"display-message -p " + token + b"\n"
        waiter = _Waiter(token)
        async with self._sending:
            if self.closed.is_set():
                raise self._lost()
            self._waiters.append(waiter)
            try:
                with anyio.CancelScope(shield=True):  # half a line would spoil the next one
                    await self._process.send(line)
            except BrokenPipeError:
                raise self._lost() from None
        return waiter

    def _answer(self, block: Block) -> None:
        if not self._waiters:
            return
        waiter = self._waiters[0]
        if block.lines == (waiter.token,):
            self._waiters.popleft()
            waiter.done.set()
        else:
            waiter.blocks.append(block)

    def _lose(self) -> None:
        self.closed.set()
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.lost = True
            waiter.done.set()

    def _lost(self) -> ConnectionLost:
        words = self.last_error.decode("utf-8", "replace").strip().splitlines()
        reason = f": {words[-1]}" if words else ""
        return ConnectionLost(f"the link to tmux was lost{reason}", target=self._target)
