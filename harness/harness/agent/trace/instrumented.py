"""A model whose requests are spans of the turn that makes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from .current import CURRENT

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from .otel_spans import Telemetry

__all__ = ["InTurn"]


class InTurn(WrapperModel):
    """The library's own instrumentation, below the span of the turn."""

    def __init__(
        self, wrapped: Model, spans: TracerProvider, metrics: MeterProvider, telemetry: Telemetry, *, content: bool
    ) -> None:
        settings = InstrumentationSettings(
            tracer_provider=spans,
            meter_provider=metrics,
            include_content=content,
            include_binary_content=False,
            include_model_request_parameters=False,
        )
        super().__init__(InstrumentedModel(wrapped, settings))
        self._telemetry = telemetry

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See :class:`~pydantic_ai.models.Model`."""
        turn_id, _ = CURRENT.get()
        async with self._telemetry.inside(turn_id):
            return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """See :class:`~pydantic_ai.models.Model`."""
        turn_id, _ = CURRENT.get()
        async with (
            self._telemetry.inside(turn_id),
            self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context) as stream,
        ):
            yield stream
