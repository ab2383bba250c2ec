"""Cleans single messages so that every provider accepts them: no empty parts, no invalid text, no secrets."""

from __future__ import annotations

import copy
import math
import operator
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import pydantic_core
from pydantic_ai.messages import (
    CachePoint,
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from ...toolkit.providers.base import NO_OUTPUT, well_formed
from ...toolkit.redaction.redactor import redact_object

__all__ = [
    "MARK",
    "cleaned_request",
    "cleaned_response",
    "escaped",
    "has_ended",
    "same",
    "settled_parts",
    "unescaped",
    "without_secret_names",
    "without_secrets",
]


# -- Text with bytes that are not UTF-8: escaped for JSON, and unescaped


MARK = "\ufdd0"
"""A Unicode noncharacter, followed by the four hexadecimal digits of the code point that it escapes."""
UNFIT = re.compile(rf"[\ud800-\udfff{MARK}]")
MARKED = re.compile(rf"{MARK}([0-9a-f]{{4}})")
T = TypeVar("T")


def escaped(value: T) -> T:
    """Return a copy of a dataclass in which every text can be encoded as UTF-8."""
    found: T = _mapped(value, lambda text: UNFIT.sub(lambda one: f"{MARK}{ord(one[0]):04x}", text))
    return found


def unescaped(value: T) -> T:
    """Return a copy with the texts restored that :func:`escaped` changed."""
    found: T = _mapped(value, lambda text: MARKED.sub(lambda one: chr(int(one[1], 16)), text))
    return found


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with ``change`` applied to each text in it, at any depth."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {_mapped(name, change): _mapped(one, change) for name, one in value.items()}
    if not is_dataclass(value):
        return value
    found = copy.copy(value)
    for one in fields(value):
        object.__setattr__(found, one.name, _mapped(getattr(value, one.name), change))  # some dataclasses are frozen
    return found


# -- Redacted messages, for storage and for summaries


def without_secrets(message: ModelMessage, redact: Callable[[str], str]) -> ModelMessage:
    """Return a message with secrets redacted, as it may be stored. Pure, if ``redact`` is.

    Redacted reasoning loses its signature, which was made for the original text.
    """
    if isinstance(message, ModelRequest):
        return replace(message, parts=[_request_part(part, redact) for part in message.parts])
    return replace(message, parts=[_response_part(part, redact) for part in _whole(message.parts, redact)])


def _whole(parts: Sequence[ModelResponsePart], redact: Callable[[str], str]) -> Sequence[ModelResponsePart]:
    """Return the parts; if a secret is split over several text parts, those become one part."""
    texts = [part.content for part in parts if isinstance(part, TextPart)]
    if len(texts) < 2 or redact("".join(texts)) == "".join(map(redact, texts)):
        return parts
    first = next(place for place, part in enumerate(parts) if isinstance(part, TextPart))
    rest = [part for part in parts[first:] if not isinstance(part, TextPart)]
    return [*parts[:first], TextPart("".join(texts)), *rest]


def _request_part(part: ModelRequestPart, redact: Callable[[str], str]) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart):
        return part  # results are redacted already
    if isinstance(part.content, str):
        return replace(part, content=redact(part.content))
    return replace(part, content=[redact(one) if isinstance(one, str) else one for one in part.content])


def _response_part(part: ModelResponsePart, redact: Callable[[str], str]) -> ModelResponsePart:
    if isinstance(part, TextPart):
        return replace(part, content=redact(part.content))
    if isinstance(part, ThinkingPart):
        clean = redact(part.content)
        return part if clean == part.content else replace(part, content=clean, signature=None)
    if isinstance(part, ToolCallPart):
        return replace(part, args=_arguments(part.args, redact))
    return part


def _arguments(value: Any, redact: Callable[[str], str]) -> Any:
    """Return redacted arguments, as text or object like the provider sent them."""
    if isinstance(value, str):
        return redact(value)
    if not isinstance(value, dict):
        return value
    return {redact(name): one for name, one in redact_object(value, redact).items()}


def without_secret_names(response: ModelResponse, redact: Callable[[str], str], known: Container[str]) -> ModelResponse:
    """Return the response with secrets redacted in ids of calls, and in names of tools that are not ``known``. Pure."""

    def clean(part: ModelResponsePart) -> ModelResponsePart:
        if not isinstance(part, ToolCallPart):
            return part
        part = replace(part, tool_call_id=redact(part.tool_call_id), id=part.id and redact(part.id))
        name: Any = part.tool_name if part.tool_name in known else redact(part.tool_name)
        return replace(part, tool_name=name)

    return replace(response, parts=[clean(part) for part in response.parts]) if response.tool_calls else response


# -- Single messages that every provider accepts: no empty parts, no invalid text, no incomplete reasoning


NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""The names of tools that every provider accepts."""
FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
INFINITE = re.compile(r"NaN|Infinity")
STORED = "rs_"
"""Prefix of ids of reasoning that only the provider stores; harness asks providers to store nothing."""
FROM_TAGS = "content"
"""The id of reasoning that was between tags in the text of a response: it would be sent back as normal text."""


def cleaned_request(request: ModelRequest) -> ModelRequest | None:
    """Return the request without parts that providers reject.

    Returns:
        The same object if nothing was removed, None if nothing is left.
    """
    parts = [part for one in request.parts if (part := _cleaned_request_part(one)) is not None]
    return request if same(parts, request.parts) else replace(request, parts=parts) if parts else None


def cleaned_response(response: ModelResponse) -> ModelResponse | None:
    """Clean a response like :func:`cleaned_request`; reasoning is kept only if the provider accepts it back."""
    kept = [part for one in response.parts if (part := _cleaned_response_part(one, has_ended(response))) is not None]
    parts = settled_parts(kept, lost_reasoning=_reasoning(kept) != _reasoning(response.parts))
    return response if same(parts, response.parts) else replace(response, parts=parts) if parts else None


def has_ended(response: ModelResponse) -> bool:
    """Return whether the response is complete, or ended at a limit of the model."""
    return response.state == "complete"


def settled_parts(parts: Sequence[ModelResponsePart], *, lost_reasoning: bool = False) -> list[ModelResponsePart]:
    """Return the parts of a response without reasoning at the end, which providers reject.

    Items that belong to removed reasoning lose their ids, under which the provider would look for it.
    """
    kept = list(parts)
    while kept and isinstance(kept[-1], ThinkingPart):
        kept.pop()
        lost_reasoning = True
    return [_unbound(part) for part in kept] if lost_reasoning else kept


def same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether both sequences have the same objects in the same order."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


# -- parts of requests


def _cleaned_request_part(part: ModelRequestPart) -> ModelRequestPart | None:
    match part:
        case UserPromptPart():
            return _prompt(part)
        case ToolReturnPart():
            return _result(part)
        case SystemPromptPart() | RetryFeedbackPart():  # harness puts no instructions into messages: this is a note
            return _prompt(UserPromptPart(str(part.content), timestamp=part.timestamp))
        case CompactionPart() if part.content:
            return _prompt(UserPromptPart(part.content))
        case _:
            return None


def _prompt(part: UserPromptPart) -> UserPromptPart | None:
    if isinstance(part.content, str):
        content: str | list[UserContent] = well_formed(part.content)
        if not part.content.strip():
            return None
    else:
        content = [well_formed(one) if isinstance(one, str) else one for one in part.content if _says_something(one)]
    if not content:
        return None
    return part if content == part.content else replace(part, content=content)


def _says_something(item: UserContent) -> bool:
    return bool(item.strip()) if isinstance(item, str) else not isinstance(item, CachePoint)


def _result(part: ToolReturnPart[Any]) -> ToolReturnPart[Any]:
    content = _plain(part.content)
    if content is None or content == [] or (isinstance(content, str) and not content.strip()):
        content = NO_OUTPUT
    elif isinstance(content, list):
        content = [NO_OUTPUT if isinstance(one, str) and not one.strip() else one for one in content]
    return part if content == part.content else replace(part, content=content)


def _plain(value: Any) -> Any:
    """Return a JSON value that can be sent; other values in it are unchanged."""
    match value:
        case str():
            return well_formed(value)
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return [_plain(one) for one in value]
        case dict():
            return {_plain(name): _plain(one) for name, one in value.items()}
        case _:
            return value


# -- parts of responses


def _cleaned_response_part(part: ModelResponsePart, ended: bool) -> ModelResponsePart | None:
    match part:
        case TextPart() if part.content.strip():
            content = well_formed(part.content)
            return part if content == part.content else TextPart(content)
        case ThinkingPart() if ended and _can_go_back(part):
            return part
        case ToolCallPart():
            return _call(part)
        case _:
            return None


def _call(part: ToolCallPart[Any]) -> ToolCallPart[Any]:
    name, arguments = _name(part.tool_name), _cleaned_arguments(part.args)
    if name == part.tool_name and arguments is part.args:
        return part
    return replace(part, tool_name=name, args=arguments)


def _can_go_back(part: ThinkingPart) -> bool:
    named = part.id and part.id != FROM_TAGS and not part.id.startswith(STORED)
    bound = part.signature or part.provider_details or named
    return bool(bound) and well_formed(part.content) == part.content


def _reasoning(parts: Sequence[ModelResponsePart]) -> int:
    return sum(isinstance(part, ThinkingPart) for part in parts)


def _unbound(part: ModelResponsePart) -> ModelResponsePart:
    return replace(part, id=None) if isinstance(part, TextPart | ToolCallPart) and part.id else part


def _name(name: str) -> str:
    if NAMED.fullmatch(name):
        return name
    simple = FOREIGN.sub("_", name)
    return (simple if NAMED.match(simple) else f"_{simple}")[:64]


def _cleaned_arguments(arguments: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
    """Return the arguments in a form that can be sent; the same object if they are already."""
    if isinstance(arguments, dict):
        clean = _plain(arguments)
        return arguments if clean == arguments else clean
    if arguments is None:
        return None
    text = well_formed(arguments)
    if INFINITE.search(text) and isinstance(found := _object(text), dict):
        clean = _plain(found)
        return arguments if clean == found else clean
    return arguments if text == arguments else text


def _object(text: str) -> object:
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        return None
