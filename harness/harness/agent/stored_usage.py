"""Usage and cost of a stored conversation, and the notes of its sub-agents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..toolkit.values import Json, JsonObject
from .events import Origin, TurnStatus
from .storage import ConversationLog, ConversationNote, StoredConversation
from .usage import Usage

__all__ = [
    "SPENT",
    "SubagentLog",
    "is_running",
    "note_of",
    "spent_in",
    "texts_of",
    "usages_of",
]


# -- Sub-agents in the log of their parent agent: as notes.


KIND = "subagent"
"""The kind of those notes."""


class SubagentLog(ConversationLog):
    """The log of a sub-agent within its parent's, so that they are stored, exported and deleted together."""

    def __init__(self, parent: ConversationLog, session_id: str) -> None:
        self._parent = parent
        self._session_id = session_id

    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "agent") -> None:
        await self._note("turn_started", {"turn_id": turn_id, "prompt": prompt})

    async def append(self, messages: Sequence[str]) -> None:
        await self._note("messages", {"messages": list(messages)})

    async def replaced(self, messages: Sequence[str], summary: str) -> None:
        await self._note("replaced", {"messages": list(messages), "summary": summary})

    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        await self._note("turn_ended", {"turn_id": turn_id, "status": status, "usage": dict(usage or {})})

    async def noted(self, kind: str, text: str) -> None:
        await self._note("noted", {"kind": kind, "text": text})

    def note(self, kind: str, text: str) -> None:
        self._parent.note(KIND, self._text("noted", {"kind": kind, "text": text}))

    async def _note(self, what: str, facts: JsonObject) -> None:
        await self._parent.noted(KIND, self._text(what, facts))

    def _text(self, what: str, facts: JsonObject) -> str:
        return json.dumps({"agent": self._session_id, "what": what, **facts})


def texts_of(notes: Iterable[ConversationNote]) -> Mapping[str, Sequence[str]]:
    """Return the stored messages of the sub-agents, by session. Pure."""
    found: dict[str, list[str]] = {}
    for facts in _facts(notes):
        session, messages = str(facts["agent"]), facts.get("messages")
        if isinstance(messages, list):
            before = [] if facts["what"] == "replaced" else found.get(session, [])
            found[session] = [*before, *map(str, messages)]
    return found


def is_running(stored: StoredConversation) -> Mapping[str, str]:
    """Return the turns of the sub-agents that were running when harness exited, by session. Pure."""
    turn = stored.unfinished
    open_turns: dict[str, str] = {}
    for facts in _facts(note for note in stored.notes if turn is not None and note.at >= turn.started):
        if facts["what"] == "turn_started":
            open_turns[str(facts["agent"])] = str(facts.get("turn_id"))
        elif facts["what"] == "turn_ended":
            open_turns.pop(str(facts["agent"]), None)
    return open_turns


def usages_of(notes: Iterable[ConversationNote]) -> Iterator[tuple[str, JsonObject]]:
    """Return the ended turns of sub-agents with their usage. Pure."""
    for facts in _facts(notes):
        usage = facts.get("usage")
        if facts["what"] == "turn_ended" and isinstance(usage, dict):
            yield str(facts.get("turn_id")), usage


def _facts(notes: Iterable[ConversationNote]) -> Iterator[dict[str, Json]]:
    """Return the content of the sub-agent notes, skipping invalid ones."""
    for note in notes:
        if note.kind == KIND:
            try:
                facts = json.loads(note.text)
            except (ValueError, RecursionError):
                continue
            if isinstance(facts, dict) and {"agent", "what"} <= facts.keys():
                yield facts


# -- Usage in the log: a total at the end of each turn, and a note for each request.
#
# A turn that was cut off has no end, and a compaction between two turns belongs to none: there the notes count.


SPENT = "spent"
"""The kind of the notes for requests."""


def note_of(spent: Usage, turn_id: str) -> str:
    """Return the text of the note for a request. Pure.

    Args:
        spent: usage of the request.
        turn_id: the turn whose total will include it; empty: none.
    """
    return json.dumps({"turn": turn_id, "usage": dict(spent.json())})


def spent_in(stored: StoredConversation) -> Usage:
    """Return the usage of a stored conversation, including its sub-agents. Pure."""
    turns = ((turn.turn_id, turn.usage) for turn in stored.turns)
    sums = [(turn_id, usage) for turn_id, usage in (*turns, *usages_of(stored.notes)) if usage]
    summed = {turn_id for turn_id, _ in sums}
    single = [(turn_id, usage) for turn_id, usage in _noted(stored.notes) if turn_id not in summed]
    return sum((Usage.of(usage) for _, usage in (*sums, *single)), Usage())


def _noted(notes: Iterable[ConversationNote]) -> Iterator[tuple[str, JsonObject]]:
    """Return the turn and the usage of each note, skipping invalid ones."""
    for note in notes:
        if note.kind == SPENT:
            try:
                facts = json.loads(note.text)
            except (ValueError, RecursionError):
                continue
            usage = facts.get("usage") if isinstance(facts, dict) else None
            if isinstance(usage, dict):
                yield str(facts.get("turn")), usage
