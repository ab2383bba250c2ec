"""Taking secrets out of texts, results and objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from .values import Block, Json, JsonObject, Text, ToolResult

__all__ = ["redact_object", "redact_result"]

Redact = Callable[[str], str]


def redact_result(result: ToolResult, redact: Redact) -> ToolResult:
    """A result with every text of it redacted."""
    content: tuple[Block, ...] = tuple(
        Text(redact(block.text)) if isinstance(block, Text) else block for block in result.content
    )
    metadata = redact_object(result.metadata, redact)
    return replace(result, content=content, data=_redacted(result.data, redact), metadata=metadata)


def redact_object(value: JsonObject, redact: Redact) -> JsonObject:
    """An object with every text of it redacted; its keys stay."""
    return cast(JsonObject, _redacted(dict(value), redact))


def _redacted(value: Json, redact: Redact) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item, redact) for key, item in value.items()}
    return value
