"""Google's Gemini API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .dialect import Sent, Setting, event, usage_of
from .values import Answer, Call, Cut, Failure, FailureKind, Gate, Raw, Reasoning, Stop, Text, pieces_of

__all__ = ["GeminiDialect"]

ERRORS: Mapping[FailureKind, tuple[int, str, str]] = {
    "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "quota": (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing."),
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "context_length": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "bad_request": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
    "server": (500, "INTERNAL", "An internal error has occurred."),
    "missing": (404, "NOT_FOUND", "models/no-such-model is not found for API version v1beta."),
}


class GeminiDialect:
    """``POST …/models/NAME:streamGenerateContent``."""

    name = "google"

    def stream(self, answer: Answer, setting: Setting) -> Iterator[Sent]:
        """Whole responses, each with the next parts."""
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
                    yield event(_response([_part(piece)], answer, setting))
                case Text() | Reasoning():
                    thought = isinstance(piece, Reasoning)
                    for text in pieces_of(piece):
                        yield event(_response([_text(text, thought=thought)], answer, setting))
        yield event(_response([], answer, setting, last=True))

    def whole(self, answer: Answer, setting: Setting) -> Mapping[str, Any]:
        """One response."""
        parts = [_part(piece) for piece in answer.pieces if isinstance(piece, Text | Reasoning | Call)]
        return _response(parts, answer, setting, last=True)

    def error(self, failure: Failure) -> Mapping[str, Any]:
        """Google's form, with the details that it gives for a bad key."""
        code, status, message = ERRORS[failure.kind]
        error: dict[str, Any] = {
            "code": failure.status or code,
            "message": failure.message or message,
            "status": status,
        }
        if failure.kind == "auth":
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            error["details"] = [{"@type": kind, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
        return {"error": error}

    def problem(self, body: Mapping[str, Any]) -> str:
        """As Google checks turns and parts."""
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            return "* GenerateContentRequest.contents: contents is not specified"
        return _tools_problem(body.get("tools") or []) or _contents_problem(contents)


def _text(text: str, *, thought: bool) -> Mapping[str, Any]:
    return {"text": text, "thought": True} if thought else {"text": text}


def _part(piece: Text | Reasoning | Call) -> Mapping[str, Any]:
    if isinstance(piece, Call):
        return {"functionCall": {"id": piece.id, "name": piece.name, "args": piece.value}, "thoughtSignature": "c2ln"}
    return _text(piece.text, thought=isinstance(piece, Reasoning))


def _response(
    parts: Sequence[Mapping[str, Any]], answer: Answer, setting: Setting, *, last: bool = False
) -> Mapping[str, Any]:
    usage = usage_of(answer, setting)
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if last:
        candidate["finishReason"] = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(answer.finish, "STOP")
    metadata = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "cachedContentTokenCount": usage.cache_read,
        "totalTokenCount": usage.input + usage.output,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": metadata,
        "modelVersion": setting.model,
        "responseId": f"response-{setting.number}",
    }


# -- what is refused


def _tools_problem(tools: Sequence[Mapping[str, Any]]) -> str:
    names = [one["name"] for tool in tools for one in tool.get("functionDeclarations") or ()]
    for place, name in enumerate(names):
        if re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", name) is None:
            return f"Invalid function name at tools[0].function_declarations[{place}].name"
    doubled = [name for name in names if names.count(name) > 1]
    return f"Duplicate function declaration found: {doubled[0]}" if doubled else ""


def _contents_problem(contents: Sequence[Mapping[str, Any]]) -> str:
    waiting = 0
    for place, content in enumerate(contents):
        parts = content.get("parts") or []
        if not parts:
            return f"* GenerateContentRequest.contents[{place}].parts: contents.parts must not be empty."
        if any(not set(part) - {"thought", "thoughtSignature"} or part.get("text", "x") == "" for part in parts):
            return f"contents[{place}].parts: required oneof field 'data' must have one initialized field"
        answers = sum("functionResponse" in part for part in parts)
        if answers != waiting:
            return (
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        waiting = sum("functionCall" in part for part in parts)
        if waiting and (place == 0 or contents[place - 1].get("role") == "model"):
            return (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
    return "Please ensure that function call turn is answered by a function response turn." if waiting else ""
