"""The messages of a conversation: valid for every provider, as text that is stored, and about how many tokens."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError

from .cleaning import (
    FOREIGN,
    MARK,
    cleaned_request,
    cleaned_response,
    escaped,
    has_ended,
    same,
    settled_parts,
    unescaped,
)

__all__ = [
    "answered_by",
    "checked",
    "dumped",
    "estimate",
    "loaded",
    "overhead",
    "repaired",
    "suited",
]


# -- About how many tokens a text or a conversation is: no provider's own count is at hand before it has answered.


CHARACTERS = 3.3
"""Of ASCII in one token: prose has four, logs and code three."""
PICTURE = 1_600
MESSAGE, PART, CALL = 4, 2, 12
"""Tokens around a message, a part and a call."""


def estimate(what: str | Sequence[ModelMessage]) -> int:
    """Tokens of a text or of messages, rather too many than too few. Pure."""
    return _text(what) if isinstance(what, str) else sum(map(_message, what))


def overhead(instructions: str, tools: Sequence[ToolDefinition]) -> int:
    """Tokens that each request has besides its messages. Pure."""
    return _text(instructions) + sum(map(_tool, tools))


def _tool(tool: ToolDefinition) -> int:
    return CALL + _text(f"{tool.name} {tool.description}") + _text(json.dumps(tool.parameters_json_schema, default=str))


def _text(text: str) -> int:
    if text.isascii():
        return int(len(text) / CHARACTERS) + 1
    further = len(text.encode("utf-8", "surrogatepass")) - len(text)  # bytes that a character has beyond its first
    return int(len(text) / CHARACTERS + further / 2) + 1


def _message(message: ModelMessage) -> int:
    return MESSAGE + sum(PART + _part(part) for part in message.parts)


def _part(part: object) -> int:
    match part:
        case TextPart():
            return _text(part.content)
        case ThinkingPart():
            return max(_text(part.content), len(part.signature or "") // 6)
        case ToolCallPart():
            return CALL + _text(part.args if isinstance(part.args, str) else json.dumps(part.args, default=str))
        case ToolReturnPart():
            return CALL + _content(part.content)
        case UserPromptPart():
            return _content(part.content)
        case _:
            return _text(str(getattr(part, "content", "")))


def _content(content: Any) -> int:
    if isinstance(content, str):
        return _text(content)
    if isinstance(content, list | tuple):
        return sum(map(_content, content))
    return PICTURE if isinstance(content, BinaryContent) else _text(str(content))


# -- The messages of a conversation: valid for every provider whatever happened to it, and as text that is stored.


NO_RESULT = (
    "[harness: no result of this call was kept, because harness was ended. What is known of it stands further below, "
    "where it is said that harness was started again. If it is not named there, it may have run, in part or as a "
    "whole: look at the state of the target before you do anything like it again.]"
)
NO_BEGINNING = "[harness: the beginning of this conversation is no longer there.]"
ANSWERED_BY = "answered_by"
FAILED = "[failed]"
TELLS_ERRORS = frozenset({"anthropic", "bedrock", "google"})
"""Providers whose protocol can say that a result is an error."""
SIGNS = frozenset({"anthropic", "bedrock"})
"""Providers that take no reasoning back without its signature."""
ID_LENGTH = 40
"""The longest id of a call that every provider takes."""

_MESSAGE: TypeAdapter[ModelMessage] = TypeAdapter(
    ModelMessage,
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"),
)


# -- repair


def repaired(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages as every provider takes them, after a cancel, a crash, or an answer that was cut off. Pure.

    Requests and answers alternate, beginning with a request. Each call of an answer has exactly one result, in the
    order of the calls at the beginning of the next request: one without says that nobody knows what came of it, and
    calls of an answer that was cut off are left out, because they did not run. Results without a call, and further
    ones of the same call, are left out. No two calls have the same id. Nothing is empty; nothing that a user wrote is
    lost. Repairing again changes nothing, and further messages do not change how the earlier ones were repaired,
    except the last. Messages that need no change are the same objects.
    """
    return _with_own_ids(_alternating(_cleaned(messages)))


