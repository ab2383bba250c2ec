"""Conversations on the disk: written as they happen, listed, taken up again, exported and imported.

::

    store = SessionStore()
    summary = await store.create(NewSession(target=str(ctx.target), identity=ctx.identity, model="claude"))
    async with store.writing(summary.session_id) as log:
        await log.turn_started(turn_id, "why is the disk full?")
        await log.append([dumped(message)])

    stored = await store.load((await store.find("k3f9")).session_id)
"""

from __future__ import annotations

from .log import ConversationLog, JobNotes, MemoryLog, StoredLog
from .store import SessionRetention, SessionStore
from .values import (
    InvalidDocument,
    Listed,
    NewSession,
    SessionDamaged,
    SessionInUse,
    SessionNote,
    SessionNotFound,
    SessionSummary,
    StoredConversation,
    StoredTurn,
)

__all__ = [
    "ConversationLog",
    "InvalidDocument",
    "JobNotes",
    "Listed",
    "MemoryLog",
    "NewSession",
    "SessionDamaged",
    "SessionInUse",
    "SessionNotFound",
    "SessionNote",
    "SessionRetention",
    "SessionStore",
    "SessionSummary",
    "StoredConversation",
    "StoredLog",
    "StoredTurn",
]
