"""The conversation that is open at the prompt, and how another one takes its place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ...agent.events import AnswerDelta, ReasoningDelta
from ...context import ExecutionContext
from ...errors import HarnessError
from ...toolkit.events import Event, Subscription
from ..conversation import ConversationStart, OpenConversation, open_conversation
from .view import EventView

if TYPE_CHECKING:
    from ...agent.storage import ConversationStore
    from ...toolkit.assembly import Toolkit

__all__ = ["Conversations", "joined"]

log = logging.getLogger(__name__)
PAUSE = 0.03
"""Seconds between two looks at what has come: pieces of an answer that come at once are drawn at once."""


class Conversations:
    """Keeps one conversation open, in a task of ``tasks``; what happens in it is shown by ``view``.

    Args:
        changed: is called after everything that happens.
    """

    def __init__(
        self,
        execution: ExecutionContext,
        toolkit: Toolkit,
        store: ConversationStore | None,
        view: EventView,
        tasks: TaskGroup,
        changed: Callable[[], None],
    ) -> None:
        self._execution = execution
        self._toolkit = toolkit
        self._store = store
        self._view = view
        self._tasks = tasks
        self._changed = changed
        self._one = anyio.Lock()
        self._opening: anyio.CancelScope | None = None
        self._events: Subscription | None = None
        self.current: OpenConversation | None = None

    async def open(self, begun: ConversationStart) -> OpenConversation:
        """Go on with another conversation; the one before is closed when it is open.

        Raises:
            HarnessError: it cannot be opened; the one before goes on.
        """
        async with self._one:
            new = await self._begun(begun)
            old, self.current = self.current, new
            if old is not None:
                await _closed(old)
            self._changed()
            return new

    async def _begun(self, begun: ConversationStart) -> OpenConversation:
        with anyio.CancelScope() as scope:
            self._opening = scope
            try:
                conversation: OpenConversation = await self._tasks.start(self._keep, begun)
                return conversation
            finally:
                self._opening = None
        raise HarnessError("cancelled; no other conversation was opened")

    def give_up_opening(self) -> bool:
        """Let :meth:`open` fail, which a lost link may hold up; False when nothing is being opened."""
        if self._opening is None:
            return False
        self._opening.cancel()
        return True

    async def close(self) -> None:
        """Close the one that is open; a turn that runs in it is cancelled."""
        async with self._one:
            old, self.current = self.current, None
            if old is not None:
                await _closed(old)

    async def _keep(self, begun: ConversationStart, *, task_status: TaskStatus[OpenConversation]) -> None:
        opened: OpenConversation | None = None
        try:
            async with open_conversation(begun, self._execution, self._toolkit, self._store) as opened:
                self._view.jobs.update(opened.running)
                with opened.agent.events.subscribe() as events:
                    await self._serve(opened, events, task_status)
        except HarnessError as error:
            if opened is None:
                raise
            self._view.note(f"the conversation was closed: {error}", "error")
        finally:
            if opened is not None:
                opened.closed.set()
                self.current = None if self.current is opened else self.current
                self._changed()

    async def _serve(
        self, opened: OpenConversation, events: Subscription, status: TaskStatus[OpenConversation]
    ) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._work, opened)
            tasks.start_soon(self._watch, events)
            status.started(opened)
            await opened.left.wait()
            tasks.cancel_scope.cancel()
        for event in events.drain():
            self._view.heard(event)

    async def _work(self, opened: OpenConversation) -> None:
        """Work on prompts; a conversation that cannot be kept any more ends, and the prompt lives on."""
        try:
            await opened.agent.serve()
        except Exception as error:  # the prompt outlives its conversations: jobs and the operator's commands need it
            log.debug("a conversation failed", exc_info=True)
            what = str(error) if isinstance(error, HarnessError) else f"internal error: {type(error).__name__}: {error}"
            resume = f"/session resume {opened.agent.session_id} goes on with it"
            self._view.note(f"the conversation was closed: {what}; {resume}", "error")
            opened.left.set()

    def catch_up(self) -> None:
        """Show now what has happened: what is asked next stands below it."""
        for event in joined(self._events.drain() if self._events is not None else ()):
            self._view.heard(event)

    async def _watch(self, events: Subscription) -> None:
        self._events = events
        async for event in events:
            for each in joined((event, *events.drain())):
                self._view.heard(each)
            self._changed()
            await anyio.sleep(PAUSE)


def joined(events: Sequence[Event]) -> list[Event]:
    """The events, with pieces of an answer that follow each other as one. Pure."""
    done: list[Event] = []
    for event in events:
        last = done[-1] if done else None
        if isinstance(event, AnswerDelta | ReasoningDelta) and isinstance(last, type(event)):
            done[-1] = replace(last, text=last.text + event.text)
        else:
            done.append(event)
    return done


async def _closed(conversation: OpenConversation) -> None:
    conversation.left.set()
    await conversation.closed.wait()
