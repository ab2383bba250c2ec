"""OpenAI's chat completions API, which many other services speak too."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import ToolError
from ..contract import Tool
from ..values import CallOutcome, Image, Json, JsonObject, ToolCall, ToolResult
from .base import Provider, Turn, arguments_of, ended, member, objects, pieces, required, turn
from .names import Names, names_of
from .schemas import plain

__all__ = ["OpenAI", "data_url", "marked"]

PROPER = frozenset({"tool_calls", "function_call", "stop"})
LENGTH = frozenset({"length"})
PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
FAILED = "[ERROR] "


class OpenAI(Provider):
    """``tool_calls`` in, one ``tool`` message for each id out; pictures follow in a message of the user."""

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {
                "type": "function",
                "function": {
                    "name": names.shown(tool.name),
                    "description": tool.description,
                    "parameters": plain(tool.schema),
                },
            }
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        choice = next(objects(required(response, "OpenAI", "choices")), None)
        if choice is None:
            raise ToolError("this response of OpenAI has no choice")
        message_id = str(member(response, "id") or "")
        items = objects(member(member(choice, "message"), "tool_calls"))
        why_not = ended(choice.get("finish_reason"), PROPER, LENGTH, given="finish_reason" in choice)
        return turn([_call(item, names, message_id) for item in items], why_not)

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        messages: list[JsonObject] = []
        pictures: list[Json] = []
        for outcome in outcomes:
            text, images = marked(outcome.result)
            messages.append({"role": "tool", "tool_call_id": outcome.call.provider_id, "content": text})
            if images:
                pictures.append({"type": "text", "text": f"From the call {outcome.call.provider_id}:"})
            pictures += [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
        return [*messages, {"role": "user", "content": pictures}] if pictures else messages


def _call(item: Mapping[str, Any], names: Names, message_id: str) -> ToolCall:
    """A call; one of a kind that was never offered has no name of ours, and ends as an unknown tool."""
    function = member(item, "function", "custom") or {}
    return ToolCall(
        names.own(str(member(function, "name") or "")),
        arguments_of(member(function, "arguments", "input")),
        provider_id=str(item.get("id") or ""),
        message_id=message_id,
    )


def marked(result: ToolResult) -> tuple[str, tuple[Image, ...]]:
    """The text, which says itself that it is a failure: the API has no other place for it."""
    found = pieces(result, PICTURES)
    return (FAILED if result.is_error else "") + found.text, found.images


def data_url(image: Image) -> str:
    """A picture as a URL."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"
