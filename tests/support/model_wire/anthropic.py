"""Anthropic's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .dialect import Sent, Setting, event, usage_of
from .values import Answer, Call, Cut, Failure, FailureKind, Gate, Raw, Reasoning, Stop, Text, pieces_of

__all__ = ["AnthropicDialect"]

ERRORS: Mapping[FailureKind, tuple[str, str]] = {
    "auth": ("authentication_error", "invalid x-api-key"),
    "quota": ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    "rate_limit": ("rate_limit_error", "This request would exceed your organization's rate limit."),
    "overloaded": ("overloaded_error", "Overloaded"),
    "context_length": ("invalid_request_error", "prompt is too long: 200012 tokens > 200000 maximum"),
    "bad_request": ("invalid_request_error", "Invalid request."),
    "server": ("api_error", "Internal server error"),
    "missing": ("not_found_error", "model: no-such-model"),
}
SIGNATURE = "c2lnbmVk"


class AnthropicDialect:
    """``POST …/v1/messages``."""

    name = "anthropic"

    def stream(self, answer: Answer, setting: Setting) -> Iterator[Sent]:
        """The events of a message; ``ping`` comes too."""
        started = {**self.whole(Answer(usage=answer.usage), setting), "content": [], "stop_reason": None}
        yield _event("message_start", message=started)
        yield _event("ping")
        index = 0
        for piece in answer.pieces:
            match piece:
                case Stop():
                    return
                case Gate() | Cut():
                    yield piece
                case Raw(data):
                    yield data
                case Failure():
                    yield event(self.error(piece), "error")
                    return
                case Text() | Reasoning() | Call():
                    yield from _block_events(piece, index)
                    index += 1
        usage = _usage(answer, setting)
        yield _event("message_delta", delta={"stop_reason": _stop(answer), "stop_sequence": None}, usage=usage)
        yield _event("message_stop")

    def whole(self, answer: Answer, setting: Setting) -> Mapping[str, Any]:
        """One message."""
        return {
            "id": f"msg_{setting.number}",
            "type": "message",
            "role": "assistant",
            "model": setting.model,
            "content": [_block(piece) for piece in answer.pieces if isinstance(piece, Text | Reasoning | Call)],
            "stop_reason": _stop(answer),
            "stop_sequence": None,
            "usage": _usage(answer, setting),
        }

    def error(self, failure: Failure) -> Mapping[str, Any]:
        """Anthropic's form."""
        kind, message = ERRORS[failure.kind]
        return {
            "type": "error",
            "error": {"type": kind, "message": failure.message or message},
            "request_id": "req_1",
        }

    def problem(self, body: Mapping[str, Any]) -> str:
        """As Anthropic checks tools, blocks and their order."""
        if not isinstance(body.get("max_tokens"), int):
            return "max_tokens: Field required"
        messages = [message for message in body.get("messages") or () if message.get("role") != "system"]
        if not messages:
            return "messages: at least one message is required"
        checks = (_system_problem(body.get("system")), _tools_problem(body.get("tools") or []))
        return next(filter(None, checks), "") or _messages_problem(messages)


def _event(kind: str, **more: Any) -> bytes:
    return event({"type": kind, **more}, kind)


def _block(piece: Text | Reasoning | Call) -> Mapping[str, Any]:
    match piece:
        case Text():
            return {"type": "text", "text": piece.text, "citations": None}
        case Reasoning():
            return {"type": "thinking", "thinking": piece.text, "signature": SIGNATURE}
        case Call():
            return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": piece.value}


def _block_events(piece: Text | Reasoning | Call, index: int) -> Iterator[bytes]:
    match piece:
        case Text():
            start: Mapping[str, Any] = {"type": "text", "text": ""}
            kind, key = "text_delta", "text"
        case Reasoning():
            start = {"type": "thinking", "thinking": "", "signature": ""}
            kind, key = "thinking_delta", "thinking"
        case Call():
            start = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
            kind, key = "input_json_delta", "partial_json"
    yield _event("content_block_start", index=index, content_block=start)
    for text in pieces_of(piece):
        yield _event("content_block_delta", index=index, delta={"type": kind, key: text})
    if isinstance(piece, Reasoning):
        yield _event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": SIGNATURE})
    yield _event("content_block_stop", index=index)


