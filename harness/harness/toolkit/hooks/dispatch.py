"""Hooks: events of calls and sessions, and the hooks that receive them."""

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
from ...patterns.wildcards import matches
from ...system.background_tasks import open_background_tasks
from ..arguments import decode
from ..contract import Hook, PermissionRequest
from ..events import Event, EventBus
from ..pipeline import panes_typed_into
from ..redaction.redactor import Redactor
from ..values import Json, JsonObject, Subject, ToolCall, ToolResult

if TYPE_CHECKING:
    from ..contract import Services, ToolContext
    from ..executor import Executor

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


# -- The calls for which a hook runs.


@dataclass(frozen=True, slots=True)
class Matcher:
    """Patterns as in policy rules; one of each kind must match, and an empty kind matches everything.

    ``tools`` are canonical names. ``targets`` are URLs with the target's identity. ``paths`` are absolute paths on the
    target that the call reads or writes, without following symbolic links; a command has none. If the paths are
    unknown, the hook runs. It also runs for a directory that may contain a file matching an absolute pattern, because
    tools such as ``grep`` read below it.
    """

    tools: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def covers(self, occasion: HookInvocation) -> bool:
        """Return whether the hook runs."""
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
    """Return whether a directory of that name may contain a matching file."""
    if not pattern.startswith("/"):
        return False
    names = pattern.split("/")
    return path == "/" or any(matches("/".join(names[:end]), path, "path") for end in range(2, len(names)))


