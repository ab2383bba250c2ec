"""Checks a model with one short request that offers a tool."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...deprecated_names import renamed_fields
from .failures import ModelFailure, model_failure, unfinished
from .model import ModelProfile, OpenModel, cost_of
from .model_opening import open_model

if TYPE_CHECKING:
    from decimal import Decimal

__all__ = ["ModelCheck", "check_model"]

QUESTION = "This is a test of the connection. Answer with the one word: ready"
TOOL = "harness_test"


@renamed_fields(context_limit="context_window")
@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The result of one request to a model. ``failure`` None: it succeeded."""

    profile: ModelProfile
    failure: ModelFailure | None = None
    answer: str = ""
    first: float = 0.0
    """Seconds to the first part of the response."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """US dollars."""
    context_window: int = 0


async def check_model(profile: ModelProfile) -> ModelCheck:
    """Send one short request, which may be billed, without retries.

    Raises:
        ConfigError: the model cannot be opened.
    """
    async with open_model(profile) as opened:
        try:
            return await _asked(opened)
        except Exception as error:  # every provider has its own errors
            return ModelCheck(profile, failure=model_failure(error, profile))


async def _asked(opened: OpenModel) -> ModelCheck:
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import ModelRequest
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    tool = ToolDefinition(name=TOOL, description="Does nothing.", parameters_json_schema={"type": "object"})
    started, first = time.monotonic(), 0.0
    async with model_request_stream(
        opened.model,
        [ModelRequest.user_text_prompt(QUESTION)],
        model_settings=opened.settings,
        model_request_parameters=ModelRequestParameters(function_tools=[tool]),
    ) as stream:
        async for _ in stream:
            first = first or time.monotonic() - started
        response = stream.get()
    return ModelCheck(
        opened.profile,
        failure=unfinished(response, opened.profile),
        answer=response.text or "",
        first=first,
        seconds=time.monotonic() - started,
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        cost=cost_of(response.usage, opened.profile),
        context_window=opened.context_window,
    )
