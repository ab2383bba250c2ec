"""Signals, broken pipes and the two output streams: the orderly end of the program."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import anyio

from ..errors import HarnessError
from .exits import SIGNALLED

__all__ = [
    "Interruption",
    "StreamWriter",
    "run_async",
]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL = 0.1
"""Seconds after which a write to a slow reader notices an interruption."""
CHUNK = select.PIPE_BUF  # poll() guarantees that this much can be written at once


class Interruption:
    """The first reason to stop: a signal, or an output that its reader closed.

    The handlers are those of the ``signal`` module, not of the event loop, because a write that blocks on a slow reader
    must notice them, too. A further signal ends the process immediately.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.error: OSError | None = None
        self._scopes: list[anyio.CancelScope] = []
        self._on_interrupt: Callable[[], None] | None = None
        self._on_stop: Callable[[], None] | None = None
        self._last_line: Callable[[], str] = str
        self._interrupted = False
        self._wake, self._waiter = socket.socketpair()
        self._wake.setblocking(False)
        self._waiter.setblocking(False)

    def trip(self, number: int, error: OSError | None = None) -> None:
        """Stop for a signal, or for an error on an output."""
        self.signal, self.error = self.signal or number, self.error or error
        self._notify()

    def _notify(self) -> None:
        with suppress(BlockingIOError):
            self._wake.send(b"!")

    def interrupt(self) -> None:
        """Do what Ctrl-C does, unless there is a reason to stop already."""
        if not self.tripped:
            self.on_signal(signal.SIGINT, None)

    @property
    def tripped(self) -> bool:
        """Whether there is a reason to stop."""
        return self.signal != 0

    @contextmanager
    def reaches(self) -> Iterator[anyio.CancelScope]:
        """Cancel only the code inside when there is a reason to stop, not the code around it.

        So the connection is still open when its user is cancelled, and can pass the interrupt to the target.

        Yields:
            The cancel scope.
        """
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            try:
                yield scope
            finally:
                self._scopes.pop()

    @contextmanager
    def first_interrupt(self, call: Callable[[], None]) -> Iterator[None]:
        """Let the first Ctrl-C inside call a function in the event loop; the second one cancels as usual."""
        self._on_interrupt = call
        try:
            yield
        finally:
            self._on_interrupt = None

    @contextmanager
    def stopped_by(self, call: Callable[[], None], last_line: Callable[[], str]) -> Iterator[None]:
        """Let a reason to stop call a function in the event loop, instead of cancelling the code inside.

        Args:
            call: Called once; the code inside then has to end.
            last_line: Returns what to print on stderr if a further signal ends the process before that.
        """
        self._on_stop, self._last_line = call, last_line
        try:
            yield
        finally:
            self._on_stop, self._last_line = None, str

    async def watch(self) -> None:
        """Cancel the innermost reachable scope when there is a reason to stop, or call what replaces that."""
        while not self.tripped:
            await anyio.wait_readable(self._waiter)
            with suppress(BlockingIOError):
                self._waiter.recv(CHUNK)
            if self._interrupted and self._on_interrupt is not None and not self.tripped:
                call, self._on_interrupt = self._on_interrupt, None
                call()
        if self._on_stop is not None:
            self._on_stop()
        elif self._scopes:
            self._scopes[-1].cancel()

    def close(self) -> None:
        """Close the descriptors."""
        self._wake.close()
        self._waiter.close()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: trip the interruption, or end the process if it is tripped already."""
        if self.tripped:
            with suppress(OSError):  # of standard error
                os.write(2, self._last_line().encode("utf-8", "replace"))
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if number == signal.SIGINT and self._on_interrupt is not None and not self._interrupted:
            self._interrupted = True
            self._notify()
            return
        self.trip(number)


@contextmanager
def _signals_caught(interruption: Interruption) -> Iterator[None]:
    caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # respect nohup
    before = {number: signal.signal(number, interruption.on_signal) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StreamWriter:
    """Writer to standard output or error, exact and in order; a closed reader trips the interruption.

    Args:
        descriptor: The file descriptor, 1 or 2.
        interruption: The interruption to trip and to respect.
        patience: Seconds from now on during which writes block on a slow reader. Later writes are kept for
            :meth:`finish`, so that a timeout can be respected.
    """

    def __init__(self, descriptor: int, interruption: Interruption, patience: float = math.inf) -> None:
        self._until = time.monotonic() + patience
        self._held: list[bytes] = []
        self._descriptor = descriptor
        self._interruption = interruption
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._to_the_end = False
        self._broken = False
        self.written = 0

    def write(self, data: bytes) -> None:
        """Write everything, waiting for a slow reader; after an interruption, keep the rest for :meth:`finish`."""
        if self._held:
            self._held.append(data)
        elif not self._broken:
            self._write(memoryview(data))

    def finish(self, *, interrupted: bool = False) -> None:
        """Write the data that was kept back, without a timeout.

        Args:
            interrupted: Write it, and all later data, after an interruption as well; a further signal ends the process.
        """
        held, self._held, self._until = b"".join(self._held), [], math.inf
        self._to_the_end = interrupted
        self._write(memoryview(held))

    def _write(self, view: memoryview) -> None:
        try:
            while view:
                interrupted = self._interruption.tripped and not self._to_the_end
                if interrupted or time.monotonic() > self._until:
                    self._held.append(bytes(view))
                    return
                if self._poll.poll(POLL * 1000):
                    done = os.write(self._descriptor, view[:CHUNK])
                    self.written += done
                    view = view[done:]
        except BrokenPipeError:
            self._broken = True
            self._interruption.trip(signal.SIGPIPE)
        except BlockingIOError:
            self._write(view)
        except OSError as error:
            self._broken = True
            self._interruption.trip(signal.SIGPIPE, error)


def run_async(main: Callable[[Interruption], Awaitable[int]]) -> int:
    """Run ``main`` and return its exit code, or 128 + the signal's number if a signal cancels it.

    Raises:
        HarnessError: ``main`` raised it, or the output cannot be written.
    """
    interruption = Interruption()
    try:
        with _signals_caught(interruption):
            code = anyio.run(_supervised, main, interruption)
    finally:
        interruption.close()
    if interruption.error is not None:
        reason = interruption.error.strerror or "input/output error"
        raise HarnessError(f"cannot write the output: {reason.lower()}") from interruption.error
    return SIGNALLED + interruption.signal if interruption.tripped else code


async def _supervised(main: Callable[[Interruption], Awaitable[int]], interruption: Interruption) -> int:
    code = 0
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(interruption.watch)
        with interruption.reaches():
            try:
                code = await main(interruption)
            except Exception as error:  # carried out of the task group, which would wrap it, and raised below
                failure = error
        tasks.cancel_scope.cancel()
    if failure is not None and not interruption.tripped:
        raise failure
    return code
