"""Who watches the agent of a run: a trace, where ``--trace`` asks for one, and telemetry, where it is switched on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from ..context import ExecutionContext
from .clean_logs import logs_cleaned
from .runtime import Session

if TYPE_CHECKING:
    from ..agent.settings import AgentSettings
    from ..agent.trace import Observer
    from ..toolkit.seams import Redactor
    from ..toolkit.values import JsonObject

__all__ = ["observers_of"]


@asynccontextmanager
async def observers_of(
    session: Session, settings: AgentSettings | None, redactor: Redactor, target: ExecutionContext
) -> AsyncIterator[Sequence[Observer]]:
    """Open them, for ``open_agent(observers=...)``; leave the agent before them. What is logged meanwhile is redacted.

    Raises:
        HarnessError: the trace cannot be written, or telemetry is switched on and cannot be sent.
    """
    from ..agent.trace import open_trace
    from ..agent.trace.telemetry import open_telemetry

    version = await to_thread.run_sync(_version)
    async with AsyncExitStack() as stack:
        stack.enter_context(logs_cleaned(redactor.text))
        found: list[Observer] = []
        if session.invocation.trace:
            about: JsonObject = {"harness": version, "target": str(target.target)}
            trace = open_trace(Path(session.invocation.trace), redactor, about)
            found.append(await stack.enter_async_context(trace))
        telemetry = await stack.enter_async_context(
            open_telemetry(
                redactor,
                wanted=settings is not None and settings.telemetry,
                content=settings is not None and settings.telemetry_content,
                about={"service.version": version, "harness.target": str(target.target)},
            )
        )
        yield (*found, telemetry) if telemetry is not None else tuple(found)


def _version() -> str:
    from importlib.metadata import version

    return version("harness-ops")
