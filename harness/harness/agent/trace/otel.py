"""Where spans and metrics go: the standard exporters, as the standard variables say, without a word on the screen."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio import to_thread
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from ...toolkit.seams import Redactor
from ...toolkit.values import JsonObject
from .links import link_news
from .otel_cleaning import CleanedSpans
from .otel_spans import Telemetry
from .telemetry import TelemetryOptions

__all__ = ["Providers", "open_exporters", "providers_of"]

log = logging.getLogger(__name__)

CLOSE_LIMIT = 3.0
"""Seconds in which the last spans and metrics have to be delivered."""


@dataclass(frozen=True, slots=True)
class Providers:
    """What makes spans and metrics; never the providers of the whole process, which may be another program's."""

    spans: TracerProvider
    metrics: MeterProvider

    def finish(self) -> None:
        """Deliver what waits, and end. Blocks; may take long."""
        for step in (self.spans.force_flush, self.metrics.force_flush, self.spans.shutdown, self.metrics.shutdown):
            try:
                step()
            except Exception as error:  # nobody can do anything about it any more
                log.debug("the end of the telemetry failed: %s", error)


def providers_of(
    exporter: SpanExporter | None,
    reader: MetricReader | None,
    redact: Callable[[str], str] | None,
    about: JsonObject,
    *,
    processor: Callable[[SpanExporter], SpanProcessor] = BatchSpanProcessor,
) -> Providers:
    """Providers with these ends; without one, what it would be given goes nowhere.

    Args:
        redact: None leaves all content out of spans.
        about: attributes of the program. The standard variables count more.
    """
    own = Resource({"service.name": "harness", **{name: str(value) for name, value in about.items()}})
    resource = own.merge(OTELResourceDetector().detect())
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    if exporter is not None:
        spans.add_span_processor(processor(CleanedSpans(exporter, redact)))
    readers = [reader] if reader is not None else []
    return Providers(spans, MeterProvider(readers, resource=resource, shutdown_on_exit=False))


@asynccontextmanager
async def open_exporters(options: TelemetryOptions, redactor: Redactor, about: JsonObject) -> AsyncIterator[Telemetry]:
    """Send what happens inside, as the standard variables say."""
    _make_quiet()
    spans = OTLPSpanExporter(timeout=_timeout("TRACES")) if options.spans else None
    metrics = OTLPMetricExporter(timeout=_timeout("METRICS")) if options.metrics else None
    reader = PeriodicExportingMetricReader(metrics) if metrics is not None else None
    made = providers_of(spans, reader, redactor.text if options.content else None, about)
    telemetry = Telemetry(made.spans, made.metrics, content=options.content)
    try:
        with link_news(telemetry.link_back):
            yield telemetry
    finally:
        telemetry.close()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_LIMIT) as late:
                await to_thread.run_sync(made.finish, abandon_on_cancel=True)
            if late.cancelled_caught:  # it would try again for long, and the process could not end
                for exporter in (spans, metrics):
                    if exporter is not None:
                        exporter.shutdown()


def _timeout(kind: str) -> float | None:
    """Seconds for one delivery; None where the standard variables say it."""
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{kind}_TIMEOUT")
    return None if any(os.environ.get(name) for name in names) else CLOSE_LIMIT


class _Once(logging.Handler):
    """Says in one warning what the library would print again and again, with tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        level = logging.DEBUG if self._said else logging.WARNING
        self._said = True
        text = " ".join(record.getMessage().split())[:200]
        log.log(level, "telemetry is not delivered: %s", text)


def _make_quiet() -> None:
    """For good: the library's threads may still try to deliver when everything else has ended."""
    library = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _Once) for handler in library.handlers):
        library.addHandler(_Once())
        library.propagate = False
