"""The recording of a command's panes, with ``--record`` or the setting ``record``."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ..context import ExecutionContext
from ..errors import HarnessError, UnsupportedOperation
from ..settings import CommandLineChoices, Settings
from ..system.account import account_name

if TYPE_CHECKING:
    from ..recordings.writer import RecordingOptions
    from ..toolkit.redaction.redactor import Redactor

__all__ = ["record_session", "session_redactor"]


def session_redactor(settings: Settings, choices: CommandLineChoices) -> Redactor:
    """Return a redactor that knows the secrets of the environment and of the settings."""
    from ..settings import load_tables
    from ..toolkit.catalog import tool_settings_of
    from ..toolkit.redaction.redactor import PatternRedactor

    patterns = tool_settings_of(load_tables("tools", choices)).redact_patterns
    variables = {**os.environ, **dict(settings.config.env)}
    return PatternRedactor.with_environment(variables, patterns=patterns)


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
    from ..recordings.completion import complete_recordings
    from ..recordings.recorder import record_panes

    redactor = session_redactor(settings, choices)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(record_panes(ctx, redactor, _options(ctx, settings, tmux)))
        except UnsupportedOperation as error:
            warn(f"nothing is recorded: {error.message} ({error.hint})")
        try:
            await complete_recordings(ctx, redactor)
        except (HarnessError, OSError) as error:
            warn(f"cannot complete the recordings of an earlier harness: {error}")
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
            "owner": f"{account_name()}@{socket.gethostname()}:{os.getpid()}",
        },
    )
