"""A program in a container, with its own exit status and an end that is proved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel

from harness.transport import Process

from .inside import Leader, StderrFilter

__all__ = ["ContainedProcess"]

MOST_WAITING = 256 * 1024
"""Bytes of standard error that may wait for their reader while the exit status is awaited."""

MOST_WORDS = 4096

END_BY_ITSELF = 0.05
"""Seconds that a program may take to end when its input is closed; ending it costs another exec."""

KILL_TIMEOUT = 5.0
"""Seconds that the exec which ends a group may take beyond the signals' own."""

ENDING = (("TERM", 1.0), ("KILL", 2.0))
"""Signals, and the seconds that each may take."""

Kill = Callable[[Leader, Sequence[tuple[str, float]], bool], Awaitable[bool]]
Verdict = Callable[[Process], Awaitable[int]]


class ContainedProcess(Process):
    """Wraps an engine's exec of :func:`inside.wrapped_argv`.

    Args:
        raw: the exec; closed by this.
        nonce: what its lines are marked with.
        kill: ends a group inside the container, or with all that descends from it; True when nothing is left.
        verdict: the status of an exec that ended without a line of ours: its shell was killed, or the link is lost.
    """

    def __init__(self, raw: Process, nonce: str, kill: Kill, verdict: Verdict) -> None:
        self._raw = raw
        self._filter = StderrFilter(nonce)
        self._kill = kill
        self._verdict = verdict
        self._stderr = b""
        self._taken = anyio.Event()
        self._ended = False
        self._closed = False
        self._reads = 0
        self._turn = anyio.Lock()

    async def wait_for_start(self) -> bool:
        """Wait until the program is started; False when the exec ended before."""
        while self._filter.leader is None and not self._ended:
            await self._read()
        return self._filter.leader is not None

    async def last_words(self) -> str:
        """What the engine said instead of starting the program: Docker says it on one stream, Podman on the other."""
        words = b""
        while len(words) < MOST_WORDS and (data := await self._raw.receive()):
            words += data
        return " ".join([*words.decode("utf-8", "replace").split(), self._filter.noise]).strip()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return b"" if self._closed else await self._raw.receive(max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._stderr and not self._ended:
            await self._read()
        data, self._stderr = self._stderr[:max_bytes], self._stderr[max_bytes:]
        taken, self._taken = self._taken, anyio.Event()
        taken.set()
        return data

    async def _read(self) -> None:
        """Read standard error once, unless another task has done so meanwhile."""
        seen = self._reads
        async with self._turn:
            if self._reads == seen and not self._ended:
                data = await self._raw.receive_stderr()
                self._stderr += self._filter.feed(data) if data else self._filter.finish()
                self._ended = not data
                self._reads += 1

    async def send(self, data: bytes) -> None:
        if self._closed or self._filter.status is not None:
            raise BrokenPipeError("the program has ended")
        await self._raw.send(data)

    async def send_eof(self) -> None:
        await self._raw.send_eof()

    async def wait(self) -> int:
        await anyio.lowlevel.checkpoint()
        while self._filter.status is None and not self._ended:
            if len(self._stderr) < MOST_WAITING:
                await self._read()
            else:
                await self._taken.wait()
        if self._filter.status is not None:
            return self._filter.status
        return await self._verdict(self._raw)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self._raw.send_eof()
                await self._end()
            finally:
                await self._raw.aclose()

    async def _end(self) -> None:
        with anyio.move_on_after(END_BY_ITSELF):
            while self._filter.status is None and not self._ended:
                await self._read()
        if self._filter.status is None:
            await self.end(ENDING, tree=False)

    async def end(self, ladder: Sequence[tuple[str, float]], *, tree: bool) -> bool:
        """Signal its group, one signal after the other, until nothing is left of it; True when that is proved.

        With ``tree``, also what descends from it in sessions of their own: a held shell's jobs are such.
        """
        if self._filter.leader is None:
            return False
        with anyio.move_on_after(KILL_TIMEOUT + sum(grace for _, grace in ladder)):
            return await self._kill(self._filter.leader, ladder, tree)
        return False
