"""Events of a conversation as spans and metrics.

A turn is a span; below it are the requests to the model, which pydantic-ai describes, and the calls of tools; below a
call are the approval that it waited for, and the turns of its sub-agent. A job is a span of its own, which may outlive
the turn that began it.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, StatusCode, TracerProvider

from ...toolkit.events import (
    Event,
    JobExited,
    JobStarted,
    PermissionAsked,
    PermissionReplied,
    SubagentCompleted,
    SubagentStarted,
    ToolCallCompleted,
    ToolCallRequested,
)
from ...toolkit.values import CallOutcome, CallStatus
from ..events import (
    ConversationCompacted,
    ModelRetry,
    RequestStarted,
    TurnCompleted,
    TurnStarted,
    UsageChanged,
)
from .current import CURRENT
from .observer import Observer
from .otel_metrics import Meters

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["Telemetry", "safe_name"]

log = logging.getLogger(__name__)

CONTENT = "harness.content."
TEXT_LIMIT = 32_000
"""Characters of one attribute."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}", re.ASCII)


def safe_name(name: str) -> str:
    """The name of a tool, if it may be one: a model can call anything. Pure."""
    return name if _NAME.fullmatch(name) else "unknown"


class Telemetry(Observer):
    """Makes spans and metrics of what happens."""

    def __init__(self, spans: TracerProvider, metrics: MeterProvider, *, content: bool = False) -> None:
        self._tracer = spans.get_tracer("harness.agent")
        self._providers = (spans, metrics)
        self._meters = Meters(metrics)
        self._content = content
        self._open: dict[tuple[str, str], Span] = {}
        self._asked: dict[str, float] = {}
        self._turns: list[str] = []
        self._handlers: Mapping[type[Event], Callable[[Any], None]] = {
            TurnStarted: self._turn_started,
            RequestStarted: self._request_started,
            ModelRetry: self._retried,
            TurnCompleted: self._turn_completed,
            ToolCallRequested: self._call_requested,
            ToolCallCompleted: self._call_completed,
            PermissionAsked: self._permission_asked,
            PermissionReplied: self._permission_replied,
            JobStarted: self._job_started,
            JobExited: self._job_exited,
            SubagentStarted: self._subagent_started,
            SubagentCompleted: self._subagent_completed,
            ConversationCompacted: self._compacted,
            UsageChanged: self._meters.used,
        }

    def heard(self, event: Event) -> None:
        """See :class:`.Observer`."""
        handle = self._handlers.get(type(event))
        if handle is None:
            return
        try:
            handle(event)
        except Exception as error:  # whatever the library says, the agent goes on
            log.debug("an event is not in the telemetry: %s", error)

    def model(self, model: Model) -> Model:
        """See :class:`.Observer`."""
        from .instrumented import InTurn

        return InTurn(model, *self._providers, self, content=self._content)

    def link_back(self, target: str, seconds: float) -> None:
        """A link was lost, and is back after ``seconds``."""
        self._meters.reconnects.add(1)
        above = self._open.get(("turn", self._turns[-1])) if self._turns else None
        parent = context.Context() if above is None else trace.set_span_in_context(above, context.Context())
        began = time.time_ns() - int(seconds * 1e9)
        self._tracer.start_span("reconnect", parent, attributes={"harness.target": target}, start_time=began).end()

    def close(self) -> None:
        """End what has no end."""
        for span in list(self._open.values()):
            span.set_attribute("harness.unfinished", True)
            span.end()
        self._open.clear()

    @asynccontextmanager
    async def inside(self, turn_id: str) -> AsyncGenerator[None]:
        """What is begun inside belongs to that turn."""
        span = self._open.get(("turn", turn_id))
        if span is None:
            yield
            return
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
        finally:
            context.detach(token)

    # -- spans

    def _begin(self, key: tuple[str, str], name: str, event: Event, above: Span | None, **more: Any) -> Span:
        parent = context.Context() if above is None else trace.set_span_in_context(above, context.Context())
        attributes = {"harness.session_id": event.session_id, **more.pop("attributes", {})}
        span = self._tracer.start_span(name, parent, attributes=attributes, **more)
        self._open[key] = span
        return span

    def _end(self, key: tuple[str, str], *, failed: bool = False, **attributes: Any) -> None:
        span = self._open.pop(key, None)
        if span is None:
            return
        span.set_attributes({f"harness.{name}": value for name, value in attributes.items() if value is not None})
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end()

    def _above(self, event: Event) -> Span | None:
        """The call that made the sub-agent of this event, or the turn that runs."""
        above = self._open.get(("call", event.parent_call)) if event.parent_call else None
        return above or (self._open.get(("turn", self._turns[-1])) if self._turns else None)

    def _said(self, **texts: str) -> dict[str, str]:
        if not self._content:
            return {}
        return {f"{CONTENT}{name}": text[:TEXT_LIMIT] for name, text in texts.items() if text}

    def _turn_started(self, event: TurnStarted) -> None:
        attributes = {
            "harness.turn_id": event.turn_id,
            "harness.origin": event.origin,
            **self._said(prompt=event.prompt),
        }
        above = self._above(event) if event.parent_call else None
        self._begin(("turn", event.turn_id), "turn", event, above, attributes=attributes)
        self._turns.append(event.turn_id)

    def _request_started(self, event: RequestStarted) -> None:
        CURRENT.set((event.turn_id, event.step))

    def _retried(self, event: ModelRetry) -> None:
        self._meters.retries.add(1)
        span = self._open.get(("turn", event.turn_id))
        if span is not None:
            span.add_event("model retry", {"harness.attempt": event.attempt, "harness.seconds": event.seconds})

    def _turn_completed(self, event: TurnCompleted) -> None:
        if event.turn_id in self._turns:
            self._turns.remove(event.turn_id)
        said = {f"content.{name}": text[:TEXT_LIMIT] for name, text in self._texts(event).items()}
        failed = event.status == "failed"
        self._end(("turn", event.turn_id), failed=failed, status=event.status, steps=event.steps, **said)
        self._meters.turn_seconds.record(event.seconds, {"harness.status": event.status})

    def _texts(self, event: TurnCompleted) -> dict[str, str]:
        return {"answer": event.text, "failure": event.failure} if self._content else {}

    def _call_requested(self, event: ToolCallRequested) -> None:
        call, name = event.call, safe_name(event.call.name)
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call.call_id,
            "harness.mutating": event.mutating,
            **self._said(arguments=json.dumps(dict(call.arguments)) if isinstance(call.arguments, Mapping) else ""),
        }
        self._begin(("call", call.call_id), f"execute_tool {name}", event, self._above(event), attributes=attributes)

    def _call_completed(self, event: ToolCallCompleted) -> None:
        outcome = event.outcome
        key = ("call", outcome.call.call_id)
        if key not in self._open:  # it never got as far as being requested
            self._begin_late(key, event, outcome)
        failed = outcome.status in (CallStatus.ERROR, CallStatus.UNKNOWN, CallStatus.TIMEOUT)
        said = {"content.result": outcome.result.text[:TEXT_LIMIT]} if self._content else {}
        cached, code = outcome.cached or None, outcome.result.error_code or None
        self._end(key, failed=failed, status=outcome.status.value, cached=cached, error_code=code, **said)
        attributes = {"gen_ai.tool.name": safe_name(outcome.call.name), "harness.status": outcome.status.value}
        self._meters.call_seconds.record(outcome.running, attributes)

    def _begin_late(self, key: tuple[str, str], event: Event, outcome: CallOutcome) -> None:
        name, began = safe_name(outcome.call.name), time.time_ns() - int(outcome.seconds * 1e9)
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        above = self._above(event)
        self._begin(key, f"execute_tool {name}", event, above, attributes=attributes, start_time=began)

    def _permission_asked(self, event: PermissionAsked) -> None:
        self._asked[event.request_id] = time.monotonic()
        above = self._open.get(("call", event.call.call_id)) or self._above(event)
        self._begin(("asked", event.request_id), "approval", event, above, attributes=self._said(what=event.what))

    def _permission_replied(self, event: PermissionReplied) -> None:
        self._end(("asked", event.request_id), allowed=event.allowed)
        began = self._asked.pop(event.request_id, None)
        if began is not None:
            self._meters.approval_seconds.record(time.monotonic() - began, {"harness.allowed": event.allowed})

    def _job_started(self, event: JobStarted) -> None:
        if ("job", event.job_id) not in self._open:
            attributes = {"harness.job_id": event.job_id, **self._said(command=event.command)}
            self._begin(("job", event.job_id), "job", event, self._above(event), attributes=attributes)

    def _job_exited(self, event: JobExited) -> None:
        self._end(("job", event.job_id), exit_code=event.exit_code)

    def _subagent_started(self, event: SubagentStarted) -> None:
        attributes = {"harness.agent_id": event.agent_id, **self._said(prompt=event.prompt)}
        self._begin(("agent", event.agent_id), "sub-agent", event, self._above(event), attributes=attributes)

    def _subagent_completed(self, event: SubagentCompleted) -> None:
        self._end(("agent", event.agent_id), failed=event.is_error)

    def _compacted(self, event: ConversationCompacted) -> None:
        self._meters.compactions.add(1)
        above = self._above(event)
        if above is not None:
            above.add_event("compaction", {"harness.before": event.before, "harness.after": event.after})
