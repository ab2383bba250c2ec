"""Hooks: events of calls and of sessions, and which hooks get them."""

from __future__ import annotations

import inspect
import logging
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, get_args

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream

from ...deprecated_names import renamed_names
from ...errors import ToolError
from ...system.background_tasks import open_background_tasks
from ..arguments import decode
from ..events import Event, EventBus
from ..interfaces import Hook, PermissionRequest, Redactor
from ..permissions.globs import matches
from ..pipeline import panes_typed_into
from ..values import Json, JsonObject, Subject, ToolCall, ToolResult

if TYPE_CHECKING:
    from ..contract import ToolContext
    from ..executor import Executor
    from ..pipeline import Services

__all__ = [
    "Handler",
    "HookEvent",
    "HookInvocation",
    "HookResult",
    "Hooks",
    "Matcher",
    "RegisteredHook",
    "ask_hooks",
    "event_named",
    "joined_answers",
    "notifying",
    "occasion_of_call",
    "paths_of",
    "private_of",
    "refused_question",
    "subjects_of",
    "tell_hooks",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Registered="RegisteredHook", Occasion="HookInvocation", Answer="HookResult")


# -- For which calls a hook runs.


@dataclass(frozen=True, slots=True)
class Matcher:
    """Patterns as in rules of the policy; one of each kind has to match, and none of a kind is any.

    ``tools`` are canonical names. ``targets`` are URLs with the target's identity. ``paths`` are absolute paths on the
    target that the call reads or writes, without links followed; a command has none. Where they cannot be known,
    the hook runs; so it does for a directory that may hold what a pattern from the root names, which ``grep`` and its
    like read below.
    """

    tools: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def covers(self, occasion: HookInvocation) -> bool:
        """Whether the hook runs."""
        name = occasion.call.name if occasion.call is not None else ""
        if not _any(self.tools, name) or not _any(self.targets, occasion.target):
            return False
        if not self.paths or occasion.paths is None:
            return True
        return any(
            matches(pattern, path, "path") or _may_hold(path, pattern)
            for pattern in self.paths
            for path in occasion.paths
        )


def _may_hold(path: str, pattern: str) -> bool:
    """Whether a directory of that name may have a file below that matches."""
    if not pattern.startswith("/"):
        return False
    names = pattern.split("/")
    return path == "/" or any(matches("/".join(names[:end]), path, "path") for end in range(2, len(names)))


