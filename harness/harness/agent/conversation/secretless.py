"""Messages without secrets: as they may be kept, and as notes are made of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)

from ...toolkit.redaction import redact_object

__all__ = ["without_secret_names", "without_secrets"]


def without_secrets(message: ModelMessage, redact: Callable[[str], str]) -> ModelMessage:
    """A message as it may be kept. Pure, as far as ``redact`` is.

    Reasoning that holds a secret loses its signature, which was for other words.
    """
    if isinstance(message, ModelRequest):
        return replace(message, parts=[_request_part(part, redact) for part in message.parts])
    return replace(message, parts=[_response_part(part, redact) for part in _whole(message.parts, redact)])


def _whole(parts: Sequence[ModelResponsePart], redact: Callable[[str], str]) -> Sequence[ModelResponsePart]:
    """The parts; where a secret begins in one text and ends in another, both are one."""
    texts = [part.content for part in parts if isinstance(part, TextPart)]
    if len(texts) < 2 or redact("".join(texts)) == "".join(map(redact, texts)):
        return parts
    first = next(place for place, part in enumerate(parts) if isinstance(part, TextPart))
    rest = [part for part in parts[first:] if not isinstance(part, TextPart)]
    return [*parts[:first], TextPart("".join(texts)), *rest]


def _request_part(part: ModelRequestPart, redact: Callable[[str], str]) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart):
        return part  # results come redacted
    if isinstance(part.content, str):
        return replace(part, content=redact(part.content))
    return replace(part, content=[redact(one) if isinstance(one, str) else one for one in part.content])


def _response_part(part: ModelResponsePart, redact: Callable[[str], str]) -> ModelResponsePart:
    if isinstance(part, TextPart):
        return replace(part, content=redact(part.content))
    if isinstance(part, ThinkingPart):
        clean = redact(part.content)
        return part if clean == part.content else replace(part, content=clean, signature=None)
    if isinstance(part, ToolCallPart):
        return replace(part, args=_arguments(part.args, redact))
    return part


def _arguments(value: Any, redact: Callable[[str], str]) -> Any:
    """Arguments, as the text or the object that the provider sent."""
    if isinstance(value, str):
        return redact(value)
    if not isinstance(value, dict):
        return value
    return {redact(name): one for name, one in redact_object(value, redact).items()}


def without_secret_names(response: ModelResponse, redact: Callable[[str], str], known: Container[str]) -> ModelResponse:
    """An answer whose calls have no secret for an id, or for the name of a tool that is not ``known``. Pure."""

    def clean(part: ModelResponsePart) -> ModelResponsePart:
        if not isinstance(part, ToolCallPart):
            return part
        part = replace(part, tool_call_id=redact(part.tool_call_id), id=part.id and redact(part.id))
        name: Any = part.tool_name if part.tool_name in known else redact(part.tool_name)
        return replace(part, tool_name=name)

    return replace(response, parts=[clean(part) for part in response.parts]) if response.tool_calls else response