def _stop(answer: Answer) -> str:
    named = {"length": "max_tokens", "content_filter": "refusal"}
    return named.get(answer.finish) or ("tool_use" if answer.calls else "end_turn")


def _usage(answer: Answer, setting: Setting) -> Mapping[str, Any]:
    usage = usage_of(answer, setting)
    return {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output,
    }


# -- what is refused


def _system_problem(system: Any) -> str:
    blocks = system if isinstance(system, list) else []
    empty = next((place for place, block in enumerate(blocks) if not block.get("text")), None)
    return "" if empty is None else f"system.{empty}: text content blocks must be non-empty"


def _tools_problem(tools: Sequence[Mapping[str, Any]]) -> str:
    names = [tool["name"] for tool in tools]
    for place, name in enumerate(names):
        if re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name) is None:
            return f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if len(set(names)) != len(names):
        return "tools: Tool names must be unique."
    wrong = [place for place, tool in enumerate(tools) if tool.get("input_schema", {}).get("type") != "object"]
    return f"tools.{wrong[0]}.custom.input_schema.type: Input should be 'object'" if wrong else ""


def _messages_problem(messages: Sequence[Mapping[str, Any]]) -> str:
    if messages[0].get("role") != "user":
        return 'messages: first message must use the "user" role'
    blocks = [_blocks(message) for message in messages]
    used: set[str] = set()
    for place, message in enumerate(messages):
        if place and message.get("role") == messages[place - 1].get("role"):
            return f'messages: roles must alternate between "user" and "assistant", but found multiple at {place}'
        last = place + 1 == len(messages)
        if problem := _content_problem(place, message, blocks[place], last=last):
            return problem
        before = _ids(blocks[place - 1], "tool_use", "id") if place else []
        after = blocks[place + 1] if not last else []
        if problem := _results_problem(place, blocks[place], before) or _calls_problem(
            place, blocks[place], after, used
        ):
            return problem
    return ""


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _ids(blocks: Sequence[Mapping[str, Any]], kind: str, key: str) -> list[str]:
    return [block[key] for block in blocks if block.get("type") == kind]


def _content_problem(place: int, message: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], *, last: bool) -> str:
    if not blocks:
        return f"messages.{place}: all messages must have non-empty content except for the optional final assistant one"
    for block in blocks:
        if block.get("type") == "text" and not block["text"]:
            return "messages: text content blocks must be non-empty"
        if block.get("type") == "text" and not block["text"].strip():
            return "messages: text content blocks must contain non-whitespace text"
    if (
        last
        and message.get("role") == "assistant"
        and blocks[-1].get("text", "x") != blocks[-1].get("text", "x").rstrip()
    ):
        return "messages: final assistant content cannot end with trailing whitespace"
    return ""


def _results_problem(place: int, blocks: Sequence[Mapping[str, Any]], before: Sequence[str]) -> str:
    results = _ids(blocks, "tool_result", "tool_use_id")
    for one in results:
        if one not in before:
            return (
                f"messages.{place}.content: unexpected `tool_use_id` found in `tool_result` blocks: {one}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if results.count(one) > 1:
            return f"messages.{place}.content: each tool_use must have a single result. Found multiple: {one}"
    kinds = [block.get("type") for block in blocks]
    if results and kinds[: len(results)] != ["tool_result"] * len(results):
        return f"messages.{place}.content: `tool_result` blocks must come first"
    return ""


def _calls_problem(
    place: int, blocks: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], used: set[str]
) -> str:
    calls = _ids(blocks, "tool_use", "id")
    if missing := [one for one in calls if one not in _ids(after, "tool_result", "tool_use_id")]:
        return (
            f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )
    for one in calls:
        if one in used:
            return f"messages.{place}: `tool_use` ids must be unique"
        if re.fullmatch(r"[a-zA-Z0-9_-]+", one) is None:
            return f"messages.{place}.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        used.add(one)
    if any(not isinstance(block.get("input"), dict) for block in blocks if block.get("type") == "tool_use"):
        return f"messages.{place}.content.0.tool_use.input: Input should be a valid dictionary"
    return ""
