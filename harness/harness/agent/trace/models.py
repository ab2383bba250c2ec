"""Model wrappers that record requests: as lines of a trace, or as spans of their turn."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from ...toolkit.values import Json, JsonObject
from ..messages.history import dumped
from .observer import CURRENT, MakeLine, json_of

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = [
    "TracedModel",
    "TurnSpanModel",
    "common",
]


# -- Requests as spans of their turn


class TurnSpanModel(WrapperModel):
    """The library's own instrumentation, with the span of the turn as parent.

    Args:
        inside: makes spans that are started in its context children of that turn.
    """

    def __init__(
        self,
        wrapped: Model,
        spans: TracerProvider,
        metrics: MeterProvider,
        inside: Callable[[str], AbstractAsyncContextManager[None]],
        *,
        content: bool,
    ) -> None:
        settings = InstrumentationSettings(
            tracer_provider=spans,
            meter_provider=metrics,
            include_content=content,
            include_binary_content=False,
            include_model_request_parameters=False,
        )
        super().__init__(InstrumentedModel(wrapped, settings))
        self._inside = inside

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See :class:`~pydantic_ai.models.Model`."""
        turn_id, _ = CURRENT.get()
        async with self._inside(turn_id):
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
            self._inside(turn_id),
            self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context) as stream,
        ):
            yield stream


# -- Requests and responses as lines of a trace
#
# Most of a request was sent before: its line has the number of messages that are the same as in the previous request,
# and the new ones.


_NUMBERS = count(1)


class TracedModel(WrapperModel):
    """A model whose requests and responses are written to a trace."""

    def __init__(self, wrapped: Model, put: Callable[[MakeLine], None]) -> None:
        """``put`` adds a line to the trace."""
        super().__init__(wrapped)
        self._put = put
        self._sent: tuple[ModelMessage, ...] = ()
        self._before = 0
        self._said = ""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """See :class:`~pydantic_ai.models.Model`."""
        number, began = next(_NUMBERS), time.perf_counter()
        self._request(number, tuple(messages), model_settings, model_request_parameters)
        try:
            response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        except BaseException as error:
            self._failed(number, began, error, None)
            raise
        self._response(number, began, response, None)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """See :class:`~pydantic_ai.models.Model`."""
        number, began = next(_NUMBERS), time.perf_counter()
        self._request(number, tuple(messages), model_settings, model_request_parameters)
        stream: StreamedResponse | None = None
        try:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                yield stream
        except BaseException as error:
            self._failed(number, began, error, stream)
            raise
        self._response(number, began, stream.get(), stream.time_to_first_chunk(began))

    def _request(
        self,
        number: int,
        messages: tuple[ModelMessage, ...],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> None:
        turn_id, step = CURRENT.get()
        name, system = self.model_name, self.system

        def make() -> tuple[str, JsonObject]:
            same = common(self._sent, messages)
            before, self._before, self._sent = self._before, number, messages
            texts = [dumped(message) for message in messages[same:]]
            said = "\n\n".join(part.content for part in parameters.instruction_parts or [])
            told, self._said = ({"instructions": said} if said != self._said else {}), said
            return "model_request", {
                "request": number,
                "turn_id": turn_id,
                "step": step,
                "model": name,
                "provider": system,
                "messages": len(messages),
                "before": before,
                "same": same,
                "new": [json.loads(text) for text in texts],
                "new_bytes": sum(map(len, texts)),
                **told,
                "tools": [tool.name for tool in parameters.function_tools],
                "settings": _shown(settings),
            }

        self._put(make)

    def _response(self, number: int, began: float, response: ModelResponse, first: float | None) -> None:
        seconds = time.perf_counter() - began

        def make() -> tuple[str, JsonObject]:
            text = dumped(response)
            return "model_response", {
                "request": number,
                "seconds": round(seconds, 6),
                "first_seconds": round(first, 6) if first is not None else None,
                "bytes": len(text),
                "usage": _usage(response),
                "finish_reason": response.finish_reason,
                "response": json.loads(text),
            }

        self._put(make)

    def _failed(self, number: int, began: float, error: BaseException, stream: StreamedResponse | None) -> None:
        seconds, name, text = time.perf_counter() - began, type(error).__name__, str(error)
        partial = stream.get() if stream is not None else None

        def make() -> tuple[str, JsonObject]:
            values: dict[str, Json] = {"request": number, "seconds": round(seconds, 6), "error": f"{name}: {text}"}
            if partial is not None and partial.parts:
                values["partial"] = json.loads(dumped(partial))
            return "model_failure", values

        self._put(make)


def common(before: Sequence[object], after: Sequence[object]) -> int:
    """Return how many items at the start of both are the same. Pure."""
    number = 0
    for one, other in zip(before, after, strict=False):
        if one is not other and one != other:
            break
        number += 1
    return number


def _usage(response: ModelResponse) -> Json:
    usage = json_of(response.usage)
    return {name: value for name, value in usage.items() if value} if isinstance(usage, dict) else usage


def _shown(settings: ModelSettings | None) -> Json:
    """Return the plain settings; headers may contain keys, and other objects have no useful text."""
    plain = {name: value for name, value in (settings or {}).items() if "header" not in name and "body" not in name}
    return {name: json_of(value) for name, value in plain.items() if isinstance(value, bool | int | float | str)}
