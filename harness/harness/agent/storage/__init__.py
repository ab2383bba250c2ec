"""Stored conversations: written as they happen, listed, resumed, exported and imported.

::

    store = ConversationStore()
    summary = await store.create(NewConversation(target=str(ctx.target), identity=ctx.identity, model="claude"))
    async with store.writing(summary.session_id) as log:
        await log.turn_started(turn_id, "why is the disk full?")
        await log.append([dumped(message)])

    stored = await store.load((await store.find("k3f9")).session_id)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deprecated_names import renamed_names
from .conversation_log import ConversationLog, JobNotes, MemoryLog, StoredLog
from .store import ConversationRetention, ConversationStore
from .values import (
    ConversationCorrupt,
    ConversationInUse,
    ConversationList,
    ConversationNote,
    ConversationNotFound,
    ConversationSummary,
    InvalidDocument,
    NewConversation,
    StoredConversation,
    StoredTurn,
)

__all__ = [
    "ConversationCorrupt",
    "ConversationInUse",
    "ConversationList",
    "ConversationLog",
    "ConversationNotFound",
    "ConversationNote",
    "ConversationRetention",
    "ConversationStore",
    "ConversationSummary",
    "InvalidDocument",
    "JobNotes",
    "MemoryLog",
    "NewConversation",
    "StoredConversation",
    "StoredLog",
    "StoredTurn",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__,
        SessionNotFound="ConversationNotFound",
        SessionInUse="ConversationInUse",
        SessionDamaged="ConversationCorrupt",
    )
