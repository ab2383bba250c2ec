"""The message history of a conversation: repaired for every provider, stored as text, and its estimated tokens."""

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


# -- Estimated tokens of texts and conversations; providers count them only in their responses.


CHARACTERS = 3.3
"""ASCII characters per token: prose has four, logs and code three."""
PICTURE = 1_600
MESSAGE, PART, CALL = 4, 2, 12
"""Tokens in addition to the content of a message, a part and a call."""


def estimate(what: str | Sequence[ModelMessage]) -> int:
    """Return the estimated tokens of a text or of messages, rather too many than too few. Pure."""
    return _text(what) if isinstance(what, str) else sum(map(_message, what))


def overhead(instructions: str, tools: Sequence[ToolDefinition]) -> int:
    """Return the tokens of a request in addition to its messages. Pure."""
    return _text(instructions) + sum(map(_tool, tools))


def _tool(tool: ToolDefinition) -> int:
    return CALL + _text(f"{tool.name} {tool.description}") + _text(json.dumps(tool.parameters_json_schema, default=str))


def _text(text: str) -> int:
    if text.isascii():
        return int(len(text) / CHARACTERS) + 1
    further = len(text.encode("utf-8", "surrogatepass")) - len(text)  # bytes of characters after their first
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


# -- The message history: repaired for every provider, and stored as text


NO_RESULT = (
    "[harness: no result of this call was stored, because harness exited. What is known of it follows further below, "
    "in the notice that harness was restarted. If it is not named there, it may have run, in part or as a whole: "
    "check the state of the target before you do anything like it again.]"
)
NO_BEGINNING = "[harness: earlier messages of this conversation were removed.]"
ANSWERED_BY = "answered_by"
FAILED = "[failed]"
TELLS_ERRORS = frozenset({"anthropic", "bedrock", "google"})
"""Providers whose protocol can mark a result as an error."""
SIGNS = frozenset({"anthropic", "bedrock"})
"""Providers that accept no reasoning back without its signature."""
ID_LENGTH = 40
"""The maximum length of a call's id that every provider accepts."""

_MESSAGE: TypeAdapter[ModelMessage] = TypeAdapter(
    ModelMessage,
    config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"),
)


# -- repair


def repaired(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages repaired after a cancel, a crash or a cut-off response, so that every provider accepts them.

    Pure. Requests and responses alternate, starting with a request. Each call has exactly one result, at the start of
    the next request and in the order of the calls. A call without a result gets one that says its outcome is unknown;
    calls of a cut-off response are removed, because they did not run. Results without a call, and further results of
    the same call, are removed. Ids of calls are unique, no part is empty, and no text of a user is dropped. Repairing
    twice changes nothing, and later messages do not change how earlier ones were repaired, except the last. Messages
    that need no change are the same objects.
    """
    return _with_own_ids(_alternating(_cleaned(messages)))


def _cleaned(messages: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    for message in messages:
        clean = cleaned_request(message) if isinstance(message, ModelRequest) else cleaned_response(message)
        if clean is not None:
            yield clean


def _alternating(messages: Iterator[ModelMessage]) -> list[ModelMessage]:
    """Return alternating requests and responses, with a result for each call."""
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
    """Append a message; one that follows a message of its kind is merged with it."""
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
    """Return one request with these results and the other parts of the requests."""
    parts = [*results, *(part for one in requests for part in one.parts if not isinstance(part, ToolReturnPart))]
    if not requests:
        return ModelRequest(parts)
    if len(requests) == 1 and same(parts, requests[0].parts):
        return requests[0]
    metadata = {name: value for one in requests for name, value in (one.metadata or {}).items()}
    instructions = next((one.instructions for one in reversed(requests) if one.instructions), None)
    return replace(requests[-1], parts=parts, metadata=metadata or None, instructions=instructions)


def _answers(messages: Iterator[ModelMessage]) -> Iterator[tuple[ModelResponse | None, list[ModelRequest]]]:
    """Return each response with the requests up to the next one, starting with those before any response."""
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
    """Return the response with the calls to keep, and their results in the same order."""
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
    """Make the ids of calls unique, and give results the ids and names of their calls."""
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
    """Return the call with a unique id; ``taken`` counts for each id how many start with it."""
    simple = FOREIGN.sub("_", call.tool_call_id)[:ID_LENGTH] or "call"
    own, number = simple, taken.get(simple, 1)
    while own in taken:
        number += 1
        own = f"{simple[: ID_LENGTH - 1 - len(str(number))]}_{number}"
    taken[simple] = number
    taken.setdefault(own, 1)
    return call if own == call.tool_call_id else replace(call, tool_call_id=own, id=None)


def _answering(request: ModelRequest, calls: Sequence[ToolCallPart]) -> ModelRequest:
    """Return the request with its first parts given the ids and names of the calls that they answer."""
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
    """Return the response with a mark of its model, by which :func:`suited` recognizes it."""
    return replace(response, metadata={**(response.metadata or {}), ANSWERED_BY: _mark_of(model)})


def _mark_of(model: Model) -> str:
    """Return a mark of one model at one address in one protocol; forms of reasoning differ between protocols."""
    while isinstance(model, WrapperModel):
        model = model.wrapped
    told = f"{type(model).__name__} {model.model_id} {model.base_url or ''}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]  # the address may contain a password


def suited(messages: Sequence[ModelMessage], model: Model) -> list[ModelMessage]:
    """Return repaired messages adapted to the model that is asked next. Pure.

    Responses of another provider, address or model lose their reasoning, signatures, ids and details, which only their
    own provider accepts. Content that this model does not accept, such as images, is replaced by a note. Where the
    protocol cannot mark a result as an error, the text of the result says so.
    """
    suit = _ModelAdapter(_mark_of(model), model.system, (model.base_url or "").rstrip("/"))
    found = [suit.of(message) for message in messages]
    return model.prepare_messages(found) if _needs_preparing(found, model) else found


@dataclass(frozen=True, slots=True)
class _ModelAdapter:
    """Adapts messages to one model."""

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
    """Return whether the library has to change the messages, which is slower than everything else here."""
    if model.profile.get("tool_call_id_length") is not None:
        return True
    results = (part for message in messages for part in message.parts if isinstance(part, ToolReturnPart))
    return any(isinstance(part.content, list) for part in results)


def _with_errors_in_words(request: ModelRequest) -> ModelRequest:
    parts = [_error_in_words(part) if isinstance(part, ToolReturnPart) else part for part in request.parts]
    return request if same(parts, request.parts) else replace(request, parts=parts)


def _error_in_words(part: ToolReturnPart[Any]) -> ToolReturnPart[Any]:
    """Put the error into the text; the library would send a JSON object, in which long output is hard to read."""
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
    """Return a message as JSON text, which :func:`loaded` reads."""
    try:
        text = _MESSAGE.dump_json(message, warnings=False).decode()
    except PydanticSerializationError:  # a text contains bytes that are not UTF-8
        return _MESSAGE.dump_json(escaped(message), warnings=False).decode()
    if MARK in text or "\ufffd" in text:  # argument names with such bytes were serialized without an error
        return _MESSAGE.dump_json(escaped(message), warnings=False).decode()
    return text


def loaded(text: str) -> ModelMessage:
    """Return the message that :func:`dumped` wrote.

    Raises:
        ValueError: the text is not a message.
    """
    message = _MESSAGE.validate_json(text)
    return unescaped(message) if MARK in text else message


def checked(response: ModelResponse) -> None:
    """Check that a response can be stored; some providers' libraries pass numbers on in place of texts.

    Raises:
        ValueError: it cannot be stored.
    """
    loaded(dumped(response))
