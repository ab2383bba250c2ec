"""Anthropic's messages API."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from ..contract import Tool
from ..values import CallOutcome, Json, JsonObject, ToolCall
from .base import Provider, Turn, arguments_of, ended, member, names_of, objects, pieces, required, turn
from .schemas import plain

__all__ = ["Anthropic"]

PROPER = frozenset({"tool_use", "end_turn", "stop_sequence"})
LENGTH = frozenset({"max_tokens", "model_context_window_exceeded"})
PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


class Anthropic(Provider):
    """Reads ``tool_use`` blocks, and writes one user message of ``tool_result`` blocks."""

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {"name": names.shown(tool.name), "description": tool.description, "input_schema": plain(tool.schema)}
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        message = str(member(response, "id") or "")
        blocks = [
            item for item in objects(required(response, "Anthropic", "content")) if item.get("type") == "tool_use"
        ]
        calls = [
            ToolCall(
                names.own(str(block.get("name"))),
                arguments_of(block.get("input")),
                provider_id=str(block.get("id") or ""),
                message_id=message,
            )
            for block in blocks
        ]
        return turn(calls, ended(member(response, "stop_reason"), PROPER, LENGTH, given="stop_reason" in response))

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        blocks: list[Json] = [_block(outcome) for outcome in outcomes]
        return [{"role": "user", "content": blocks}] if blocks else []


def _block(outcome: CallOutcome) -> Json:
    found = pieces(outcome.result, PICTURES)
    content: list[Json] = [{"type": "text", "text": found.text}]
    for image in found.images:
        data = base64.b64encode(image.data).decode()
        content.append({"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}})
    return {
        "type": "tool_result",
        "tool_use_id": outcome.call.provider_id,
        "content": content,
        "is_error": outcome.result.is_error,
    }
