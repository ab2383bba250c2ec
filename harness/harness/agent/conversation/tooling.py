"""Between the toolkit and the messages of a conversation: tools, calls and results."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import BinaryContent, ModelRequestPart, ModelResponse, ToolReturnPart
from pydantic_ai.tools import ToolDefinition

from ...toolkit.registry import Registry
from ...toolkit.values import CallOutcome, Image, ToolCall

__all__ = ["calls_of", "definitions", "returns_of"]


def definitions(registry: Registry) -> list[ToolDefinition]:
    """The tools as a request names them, by name: the same tools give the same text."""
    return [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema))
        for tool in registry.list()
    ]


def calls_of(response: ModelResponse, message_id: str) -> list[ToolCall]:
    """The calls of an answer, in its order. Arguments that are no JSON object stay the text that came."""
    return [
        ToolCall(
            part.tool_name,
            part.args if isinstance(part.args, dict) else part.args or "{}",
            provider_id=part.tool_call_id,
            message_id=message_id,
        )
        for part in response.tool_calls
    ]


def returns_of(outcomes: Sequence[CallOutcome]) -> list[ModelRequestPart]:
    """The results for the model: one part for each call, in the order of the calls."""
    return [_part(outcome) for outcome in outcomes]


def _part(outcome: CallOutcome) -> ToolReturnPart[object]:
    images = [
        BinaryContent(one.data, media_type=one.media_type) for one in outcome.result.content if isinstance(one, Image)
    ]
    text = outcome.result.text
    return ToolReturnPart(
        outcome.call.name,
        [text, *images] if images else text,
        outcome.call.provider_id,
        outcome="failed" if outcome.result.is_error else "success",
    )
