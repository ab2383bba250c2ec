"""A conversation as one JSON document, to be kept elsewhere or taken to another machine, and back. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import HarnessError
from ...toolkit.values import Json, JsonObject
from .document import FORMAT, VERSION, Document, Note, Session, Turn, read_document, read_json
from .values import IMPORTED, InvalidDocument, NewSession, SessionNote, StoredConversation, StoredTurn

__all__ = ["Imported", "parsed", "portable"]

Check = Callable[[str], object]


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
    """What a document holds. ``check`` raises a ValueError for the text of a message that is none.

    Raises:
        InvalidDocument: it is none of ours, or it is damaged, or a newer harness made it.
    """
    found = read_document(document)
    session = found.session
    messages = tuple(json.dumps(message) for message in found.messages)
    for number, text in enumerate(messages, 1):
        _check(text, f"message {number}", check)
    _check_subagents(found, check)
    return Imported(
        start=NewSession(
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
        notes=tuple(SessionNote(**dict(note)) for note in found.notes),
    )


def _check_subagents(document: Document, check: Check | None) -> None:
    for place, note in enumerate(document.notes):
        for number, text in enumerate(note.subagent_messages(), 1):
            _check(text, f"message {number} of notes.{place}", check)


def _check(text: str, which: str, check: Check | None) -> None:
    try:
        if (place := _elsewhere(read_json(text))) is not None:
            raise ValueError(f"it refers to a file elsewhere ({place}), which harness never writes")
        if check is not None:
            check(text)
    except (ValueError, RecursionError, InvalidDocument) as error:
        said = " ".join(str(error).split())[:200]
        raise InvalidDocument(f"the document is damaged: {which} is none: {said}") from None


def _elsewhere(message: Any) -> str | None:
    """Whether a part of a message would be fetched from an address when it is sent: that is nobody's to choose."""
    parts = message.get("parts") if isinstance(message, dict) else None
    for part in parts if isinstance(parts, list) else ():
        content = part.get("content") if isinstance(part, dict) else None
        for item in content if isinstance(content, list) else [content]:
            kind = item.get("kind") if isinstance(item, dict) else None
            if isinstance(kind, str) and (kind.endswith("-url") or kind == "uploaded-file"):
                return kind
    return None
