"""A conversation as one JSON document: its validation, export and import. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from ...errors import HarnessError
from ...settings_schema import PATTERNS
from ...target import Target
from ...toolkit.values import Json, JsonObject
from ..events import Origin, TurnStatus
from .conversation_log import JOB_ENDED, JOB_LEFT
from .rows import LATEST
from .values import (
    IMPORTED,
    ConversationNote,
    InvalidDocument,
    NewConversation,
    StoredConversation,
    StoredTurn,
    is_session_id,
)

__all__ = [
    "FORMAT",
    "VERSION",
    "Document",
    "Imported",
    "Note",
    "Session",
    "Turn",
    "parsed",
    "portable",
    "read_document",
    "read_json",
]


# -- The form of the document, and validation of its values. Pure.


FORMAT = "harness conversation"
VERSION = 1
SIZE_LIMIT = 256 << 20
"""Maximum characters of a document."""
DEPTH_LIMIT = 150
LINE = 1_000
"""Maximum characters of a name."""
SHOWN = 60
"""Maximum characters of a quotation in an error."""
_JOB_NOTE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}(?: [!-~]{1,500})?")
"""The ID of a job, and its host if the conversation works on many."""
SUBAGENT = "subagent"
"""The kind of the notes about sub-agents, of :mod:`..stored_usage`."""
SPENT = "spent"
"""The kind of the notes about usage, of :mod:`..stored_usage`."""


# -- values


def _line(text: str) -> str:
    if len(text) > LINE or not text.isprintable():
        raise ValueError(f"expected one printable line of at most {LINE} characters")
    return text


def _matching(name: str) -> AfterValidator:
    """Return a validator for an empty text, or one that matches a pattern of the settings."""
    pattern, what = PATTERNS[name]

    def check(text: str) -> str:
        if text and re.fullmatch(pattern, text, re.ASCII) is None:
            raise ValueError(f"expected {what}")
        return text

    return AfterValidator(check)


def _id(text: str) -> str:
    if not is_session_id(text):
        raise ValueError("expected the id of a conversation")
    return text


def _target(text: str) -> str:
    try:
        return str(Target.parse(_line(text)))
    except HarnessError:
        raise ValueError("expected a target, such as local: or ssh://user@host") from None


def _identity(text: str) -> str:
    _target(text.partition("#")[0])
    return _line(text)


def _usage(usage: JsonObject) -> JsonObject:
    for name, value in usage.items():
        if value is not None and not _is_amount(value):
            raise ValueError(f"{_short(name)}: expected a number of at least 0")
    return usage


def _is_amount(value: Json) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 1 << 53 if isinstance(value, int) else math.isfinite(value) and value >= 0


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _short_text(value: object) -> str:
    if len(text := _text(value)) > LINE:
        raise ValueError(f"expected at most {LINE} characters")
    return text


Text = Annotated[str, PlainValidator(_text)]
"""Any text, also one with surrogates, which represent bytes that are not UTF-8."""
ShortText = Annotated[str, PlainValidator(_short_text)]
Line = Annotated[str, AfterValidator(_line)]
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")]
Time = Annotated[float, Field(ge=0, le=LATEST, allow_inf_nan=False)]
Usage = Annotated[dict[str, Any], AfterValidator(_usage)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class Session(_Strict):
    """The properties of the whole conversation."""

    session_id: Annotated[str, AfterValidator(_id)]
    created: Time
    target: Annotated[str, AfterValidator(_target)]
    identity: Annotated[str, AfterValidator(_identity)]
    tmux: Annotated[str, _matching("session")]
    pane: Annotated[str, _matching("pane")]
    model: Line
    name: ShortText
    title: ShortText


class Turn(_Strict):
    """One turn."""

    turn_id: Word
    prompt: Text
    origin: Origin
    started: Time
    ended: Time | None
    status: TurnStatus | None
    usage: Usage

    @model_validator(mode="after")
    def _check(self) -> Turn:
        if (self.ended is None) != (self.status is None):
            raise ValueError("ended and status must both be set or both be null")
        return self


class _Subagent(_Strict):
    """The content of a note about a sub-agent."""

    agent: Line
    what: Literal["turn_started", "messages", "replaced", "turn_ended", "noted"]
    turn_id: Word = "-"
    prompt: Text = ""
    messages: list[Text] = []
    summary: Text = ""
    status: TurnStatus | None = None
    usage: Usage = {}
    kind: Line = ""
    text: Text = ""


Said = TypeVar("Said", bound=_Strict)


class _UsageNote(_Strict):
    """The content of a note about the usage of a request."""

    turn: Literal[""] | Word
    usage: Usage


class Note(_Strict):
    """Another event of the conversation."""

    at: Time
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,39}$")]
    text: Text

    @model_validator(mode="after")
    def _check(self) -> Note:
        if self.kind == "model":
            _line(self.text)
        if self.kind in (JOB_LEFT, JOB_ENDED) and not _JOB_NOTE.fullmatch(self.text):
            raise ValueError("expected the id of a job")
        if self.kind == SUBAGENT:
            self.subagent_messages()
        if self.kind == SPENT:
            _said_in(_UsageNote, self.text)
        return self

    def subagent_messages(self) -> list[str]:
        """Return the messages in a note about a sub-agent, as texts; other notes have none.

        Raises:
            ValueError: the note is invalid.
        """
        return _said_in(_Subagent, self.text).messages if self.kind == SUBAGENT else []


def _said_in(kind: type[Said], text: str) -> Said:
    """Return the content of a note.

    Raises:
        ValueError: it is not of that kind.
    """
    try:
        return kind.model_validate(read_json(text))
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    except InvalidDocument as error:
        raise ValueError(error.message) from None


class Document(_Strict):
    """The whole document."""

    format: Literal["harness conversation"]
    version: int = Field(ge=1)
    session: Session
    turns: list[Turn]
    messages: list[dict[str, Any]]
    notes: list[Note]


# -- reading


def read_document(text: str) -> Document:
    """Return the validated document in a text.

    Raises:
        InvalidDocument: it is not a document of harness, it is damaged, or a newer harness wrote it.
    """
    if len(text) > SIZE_LIMIT:
        raise InvalidDocument(f"the document is too large: {len(text)} characters")
    value = read_json(text)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidDocument("the document is not a harness conversation", hint="harness resume --export writes one")
    version = value.get("version")
    if isinstance(version, int) and version > VERSION:
        made = f"a newer harness wrote the document (version {_short(str(version), 20)})"
        raise InvalidDocument(made, hint="use that harness")
    try:
        document = Document.model_validate(value)
    except ValidationError as error:
        raise InvalidDocument(f"the document is damaged: {_first(error)}") from None
    seen: set[str] = set()
    for place, turn in enumerate(document.turns):
        if turn.turn_id in seen:
            raise InvalidDocument(f"the document is damaged: turns.{place}.turn_id: duplicate id")
        seen.add(turn.turn_id)
    return document


def read_json(text: str) -> Json:
    """Return the value of a JSON text.

    Raises:
        InvalidDocument: it is not JSON, has a duplicate name, or is nested too deeply.
    """
    try:
        value: Json = json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise InvalidDocument("the document is not JSON: it is nested too deeply") from None
    except ValueError as error:
        raise InvalidDocument(f"the document is not JSON: {_short(str(error), 200)}") from None
    if any(depth > DEPTH_LIMIT for depth in _depths(value)):
        raise InvalidDocument("the document is damaged: it is nested too deeply")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate name {_short(next(name for name in names if names.count(name) > 1))!r}")
    return found


def _depths(value: Json) -> Iterator[int]:
    """Yield the depth of each part of a value."""
    waiting: list[tuple[Json, int]] = [(value, 1)]
    while waiting:
        one, depth = waiting.pop()
        yield depth
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        waiting += (
            [(each, depth + 1) for each in inner if isinstance(each, dict | list)] if depth <= DEPTH_LIMIT else []
        )


def _first(error: ValidationError) -> str:
    """Return the location and the message of the first error."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(_short(str(part)) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return f"{where}: {what[:1].lower()}{what[1:]}" if where else what


