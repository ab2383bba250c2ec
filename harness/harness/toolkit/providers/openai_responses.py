"""OpenAI's responses API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...errors import ToolError
from ..contract import Tool
from ..values import CallOutcome, Json, JsonObject, ToolCall
from .base import CUT, Provider, Turn, arguments_of, ended, failure_in, member, not_run, objects, required, turn
from .names import names_of
from .openai import data_url, marked
from .schemas import plain

__all__ = ["OpenAIResponses"]

PROPER = frozenset({"completed"})
BY_LENGTH = "max_output_tokens"


class OpenAIResponses(Provider):
    """``function_call`` items in, ``function_call_output`` items out."""

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {
                "type": "function",
                "name": names.shown(tool.name),
                "description": tool.description,
                "parameters": plain(tool.schema),
                "strict": False,  # this API's default is true, which would refuse optional arguments
            }
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        message = str(member(response, "id") or "")
        why_not = _why_not(response)
        items = [
            item for item in objects(required(response, "OpenAI", "output")) if item.get("type") == "function_call"
        ]
        calls = [
            ToolCall(
                names.own(str(item.get("name"))),
                arguments_of(item.get("arguments")),
                provider_id=str(item.get("call_id") or ""),
                message_id=message,
            )
            for item in items
        ]
        if why_not and not calls and failure_in(response):
            raise ToolError(f"OpenAI: {why_not}")
        if why_not:
            return turn(calls, why_not)
        whole = [item.get("status") in {None, "completed"} for item in items]
        return Turn(
            tuple(call for call, good in zip(calls, whole, strict=True) if good),
            tuple(not_run(call, CUT) for call, good in zip(calls, whole, strict=True) if not good),
        )

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        return [
            {"type": "function_call_output", "call_id": outcome.call.provider_id, "output": _output(outcome)}
            for outcome in outcomes
        ]


def _why_not(response: JsonObject) -> str:
    if member(member(response, "incomplete_details"), "reason") == BY_LENGTH:
        return CUT
    why_not = ended(member(response, "status"), PROPER, frozenset(), given="status" in response)
    said = failure_in(response)
    return f"{why_not}: {said}" if why_not and said else why_not


def _output(outcome: CallOutcome) -> Json:
    text, images = marked(outcome.result)
    if not images:
        return text
    pictures: list[Json] = [{"type": "input_image", "image_url": data_url(image), "detail": "auto"} for image in images]
    return [{"type": "input_text", "text": text}, *pictures]
