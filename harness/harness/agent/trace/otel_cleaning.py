"""What leaves this machine in a span: without its content, unless that is switched on, and never with a secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace.status import Status
from opentelemetry.util.types import AttributeValue

__all__ = ["CleanedSpans", "cleaned", "without_content"]

OURS = "harness."
CONTENT = "harness.content."
"""Attributes of ours that hold content."""
KNOWN = (
    *("gen_ai.operation.name", "gen_ai.system", "gen_ai.provider.name", "gen_ai.tool.name", "gen_ai.tool.call.id"),
    *("gen_ai.request.", "gen_ai.response.", "gen_ai.usage.", "server.address", "server.port", "error.type"),
    *("operation.cost", "exception.type"),
)
"""Beginnings of other attributes that hold none."""

Attributes = Mapping[str, AttributeValue]


def without_content(attributes: Attributes | None) -> dict[str, AttributeValue]:
    """The attributes that say nothing of what was said. Pure."""
    return {
        name: value
        for name, value in (attributes or {}).items()
        if (name.startswith(OURS) and not name.startswith(CONTENT)) or name.startswith(KNOWN)
    }


def cleaned(span: ReadableSpan, attributes: Callable[[Attributes | None], Attributes]) -> ReadableSpan:
    """A span with other attributes, also in its events; links, and the words of its status, are left out. Pure."""
    events = [Event(event.name, attributes(event.attributes), event.timestamp) for event in span.events]
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


class CleanedSpans(SpanExporter):
    """Hands spans on as they may leave.

    Args:
        redact: None leaves all content out; else what takes secrets out of it.
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
