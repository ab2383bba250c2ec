"""A conversation as one JSON document, to be kept elsewhere or taken to another machine, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import HarnessError
from ...toolkit.values import Json, JsonObject
from ..events import Origin, TurnStatus
from .values import NewSession, SessionNote, StoredConversation, StoredTurn

__all__ = ["Imported", "parsed", "portable"]

FORMAT = "harness conversation"
VERSION = 1
SIZE_LIMIT = 256 << 20
"""Characters of a document."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Session(_Strict):
    session_id: str
    created: float
    target: str
    identity: str
    tmux: str
    pane: str
    model: str
    name: str
    title: str


class _Turn(_Strict):
    turn_id: str
    prompt: str
    origin: Origin
    started: float
    ended: float | None
    status: TurnStatus | None
    usage: dict[str, Any]


class _Note(_Strict):
    at: float
    kind: str
    text: str


class _Document(_Strict):
    format: Literal["harness conversation"]
    version: int = Field(ge=1)
    session: _Session
    turns: list[_Turn]
    messages: list[dict[str, Any]]
    notes: list[_Note]


@dataclass(frozen=True, slots=True)
class Imported:
    """What a document holds."""

    start: NewSession
    messages: tuple[str, ...]
    turns: tuple[StoredTurn, ...]
    notes: tuple[SessionNote, ...]


def portable(stored: StoredConversation) -> str:
    """A conversation as a document. Secrets were taken out when it was stored."""
    session = stored.session
    kept = {name: getattr(session, name) for name in _Session.model_fields}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "session": kept,
        "turns": [{name: getattr(turn, name) for name in _Turn.model_fields} for turn in stored.turns],
        "messages": [_message(text, number) for number, text in enumerate(stored.messages, 1)],
        "notes": [{name: getattr(note, name) for name in _Note.model_fields} for note in stored.notes],
    }
    return json.dumps(document, indent=1)


def _message(text: str, number: int) -> JsonObject:
    try:
        value: Json = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise HarnessError(f"message {number} of the conversation is damaged", hint="the others are in the database")
    return value


def parsed(document: str, check: Callable[[str], object] | None = None) -> Imported:
    """What a document holds. ``check`` raises for the text of a message that is none.

    Raises:
        HarnessError: it is none of ours, or it is damaged, or a newer harness made it.
    """
    found = _checked(_loaded(document))
    session = found.session
    messages = tuple(json.dumps(message) for message in found.messages)
    for number, text in enumerate(messages if check is not None else (), 1):
        _check(text, number, check)
    return Imported(
        start=NewSession(
            target=session.target,
            identity=session.identity,
            tmux=session.tmux,
            pane=session.pane,
            model=session.model,
        ),
        messages=messages,
        turns=tuple(StoredTurn(**dict(turn)) for turn in found.turns),
        notes=tuple(SessionNote(**dict(note)) for note in found.notes),
    )


def _check(text: str, number: int, check: Callable[[str], object] | None) -> None:
    try:
        if check is not None:
            check(text)
    except ValueError as error:
        said = " ".join(str(error).split())[:200]
        raise HarnessError(f"the document is damaged: message {number} is none: {said}") from None


def _loaded(document: str) -> JsonObject:
    if len(document) > SIZE_LIMIT:
        raise HarnessError(f"the document is too large: {len(document)} characters")
    try:
        value: Json = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise HarnessError(f"the document is not JSON: {error}") from None
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise HarnessError("the document is no conversation of harness", hint="harness resume --export makes one")
    version = value.get("version")
    if isinstance(version, int) and version > VERSION:
        raise HarnessError(f"a newer harness made the document (version {version})", hint="use that harness")
    return value


def _checked(value: JsonObject) -> _Document:
    try:
        return _Document.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise HarnessError(f"the document is damaged: {where}: {first['msg'].lower()}") from None
