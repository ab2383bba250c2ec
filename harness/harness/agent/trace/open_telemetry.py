"""Events of a conversation as redacted OpenTelemetry spans and metrics, sent by the standard exporters."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event as SpanEvent
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, StatusCode, TracerProvider
from opentelemetry.trace.status import Status
from opentelemetry.util.types import AttributeValue

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
from ...toolkit.values import CallOutcome, CallStatus, JsonObject
from ..events import ConversationCompacted, ModelRetry, RequestStarted, TurnCompleted, TurnStarted, UsageChanged
from .observer import CURRENT, Observer, link_news

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ...toolkit.redaction.redactor import Redactor

__all__ = [
    "Meters",
    "Providers",
    "RedactingSpanExporter",
    "Telemetry",
    "cleaned",
    "open_exporters",
    "providers_of",
    "safe_name",
    "without_content",
]


# -- Cleaning of spans before they leave this machine: no content unless it is switched on, and never a secret.


OURS = "harness."
CONTENT = "harness.content."
"""Prefix of harness's attributes with content."""
KNOWN = (
    *("gen_ai.operation.name", "gen_ai.system", "gen_ai.provider.name", "gen_ai.tool.name", "gen_ai.tool.call.id"),
    *("gen_ai.request.", "gen_ai.response.", "gen_ai.usage.", "server.address", "server.port", "error.type"),
    *("operation.cost", "exception.type"),
)
"""Prefixes of other attributes without content."""

Attributes = Mapping[str, AttributeValue]


def without_content(attributes: Attributes | None) -> dict[str, AttributeValue]:
    """Return the attributes without content. Pure."""
    return {
        name: value
        for name, value in (attributes or {}).items()
        if (name.startswith(OURS) and not name.startswith(CONTENT)) or name.startswith(KNOWN)
    }


def cleaned(span: ReadableSpan, attributes: Callable[[Attributes | None], Attributes]) -> ReadableSpan:
    """Return a span with cleaned attributes, also in its events, without links and status description. Pure."""
    events = [SpanEvent(event.name, attributes(event.attributes), event.timestamp) for event in span.events]
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=attributes(span.attributes),
        events=events,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


class RedactingSpanExporter(SpanExporter):
    """Exports spans after cleaning them.

    Args:
        inner: the exporter that sends them.
        redact: redacts content; None removes all content.
    """

    def __init__(self, inner: SpanExporter, redact: Callable[[str], str] | None) -> None:
        self._inner = inner
        self._redact = redact

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See :class:`SpanExporter`."""
        clean = without_content if self._redact is None else self._redacted
        return self._inner.export([cleaned(span, clean) for span in spans])

    def _redacted(self, attributes: Attributes | None) -> dict[str, AttributeValue]:
        return {name: self._value(value) for name, value in (attributes or {}).items()}

    def _value(self, value: Any) -> Any:
        assert self._redact is not None
        if isinstance(value, str):
            return self._redact(value)
        return [self._value(item) for item in value] if isinstance(value, Sequence) else value

    def shutdown(self) -> None:
        """See :class:`SpanExporter`."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See :class:`SpanExporter`."""
        return self._inner.force_flush(timeout_millis)


# -- Metrics in addition to those of pydantic-ai about requests, such as ``gen_ai.client.token.usage``


class Meters:
    """The instruments of the metrics."""

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("harness.agent")
        self.turn_seconds = meter.create_histogram("harness.turn.duration", "s", "Duration of turns, by status.")
        self.call_seconds = meter.create_histogram("harness.tool_call.duration", "s", "Duration of tool calls.")
        self.approval_seconds = meter.create_histogram("harness.approval.duration", "s", "Waiting for approval.")
        self.retries = meter.create_counter("harness.model.retries", "1", "Retried model requests.")
        self.reconnects = meter.create_counter("harness.reconnects", "1", "Reconnects to targets.")
        self.compactions = meter.create_counter("harness.compactions", "1", "Compactions of conversations.")
        self._tokens = meter.create_counter("harness.tokens", "1", "Input and output tokens of models.")
        self._cost = meter.create_counter("harness.cost", "USD", "Cost of models with known prices.")
        self._input = self._output = 0
        self._spent = 0.0

    def used(self, event: UsageChanged) -> None:
        """Count the growth of a conversation's usage; the event has its totals."""
        self._tokens.add(max(0, event.input_tokens - self._input), {"harness.direction": "input"})
        self._tokens.add(max(0, event.output_tokens - self._output), {"harness.direction": "output"})
        self._cost.add(max(0.0, (event.cost or 0.0) - self._spent))
        self._input, self._output, self._spent = event.input_tokens, event.output_tokens, event.cost or 0.0


# -- Events as spans and metrics
#
# A turn is a span. Its children are the model requests, which pydantic-ai describes, and the tool calls; children of a
# call are its approval and the turns of its sub-agent. A job is a separate span, which may outlive the turn that
# started it.


log = logging.getLogger(__name__)

