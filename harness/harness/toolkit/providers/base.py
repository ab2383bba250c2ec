"""The interface of providers, names of tools that APIs accept, and the generic provider."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import ToolError
from ..contract import Tool
from ..values import CallOutcome, CallStatus, Image, Json, JsonObject, Text, ToolCall, ToolResult
from .schemas import plain

__all__ = [
    "CUT",
    "Generic",
    "Names",
    "Pieces",
    "Provider",
    "Turn",
    "arguments_of",
    "ended",
    "failure_in",
    "member",
    "names_of",
    "not_run",
    "objects",
    "pieces",
    "required",
    "turn",
    "well_formed",
]


# -- The interface of providers, and what their adapters share.


NO_OUTPUT = "(no output)"
REASON = 500
"""Maximum characters of an API's error message."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The calls of one response of a model.

    ``calls`` are to be run, in this order. ``withheld`` must not run: each is already an outcome that gives the reason,
    and must be returned to the model like any other result.
    """

    calls: tuple[ToolCall, ...] = ()
    withheld: tuple[CallOutcome, ...] = ()


class Provider(ABC):
    """The format of one API for tools, calls and results. Adapters are stateless.

    ``tools`` must be the same list in all calls: names that an API does not accept are replaced, and mapping them back
    requires all of them.
    """

    @abstractmethod
    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        """Return the value of the request's ``tools``; empty without tools."""

    def request(self, tools: Iterable[Tool[Any]]) -> JsonObject:
        """Return the members for a request: ``{"tools": [...]}``, or nothing without tools, as the APIs require."""
        found: list[Json] = [dict(definition) for definition in self.definitions(tools)]
        return {"tools": found} if found else {}

    @abstractmethod
    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        """Return the calls of a complete (not streamed) response, given as its JSON object.

        Calls of a response that did not end properly (length limit, content filter) are withheld: their arguments may
        be truncated.

        Raises:
            ToolError: this is not a response of that API, or it is an error; the message contains the API's reason.
        """

    @abstractmethod
    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        """Return the messages with the results of one response, in the order in which to append them."""


# -- Reading responses.


def member(value: object, *names: str) -> Any:
    """Return the first of these members that exists, or None."""
    found = value if isinstance(value, Mapping) else {}
    return next((found[name] for name in names if name in found), None)


