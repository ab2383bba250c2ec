"""A bar on stderr for transfers: how much, how fast, and how long it still takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..backend import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["transfer_progress"]

SHOW_AFTER = 1.0
"""Seconds before anything is shown: most transfers are over by then."""
MIN_INTERVAL = 0.1
"""Seconds between two updates."""


@contextmanager
def transfer_progress(what: str) -> Iterator[Progress | None]:
    """Show the progress of one transfer while stderr is a terminal.

    Args:
        what: The name of what is transferred, for the beginning of the line.

    Yields:
        What takes ``(done, whole)`` in bytes, with ``whole`` None where it is not known; None without a terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    shown = _Shown(what)
    try:
        yield shown.update
    finally:
        shown.close()


class _Shown:
    """A transfer that may become visible."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = time.monotonic()
        self._due = self._started + SHOW_AFTER
        self._bar: Bar | None = None
        self._has_line = False

    def update(self, done: int, whole: int | None) -> None:
        now = time.monotonic()
        finished = done == whole and (self._has_line or self._bar is not None)
        if now < self._due and not finished:
            return
        self._due = now + MIN_INTERVAL
        if not self._has_line and self._bar is None:
            self._bar = _rich_bar(self._what, self._started, whole)
        if self._bar is None:
            self._write_line(done, whole, now - self._started)
        else:
            self._bar.update(self._bar.task_ids[0], completed=done, total=whole)

    def _write_line(self, done: int, whole: int | None, seconds: float) -> None:
        """Write the same facts without rich."""
        self._has_line = True
        click.echo(f"\r\x1b[K{progress_text(self._what, done, whole, seconds)}", nl=False, err=True)

    def close(self) -> None:
        """Leave the last state on the screen, with the cursor below it."""
        if self._bar is not None:
            self._bar.stop()
        elif self._has_line:
            click.echo(err=True)


def progress_text(what: str, done: int, whole: int | None, seconds: float) -> str:
    """Return one line: ``NAME 12.3 of 50.0 MB, 4.1 MB/s, 0:09 left``."""
    rate = done / seconds if seconds > 0 else 0.0
    size = f"{done / 1e6:.1f} of {whole / 1e6:.1f} MB" if whole else f"{done / 1e6:.1f} MB"
    text = f"{what} {size}, {rate / 1e6:.1f} MB/s"
    if not whole or rate <= 0:
        return text
    minutes, rest = divmod(round((whole - done) / rate), 60)
    return f"{text}, {minutes}:{rest:02} left"


def _rich_bar(what: str, started: float, whole: int | None) -> Bar | None:
    """Return a started bar that counts from ``started`` on; None without rich."""
    try:
        from rich import progress
        from rich.console import Console
        from rich.markup import escape
    except ImportError:
        return None
    bar = progress.Progress(
        progress.TextColumn(escape(what)),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=10,
    )
    bar.add_task(what, total=whole)
    bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - started)
    bar.start()
    return bar