def _any(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(matches(pattern, text) for pattern in patterns)


def subjects_of(call: ToolCall, ctx: ToolContext) -> tuple[Subject, ...] | None:
    """Return what a call would touch; None if that is unknown."""
    try:
        tool = ctx.registry.lookup(call.name)
        return tool.subjects(tool.parse(decode(call.arguments, call.name)))
    except Exception:  # the hook runs in this case
        return None


def private_of(call: ToolCall, ctx: ToolContext) -> frozenset[str]:
    """Return the arguments that may contain a password, of a call whose subjects are known."""
    tool = ctx.registry.lookup(call.name)
    return tool.private_arguments(tool.parse(decode(call.arguments, call.name)))


def paths_of(subjects: tuple[Subject, ...], ctx: ToolContext) -> tuple[str, ...]:
    """Return the absolute paths of the files that are read or written."""
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


# -- Hooks: code of the operator around calls and messages and at session events, on this machine.
#
# A hook is a function (:meth:`Hooks.on`) or a command (:mod:`.command`, from ``[hooks]`` of the settings).
# Hooks of one event run in order: the first that denies stops, and each sees the changes of those before it.


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
"""Events for which a failed hook denies, because something waits for the answer."""
_OTHER_NAMES: dict[str, HookEvent] = {
    "userpromptsubmit": "pre_message",
    "pretooluse": "pre_tool",
    "posttooluse": "post_tool",
}
IN_BACKGROUND = 32
"""Maximum concurrent background hooks; further ones are skipped with a log message."""
CLOSING = 5.0
"""Seconds that background hooks get when the session ends."""


def event_named(name: str) -> HookEvent:
    """Return the event of that name, or of another product's name for it (``PreToolUse``, ``SessionStart``).

    Raises:
        ValueError: unknown event.
    """
    plain = name.replace("_", "").replace("-", "").lower()
    found = _OTHER_NAMES.get(plain) or next((event for event in EVENTS if event.replace("_", "") == plain), None)
    if found is None:
        raise ValueError(f"unknown event {name!r}; there are: {', '.join(EVENTS)}")
    return found


@dataclass(frozen=True, slots=True)
class HookInvocation:
    """An event for hooks. ``call`` and ``result`` are those of the tool events, not redacted.

    ``paths`` are the absolute paths of the files on the target that the call reads or writes; None if unknown.
    ``typed_into`` are the panes that receive the call's typed input; None if it types nothing. ``private`` are the
    arguments that may contain a password.
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
    """The operator's or the model's text for ``pre_message`` and ``post_message``; the final message of a turn for
    ``stop``; the notification's text for ``notification``."""
    data: JsonObject = field(default_factory=dict)
    """Additional facts about the event."""


@dataclass(frozen=True, slots=True)
class HookResult:
    """A hook's answer. ``modify`` changes ``arguments`` (pre_tool), ``result`` (post_tool) or ``message``."""

    decision: Literal["allow", "deny", "modify"] = "allow"
    reason: str = ""
    arguments: JsonObject | None = None
    result: str | None = None
    message: str | None = None


Handler = Callable[[HookInvocation, Redactor], Awaitable[HookResult]]
"""Answers an event; data that it passes to another process is redacted.

Raises:
    ToolError: the hook failed; for events in ``BEFORE`` this denies.
"""
Function = Callable[[HookInvocation], "HookResult | Awaitable[HookResult | None] | None"]


@dataclass(frozen=True, slots=True)
class RegisteredHook:
    """One hook: when it runs, and what it does. A background hook is not waited for and cannot change anything."""

    event: HookEvent
    handler: Handler
    matcher: Matcher = field(default_factory=Matcher)
    background: bool = False

    def __post_init__(self) -> None:
        if self.background and self.event not in {"post_tool", "post_message"}:
            raise ValueError(f"a hook of {self.event} cannot run in the background: its result is needed")


class Hooks(Hook):
    """All hooks of a session. Background hooks only run while it is open with ``async with``."""

    def __init__(self, registered: Iterable[RegisteredHook] = ()) -> None:
        self._registered = list(registered)
        self._tasks: TaskGroup | None = None
        self._running = 0

    def on(self, event: str, function: Function, matcher: Matcher | None = None, *, background: bool = False) -> None:
        """Add a function, which may be ``async``; a result of None allows.

        Raises:
            ValueError: unknown event, or it cannot run in the background.
        """
        handler = _handler(function)
        self._registered.append(RegisteredHook(event_named(event), handler, matcher or Matcher(), background))

    @property
    def registered(self) -> tuple[RegisteredHook, ...]:
        """The hooks in order."""
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

    # -- Around calls.

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
        """Run the hooks of an event and return their combined changes.

        Raises:
            ToolError: a hook failed, of an event that is not in ``BEFORE``; for those a failure denies.
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
            log.warning("a hook of %s was skipped: too many are running, or the session has ended", one.event)
            return
        self._running += 1
        self._tasks.start_soon(self._quietly, one, occasion, redactor)

    async def _quietly(self, one: RegisteredHook, occasion: HookInvocation, redactor: Redactor) -> None:
        try:
            await one.handler(occasion, redactor)
        except Exception as error:  # no caller waits for the result
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
    """Combine two answers; for the same value the later one takes precedence."""
    return HookResult(
        "modify",
        other.reason or one.reason,
        other.arguments if other.arguments is not None else one.arguments,
        other.result if other.result is not None else one.result,
        other.message if other.message is not None else one.message,
    )


def _changed(occasion: HookInvocation, answer: HookResult) -> HookInvocation:
    """Return the invocation as the next hook sees it."""
    if answer.arguments is not None and occasion.call is not None:
        call = replace(occasion.call, arguments=answer.arguments)
        occasion = replace(occasion, call=call, paths=None)  # the files of the changed call are unknown
    if occasion.result is not None:
        occasion = replace(occasion, result=_with_text(occasion.result, answer.result))
    return replace(occasion, message=answer.message) if answer.message is not None else occasion


def _with_text(result: ToolResult, text: str | None) -> ToolResult:
    """Return the result with another text, which also replaces its images and data."""
    if text is None:
        return result
    made = ToolResult.of(text, metadata=result.metadata)
    return replace(made, is_error=result.is_error, error_code=result.error_code)


def occasion_of_call(event: HookEvent, call: ToolCall, ctx: ToolContext) -> HookInvocation:
    """Return the invocation for an event around a call."""

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


# -- Events of a session other than calls: messages, approval requests, notifications, ends of turns.


MAX_NOTIFICATIONS = 100
"""Maximum queued notifications; further ones are skipped with a log message."""


async def ask_hooks(executor: Executor, event: HookEvent, message: str = "", **data: Json) -> HookResult:
    """Run a session's hooks for an event and return their combined changes.

    A hook that fails denies if the event is in ``BEFORE``; otherwise its failure is logged.
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
    """Notify hooks of an event, even while the program exits, for at most ``limit`` seconds."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(limit) as scope:
        await ask_hooks(executor, event, message, **data)
    if scope.cancelled_caught:
        log.warning("the hooks of %s took longer than %g s and were cancelled", event, limit)


async def refused_question(request: PermissionRequest, reason: str, ctx: ToolContext) -> str | None:
    """Return why a hook refuses an approval request; None if the request may be shown."""
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
    """Run the hooks of ``notification`` for operator notifications while the context is open, one at a time."""
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
            log.warning("a notification was dropped: %d are waiting for their hooks", MAX_NOTIFICATIONS)

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
