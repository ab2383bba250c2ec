"""The open conversation of the prompt, and how it is replaced by another one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup, TaskStatus

from ...agent.events import AnswerDelta, ReasoningDelta
from ...context import ExecutionContext
from ...errors import HarnessError
from ...toolkit.events import Event, JobExited, Subscription
from ..conversation import ConversationStart, OpenConversation, open_conversation
from .view import EventView

if TYPE_CHECKING:
    from ...agent.storage import ConversationStore
    from ...toolkit.assembly import Toolkit

__all__ = ["Conversations", "joined"]

log = logging.getLogger(__name__)
PAUSE = 0.03
"""Seconds between two reads of events, so that pieces of a response are drawn together."""


class Conversations:
    """Keeper of one open conversation, in a task of ``tasks``; ``view`` shows its events.

    Args:
        execution: The target.
        toolkit: The tools.
        store: The stored conversations; None stores nothing.
        view: Shows events.
        tasks: The task group of conversations.
        changed: Called after every event.
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
        """Open another conversation, then close the previous one.

        Raises:
            HarnessError: It cannot be opened; the previous one stays open.
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
        raise HarnessError("cancelled: no conversation was opened")

    def give_up_opening(self) -> bool:
        """Cancel :meth:`open`, which a lost connection may block; return False if none is running."""
        if self._opening is None:
            return False
        self._opening.cancel()
        return True

    async def close(self) -> None:
        """Close the open conversation and cancel its running turn."""
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
        """Run the agent; if that fails, close the conversation and keep the prompt running."""
        try:
            await opened.agent.serve()
        except Exception as error:  # jobs and the operator's commands still need the prompt
            log.debug("a conversation failed", exc_info=True)
            what = str(error) if isinstance(error, HarnessError) else f"internal error: {type(error).__name__}: {error}"
            resume = f"/session resume {opened.agent.session_id} resumes it"
            self._view.note(f"the conversation was closed: {what}; {resume}", "error")
            opened.left.set()

    def catch_up(self) -> None:
        """Show pending events, so that the next question is below them."""
        for event in joined(self._events.drain() if self._events is not None else ()):
            self._view.heard(event)

    async def _watch(self, events: Subscription) -> None:
        self._events = events
        async for event in events:
            for is_exit, group in groupby(joined((event, *events.drain())), lambda each: isinstance(each, JobExited)):
                if is_exit:
                    self._view.jobs_exited([each for each in group if isinstance(each, JobExited)])
                else:
                    for each in group:
                        self._view.heard(each)
            self._changed()
            await anyio.sleep(PAUSE)


def joined(events: Sequence[Event]) -> list[Event]:
    """Return the events with consecutive pieces of a response joined. Pure."""
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