def _cleaned(messages: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    for message in messages:
        clean = cleaned_request(message) if isinstance(message, ModelRequest) else cleaned_response(message)
        if clean is not None:
            yield clean


def _alternating(messages: Iterator[ModelMessage]) -> list[ModelMessage]:
    """Requests and answers in turn, with each call answered."""
    found: list[ModelMessage] = []
    for response, requests in _answers(messages):
        results: list[ToolReturnPart[Any]] = []
        if response is not None:
            settled, results = _settled(response, requests)
            _append(found, settled)
        _append(found, _merged(requests, results))
    if found and isinstance(found[0], ModelResponse):
        found.insert(0, ModelRequest([UserPromptPart(NO_BEGINNING, timestamp=found[0].timestamp)]))
    return found


def _append(found: list[ModelMessage], message: ModelMessage) -> None:
    """Put a message behind the others; one that follows its like becomes one with it."""
    last = found[-1] if found else None
    if not message.parts:
        return
    if isinstance(message, ModelRequest) and isinstance(last, ModelRequest):
        found[-1] = _merged([last, message], list(_results([last, message])))
    elif isinstance(message, ModelResponse) and isinstance(last, ModelResponse):
        said = [TextPart(part.content) for part in last.parts if isinstance(part, TextPart)]
        found[-1] = replace(message, parts=[*said, *message.parts])
    else:
        found.append(message)


def _merged(requests: Sequence[ModelRequest], results: Sequence[ToolReturnPart[Any]]) -> ModelRequest:
    """One request of some: these results, and what else the requests say."""
    parts = [*results, *(part for one in requests for part in one.parts if not isinstance(part, ToolReturnPart))]
    if not requests:
        return ModelRequest(parts)
    if len(requests) == 1 and same(parts, requests[0].parts):
        return requests[0]
    metadata = {name: value for one in requests for name, value in (one.metadata or {}).items()}
    instructions = next((one.instructions for one in reversed(requests) if one.instructions), None)
    return replace(requests[-1], parts=parts, metadata=metadata or None, instructions=instructions)


def _answers(messages: Iterator[ModelMessage]) -> Iterator[tuple[ModelResponse | None, list[ModelRequest]]]:
    """Each answer with the requests up to the next one; first those before any answer."""
    response: ModelResponse | None = None
    requests: list[ModelRequest] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            requests.append(message)
        else:
            yield response, requests
            response, requests = message, []
    yield response, requests


def _settled(
    response: ModelResponse, requests: Sequence[ModelRequest]
) -> tuple[ModelResponse, list[ToolReturnPart[Any]]]:
    """The answer with the calls that count, and their results in its order."""
    given: defaultdict[str, deque[ToolReturnPart[Any]]] = defaultdict(deque)
    for result in _results(requests):
        given[result.tool_call_id].append(result)
    results: list[ToolReturnPart[Any]] = []
    kept: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            waiting = given[part.tool_call_id]
            if not (waiting or has_ended(response)):
                continue
            results.append(waiting.popleft() if waiting else _no_result(part, response))
        kept.append(part)
    if len(kept) == len(response.parts):
        return response, results
    return replace(response, parts=settled_parts(kept)), results


def _no_result(call: ToolCallPart, response: ModelResponse) -> ToolReturnPart[Any]:
    return ToolReturnPart(
        call.tool_name, NO_RESULT, call.tool_call_id, timestamp=response.timestamp, outcome="interrupted"
    )


def _results(requests: Sequence[ModelRequest]) -> Iterator[ToolReturnPart[Any]]:
    for request in requests:
        yield from (part for part in request.parts if isinstance(part, ToolReturnPart))


# -- ids of calls


def _with_own_ids(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """No two calls under one id, and their results under the ids and names of their calls."""
    taken: dict[str, int] = {}
    found: list[ModelMessage] = []
    calls: list[ToolCallPart] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            named, calls = _named(message, taken)
            found.append(named)
        else:
            found.append(_answering(message, calls))
    return found


def _named(response: ModelResponse, taken: dict[str, int]) -> tuple[ModelResponse, list[ToolCallPart]]:
    parts = [_own(part, taken) if isinstance(part, ToolCallPart) else part for part in response.parts]
    named = response if same(parts, response.parts) else replace(response, parts=parts)
    return named, [part for part in parts if isinstance(part, ToolCallPart)]


def _own(call: ToolCallPart, taken: dict[str, int]) -> ToolCallPart:
    """The call under an id that is not taken. ``taken`` has with each id how many there are by now that begin so."""
    simple = FOREIGN.sub("_", call.tool_call_id)[:ID_LENGTH] or "call"
    own, number = simple, taken.get(simple, 1)
    while own in taken:
        number += 1
        own = f"{simple[: ID_LENGTH - 1 - len(str(number))]}_{number}"
    taken[simple] = number
    taken.setdefault(own, 1)
    return call if own == call.tool_call_id else replace(call, tool_call_id=own, id=None)


def _answering(request: ModelRequest, calls: Sequence[ToolCallPart]) -> ModelRequest:
    """The request with the ids and names of the calls that its first parts answer."""
    parts = list(request.parts)
    for place, (part, call) in enumerate(zip(parts, calls, strict=False)):
        if isinstance(part, ToolReturnPart):
            parts[place] = _renamed(part, call)
    return request if same(parts, request.parts) else replace(request, parts=parts)


def _renamed(part: ToolReturnPart[Any], call: ToolCallPart[Any]) -> ToolReturnPart[Any]:
    if (part.tool_call_id, part.tool_name) == (call.tool_call_id, call.tool_name):
        return part
    return replace(part, tool_call_id=call.tool_call_id, tool_name=call.tool_name)


# -- another provider


def answered_by(response: ModelResponse, model: Model) -> ModelResponse:
    """The answer with the model that gave it, by which :func:`suited` knows it again."""
    return replace(response, metadata={**(response.metadata or {}), ANSWERED_BY: _mark_of(model)})


def _mark_of(model: Model) -> str:
    """One model at one address in one protocol: a provider may speak several, with different forms of reasoning."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    told = f"{type(model).__name__} {model.model_id} {model.base_url or ''}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]  # an address may hold a password


def suited(messages: Sequence[ModelMessage], model: Model) -> list[ModelMessage]:
    """Repaired messages for the model that is asked next. Pure.

    Answers of another provider, at another address, or of another model come without their reasoning and without
    signatures, ids and details, which are for their own provider alone. What this model cannot take at all, such as
    pictures where it sees none, is replaced by a note. Where the protocol has no place for it, the text of a result
    says that it is an error.
    """
    suit = _ModelAdapter(_mark_of(model), model.system, (model.base_url or "").rstrip("/"))
    found = [suit.of(message) for message in messages]
    return model.prepare_messages(found) if _needs_preparing(found, model) else found


@dataclass(frozen=True, slots=True)
class _ModelAdapter:
    """What makes a message suit one model."""

    mark: str
    system: str
    url: str

    def of(self, message: ModelMessage) -> ModelMessage:
        if isinstance(message, ModelResponse):
            return self._with_own_reasoning(message) if self._is_own(message) else _without_provider(message)
        return message if self.system.partition("-")[0] in TELLS_ERRORS else _with_errors_in_words(message)

    def _with_own_reasoning(self, response: ModelResponse) -> ModelResponse:
        kept = [part for part in response.parts if not isinstance(part, ThinkingPart) or self._takes(part)]
        if len(kept) == len(response.parts):
            return response
        return replace(response, parts=settled_parts(kept, lost_reasoning=True))

    def _takes(self, part: ThinkingPart) -> bool:
        return part.provider_name == self.system and (bool(part.signature) or self.system not in SIGNS)

    def _is_own(self, response: ModelResponse) -> bool:
        mark = (response.metadata or {}).get(ANSWERED_BY)
        if mark is not None:
            return bool(mark == self.mark)
        place = (response.provider_url or self.url).rstrip("/")
        return response.provider_name == self.system and place == (self.url or place)


def _needs_preparing(messages: Sequence[ModelMessage], model: Model) -> bool:
    """Whether the library has something to do, which takes it longer than everything else here."""
    if model.profile.get("tool_call_id_length") is not None:
        return True
    results = (part for message in messages for part in message.parts if isinstance(part, ToolReturnPart))
    return any(isinstance(part.content, list) for part in results)


def _with_errors_in_words(request: ModelRequest) -> ModelRequest:
    parts = [_error_in_words(part) if isinstance(part, ToolReturnPart) else part for part in request.parts]
    return request if same(parts, request.parts) else replace(request, parts=parts)


def _error_in_words(part: ToolReturnPart[Any]) -> ToolReturnPart[Any]:
    """Else it would become a JSON object, in which an output of many lines is hard to read."""
    if part.outcome != "failed":
        return part
    content = part.content
    words = f"{FAILED}\n{content}" if isinstance(content, str) else [FAILED, *_items(content)]
    return replace(part, content=words, outcome="success")


def _items(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _without_provider(response: ModelResponse) -> ModelResponse:
    return replace(
        response,
        parts=[_portable(part) for part in response.parts if isinstance(part, TextPart | ToolCallPart)],
        provider_name=None,
        provider_url=None,
        provider_details=None,
        provider_response_id=None,
        canonical_system=None,
    )


def _portable(part: TextPart | ToolCallPart) -> TextPart | ToolCallPart:
    if isinstance(part, TextPart):
        return TextPart(part.content)
    return ToolCallPart(part.tool_name, part.args, part.tool_call_id)


# -- storing


def dumped(message: ModelMessage) -> str:
    """A message as JSON text; :func:`loaded` makes the same of it again."""
    try:
        text = _MESSAGE.dump_json(message, warnings=False).decode()
    except PydanticSerializationError:  # a text holds bytes that were no UTF-8
        return _MESSAGE.dump_json(escaped(message), warnings=False).decode()
    if MARK in text or "\ufffd" in text:  # names of arguments come so that held such bytes
        return _MESSAGE.dump_json(escaped(message), warnings=False).decode()
    return text


def loaded(text: str) -> ModelMessage:
    """The message that :func:`dumped` wrote.

    Raises:
        ValueError: it is none.
    """
    message = _MESSAGE.validate_json(text)
    return unescaped(message) if MARK in text else message


def checked(response: ModelResponse) -> None:
    """Look whether an answer is one that can be kept: some providers' libraries pass on numbers where a text belongs.

    Raises:
        ValueError: it is not.
    """
    loaded(dumped(response))
