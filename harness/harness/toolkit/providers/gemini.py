"""Google's Gemini API (``generateContent``)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..contract import Tool
from ..values import CallOutcome, Json, JsonObject, ToolCall
from .base import Provider, Turn, arguments_of, ended, member, objects, pieces, required, turn
from .gemini_schema import gemini_schema, restored
from .names import Names, names_of
from .schemas import Schema, plain

__all__ = ["Gemini"]

FIRST = "[A-Za-z_]"
"""What a name begins with."""
PROPER = frozenset({"STOP"})
LENGTH = frozenset({"MAX_TOKENS"})
PICTURES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})


class Gemini(Provider):
    """``functionCall`` parts in, one user message of ``functionResponse`` parts out, in the order of the calls.

    Most models give their calls no ids: results belong to calls by their order, so hand them over in it.
    """

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools, FIRST)
        found: list[Json] = [_declaration(tool, names) for tool in tools]
        return [{"functionDeclarations": found}] if found else []

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        tools = list(tools)
        schemas = {tool.name: plain(tool.schema) for tool in tools}
        candidate = next(objects(required(response, "Gemini", "candidates")), {})
        message = str(member(response, "responseId", "response_id") or "")
        parts = objects(member(member(candidate, "content"), "parts"))
        items = [item for part in parts if isinstance(item := member(part, "functionCall", "function_call"), Mapping)]
        names = names_of(tools, FIRST)
        reason = member(candidate, "finishReason", "finish_reason")
        given = "finishReason" in candidate or "finish_reason" in candidate
        calls = [_call(item, names, schemas, message) for item in items]
        return turn(calls, ended(reason, PROPER, LENGTH, given=given))

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        names = names_of(tools, FIRST)
        responses: list[Json] = []
        pictures: list[Json] = []
        for outcome in outcomes:
            found = pieces(outcome.result, PICTURES)
            responses.append(_response(outcome, names, found.text))
            pictures += [
                {"inlineData": {"mimeType": image.media_type, "data": base64.b64encode(image.data).decode()}}
                for image in found.images
            ]
        return [{"role": "user", "parts": [*responses, *pictures]}] if responses else []


def _declaration(tool: Tool[Any], names: Names) -> Json:
    schema = plain(tool.schema)
    declared: dict[str, Json] = {"name": names.shown(tool.name), "description": tool.description}
    if schema["properties"]:  # an object without members is refused; a function without parameters is not
        declared["parameters"] = gemini_schema({key: value for key, value in schema.items() if key != "description"})
    return declared


def _call(item: Mapping[str, Any], names: Names, schemas: Mapping[str, Schema], message: str) -> ToolCall:
    name = names.own(str(item.get("name")))
    arguments = arguments_of(item.get("args"))
    if not isinstance(arguments, str):
        arguments = restored(dict(arguments), schemas.get(name, {}))
    return ToolCall(name, arguments, provider_id=str(item.get("id") or ""), message_id=message)


def _response(outcome: CallOutcome, names: Names, text: str) -> Json:
    said: dict[str, Json] = {"content": text, "is_error": outcome.result.is_error}
    response: dict[str, Json] = {"name": names.shown(outcome.call.name), "response": said}
    return {"functionResponse": response | ({"id": outcome.call.provider_id} if outcome.call.provider_id else {})}
