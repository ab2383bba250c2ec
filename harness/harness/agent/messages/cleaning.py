"""Single messages as every provider takes them: nothing empty, no bytes that JSON cannot hold, and no secrets."""

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


# -- Texts with bytes that were no UTF-8, in a form that JSON can hold, and the way back.


MARK = "\ufdd0"
"""No character, and never will be: it begins the four hexadecimal digits of what it stands for."""
UNFIT = re.compile(rf"[\ud800-\udfff{MARK}]")
MARKED = re.compile(rf"{MARK}([0-9a-f]{{4}})")
T = TypeVar("T")


def escaped(value: T) -> T:
    """A copy of a dataclass in which every text can be written as UTF-8."""
    found: T = _mapped(value, lambda text: UNFIT.sub(lambda one: f"{MARK}{ord(one[0]):04x}", text))
    return found


def unescaped(value: T) -> T:
    """What :func:`escaped` made a copy of."""
    found: T = _mapped(value, lambda text: MARKED.sub(lambda one: chr(int(one[1], 16)), text))
    return found


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each text in it changed, at any depth."""
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
        object.__setattr__(found, one.name, _mapped(getattr(value, one.name), change))  # some are frozen
    return found


# -- Messages without secrets: as they may be kept, and as notes are made of them.


def without_secrets(message: ModelMessage, redact: Callable[[str], str]) -> ModelMessage:
    """A message as it may be kept. Pure, as far as ``redact`` is.

    Reasoning that holds a secret loses its signature, which was for other words.
    """
    if isinstance(message, ModelRequest):
        return replace(message, parts=[_request_part(part, redact) for part in message.parts])
    return replace(message, parts=[_response_part(part, redact) for part in _whole(message.parts, redact)])


def _whole(parts: Sequence[ModelResponsePart], redact: Callable[[str], str]) -> Sequence[ModelResponsePart]:
    """The parts; where a secret begins in one text and ends in another, both are one."""
    texts = [part.content for part in parts if isinstance(part, TextPart)]
    if len(texts) < 2 or redact("".join(texts)) == "".join(map(redact, texts)):
        return parts
    first = next(place for place, part in enumerate(parts) if isinstance(part, TextPart))
    rest = [part for part in parts[first:] if not isinstance(part, TextPart)]
    return [*parts[:first], TextPart("".join(texts)), *rest]


def _request_part(part: ModelRequestPart, redact: Callable[[str], str]) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart):
        return part  # results come redacted
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
    """Arguments, as the text or the object that the provider sent."""
    if isinstance(value, str):
        return redact(value)
    if not isinstance(value, dict):
        return value
    return {redact(name): one for name, one in redact_object(value, redact).items()}


def without_secret_names(response: ModelResponse, redact: Callable[[str], str], known: Container[str]) -> ModelResponse:
    """An answer whose calls have no secret for an id, or for the name of a tool that is not ``known``. Pure."""

    def clean(part: ModelResponsePart) -> ModelResponsePart:
        if not isinstance(part, ToolCallPart):
            return part
        part = replace(part, tool_call_id=redact(part.tool_call_id), id=part.id and redact(part.id))
        name: Any = part.tool_name if part.tool_name in known else redact(part.tool_name)
        return replace(part, tool_name=name)

    return replace(response, parts=[clean(part) for part in response.parts]) if response.tool_calls else response


# -- Single messages as every provider takes them: nothing empty, nothing that is no character, no half reasoning.


NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What every provider takes as the name of a tool."""
FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
INFINITE = re.compile(r"NaN|Infinity")
STORED = "rs_"
"""How ids of reasoning begin that only a provider knows which keeps it, and ours are asked to keep nothing."""
FROM_TAGS = "content"
"""The id of reasoning that stood between tags in an answer's text: it would be sent as words of the answer."""


def cleaned_request(request: ModelRequest) -> ModelRequest | None:
    """The request without what no provider takes; None when nothing is left. The same object when that is all of it."""
    parts = [part for one in request.parts if (part := _cleaned_request_part(one)) is not None]
    return request if same(parts, request.parts) else replace(request, parts=parts) if parts else None


def cleaned_response(response: ModelResponse) -> ModelResponse | None:
    """As :func:`cleaned_request`, for an answer; reasoning is kept only where the provider can have it back."""
    kept = [part for one in response.parts if (part := _cleaned_response_part(one, has_ended(response))) is not None]
    parts = settled_parts(kept, lost_reasoning=_reasoning(kept) != _reasoning(response.parts))
    return response if same(parts, response.parts) else replace(response, parts=parts) if parts else None


def has_ended(response: ModelResponse) -> bool:
    """Whether the answer is all that the model wanted to say, or as much of it as its limits allowed."""
    return response.state == "complete"


def settled_parts(parts: Sequence[ModelResponsePart], *, lost_reasoning: bool = False) -> list[ModelResponsePart]:
    """The parts of an answer without reasoning at its end, which a provider refuses.

    Items that belong to reasoning which is gone lose the ids under which the provider would look for it.
    """
    kept = list(parts)
    while kept and isinstance(kept[-1], ThinkingPart):
        kept.pop()
        lost_reasoning = True
    return [_unbound(part) for part in kept] if lost_reasoning else kept


def same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether these are the same objects in the same order."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


# -- parts of requests


def _cleaned_request_part(part: ModelRequestPart) -> ModelRequestPart | None:
    match part:
        case UserPromptPart():
            return _prompt(part)
        case ToolReturnPart():
            return _result(part)
        case SystemPromptPart() | RetryFeedbackPart():  # instructions are no messages, so that this is somebody's note
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
    """A JSON value, with other things in it left alone, as it can be sent."""
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


# -- parts of answers


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
    """The same object when it can be sent."""
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
