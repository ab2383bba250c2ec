"""OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .chat import openai_error
from .dialect import Sent, Setting, event, usage_of
from .values import Answer, Call, Cut, Failure, Gate, Raw, Reasoning, Stop, Text, pieces_of

__all__ = ["ResponsesDialect"]


class ResponsesDialect:
    """``POST …/responses``."""

    name = "openai-responses"

    def stream(self, answer: Answer, setting: Setting) -> Iterator[Sent]:
        """The events of a response, numbered."""
        for number, sent in enumerate(_events(answer, setting)):
            if isinstance(sent, dict):
                yield event({**sent, "sequence_number": number}, str(sent["type"]))
            else:
                yield sent

    def whole(self, answer: Answer, setting: Setting) -> Mapping[str, Any]:
        """One response."""
        shown = [piece for piece in answer.pieces if isinstance(piece, Text | Reasoning | Call)]
        items = [_item(piece, setting, place, "completed") for place, piece in enumerate(shown)]
        return _response(answer, setting, items)

    def error(self, failure: Failure) -> Mapping[str, Any]:
        """OpenAI's form."""
        return openai_error(failure)

    def problem(self, body: Mapping[str, Any]) -> str:
        """As OpenAI checks the items."""
        items = body.get("input")
        if isinstance(items, str) and items:
            return ""
        return _items_problem(items) if isinstance(items, list) and items else "Missing required parameter: 'input'."


def _events(answer: Answer, setting: Setting) -> Iterator[dict[str, Any] | Sent]:
    started = {**_response(answer, setting, []), "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    done: list[dict[str, Any]] = []
    for piece in answer.pieces:
        match piece:
            case Stop():
                return
            case Gate() | Cut():
                yield piece
            case Raw(data):
                yield data
            case Failure():
                error = openai_error(piece)["error"]
                yield {"type": "error", "code": error["code"], "message": error["message"], "param": None}
                return
            case Text() | Reasoning() | Call():
                yield from _item_events(piece, setting, len(done))
                done.append(_item(piece, setting, len(done), "completed"))
    kind = "response.incomplete" if answer.finish else "response.completed"
    yield {"type": kind, "response": _response(answer, setting, done)}


def _item_events(piece: Text | Reasoning | Call, setting: Setting, place: int) -> Iterator[dict[str, Any]]:
    empty = _item(piece, setting, place, "in_progress")
    done = _item(piece, setting, place, "completed")
    at = {"item_id": empty["id"], "output_index": place}
    yield {"type": "response.output_item.added", "output_index": place, "item": empty}
    if isinstance(piece, Call):
        for text in pieces_of(piece):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": text}
        yield {"type": "response.function_call_arguments.done", **at, "name": piece.name, "arguments": piece.text}
    elif isinstance(piece, Reasoning):
        part = {"type": "summary_text", "text": ""}
        yield {"type": "response.reasoning_summary_part.added", **at, "summary_index": 0, "part": part}
        for text in pieces_of(piece):
            yield {"type": "response.reasoning_summary_text.delta", **at, "summary_index": 0, "delta": text}
        yield {"type": "response.reasoning_summary_text.done", **at, "summary_index": 0, "text": piece.text}
        yield {"type": "response.reasoning_summary_part.done", **at, "summary_index": 0, "part": done["summary"][0]}
    else:
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield {"type": "response.content_part.added", **at, "content_index": 0, "part": part}
        for text in pieces_of(piece):
            yield {"type": "response.output_text.delta", **at, "content_index": 0, "delta": text, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "content_index": 0, "text": piece.text, "logprobs": []}
        yield {"type": "response.content_part.done", **at, "content_index": 0, "part": done["content"][0]}
    yield {"type": "response.output_item.done", "output_index": place, "item": done}


def _item(piece: Text | Reasoning | Call, setting: Setting, place: int, status: str) -> dict[str, Any]:
    done = status == "completed"
    number = f"{setting.number}_{place}"
    match piece:
        case Call():
            call = {"call_id": piece.id, "name": piece.name, "arguments": piece.text if done else ""}
            return {"type": "function_call", "id": f"fc_{number}", "status": status, **call}
        case Reasoning():
            summary = [{"type": "summary_text", "text": piece.text}] if done else []
            return {"type": "reasoning", "id": f"rs_{number}", "summary": summary, "encrypted_content": "c2VhbGVk"}
        case Text():
            part = {"type": "output_text", "text": piece.text, "annotations": [], "logprobs": []}
            message = {"role": "assistant", "content": [part] if done else []}
            return {"type": "message", "id": f"msg_{number}", "status": status, **message}


def _response(answer: Answer, setting: Setting, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    usage = usage_of(answer, setting)
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(answer.finish)
    return {
        "id": f"resp_{setting.number}",
        "object": "response",
        "created_at": 1_760_000_000,
        "model": setting.model,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cache_read},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        },
    }


# -- what is refused


def _items_problem(items: Sequence[Mapping[str, Any]]) -> str:
    calls: list[str] = []
    answered: list[str] = []
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in calls:
                return f"No tool call found for function call output with call_id {item['call_id']}."
            answered.append(item["call_id"])
        elif kind == "reasoning" and (place + 1 == len(items) or _is_input(items[place + 1])):
            return f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
        elif kind == "message" and not item.get("content"):
            return f"Invalid type for 'input[{place}].content': expected a string or an array, got an empty one."
    if missing := [call for call in calls if call not in answered]:
        return f"No tool output found for function call {missing[0]}."
    doubled = {call for call in calls if calls.count(call) > 1} | {one for one in answered if answered.count(one) > 1}
    return f"Duplicate item found with call_id {min(doubled)}." if doubled else ""


def _is_input(item: Mapping[str, Any]) -> bool:
    kind = item.get("type", "message")
    return kind == "function_call_output" or (kind == "message" and item.get("role") != "assistant")
