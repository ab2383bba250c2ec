"""A trace in a file: one line per event, written in a thread so that it never delays the agent."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ...errors import HarnessError
from ...system.background_tasks import open_background_tasks
from ...toolkit.events import Event
from ...toolkit.values import JsonObject
from ..events import RequestStarted
from .observer import CURRENT, VERSION, MakeLine, Observer, event_fields, is_piece, line_of, link_news, type_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ...toolkit.redaction.redactor import Redactor

__all__ = ["Trace", "open_trace"]

log = logging.getLogger(__name__)

PIECES_KEPT, KEPT = 4_000, 20_000
"""Maximum pending lines if the disk is slow: beyond them, first parts of texts are dropped, then all lines."""
BATCH = 500
CLOSE_LIMIT = 5.0
FIRST = b'{"type":"trace",'


class Trace(Observer):
    """A trace that is being written, from :func:`open_trace`."""

    def __init__(self, file: int, path: Path, redactor: Redactor) -> None:
        self._file = file
        self._path = path
        self._redactor = redactor
        self._waiting: deque[tuple[float, MakeLine]] = deque()
        self._more = anyio.Event()
        self._dropped = 0
        self._broken = False
        self._turn = threading.Lock()

    def heard(self, event: Event) -> None:
        """See :class:`.Observer`."""
        if isinstance(event, RequestStarted):
            CURRENT.set((event.turn_id, event.step))
        room = PIECES_KEPT if is_piece(event) else KEPT
        self.put(lambda: (type_of(event), event_fields(event)), room)

    def model(self, model: Model) -> Model:
        """See :class:`.Observer`."""
        from .models import TracedModel

        return TracedModel(model, self.put)

    def put(self, make: MakeLine, room: int = KEPT) -> None:
        """Add a line to be written soon; if ``room`` lines are pending, it is dropped and counted."""
        if self._broken:
            return
        if len(self._waiting) >= room:
            self._dropped += 1
            return
        self._waiting.append((time.time(), make))
        self._more.set()

    def link_back(self, target: str, seconds: float) -> None:
        """Record a reconnect after ``seconds`` without connection."""
        values: JsonObject = {"target": target, "seconds": round(seconds, 3)}
        self.put(lambda: ("link_back", values))

    async def run(self) -> None:
        """Write lines as they are added; the owner runs and cancels it."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Write the pending lines."""
        while self._waiting and not self._broken:
            await to_thread.run_sync(self._write_some, abandon_on_cancel=True)

    def close(self) -> None:
        """Close the file, unless a write on an unresponsive disk still uses it. Blocks."""
        if self._turn.acquire(timeout=CLOSE_LIMIT):
            self._broken = True
            os.close(self._file)
            self._turn.release()

    def _write_some(self) -> None:
        with self._turn:
            if self._broken:
                return
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH))]
            dropped, self._dropped = self._dropped, 0
            try:
                for at, make in batch:
                    _write_all(self._file, self._line(at, make))
                if dropped:
                    _write_all(self._file, line_of("dropped", time.time(), {"lines": dropped}, self._redactor))
            except OSError as error:
                self._broken = True
                self._waiting.clear()
                log.warning("the trace in %s ends here: %s", self._path, error.strerror or error)

    def _line(self, at: float, make: MakeLine) -> bytes:
        try:
            kind, values = make()
            return line_of(kind, at, values, self._redactor)
        except Exception as error:  # an untraceable event must not stop the agent
            return line_of("untraceable", at, {"error": f"{type(error).__name__}: {error}"}, self._redactor)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


@asynccontextmanager
async def open_trace(path: Path, redactor: Redactor, about: JsonObject | None = None) -> AsyncIterator[Trace]:
    """Open a trace that only its owner can read; an existing trace is continued.

    Args:
        path: the file.
        redactor: redacts the lines.
        about: values of the first line: target, model, version.

    Raises:
        HarnessError: the file is not writable, another harness process writes it, or it is not a trace.
    """
    trace = Trace(await to_thread.run_sync(_opened, path), path, redactor)
    try:
        first: JsonObject = {"version": VERSION, "pid": os.getpid(), **(about or {})}
        trace.put(lambda: ("trace", first))
        async with open_background_tasks() as tasks:
            tasks.start_soon(trace.run)
            try:
                with link_news(trace.link_back):
                    yield trace
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_LIMIT):
                    await trace.flush()
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(trace.close)


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise HarnessError(f"the trace {path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    try:
        _check(file, path)
    except BaseException:
        os.close(file)
        raise
    return file


def _lock(file: int, path: Path) -> None:
    """Lock the trace: with two writers, the requests of each could not be told apart."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HarnessError(f"another harness writes the trace {path}", hint="name another file") from None
    except OSError as error:  # a file system without locks
        log.debug("the trace %s is not locked: %s", path, error.strerror)


def _check(file: int, path: Path) -> None:
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        raise HarnessError(f"the trace {path} cannot be written: it is not a regular file")
    if info.st_size and os.pread(file, len(FIRST), 0) != FIRST:
        raise HarnessError(f"{path} is not a trace file", hint="name a new file")
    if info.st_uid != os.geteuid():
        raise HarnessError(f"the trace {path} belongs to another user", hint="name a new file")
    _lock(file, path)
    os.fchmod(file, 0o600)
    if info.st_size and os.pread(file, 1, info.st_size - 1) != b"\n":
        _write_all(file, b"\n")  # its last writer was killed while writing a line
