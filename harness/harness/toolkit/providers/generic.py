"""A plain form for models that no other adapter knows, and for tests."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

from ..contract import Tool
from ..values import CallOutcome, Json, JsonObject, ToolCall
from .base import Provider, Turn, arguments_of, ended, member, objects, pieces, required, turn
from .names import names_of
from .schemas import plain

__all__ = ["Generic"]

PROPER = frozenset({"stop"})
LENGTH = frozenset({"length"})


class Generic(Provider):
    """Tools: ``{name, description, input_schema}``. Response: ``{calls: [{id, name, arguments}], finish: "stop"}``.

    ``finish`` is ``stop``, ``length`` or any other word for what went wrong; without it the response is whole.
    Results: ``{call_id, name, content, is_error, error_code}``, with ``data`` and ``images`` where there are any.
    """

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {"name": names.shown(tool.name), "description": tool.description, "input_schema": plain(tool.schema)}
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        found = []
        for item in objects(required(response, "the generic form", "calls")):
            arguments = arguments_of(item.get("arguments"))
            provider_id = str(item.get("id") or "")
            found.append(ToolCall(names.own(str(item.get("name"))), arguments, provider_id=provider_id))
        return turn(found, ended(member(response, "finish"), PROPER, LENGTH, given="finish" in response))

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        names = names_of(tools)
        return [_result(outcome, names.shown(outcome.call.name)) for outcome in outcomes]


def _result(outcome: CallOutcome, name: str) -> JsonObject:
    result = outcome.result
    kinds = frozenset(getattr(block, "media_type", "") for block in result.content)
    found = pieces(result, kinds)
    images: list[Json] = [
        {"media_type": image.media_type, "data": base64.b64encode(image.data).decode()} for image in found.images
    ]
    written: dict[str, Json] = {
        "call_id": outcome.call.provider_id,
        "name": name,
        "content": found.text,
        "is_error": result.is_error,
        "error_code": result.error_code,
    }
    return written | ({"data": result.data} if result.data is not None else {}) | ({"images": images} if images else {})
