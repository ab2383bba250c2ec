"""Between the toolkit and the messages of a conversation: tools, calls and results.

What a tool brings from the target, a page or another program may hold anything, also words that look like the
operator's. It stands between two lines with a mark that nobody there can know; the instructions say what they mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai.messages import BinaryImage, ModelRequestPart, ModelResponse, ToolReturnPart
from pydantic_ai.tools import ToolDefinition

from ...toolkit.contract import Tool
from ...toolkit.providers.base import CUT, not_run, pieces
from ...toolkit.providers.schemas import plain
from ...toolkit.registry import Registry
from ...toolkit.values import CallOutcome, CallStatus, ToolCall
from .marking import marked

__all__ = ["calls_of", "definitions", "returns_of", "withheld"]

PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What every provider takes as a picture, if it takes any."""
LARGEST = 3_500_000
"""Bytes of a picture that every provider takes: one that is refused would be refused with each further request."""
OUR_TOOLS = frozenset({"ask_user_question", "compact", "forget", "remember", "time", "todo_write"})
"""Tools whose results are words of harness and of its user."""
OPERATOR = "operator ("
"""How it begins who decided, when the operator answered; what follows is the answer."""
MARK_LENGTH = 8


_told: WeakKeyDictionary[Registry, tuple[list[Tool[Any]], list[ToolDefinition]]] = WeakKeyDictionary()
"""What was made of the tools of a registry when it was last asked for: making it takes 5 ms, and each request asks."""


def definitions(registry: Registry) -> list[ToolDefinition]:
    """The tools as a request names them, by name: the same tools give the same text."""
    tools = registry.list()
    before, made = _told.get(registry, ([], []))
    if len(before) != len(tools) or any(one is not other for one, other in zip(before, tools, strict=True)):
        made = [_definition(tool) for tool in tools]
        _told[registry] = (tools, made)
    return made.copy()


def _definition(tool: Tool[Any]) -> ToolDefinition:
    return ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=plain(tool.schema))


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


def withheld(response: ModelResponse, calls: Sequence[ToolCall]) -> list[CallOutcome]:
    """The outcomes of calls that must not run, because their answer did not come to its proper end; else none.

    What is missing may be the half of a command.
    """
    reason = _why_not(response)
    return [not_run(call, reason) for call in calls] if reason else []


def _why_not(response: ModelResponse) -> str:
    if response.state != "complete":
        return "the response has not ended"
    if response.finish_reason == "length":
        return CUT
    if response.finish_reason in (None, "stop", "tool_call"):
        return ""
    return f"the response ended with {response.finish_reason!r}"


def returns_of(outcomes: Sequence[CallOutcome], registry: Registry | None = None) -> list[ModelRequestPart]:
    """The results for the model: one part for each call, in the order of the calls.

    Args:
        registry: the tools; the results of those that bring nothing from outside are not marked.
    """
    return [_result(outcome, registry) for outcome in outcomes]


def _result(outcome: CallOutcome, registry: Registry | None) -> ToolReturnPart[Any]:
    found = pieces(outcome.result, PICTURES)
    sent = [one for one in found.images if len(one.data) <= LARGEST]
    left_out = [f"[a picture of {len(one.data)} bytes was left out]" for one in found.images if one not in sent]
    text = "\n".join((found.text, *left_out))
    text = text if _is_ours(outcome, registry) else _marked(text, outcome.call)
    pictures = [BinaryImage(one.data, media_type=one.media_type) for one in sent]
    return ToolReturnPart(
        outcome.call.name,
        [text, *pictures] if pictures else text,
        outcome.call.provider_id,
        outcome="failed" if outcome.result.is_error else "success",
    )


def _is_ours(outcome: CallOutcome, registry: Registry | None) -> bool:
    """Whether harness or its user wrote all of it.

    A refusal holds the words of a rule, a hook or a server, but for one that the operator gave. What is wrong with
    arguments is said in words of the tool's schema, which may be a server's.
    """
    result = outcome.result
    if result.error_code == "not_run" and outcome.status is CallStatus.ERROR:
        return True
    tool = registry.get(outcome.call.name) if registry is not None else None
    if tool is None:
        return result.error_code == "unknown_tool"
    if outcome.status is CallStatus.DENIED:
        return str(result.metadata.get("decided_by", "")).startswith(OPERATOR)
    return outcome.status is CallStatus.OK and tool.own.name in OUR_TOOLS


def _marked(text: str, call: ToolCall) -> str:
    return marked(text, hashlib.sha256(f"{call.call_id} {call.provider_id}".encode()).hexdigest()[:MARK_LENGTH])