def objects(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list."""
    yield from (item for item in (value if isinstance(value, list | tuple) else ()) if isinstance(item, Mapping))


def required(response: JsonObject, api: str, *names: str) -> Any:
    """Return a member that every response of the API has; if it is missing, raise the API's own error."""
    value = member(response, *names)
    there = isinstance(value, list | tuple)
    if there and value:
        return value
    reason = failure_in(response)
    if not there:
        reason = reason or _said(member(response, "message")) or _said(member(response, "detail"))
    if reason:
        raise ToolError(f"{api} returned an error: {reason}")
    if not there:
        raise ToolError(f"this is not a response of {api}: it has no list {names[0]!r}")
    return value


def failure_in(response: JsonObject) -> str:
    """Return an API's own error message on one line: its ``error``, or Gemini's ``promptFeedback``.

    Returns:
        Empty if the response has none.
    """
    error = member(response, "error")
    if isinstance(error, Mapping) and error:
        said = _said(*(member(error, name) for name in ("message", "type", "status", "code")))
        return said or _line(json.dumps(dict(error), default=str))
    feedback = member(response, "promptFeedback", "prompt_feedback")
    blocked = member(feedback, "blockReason", "block_reason")
    if blocked:
        return _said(
            member(feedback, "blockReasonMessage", "block_reason_message"), f"the prompt was blocked: {blocked}"
        )
    return _said(error)


def _said(*parts: object) -> str:
    """Return the first non-empty part, followed by the next one in parentheses."""
    given = (str(part) for part in parts if isinstance(part, str | int) and not isinstance(part, bool))
    found = [line for text in given if (line := _line(text))]
    return f"{found[0]} ({found[1]})" if len(found) > 1 else "".join(found)


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= REASON else f"{text[:REASON]}..."


def arguments_of(value: object) -> JsonObject | str:
    """Return arguments as received; values other than objects and texts become text, for the error message."""
    return value if isinstance(value, str | Mapping) else json.dumps(value) if value is not None else ""


def turn(calls: Iterable[ToolCall], why_not: str = "") -> Turn:
    """Return the calls to run; with a reason, all of them are withheld."""
    if why_not:
        return Turn(withheld=tuple(not_run(call, why_not) for call in calls))
    return Turn(tuple(calls))


def not_run(call: ToolCall, reason: str) -> CallOutcome:
    """Return the outcome of a call that is withheld."""
    result = ToolResult.failure("not_run", f"not run: {reason}; nothing happened")
    return CallOutcome(call, result, CallStatus.ERROR)


CUT = "the response was cut off at its length limit, so the arguments may be incomplete; write less"


def ended(reason: object, proper: frozenset[str], by_length: frozenset[str], *, given: bool) -> str:
    """Return why calls of a response with this stop reason are withheld; empty if they may run.

    Args:
        reason: the stop reason.
        proper: stop reasons of complete responses.
        by_length: stop reasons of truncated responses.
        given: whether the response has a stop reason.
    """
    if not given or (isinstance(reason, str) and reason in proper):
        return ""
    if isinstance(reason, str) and reason in by_length:
        return CUT
    return "the response has not ended" if reason is None else f"the response ended with {reason!r}"


# -- Writing results.


@dataclass(frozen=True, slots=True)
class Pieces:
    """A result for a model: one text, never empty, and the images that the API accepts."""

    text: str
    images: tuple[Image, ...]


def pieces(result: ToolResult, media_types: frozenset[str]) -> Pieces:
    """Return the texts joined, ``(no output)`` for none, and a line for each image that cannot be sent."""
    images = tuple(block for block in result.content if isinstance(block, Image))
    parts = [block.text for block in result.content if isinstance(block, Text)]
    parts += [
        f"[an image of type {image.media_type} was omitted]" for image in images if image.media_type not in media_types
    ]
    sent = tuple(image for image in images if image.media_type in media_types)
    text = well_formed("\n".join(parts))
    if not text.strip():
        text = (result.error_code or "failed") if result.is_error else "(an image)" if sent else NO_OUTPUT
    return Pieces(text, sent)


def well_formed(text: str) -> str:
    """Return the text as APIs accept it: single surrogates (from invalid UTF-8) become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# -- Names of tools that APIs accept, and mapping them back.


LONGEST = 64
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Names:
    """The replaced names, in both directions."""

    by_own: Mapping[str, str] = field(default_factory=dict)
    by_shown: Mapping[str, str] = field(default_factory=dict)

    def shown(self, name: str) -> str:
        """Return the name that the model sees."""
        return self.by_own.get(name, name)

    def own(self, name: str) -> str:
        """Return the tool's own name; an unknown name is unchanged."""
        return self.by_shown.get(name, name)


def names_of(tools: Iterable[Tool[Any]], first: str = "") -> Names:
    """Return unique names that match ``[A-Za-z0-9_-]{1,64}``, independent of the order of the tools.

    Args:
        tools: the tools.
        first: a pattern for the first character, if the API requires one.
    """
    own = sorted({tool.name for tool in tools})
    plain = {name for name in own if _fits(name, first)}
    changed: dict[str, str] = {}
    for name in own:
        if name not in plain:
            changed[name] = _changed(name, first, plain | set(changed.values()))
    return Names(changed, {shown: name for name, shown in changed.items()})


def _fits(name: str, first: str) -> bool:
    return bool(name) and len(name) <= LONGEST and not _FOREIGN.search(name) and bool(re.match(first, name))


def _changed(name: str, first: str, taken: set[str]) -> str:
    simple = _FOREIGN.sub("_", name) or "tool"
    simple = simple if re.match(first, simple) else f"_{simple}"
    if len(simple) <= LONGEST and simple not in taken:
        return simple
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{simple[: LONGEST - 11]}_{mark}"


# -- A generic format for models without an adapter, and for tests.


PROPER = frozenset({"stop"})
LENGTH = frozenset({"length"})


class Generic(Provider):
    """Tools: ``{name, description, input_schema}``. Response: ``{calls: [{id, name, arguments}], finish: "stop"}``.

    ``finish`` is ``stop``, ``length`` or any other word for an error; without it the response is complete.
    Results: ``{call_id, name, content, is_error, error_code}``, with ``data`` and ``images`` if there are any.
    """

    def definitions(self, tools: Iterable[Tool[Any]]) -> list[JsonObject]:
        tools = list(tools)
        names = names_of(tools)
        return [
            {"name": names.shown(tool.name), "description": tool.description, "input_schema": plain(tool.schema)}
            for tool in tools
        ]

    def calls(self, response: JsonObject, tools: Iterable[Tool[Any]] = ()) -> Turn:
        names = names_of(tools)
        found = []
        for item in objects(required(response, "the generic format", "calls")):
            arguments = arguments_of(item.get("arguments"))
            provider_id = str(item.get("id") or "")
            found.append(ToolCall(names.own(str(item.get("name"))), arguments, provider_id=provider_id))
        return turn(found, ended(member(response, "finish"), PROPER, LENGTH, given="finish" in response))

    def results(self, outcomes: Sequence[CallOutcome], tools: Iterable[Tool[Any]] = ()) -> list[JsonObject]:
        names = names_of(tools)
        return [_result(outcome, names.shown(outcome.call.name)) for outcome in outcomes]


def _result(outcome: CallOutcome, name: str) -> JsonObject:
    result = outcome.result
    kinds = frozenset(getattr(block, "media_type", "") for block in result.content)
    found = pieces(result, kinds)
    images: list[Json] = [
        {"media_type": image.media_type, "data": base64.b64encode(image.data).decode()} for image in found.images
    ]
    written: dict[str, Json] = {
        "call_id": outcome.call.provider_id,
        "name": name,
        "content": found.text,
        "is_error": result.is_error,
        "error_code": result.error_code,
    }
    return written | ({"data": result.data} if result.data is not None else {}) | ({"images": images} if images else {})