TEXT_LIMIT = 32_000
"""Maximum characters of one attribute."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}", re.ASCII)


def safe_name(name: str) -> str:
    """Return the name of a tool, or ``unknown`` for an invalid one: a model can call anything. Pure."""
    return name if _NAME.fullmatch(name) else "unknown"


class Telemetry(Observer):
    """Creates spans and metrics from events."""

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
        except Exception as error:  # a failing library must not stop the agent
            log.debug("an event is missing from the telemetry: %s", error)

    def model(self, model: Model) -> Model:
        """See :class:`.Observer`."""
        from .models import TurnSpanModel

        return TurnSpanModel(model, *self._providers, self.inside, content=self._content)

    def link_back(self, target: str, seconds: float) -> None:
        """Record a reconnect after ``seconds`` without connection."""
        self._meters.reconnects.add(1)
        above = self._open.get(("turn", self._turns[-1])) if self._turns else None
        parent = context.Context() if above is None else trace.set_span_in_context(above, context.Context())
        began = time.time_ns() - int(seconds * 1e9)
        self._tracer.start_span("reconnect", parent, attributes={"harness.target": target}, start_time=began).end()

    def close(self) -> None:
        """End all open spans."""
        for span in list(self._open.values()):
            span.set_attribute("harness.unfinished", True)
            span.end()
        self._open.clear()

    @asynccontextmanager
    async def inside(self, turn_id: str) -> AsyncGenerator[None]:
        """Make spans that are started inside the block children of that turn."""
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
        """Return the call that started the sub-agent of this event, or the current turn."""
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
        if key not in self._open:  # it ended before it was requested
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
        key = ("job", f"{event.job_id} {event.host}")
        if key not in self._open:
            attributes = {"harness.job_id": event.job_id, **self._said(command=event.command)}
            self._begin(key, "job", event, self._above(event), attributes=attributes)

    def _job_exited(self, event: JobExited) -> None:
        self._end(("job", f"{event.job_id} {event.host}"), exit_code=event.exit_code)

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


# -- The standard exporters, configured by the standard variables, without output on the screen


CLOSE_LIMIT = 3.0
"""Maximum seconds to deliver the last spans and metrics."""


@dataclass(frozen=True, slots=True)
class Providers:
    """Providers of spans and metrics; never those of the whole process, which may belong to another program."""

    spans: SdkTracerProvider
    metrics: SdkMeterProvider

    def finish(self) -> None:
        """Deliver what is pending, and shut down. Blocks, possibly for long."""
        for step in (self.spans.force_flush, self.metrics.force_flush, self.spans.shutdown, self.metrics.shutdown):
            try:
                step()
            except Exception as error:  # at exit, an error can only be logged
                log.debug("shutting down the telemetry failed: %s", error)


def providers_of(
    exporter: SpanExporter | None,
    reader: MetricReader | None,
    redact: Callable[[str], str] | None,
    about: JsonObject,
    *,
    processor: Callable[[SpanExporter], SpanProcessor] = BatchSpanProcessor,
) -> Providers:
    """Return providers with this exporter and reader; without one, its data is dropped.

    Args:
        exporter: sends spans.
        reader: sends metrics.
        redact: redacts content; None removes all content from spans.
        about: attributes of the program, which the standard variables override.
        processor: creates the span processor of the exporter.
    """
    own = Resource({"service.name": "harness", **{name: str(value) for name, value in about.items()}})
    resource = own.merge(OTELResourceDetector().detect())
    spans = SdkTracerProvider(resource=resource, shutdown_on_exit=False)
    if exporter is not None:
        spans.add_span_processor(processor(RedactingSpanExporter(exporter, redact)))
    readers = [reader] if reader is not None else []
    return Providers(spans, SdkMeterProvider(readers, resource=resource, shutdown_on_exit=False))


@asynccontextmanager
async def open_exporters(
    redactor: Redactor, about: JsonObject, *, spans: bool, metrics: bool, content: bool
) -> AsyncIterator[Telemetry]:
    """Send spans and metrics of what happens inside the block, as the standard variables say."""
    _make_quiet()
    span_exporter = OTLPSpanExporter(timeout=_timeout("TRACES")) if spans else None
    metric_exporter = OTLPMetricExporter(timeout=_timeout("METRICS")) if metrics else None
    reader = PeriodicExportingMetricReader(metric_exporter) if metric_exporter is not None else None
    made = providers_of(span_exporter, reader, redactor.text if content else None, about)
    telemetry = Telemetry(made.spans, made.metrics, content=content)
    try:
        with link_news(telemetry.link_back):
            yield telemetry
    finally:
        telemetry.close()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_LIMIT) as late:
                await to_thread.run_sync(made.finish, abandon_on_cancel=True)
            if late.cancelled_caught:  # its retries would keep the process from exiting
                for exporter in (span_exporter, metric_exporter):
                    if exporter is not None:
                        exporter.shutdown()


def _timeout(kind: str) -> float | None:
    """Return the seconds for one delivery; None if the standard variables set them."""
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{kind}_TIMEOUT")
    return None if any(os.environ.get(name) for name in names) else CLOSE_LIMIT


class _WarnOnceHandler(logging.Handler):
    """Logs one warning in place of the library's repeated ones with tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        level = logging.DEBUG if self._said else logging.WARNING
        self._said = True
        text = " ".join(record.getMessage().split())[:200]
        log.log(level, "telemetry is not delivered: %s", text)


def _make_quiet() -> None:
    """Silence the library permanently: its threads may still try to deliver during exit."""
    library = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _WarnOnceHandler) for handler in library.handlers):
        library.addHandler(_WarnOnceHandler())
        library.propagate = False
