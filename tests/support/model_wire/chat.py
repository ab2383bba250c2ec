"""OpenAI's chat completions, as also OpenRouter, Ollama and many others speak them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .dialect import Sent, Setting, event, usage_of
from .values import Answer, Call, Cut, Failure, FailureKind, Gate, Raw, Reasoning, Stop, Text, pieces_of

__all__ = ["ChatDialect"]

ERRORS: Mapping[FailureKind, tuple[str, str | None, str]] = {
    "auth": ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "quota": ("insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan."),
    "rate_limit": ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    "overloaded": ("server_error", "overloaded", "The engine is currently overloaded, please try again later."),
    "context_length": (
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    ),
    "bad_request": ("invalid_request_error", None, "Invalid request."),
    "server": ("server_error", None, "The server had an error while processing your request."),
    "missing": ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access."),
}


def openai_error(failure: Failure) -> Mapping[str, Any]:
    """An error as both APIs of OpenAI write it."""
    kind, code, message = ERRORS[failure.kind]
    return {"error": {"message": failure.message or message, "type": kind, "param": None, "code": code}}


class ChatDialect:
    """``POST …/chat/completions``. ``router`` names whom OpenRouter asks, which changes its errors too."""

    def __init__(self, router: str = "") -> None:
        self.router = router
        self.name = "openrouter" if router else "openai"

    def stream(self, answer: Answer, setting: Setting) -> Iterator[Sent]:
        """Chunks, the last with the usage, and ``[DONE]``."""
        yield self._chunk(setting, {"role": "assistant", "content": ""})
        calls = 0
        for piece in answer.pieces:
            match piece:
                case Stop():
                    return
                case Gate() | Cut():
                    yield piece
                case Raw(data):
                    yield data
                case Failure():
                    yield event(self.error(piece))
                    return
                case Call():
                    yield from self._call_chunks(setting, piece, calls)
                    calls += 1
                case Text():
                    yield from (self._chunk(setting, {"content": text}) for text in pieces_of(piece))
                case Reasoning():
                    yield from (self._chunk(setting, {"reasoning_content": text}) for text in pieces_of(piece))
        yield self._chunk(setting, {}, _finish(answer))
        yield event({**self._head(setting), "choices": [], "usage": _usage(answer, setting)})
        yield b"data: [DONE]\n\n"

    def whole(self, answer: Answer, setting: Setting) -> Mapping[str, Any]:
        """One completion."""
        text = "".join(piece.text for piece in answer.pieces if isinstance(piece, Text))
        reasoning = "".join(piece.text for piece in answer.pieces if isinstance(piece, Reasoning))
        message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if answer.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in answer.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        return {**self._head(setting, "chat.completion"), "choices": [choice], "usage": _usage(answer, setting)}

    def error(self, failure: Failure) -> Mapping[str, Any]:
        """OpenAI's form, or OpenRouter's."""
        if not self.router:
            return openai_error(failure)
        message = failure.message or ERRORS[failure.kind][2]
        return {"error": {"code": failure.code, "message": message, "metadata": {"provider_name": self.router}}}

    def _head(self, setting: Setting, kind: str = "chat.completion.chunk") -> dict[str, Any]:
        head = {"id": f"chatcmpl-{setting.number}", "object": kind, "created": 1_760_000_000, "model": setting.model}
        return {**head, "provider": self.router} if self.router else head

    def _chunk(self, setting: Setting, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head(setting), "choices": [choice], "usage": None})

    def _call_chunks(self, setting: Setting, call: Call, index: int) -> Iterator[bytes]:
        start = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield self._chunk(setting, {"tool_calls": [start]})
        for text in pieces_of(call):
            yield self._chunk(setting, {"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def problem(self, body: Mapping[str, Any]) -> str:
        """As OpenAI checks tools and messages."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            return "[] is too short - 'messages'"
        return _tools_problem(body.get("tools") or []) or _messages_problem(messages)


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _usage(answer: Answer, setting: Setting) -> Mapping[str, Any]:
    usage = usage_of(answer, setting)
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


# -- what is refused


def _tools_problem(tools: Sequence[Mapping[str, Any]]) -> str:
    names = [tool["function"]["name"] for tool in tools if tool.get("type") == "function"]
    for place, name in enumerate(names):
        if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) is None:
            return f"Invalid 'tools[{place}].function.name': does not match pattern '^[a-zA-Z0-9_-]+$'."
        if name in names[:place]:
            return f"Tool names must be unique: {name}"
    for place, tool in enumerate(tools):
        if tool.get("function", {}).get("parameters", {"type": "object"}).get("type") != "object":
            return f"Invalid schema for function {names[place]!r}: schema must be a JSON Schema of 'type: \"object\"'."
    return ""


def _messages_problem(messages: Sequence[Mapping[str, Any]]) -> str:
    waiting: list[str] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                return "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            break
        if role == "assistant":
            if problem := _assistant_problem(place, message):
                return problem
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        elif not message.get("content"):
            return f"Invalid value for 'messages[{place}].content': expected a string, got null."
    if waiting:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}"
        )
    return ""


def _assistant_problem(place: int, message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls")
    if calls is None and not message.get("content") and not message.get("refusal"):
        return f"Invalid value for 'messages[{place}].content': expected a string, got null."
    if calls == []:
        return f"Invalid 'messages[{place}].tool_calls': empty array. Expected an array with minimum length 1."
    ids = [call["id"] for call in calls or ()]
    if len(set(ids)) != len(ids):
        return f"Duplicate value for 'tool_call_id' in messages[{place}]"
    if any(not one or len(one) > 40 for one in ids):
        return f"Invalid 'messages[{place}].tool_calls[0].id': string too long. Expected a maximum length of 40."
    if any(not isinstance(call["function"]["arguments"], str) for call in calls or ()):
        return f"Invalid type for 'messages[{place}].tool_calls[0].function.arguments': expected a string."
    return ""
