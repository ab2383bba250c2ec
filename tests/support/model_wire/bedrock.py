"""Amazon Bedrock's converse, whose streams are binary."""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .dialect import Sent, Setting, usage_of
from .values import Answer, Call, Cut, Failure, FailureKind, Gate, Raw, Reasoning, Stop, Text, pieces_of

__all__ = ["BedrockDialect"]

ERRORS: Mapping[FailureKind, tuple[int, str, str]] = {
    "auth": (403, "AccessDeniedException", "You don't have access to the model with the specified model ID."),
    "quota": (400, "ServiceQuotaExceededException", "You exceeded your quota."),
    "rate_limit": (429, "ThrottlingException", "Too many requests, please wait before trying again."),
    "overloaded": (503, "ServiceUnavailableException", "The service is temporarily unavailable."),
    "context_length": (400, "ValidationException", "Input is too long for requested model."),
    "bad_request": (400, "ValidationException", "The request is not valid."),
    "server": (500, "InternalServerException", "An internal error occurred."),
    "missing": (404, "ResourceNotFoundException", "Could not resolve the foundation model."),
}


class BedrockDialect:
    """``POST /model/NAME/converse-stream``."""

    name = "bedrock"
    content_type = "application/vnd.amazon.eventstream"

    def stream(self, answer: Answer, setting: Setting) -> Iterator[Sent]:
        """The frames of a message."""
        yield _frame("messageStart", {"role": "assistant"})
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
                    name = ERRORS[piece.kind][1]
                    yield _frame(name[:1].lower() + name[1:], self.error(piece), kind="exception")
                    return
                case Text() | Reasoning() | Call():
                    yield from _block_frames(piece, index)
                    index += 1
        yield _frame("messageStop", {"stopReason": _stop(answer)})
        yield _frame("metadata", {"usage": _usage(answer, setting), "metrics": {"latencyMs": 1}})

    def whole(self, answer: Answer, setting: Setting) -> Mapping[str, Any]:
        """One response."""
        blocks = [_block(piece) for piece in answer.pieces if isinstance(piece, Text | Reasoning | Call)]
        return {
            "output": {"message": {"role": "assistant", "content": blocks}},
            "stopReason": _stop(answer),
            "usage": _usage(answer, setting),
            "metrics": {"latencyMs": 1},
        }

    def error(self, failure: Failure) -> Mapping[str, Any]:
        """Amazon's form."""
        _, name, message = ERRORS[failure.kind]
        return {"__type": name, "message": failure.message or message}

    def status(self, failure: Failure) -> int:
        """Amazon's codes."""
        return failure.status or ERRORS[failure.kind][0]

    def problem(self, body: Mapping[str, Any]) -> str:
        """As Amazon checks turns and results."""
        messages = body.get("messages") or []
        if not messages or messages[0].get("role") != "user":
            return "A conversation must start with a user message."
        waiting: list[str] = []
        for place, message in enumerate(messages):
            if place and message["role"] == messages[place - 1]["role"]:
                return "A conversation must alternate between user and assistant roles."
            if problem := _message_problem(place, message["content"], waiting):
                return problem
            waiting = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        return "Expected toolResult blocks for the last toolUse blocks." if waiting else ""


def _message_problem(place: int, content: Sequence[Mapping[str, Any]], waiting: Sequence[str]) -> str:
    if not content or any(not block.get("text", "x").strip() for block in content):
        return f"The content field in the Message object at messages.{place} is empty."
    results = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
    if sorted(results) != sorted(waiting):
        return (
            f"The toolResult blocks at messages.{place}.content do not match the toolUse blocks of the previous turn."
        )
    return ""


def _block(piece: Text | Reasoning | Call) -> Mapping[str, Any]:
    match piece:
        case Text():
            return {"text": piece.text}
        case Reasoning():
            return {"reasoningContent": {"reasoningText": {"text": piece.text, "signature": "c2lnbmVk"}}}
        case Call():
            return {"toolUse": {"toolUseId": piece.id, "name": piece.name, "input": piece.value}}


def _block_frames(piece: Text | Reasoning | Call, index: int) -> Iterator[bytes]:
    at = {"contentBlockIndex": index}
    if isinstance(piece, Call):
        yield _frame("contentBlockStart", {**at, "start": {"toolUse": {"toolUseId": piece.id, "name": piece.name}}})
    for text in pieces_of(piece):
        match piece:
            case Text():
                delta: Mapping[str, Any] = {"text": text}
            case Reasoning():
                delta = {"reasoningContent": {"text": text}}
            case Call():
                delta = {"toolUse": {"input": text}}
        yield _frame("contentBlockDelta", {**at, "delta": delta})
    if isinstance(piece, Reasoning):
        yield _frame("contentBlockDelta", {**at, "delta": {"reasoningContent": {"signature": "c2lnbmVk"}}})
    yield _frame("contentBlockStop", at)


def _stop(answer: Answer) -> str:
    named = {"length": "max_tokens", "content_filter": "content_filtered"}
    return named.get(answer.finish) or ("tool_use" if answer.calls else "end_turn")


def _usage(answer: Answer, setting: Setting) -> Mapping[str, int]:
    usage = usage_of(answer, setting)
    return {
        "inputTokens": usage.input - usage.cache_read - usage.cache_write,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
        "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
    }


# -- frames of an event stream: lengths, a checksum of them, headers, the document, a checksum of all


def _frame(name: str, document: Mapping[str, Any], *, kind: str = "event") -> bytes:
    headers = _header(f":{kind}-type", name) + _header(":content-type", "application/json")
    headers += _header(":message-type", kind)
    payload = json.dumps(document).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
