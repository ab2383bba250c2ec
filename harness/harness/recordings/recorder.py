"""Records all panes of a session while a context is used."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from ..context import ExecutionContext
from ..errors import HarnessError
from ..pane_events import PaneWatch, PaneWatches
from ..system.background_tasks import open_background_tasks
from ..toolkit.redaction.pane_stream import RedactedPaneEvents
from ..toolkit.redaction.redactor import Redactor
from .directory import delete_old, new_path
from .writer import RecordingOptions, RecordingWriter

__all__ = ["record_panes"]

log = logging.getLogger("harness.recordings")
FINISH_TIMEOUT = 5.0
"""Seconds at the end for what has arrived to be redacted and written."""


@asynccontextmanager
async def record_panes(ctx: ExecutionContext, redactor: Redactor, options: RecordingOptions) -> AsyncIterator[None]:
    """Record each managed pane of the context's session to a file of its own, redacted.

    Nothing waits for it: a failure ends the recording with a warning.

    Raises:
        UnsupportedOperation: The context has no terminal, or one that cannot be watched.
    """
    async with ctx.watch_panes(max_bytes=options.watch_bytes) as panes, open_background_tasks() as tasks:
        written = anyio.Event()
        tasks.start_soon(_record_all, panes, redactor, options, written)
        try:
            yield
        finally:
            panes.end()
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(FINISH_TIMEOUT):
                    await written.wait()
                await to_thread.run_sync(delete_old, options.max_age, options.total_max_bytes)


async def _record_all(panes: PaneWatches, redactor: Redactor, options: RecordingOptions, written: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        async for watch in panes:
            tasks.start_soon(_record_pane, watch, redactor, options)
    written.set()


async def _record_pane(watch: PaneWatch, redactor: Redactor, options: RecordingOptions) -> None:
    try:
        about = {**options.about, "pane": watch.name}
        host = str(about.get("host", ""))
        path = await to_thread.run_sync(new_path, f"{host}-{watch.name}" if host else watch.name)
        title = f"{watch.name} on {host or about.get('target', '')}".removesuffix(" on ")
        with RecordingWriter(path, about, title, options) as writer:
            await _write_events(watch, redactor, writer)
    except OSError as error:
        log.warning("pane %s: the recording stopped: %s", watch.name, (error.strerror or "error").lower())
    except HarnessError as error:
        log.warning("pane %s: the recording stopped: %s", watch.name, error)
    except Exception:
        log.exception("pane %s: the recording stopped", watch.name)


async def _write_events(watch: PaneWatch, redactor: Redactor, writer: RecordingWriter) -> None:
    try:
        async for event in RedactedPaneEvents(watch.events, redactor, live=False):
            await to_thread.run_sync(writer.write, event)
            if writer.is_full:
                return
    except anyio.get_cancelled_exc_class():
        writer.finish("harness exited before all output was recorded")
        raise
    finally:
        writer.finish()
