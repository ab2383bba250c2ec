"""The conversations of this machine: one database that all processes of a user share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ...toolkit.values import JsonObject
from ..events import Origin, TurnStatus
from .log import ConversationLog
from .values import NewSession, SessionSummary, StoredConversation

__all__ = ["SessionStore", "StoredLog"]


class SessionStore:
    """Stored conversations.

    Every method raises :class:`~harness.errors.HarnessError` when the database cannot be read or written.

    ::

        summary = await store.create(NewSession(target=str(ctx.target), identity=ctx.identity))
        async with store.writing(summary.session_id) as log:      # SessionInUse: another process goes on with it
            await log.append([dumped(message)])
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    async def create(self, start: NewSession) -> SessionSummary:
        """Begin a conversation; returns it with its id."""
        raise NotImplementedError

    @asynccontextmanager
    async def writing(self, session_id: str) -> AsyncIterator[StoredLog]:
        """The log of a conversation, for this process alone as long as it is open."""
        raise NotImplementedError
        yield

    async def list(
        self, *, identity: str | None = None, limit: int | None = None, text: str = ""
    ) -> tuple[SessionSummary, ...]:
        """Conversations, the one that was changed last first; of one target, and with a text in title or name."""
        raise NotImplementedError

    async def find(self, text: str) -> SessionSummary:
        """The conversation of that id, beginning of an id, or name. Raises :class:`SessionNotFound`."""
        raise NotImplementedError

    async def last(self, identity: str | None = None) -> SessionSummary | None:
        """The one that was changed last, on that target or anywhere."""
        raise NotImplementedError

    async def load(self, session_id: str) -> StoredConversation:
        """Everything of a conversation. Raises :class:`SessionNotFound`."""
        raise NotImplementedError

    async def rename(self, session_id: str, name: str) -> SessionSummary:
        """Give a conversation a name; empty takes it away."""
        raise NotImplementedError

    async def delete(self, session_id: str) -> None:
        """Remove a conversation. Raises :class:`SessionInUse`."""
        raise NotImplementedError


class StoredLog(ConversationLog):
    """The log of a stored conversation. Obtained from :meth:`SessionStore.writing`."""

    session_id: str

    async def turn_started(self, turn_id: str, prompt: str, origin: Origin = "operator") -> None:
        raise NotImplementedError

    async def append(self, messages: Sequence[str]) -> None:
        raise NotImplementedError

    async def replaced(self, messages: Sequence[str], summary: str) -> None:
        raise NotImplementedError

    async def turn_ended(self, turn_id: str, status: TurnStatus, usage: JsonObject | None = None) -> None:
        raise NotImplementedError

    async def noted(self, kind: str, text: str) -> None:
        raise NotImplementedError
