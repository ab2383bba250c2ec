"""The recording of a command's panes, on one target or on many hosts, with ``--record`` or the setting ``record``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ..context import ExecutionContext
from ..errors import HarnessError, UnsupportedOperation
from ..settings import CommandLineChoices, Settings
from ..system.account import owner_name
from .redaction import session_redactor

if TYPE_CHECKING:
    from ..fleets.in_process import UseContext
    from ..recordings.writer import RecordingOptions
    from ..toolkit.redaction.redactor import Redactor

__all__ = ["MAX_RECORDED_HOSTS", "host_recording", "record_session"]

MAX_RECORDED_HOSTS = 32
"""Maximum hosts that one command records: each costs memory, and one thread redacts them all."""
HOSTS_WATCH_BYTES = 64 << 20
"""Bytes of all hosts together that may wait to be redacted."""


@asynccontextmanager
async def record_session(
    ctx: ExecutionContext,
    settings: Settings,
    choices: CommandLineChoices,
    tmux: bool | str,
    warn: Callable[[str], None],
) -> AsyncIterator[None]:
    """Record the panes of the context, if it has any that can be watched; otherwise warn.

    Args:
        ctx: The context.
        settings: The settings.
        choices: The choices of the command line.
        tmux: The session, as for :func:`harness.connect`.
        warn: Reports what is not recorded.
    """
    if not ctx.has_terminal:
        if choices.record:
            warn("nothing is recorded without a terminal (add --tmux)")
        yield
        return
    redactor = session_redactor(settings, choices)
    async with _recorded(ctx, redactor, _options(ctx, settings, tmux), warn):
        yield


def host_recording(
    settings: Settings, choices: CommandLineChoices, tmux: bool | str, hosts: int, warn: Callable[[str], None]
) -> UseContext | None:
    """Return what records the panes of each host of a fleet, or None with a warning.

    Args:
        settings: The settings.
        choices: The choices of the command line.
        tmux: The session, as for :func:`harness.connect`.
        hosts: The number of hosts.
        warn: Reports what is not recorded.
    """
    if tmux is False:
        if choices.record:
            warn("nothing is recorded without a terminal (add --tmux)")
        return None
    if hosts > MAX_RECORDED_HOSTS:
        warn(f"nothing is recorded: {hosts} hosts, and at most {MAX_RECORDED_HOSTS} are recorded at once (name fewer)")
        return None
    redactor = session_redactor(settings, choices)

    def record(name: str, ctx: ExecutionContext) -> AbstractAsyncContextManager[None]:
        options = _options(ctx, settings, tmux)
        options = replace(options, about={**options.about, "host": name}, watch_bytes=HOSTS_WATCH_BYTES // hosts)
        return _recorded(ctx, redactor, options, lambda text: warn(f"{name}: {text}"))

    return record


@asynccontextmanager
async def _recorded(
    ctx: ExecutionContext, redactor: Redactor, options: RecordingOptions, warn: Callable[[str], None]
) -> AsyncIterator[None]:
    from ..recordings.completion import complete_recordings
    from ..recordings.recorder import record_panes

    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(record_panes(ctx, redactor, options))
        except UnsupportedOperation as error:
            warn(f"nothing is recorded: {error.message} ({error.hint})")
        try:
            await complete_recordings(ctx, redactor)
        except HarnessError as error:
            warn(f"cannot complete the recordings of an earlier harness: {error}")
        except OSError as error:
            reason = (error.strerror or "error").lower()
            warn(f"cannot complete the recordings of an earlier harness: {reason}")
        yield


def _options(ctx: ExecutionContext, settings: Settings, tmux: bool | str) -> RecordingOptions:
    from ..recordings.writer import RecordingOptions

    config = settings.config
    return RecordingOptions(
        version=int(config.record_format[1:]),
        max_bytes=config.record_max_bytes,
        total_max_bytes=config.recordings_max_bytes,
        max_age=config.recordings_max_age,
        with_input=config.record_input,
        about={
            "target": str(ctx.target),
            "session": tmux if isinstance(tmux, str) else config.session,
            "owner": owner_name(),
        },
    )
