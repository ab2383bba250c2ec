"""The recording of a command's panes, with ``--record`` or the setting ``record``."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ..account import account_name
from ..context import ExecutionContext
from ..errors import HarnessError, UnsupportedOperation
from .output import warn

if TYPE_CHECKING:
    from ..toolkit.redaction.redactor import Redactor
    from .runtime import CliSession

__all__ = ["record_session", "session_redactor"]


def session_redactor(session: CliSession) -> Redactor:
    """Return a redactor that knows the secrets of the environment and of the settings."""
    from ..settings import load_tables
    from ..toolkit.catalog import tool_settings_of
    from ..toolkit.redaction.redactor import PatternRedactor

    settings = tool_settings_of(load_tables("tools", session.invocation.choices))
    variables = {**os.environ, **dict(session.settings.config.env)}
    return PatternRedactor.with_environment(variables, patterns=settings.redact_patterns)


@asynccontextmanager
async def record_session(session: CliSession, ctx: ExecutionContext, tmux: bool | str) -> AsyncIterator[None]:
    """Record the panes of the context, if it has any; a context without is used with a warning."""
    if not ctx.has_terminal:
        if session.invocation.choices.record:
            _not_recorded(session, "nothing is recorded without a terminal", "add --tmux")
        yield
        return
    from ..recordings.completion import complete_recordings
    from ..recordings.recorder import record_panes
    from ..recordings.writer import RecordingOptions

    config, redactor = session.settings.config, session_redactor(session)
    options = RecordingOptions(
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
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(record_panes(ctx, redactor, options))
        except UnsupportedOperation as error:
            _not_recorded(session, f"nothing is recorded: {error.message}", error.hint)
        try:
            await complete_recordings(ctx, redactor)
        except (HarnessError, OSError) as error:
            _not_recorded(session, f"cannot complete the recordings of an earlier harness: {error}")
        yield


def _not_recorded(session: CliSession, text: str, hint: str | None = None) -> None:
    warn(f"{text} ({hint})" if hint else text, as_json_document=session.json)