def _short(text: str, limit: int = SHOWN) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


# -- A conversation as one JSON document, to be kept elsewhere or taken to another machine, and back. Pure.
# -- Export of a conversation as one JSON document, and import. Pure.

Check = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Imported:
    """What a document holds."""

    """The content of an imported document."""
    start: NewConversation
    messages: tuple[str, ...]
    turns: tuple[StoredTurn, ...]
    notes: tuple[ConversationNote, ...]


def portable(stored: StoredConversation) -> str:
    """Return a conversation as a document; its secrets were redacted before it was stored."""
    session = stored.session
    kept = {name: getattr(session, name) for name in Session.model_fields}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "session": kept,
        "turns": [{name: getattr(turn, name) for name in Turn.model_fields} for turn in stored.turns],
        "messages": [_message(text, number) for number, text in enumerate(stored.messages, 1)],
        "notes": [{name: getattr(note, name) for name in Note.model_fields} for note in stored.notes],
    }
    return json.dumps(document, indent=1)


def _message(text: str, number: int) -> JsonObject:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise HarnessError(f"message {number} of the conversation is damaged", hint="the others are in the database")
    return value


def parsed(document: str, check: Check | None = None) -> Imported:
    """Return the content of a document.

    Args:
        document: the text of the document.
        check: raises ValueError for the text of an invalid message.

    Raises:
        InvalidDocument: it is not a document of harness, it is damaged, or a newer harness wrote it.
    """
    found = read_document(document)
    session = found.session
    messages = tuple(json.dumps(message) for message in found.messages)
    for number, text in enumerate(messages, 1):
        _check(text, f"message {number}", check)
    _check_subagents(found, check)
    return Imported(
        start=NewConversation(
            target=session.target,
            identity=session.identity,
            tmux=session.tmux,
            pane=session.pane,
            model=session.model,
            name=" ".join(session.name.split()),
            options={IMPORTED: {"turns": len(found.turns), "notes": len(found.notes)}},
        ),
        messages=messages,
        turns=tuple(StoredTurn(**dict(turn)) for turn in found.turns),
        notes=tuple(ConversationNote(**dict(note)) for note in found.notes),
    )


def _check_subagents(document: Document, check: Check | None) -> None:
    for place, note in enumerate(document.notes):
        for number, text in enumerate(note.subagent_messages(), 1):
            _check(text, f"message {number} of notes.{place}", check)


def _check(text: str, which: str, check: Check | None) -> None:
    try:
        if (place := _elsewhere(read_json(text))) is not None:
            raise ValueError(f"it refers to an external file ({place}), which harness never writes")
        if check is not None:
            check(text)
    except (ValueError, RecursionError, InvalidDocument) as error:
        said = " ".join(str(error).split())[:200]
        raise InvalidDocument(f"the document is damaged: {which} is invalid: {said}") from None


def _elsewhere(message: Any) -> str | None:
    """Return the kind of a part that would be fetched from an address of the document's choice; None without one."""
    parts = message.get("parts") if isinstance(message, dict) else None
    for part in parts if isinstance(parts, list) else ():
        content = part.get("content") if isinstance(part, dict) else None
        for item in content if isinstance(content, list) else [content]:
            kind = item.get("kind") if isinstance(item, dict) else None
            if isinstance(kind, str) and (kind.endswith("-url") or kind == "uploaded-file"):
                return kind
    return None
