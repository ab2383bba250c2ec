"""What a conversation has used, as its log has it: by the end of each turn, and until then by a note for each request.

A turn that was cut off has no end, and a compaction between two turns belongs to none: there the notes count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ..toolkit.values import JsonObject
from .sessions import SessionNote, StoredConversation
from .subagent_notes import usages_of
from .usage import Spent

__all__ = ["SPENT", "note_of", "spent_in"]

SPENT = "spent"
"""Of the notes."""


def note_of(spent: Spent, turn_id: str) -> str:
    """What is kept of a request. Pure.

    Args:
        turn_id: the turn in whose sum it will be; empty: none.
    """
    return json.dumps({"turn": turn_id, "usage": dict(spent.json())})


def spent_in(stored: StoredConversation) -> Spent:
    """What a stored conversation has used, with its sub-agents. Pure."""
    turns = ((turn.turn_id, turn.usage) for turn in stored.turns)
    sums = [(turn_id, usage) for turn_id, usage in (*turns, *usages_of(stored.notes)) if usage]
    summed = {turn_id for turn_id, _ in sums}
    single = [(turn_id, usage) for turn_id, usage in _noted(stored.notes) if turn_id not in summed]
    return sum((Spent.of(usage) for _, usage in (*sums, *single)), Spent())


def _noted(notes: Iterable[SessionNote]) -> Iterator[tuple[str, JsonObject]]:
    """The turn and the usage of each note; what is none of ours is left out."""
    for note in notes:
        if note.kind == SPENT:
            try:
                facts = json.loads(note.text)
            except (ValueError, RecursionError):
                continue
            usage = facts.get("usage") if isinstance(facts, dict) else None
            if isinstance(usage, dict):
                yield str(facts.get("turn")), usage
