"""One request to a model, which is counted however it ends."""

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
    """Counts what a request has used: its answer, as far as it came, the model, and its own tokens, estimated."""

    def __call__(self, response: ModelResponse | None, opened: OpenModel, asked: int) -> None:
        """Count it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent.

    Args:
        tokens: how many it is, estimated.
    """

    messages: Sequence[ModelMessage]
    parameters: ModelRequestParameters
    tokens: int

    async def answer(
        self, opened: OpenModel, count: UsageRecorder, read: Callable[[StreamedResponse], Awaitable[None]]
    ) -> ModelResponse:
        """The whole answer.

        It is counted once, also when it is cancelled or cut off, or when none came of a request that was sent. What
        is refused, or never sent, costs nothing.

        Args:
            read: reads the answer to its end.
        """
        await anyio.lowlevel.checkpoint()  # a cancel before it is sent costs nothing either
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
