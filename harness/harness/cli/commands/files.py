"""``harness read`` and ``harness write``: read and write files on the target byte-exactly, with a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...backend import ANY, AnyVersion, Progress, WriteMode
from ...context import ExecutionContext
from ..options import command
from ..output import content_json, print_json, read_stdin
from ..runtime import PLAIN, on_target, session_of
from ..streams import Interruption, StreamWriter
from .fleet.options import FleetOptions, fleet_options

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = [
    "read",
    "transfer_progress",
    "write",
]


# -- A progress bar on stderr for transfers: amount, speed, time left.


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
    shown = _Shown(what)
    try:
        yield shown.update
    finally:
        shown.close()


class _Shown:
    """The progress display of one transfer."""

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
        """Write the progress as one line, without rich."""
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
    """Return a running bar that counts from ``started`` on; None without rich."""
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


# -- ``harness read`` and ``harness write``.


@command("read", many_hosts=True)
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Start at this byte.")
@click.option("--limit", type=click.IntRange(0), metavar="BYTES", help="Read at most this many bytes.")
@fleet_options()
@click.argument("path")
@click.pass_context
def read(ctx: click.Context, offset: int, limit: int | None, fleet: FleetOptions, path: str) -> int:
    """Print the file PATH on the target, byte for byte.

    --json adds its version, for 'harness write --expect'.

    With --hosts, --inventory or several --ssh, equal contents are printed once, with the hosts' names.
    """
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from .fleet.files import read_on_fleet

        return read_on_fleet(session, fleet, path, offset=offset, limit=limit)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            content = await target.read_file(path, offset=offset, limit=limit, progress=progress)
        if session.json:
            print_json(content_json(content))
        else:
            StreamWriter(1, interruption).write(content.data)

    return on_target(session, work, PLAIN)


@command("write", many_hosts=True)
@click.option("--append", is_flag=True, help="Append to the file.")
@click.option("--create", is_flag=True, help="Fail if the file exists.")
@click.option("--mode", metavar="OCTAL", help="Set its permissions, such as 0644 (default: keep them).")
@click.option("--expect", metavar="VERSION", help="Write only if the file has this version ('none': does not exist).")
@click.option("--force", is_flag=True, help="Write even a read-only file; its permissions are kept.")
@click.option("--no-parents", is_flag=True, help="Do not create missing directories.")
@fleet_options(changes=True)
@click.argument("path")
@click.pass_context
def write(
    ctx: click.Context,
    append: bool,
    create: bool,
    mode: str | None,
    expect: str | None,
    force: bool,
    no_parents: bool,
    fleet: FleetOptions,
    path: str,
) -> int:
    """Write standard input to the file PATH on the target, atomically.

    Readers see the old or the new content; a failure keeps the old.

    With --hosts, --inventory or several --ssh, each host gets the whole input; a host that fails keeps the old content.
    """
    if append and create:
        raise click.UsageError("--append and --create contradict each other")
    kind: WriteMode = "append" if append else "create" if create else "overwrite"
    expected: str | AnyVersion | None = ANY if expect is None else None if expect == "none" else expect
    how: dict[str, Any] = {"mode": kind, "expect": expected, "parents": not no_parents, "force": force}
    how["permissions"] = _octal(mode)
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from .fleet.files import write_on_fleet

        return write_on_fleet(session, fleet, path, read_stdin, how)
    data = read_stdin()

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            result = await target.write_file(path, data, progress=progress, **how)
        if session.json:
            print_json(result)

    return on_target(session, work, PLAIN)


def _octal(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.removeprefix("0o")
    if not digits or set(digits) - set("01234567") or int(digits, 8) > 0o7777:
        raise click.BadParameter(f"{text!r} is not an octal mode such as 0644", param_hint="--mode")
    return int(digits, 8)
