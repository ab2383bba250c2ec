"""Warnings of the log while the prompt is there: lines above it, instead of text across it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["logs_shown"]


class _Shown(logging.Handler):
    """Hands records to the thread that draws; those of other threads wait for its next one, or for :meth:`flush`."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show
        self._waiting: deque[str] = deque(maxlen=100)
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(self.format(record))
        self.flush()

    def flush(self) -> None:
        while self._waiting and threading.get_ident() == self._thread:
            self._show(self._waiting.popleft())


@contextmanager
def logs_shown(show: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Call ``show`` with what is logged inside, by the thread that entered. Yields what shows what still waits."""
    root = logging.getLogger()
    before = root.handlers[:]
    handler = _Shown(show)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.handlers[:] = [handler]
    logging.captureWarnings(True)
    try:
        yield handler.flush
    finally:
        logging.captureWarnings(False)
        handler.flush()
        root.handlers[:] = before
