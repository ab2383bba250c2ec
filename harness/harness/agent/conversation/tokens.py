"""About how many tokens a text or a conversation is: no provider's own count is at hand before it has answered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

__all__ = ["estimate", "overhead"]

CHARACTERS = 3.3
"""Of ASCII in one token: prose has four, logs and code three."""
PICTURE = 1_600
MESSAGE, PART, CALL = 4, 2, 12
"""Tokens around a message, a part and a call."""


def estimate(what: str | Sequence[ModelMessage]) -> int:
    """Tokens of a text or of messages, rather too many than too few. Pure."""
    return _text(what) if isinstance(what, str) else sum(map(_message, what))


def overhead(instructions: str, tools: Sequence[ToolDefinition]) -> int:
    """Tokens that each request has besides its messages. Pure."""
    return _text(instructions) + sum(map(_tool, tools))


def _tool(tool: ToolDefinition) -> int:
    return CALL + _text(f"{tool.name} {tool.description}") + _text(json.dumps(tool.parameters_json_schema, default=str))


def _text(text: str) -> int:
    if text.isascii():
        return int(len(text) / CHARACTERS) + 1
    further = len(text.encode("utf-8", "surrogatepass")) - len(text)  # bytes that a character has beyond its first
    return int(len(text) / CHARACTERS + further / 2) + 1


def _message(message: ModelMessage) -> int:
    return MESSAGE + sum(PART + _part(part) for part in message.parts)


def _part(part: object) -> int:
    match part:
        case TextPart():
            return _text(part.content)
        case ThinkingPart():
            return max(_text(part.content), len(part.signature or "") // 6)
        case ToolCallPart():
            return CALL + _text(part.args if isinstance(part.args, str) else json.dumps(part.args, default=str))
        case ToolReturnPart():
            return CALL + _content(part.content)
        case UserPromptPart():
            return _content(part.content)
        case _:
            return _text(str(getattr(part, "content", "")))


def _content(content: Any) -> int:
    if isinstance(content, str):
        return _text(content)
    if isinstance(content, list | tuple):
        return sum(map(_content, content))
    return PICTURE if isinstance(content, BinaryContent) else _text(str(content))
