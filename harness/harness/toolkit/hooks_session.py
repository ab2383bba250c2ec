"""What happens in a session beside its calls, for hooks: messages, questions, notifications, the ends of turns."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from ..errors import ToolError
from ..tasks import background_tasks
from .events import Event, EventBus
from .hooks import CLOSING, Answer, HookEvent, Hooks, Occasion, joined_answers, occasion_of_call
from .seams import PermissionRequest, Redactor
from .values import Json

if TYPE_CHECKING:
    from .context import ToolContext
    from .executor import Executor
    from .services import Services

__all__ = ["ask_hooks", "notifying", "refused_question", "tell_hooks"]

MAX_NOTIFICATIONS = 100
"""Notifications that wait for their hooks; those beyond are left out, and that is logged."""
log = logging.getLogger(__name__)


async def ask_hooks(executor: Executor, event: HookEvent, message: str = "", **data: Json) -> Answer:
    """What the hooks of a session say of an event; what they changed is in the answer.

    A hook that fails denies what it was asked before; after an event its failure is logged.
    """
    occasion = Occasion(
        event,
        executor.execution.identity,
        executor.session_id,
        executor.agent_id,
        executor.cwd,
        message=message,
        data=data,
    )
    return await _fired(executor.services, occasion)


async def tell_hooks(executor: Executor, event: HookEvent, limit: float, message: str = "", **data: Json) -> None:
    """Tell the hooks of something that is over, also while the program ends; in seconds, ``limit`` at most."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(limit) as scope:
        await ask_hooks(executor, event, message, **data)
    if scope.cancelled_caught:
        log.warning("the hooks of %s took longer than %g s and were ended", event, limit)


async def refused_question(request: PermissionRequest, reason: str, ctx: ToolContext) -> str | None:
    """Why hooks refuse a call about which somebody would be asked; None when they let the question through."""
    if ctx.executor is None:
        return None
    occasion = replace(occasion_of_call("permission_request", request.call, ctx), data={"reason": reason})
    answer = await _fired(ctx.executor.services, occasion)
    return (answer.reason or "a hook denied it") if answer.decision == "deny" else None


async def _fired(services: Services, occasion: Occasion) -> Answer:
    changed = Answer()
    for hook in services.hooks:
        if not isinstance(hook, Hooks):
            continue
        try:
            answer = await hook.fire(occasion, services.redactor)
        except ToolError as error:
            log.warning("a hook of %s failed: %s", occasion.event, services.redactor.text(str(error)))
            continue
        if answer.decision == "deny":
            return answer
        if answer.decision == "modify":
            changed = joined_answers(changed, answer)
            occasion = replace(occasion, message=answer.message if answer.message is not None else occasion.message)
    return changed


@asynccontextmanager
async def notifying(hooks: Hooks, events: EventBus, session: Occasion, redactor: Redactor) -> AsyncIterator[None]:
    """Inside, the hooks of ``notification`` run for what the operator should know, one after the other."""
    if not any(one.event == "notification" for one in hooks.registered):
        yield
        return
    into, waiting = anyio.create_memory_object_stream[Occasion](MAX_NOTIFICATIONS)

    def heard(event: Event) -> None:
        found = event.notification()
        if found is None:
            return
        kind, text = found
        try:
            into.send_nowait(replace(session, event="notification", message=text, data={"kind": kind}))
        except anyio.WouldBlock:
            log.warning("a notification was left out: %d wait for their hooks", MAX_NOTIFICATIONS)

    done = anyio.Event()
    async with background_tasks() as tasks:
        tasks.start_soon(_run_notifications, hooks, waiting, redactor, done)
        try:
            with into, events.listening(heard):
                yield
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSING):
                await done.wait()


async def _run_notifications(
    hooks: Hooks, waiting: MemoryObjectReceiveStream[Occasion], redactor: Redactor, done: anyio.Event
) -> None:
    with waiting:
        async for occasion in waiting:
            try:
                await hooks.fire(occasion, redactor)
            except ToolError as error:
                log.warning("a hook of notification failed: %s", redactor.text(str(error)))
    done.set()
