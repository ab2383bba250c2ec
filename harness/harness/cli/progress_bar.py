"""The progress of transfers on a terminal: one line on stderr with amount, speed and time left."""

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

__all__ = ["ProgressBar", "transfer_progress"]

SHOW_AFTER = 1.0
"""Seconds before the bar is shown; most transfers finish earlier."""
MIN_INTERVAL = 0.1
"""Seconds between two updates."""


@contextmanager
def transfer_progress(what: str) -> Iterator[Progress | None]:
    """Show the progress of one transfer while stderr is a terminal.

    Args:
        what: The name of the transferred file, for the start of the line.

    Yields:
        A callback that takes ``(done, whole)`` in bytes, with ``whole`` None if unknown; None without a terminal.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = ProgressBar(what)
    try:
        yield bar.update
    finally:
        bar.leave()


class ProgressBar:
    """A progress bar, drawn by rich if it is installed.

    Args:
        title: The start of the line.
        transient: Whether :meth:`remove` ends it; else :meth:`leave` does.
    """

    def __init__(self, title: str = "", *, transient: bool = False) -> None:
        self.title = title
        self._transient = transient
        self._started = time.monotonic()
        self._due = self._started + SHOW_AFTER
        self._bar: Bar | None = None
        self._has_line = False

    def restart(self) -> None:
        """Count the time from now on."""
        self._started = time.monotonic()

    def update(self, done: int, whole: int | None) -> None:
        """Show the transferred bytes, if it is time to."""
        now = time.monotonic()
        finished = not self._transient and done == whole and (self._has_line or self._bar is not None)
        if now < self._due and not finished:
            return
        self._due = now + MIN_INTERVAL
        if not self._has_line and self._bar is None:
            self._bar = _rich_bar(self._started, whole, transient=self._transient)
        if self._bar is None:
            self._has_line = True
            text = progress_text(self.title, done, whole, now - self._started)
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        else:
            self._bar.update(self._bar.task_ids[0], completed=done, total=whole, description=self.title)

    def clear(self) -> None:
        """Remove the line, before another one is printed; rich prints above its bar."""
        if self._has_line:
            click.echo("\r\x1b[K", nl=False, err=True)

    def leave(self) -> None:
        """End the bar, and leave its last state on the screen, with the cursor below it."""
        self._stop()
        if self._has_line:
            click.echo(err=True)

    def remove(self) -> None:
        """End the bar, and remove it from the screen."""
        self._stop()
        self.clear()
        self._has_line = False
        self._due = float("inf")

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def progress_text(what: str, done: int, whole: int | None, seconds: float) -> str:
    """Return one line: ``NAME 12.3 of 50.0 MB, 4.1 MB/s, 0:09 left``."""
    rate = done / seconds if seconds > 0 else 0.0
    size = f"{done / 1e6:.1f} of {whole / 1e6:.1f} MB" if whole else f"{done / 1e6:.1f} MB"
    text = f"{what} {size}, {rate / 1e6:.1f} MB/s"
    if not whole or rate <= 0:
        return text
    minutes, rest = divmod(round((whole - done) / rate), 60)
    return f"{text}, {minutes}:{rest:02} left"


def _rich_bar(started: float, whole: int | None, *, transient: bool) -> Bar | None:
    """Return a running bar that counts from ``started`` on; None without rich."""
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=10,
        transient=transient,
    )
    bar.add_task("", total=whole)
    bar.tasks[0].start_time = bar.get_time() - (time.monotonic() - started)
    bar.start()
    return bar
