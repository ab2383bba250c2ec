"""One model request, whose usage is counted however it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
import anyio.lowlevel
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters, StreamedResponse

from . import OpenModel
from .failures import may_be_billed

__all__ = ["Request", "UsageRecorder"]


class UsageRecorder(Protocol):
    """Counts the usage of a request: the response as far as it was received, its model, and the estimated tokens."""

    def __call__(self, response: ModelResponse | None, opened: OpenModel, asked: int) -> None:
        """Count the usage."""


@dataclass(frozen=True, slots=True)
class Request:
    """A model request.

    Args:
        tokens: the estimated tokens of the request.
    """

    messages: Sequence[ModelMessage]
    parameters: ModelRequestParameters
    tokens: int

    async def answer(
        self, opened: OpenModel, count: UsageRecorder, read: Callable[[StreamedResponse], Awaitable[None]]
    ) -> ModelResponse:
        """Send the request and return the complete response.

        The usage is counted once, also if the request was cancelled or cut off, or was sent and got no response.
        Rejected and unsent requests cost nothing.

        Args:
            opened: the model.
            count: counts the usage.
            read: reads the response to its end.
        """
        await anyio.lowlevel.checkpoint()  # a request that is cancelled before it is sent costs nothing
        stream: StreamedResponse | None = None
        try:
            async with model_request_stream(
                opened.model,
                self.messages,
                model_settings=opened.settings,
                model_request_parameters=self.parameters,
            ) as stream:
                await read(stream)
        except BaseException as error:
            if stream is not None or not isinstance(error, Exception) or may_be_billed(error):
                count(stream.get() if stream is not None else None, opened, self.tokens)
            raise
        response = stream.get()
        count(response, opened, self.tokens)
        return response