def _any(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(matches(pattern, text) for pattern in patterns)


def subjects_of(call: ToolCall, ctx: ToolContext) -> tuple[Subject, ...] | None:
    """What a call would touch; None when that cannot be known."""
    try:
        tool = ctx.registry.lookup(call.name)
        return tool.subjects(tool.parse(decode(call.arguments, call.name)))
    except Exception:  # the hook runs, then
        return None


def private_of(call: ToolCall, ctx: ToolContext) -> frozenset[str]:
    """The arguments that may hold a password, of a call whose subjects are known."""
    tool = ctx.registry.lookup(call.name)
    return tool.private_arguments(tool.parse(decode(call.arguments, call.name)))


def paths_of(subjects: tuple[Subject, ...], ctx: ToolContext) -> tuple[str, ...]:
    """The files that are read or written, absolute."""
    home = ctx.execution.capabilities.home
    return tuple(
        _absolute(subject.text, subject.cwd or ctx.cwd or home, home)
        for subject in subjects
        if subject.kind in {"read", "write"}
    )


def _absolute(path: str, cwd: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    found = posixpath.normpath(posixpath.join(cwd, path))
    return "/" + found.lstrip("/") if found.startswith("/") else found


# -- Hooks: code of the operator around calls and messages and at the turns of a session, on this machine.
#
# A hook is a function (:meth:`Hooks.on`) or a command (:mod:`.hooks_command`, from ``[hooks]`` of the settings).
# Hooks of one event run in their order: the first that denies stops, and each sees what those before it changed.


log = logging.getLogger(__name__)

HookEvent = Literal[
    "pre_tool",
    "post_tool",
    "pre_message",
    "post_message",
    "session_start",
    "session_end",
    "permission_request",
    "notification",
    "stop",
    "subagent_stop",
    "pre_compact",
]
EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
BEFORE: frozenset[HookEvent] = frozenset({"pre_tool", "pre_message", "pre_compact", "permission_request"})
"""Events that something waits for: a hook that fails is one that denies."""
_OTHER_NAMES: dict[str, HookEvent] = {
    "userpromptsubmit": "pre_message",
    "pretooluse": "pre_tool",
    "posttooluse": "post_tool",
}
IN_BACKGROUND = 32
"""Hooks that run in the background at once; those beyond are left out, and that is logged."""
CLOSING = 5.0
"""Seconds that hooks in the background get when the session ends."""


def event_named(name: str) -> HookEvent:
    """The event of that name, or of the name that other products have for it (``PreToolUse``, ``SessionStart``).

    Raises:
        ValueError: there is none.
    """
    plain = name.replace("_", "").replace("-", "").lower()
    found = _OTHER_NAMES.get(plain) or next((event for event in EVENTS if event.replace("_", "") == plain), None)
    if found is None:
        raise ValueError(f"there is no event {name!r}; there are: {', '.join(EVENTS)}")
    return found


@dataclass(frozen=True, slots=True)
class HookInvocation:
    """What happened or is about to. ``call`` and ``result`` are those of the tool events, not redacted.

    ``paths`` are the files on the target that the call reads or writes, absolute; None when that is not known.
    ``typed_into`` are the panes that the call types into; None when it types nothing. ``private`` are the arguments
    that may hold a password.
    """

    event: HookEvent
    target: str = ""
    session_id: str = ""
    agent_id: str = ""
    cwd: str | None = None
    call: ToolCall | None = None
    result: ToolResult | None = None
    paths: tuple[str, ...] | None = ()
    typed_into: frozenset[str] | None = None
    private: frozenset[str] = frozenset()
    message: str = ""
    """The person's or the model's text, for ``pre_message`` and ``post_message``; the last words of a turn, for
    ``stop``; what the operator should know, for ``notification``."""
    data: JsonObject = field(default_factory=dict)
    """What else there is to say of the event."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """What a hook says. ``modify`` brings ``arguments`` (pre_tool), ``result`` (post_tool) or ``message``."""

    decision: Literal["allow", "deny", "modify"] = "allow"
    reason: str = ""
    arguments: JsonObject | None = None
    result: str | None = None
    message: str | None = None


Handler = Callable[[HookInvocation, Redactor], Awaitable[HookResult]]
"""Answers an occasion; whatever it hands out of this process goes through the redactor.

Raises:
    ToolError: it failed, which denies what it was asked before.
"""
Function = Callable[[HookInvocation], "HookResult | Awaitable[HookResult | None] | None"]


@dataclass(frozen=True, slots=True)
class RegisteredHook:
    """One hook: when it runs, and what it does. One in the background is not waited for and changes nothing."""

    event: HookEvent
    handler: Handler
    matcher: Matcher = field(default_factory=Matcher)
    background: bool = False

    def __post_init__(self) -> None:
        if self.background and self.event not in {"post_tool", "post_message"}:
            raise ValueError(f"a hook of {self.event} cannot run in the background: something waits for it")


class Hooks(Hook):
    """All hooks of a session. As ``async with`` it also runs those in the background; outside of it nothing does."""

    def __init__(self, registered: Iterable[RegisteredHook] = ()) -> None:
        self._registered = list(registered)
        self._tasks: TaskGroup | None = None
        self._running = 0

    def on(self, event: str, function: Function, matcher: Matcher | None = None, *, background: bool = False) -> None:
        """Add a function, which may be ``async``; None means that it allows.

        Raises:
            ValueError: there is no such event, or it cannot run in the background.
        """
        handler = _handler(function)
        self._registered.append(RegisteredHook(event_named(event), handler, matcher or Matcher(), background))

    @property
    def registered(self) -> tuple[RegisteredHook, ...]:
        """The hooks, in their order."""
        return tuple(self._registered)

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.deadline = anyio.current_time() + CLOSING
        await tasks.__aexit__(kind, error, trace)

    # -- around calls

    async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
        occasion = occasion_of_call("pre_tool", call, ctx)
        answer = await self.fire(occasion, ctx.redactor)
        if answer.decision == "deny":
            return answer.reason or "a hook denied it"
        return replace(call, arguments=answer.arguments) if answer.arguments is not None else call

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        answer = await self.fire(replace(occasion_of_call("post_tool", call, ctx), result=result), ctx.redactor)
        if answer.decision == "deny":
            return ToolResult.failure("withheld", f"it ran, and its result is withheld: {answer.reason or 'by a hook'}")
        return _with_text(result, answer.result)

    async def fire(self, occasion: HookInvocation, redactor: Redactor) -> HookResult:
        """Run the hooks of an event. The answer holds what they changed, all of it.

        Raises:
            ToolError: a hook of an event that is over failed. Before an event a failure denies instead.
        """
        changed = HookResult()
        for one in self._registered:
            if one.event != occasion.event or not one.matcher.covers(occasion):
                continue
            if one.background:
                self._in_background(one, occasion, redactor)
                continue
            answer = await _asked(one, occasion, redactor)
            if answer.decision == "deny":
                return answer
            if answer.decision == "modify":
                changed = joined_answers(changed, answer)
                occasion = _changed(occasion, answer)
        return changed

    def _in_background(self, one: RegisteredHook, occasion: HookInvocation, redactor: Redactor) -> None:
        if self._tasks is None or self._running >= IN_BACKGROUND:
            log.warning("a hook of %s was left out: too many run, or the session has ended", one.event)
            return
        self._running += 1
        self._tasks.start_soon(self._quietly, one, occasion, redactor)

    async def _quietly(self, one: RegisteredHook, occasion: HookInvocation, redactor: Redactor) -> None:
        try:
            await one.handler(occasion, redactor)
        except Exception as error:  # nobody waits for it
            log.warning("a hook of %s failed: %s", one.event, redactor.text(str(error)))
        finally:
            self._running -= 1


def _handler(function: Function) -> Handler:
    async def handle(occasion: HookInvocation, redactor: Redactor) -> HookResult:
        answer = function(occasion)
        return (await answer if inspect.isawaitable(answer) else answer) or HookResult()

    return handle


async def _asked(one: RegisteredHook, occasion: HookInvocation, redactor: Redactor) -> HookResult:
    try:
        return await one.handler(occasion, redactor)
    except Exception as error:
        failure = (
            error if isinstance(error, ToolError) else ToolError(f"a hook failed: {type(error).__name__}: {error}")
        )
        if occasion.event not in BEFORE:
            raise failure from error
        return HookResult("deny", failure.message)


def joined_answers(one: HookResult, other: HookResult) -> HookResult:
    """Both changes; where they meet, the later one counts."""
    return HookResult(
        "modify",
        other.reason or one.reason,
        other.arguments if other.arguments is not None else one.arguments,
        other.result if other.result is not None else one.result,
        other.message if other.message is not None else one.message,
    )


def _changed(occasion: HookInvocation, answer: HookResult) -> HookInvocation:
    """The occasion as the next hook sees it."""
    if answer.arguments is not None and occasion.call is not None:
        call = replace(occasion.call, arguments=answer.arguments)
        occasion = replace(occasion, call=call, paths=None)  # which files the call now touches is not known
    if occasion.result is not None:
        occasion = replace(occasion, result=_with_text(occasion.result, answer.result))
    return replace(occasion, message=answer.message) if answer.message is not None else occasion


def _with_text(result: ToolResult, text: str | None) -> ToolResult:
    """The result with another text; its pictures and data go, for the text is to replace them."""
    if text is None:
        return result
    made = ToolResult.of(text, metadata=result.metadata)
    return replace(made, is_error=result.is_error, error_code=result.error_code)


def occasion_of_call(event: HookEvent, call: ToolCall, ctx: ToolContext) -> HookInvocation:
    """The occasion of an event around a call."""

    subjects = subjects_of(call, ctx)
    return HookInvocation(
        event=event,
        target=ctx.execution.identity,
        session_id=ctx.session_id,
        agent_id=ctx.agent_id,
        cwd=ctx.cwd,
        call=call,
        paths=None if subjects is None else paths_of(subjects, ctx),
        typed_into=frozenset() if subjects is None else panes_typed_into(subjects),
        private=frozenset() if subjects is None else private_of(call, ctx),
    )


# -- What happens in a session beside its calls, for hooks: messages, questions, notifications, the ends of turns.


MAX_NOTIFICATIONS = 100
"""Notifications that wait for their hooks; those beyond are left out, and that is logged."""


async def ask_hooks(executor: Executor, event: HookEvent, message: str = "", **data: Json) -> HookResult:
    """What the hooks of a session say of an event; what they changed is in the answer.

    A hook that fails denies what it was asked before; after an event its failure is logged.
    """
    occasion = HookInvocation(
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


async def _fired(services: Services, occasion: HookInvocation) -> HookResult:
    changed = HookResult()
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
async def notifying(hooks: Hooks, events: EventBus, session: HookInvocation, redactor: Redactor) -> AsyncIterator[None]:
    """Inside, the hooks of ``notification`` run for what the operator should know, one after the other."""
    if not any(one.event == "notification" for one in hooks.registered):
        yield
        return
    into, waiting = anyio.create_memory_object_stream[HookInvocation](MAX_NOTIFICATIONS)

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
    async with open_background_tasks() as tasks:
        tasks.start_soon(_run_notifications, hooks, waiting, redactor, done)
        try:
            with into, events.listening(heard):
                yield
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSING):
                await done.wait()


async def _run_notifications(
    hooks: Hooks, waiting: MemoryObjectReceiveStream[HookInvocation], redactor: Redactor, done: anyio.Event
) -> None:
    with waiting:
        async for occasion in waiting:
            try:
                await hooks.fire(occasion, redactor)
            except ToolError as error:
                log.warning("a hook of notification failed: %s", redactor.text(str(error)))
    done.set()
