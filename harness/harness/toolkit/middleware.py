"""Middleware that refuses calls: by the tool's name, and when they come too fast."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable

import anyio

from ..arguments import decode
from ..context import ToolContext
from ..failures import refused
from ..seams import Next
from ..secrets_names import MARK
from ..values import CallOutcome, CallStatus, ToolCall, ToolResult

__all__ = ["AllowList", "DenyList", "NoMarks", "RateLimit", "denied"]


def denied(call: ToolCall, ctx: ToolContext, reason: str, by: str) -> CallOutcome:
    """The outcome of a call that a middleware refuses."""
    return CallOutcome(call, ctx.redactor.result(refused(reason, by)), CallStatus.DENIED)


def _is_named(call: ToolCall, ctx: ToolContext, names: frozenset[str]) -> bool:
    """Whether the tool is one of these, by its name or one of its aliases."""
    tool = ctx.registry.get(call.name)
    return not names.isdisjoint({call.name, *(tool.traits.aliases if tool is not None else ())})


class DenyList:
    """Refuses these tools, under each of their names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        if _is_named(call, ctx, self._names):
            return denied(call, ctx, f"{call.name} is not allowed", "deny list")
        return await following(call)


class AllowList:
    """Refuses all but these tools."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        if not _is_named(call, ctx, self._names):
            return denied(call, ctx, f"{call.name} is not among the tools that are allowed", "allow list")
        return await following(call)


class NoMarks:
    """Refuses calls that would write ``[redacted]`` where a secret was: who writes back what it read destroys it."""

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        if MARK in json.dumps(call.arguments, default=str) and self._changes(call, ctx):
            text = f"not run: {MARK} stands for a secret that you were not shown; leave what it is part of as it is"
            return CallOutcome(call, ToolResult.failure("redacted", text), CallStatus.DENIED)
        return await following(call)

    def _changes(self, call: ToolCall, ctx: ToolContext) -> bool:
        tool = ctx.registry.lookup(call.name)
        return tool.traits_of(tool.parse(decode(call.arguments, call.name))).mutating


class RateLimit:
    """Refuses a session's calls beyond so many in so many seconds; refused ones do not count.

    Args:
        clock: seconds, growing steadily; the event loop's when not given.
    """

    def __init__(self, calls: int, seconds: float, *, clock: Callable[[], float] = anyio.current_time) -> None:
        if calls < 1 or seconds <= 0:
            raise ValueError("a rate is at least one call, in more than no time")
        self._calls = calls
        self._seconds = seconds
        self._clock = clock
        self._times: dict[str, deque[float]] = {}

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        now = self._clock()
        wait = self._wait(ctx.session_id, now)
        if wait > 0:
            text = f"not run: more than {self._calls} calls in {self._seconds:g} s; wait {wait:.1f} s"
            return CallOutcome(call, ToolResult.failure("rate_limited", text), CallStatus.DENIED)
        self._times[ctx.session_id].append(now)
        return await following(call)

    def _wait(self, session: str, now: float) -> float:
        """Seconds until the session may call again. Sessions without recent calls are forgotten."""
        for name in [name for name, times in self._times.items() if now - times[-1] >= self._seconds]:
            del self._times[name]
        times = self._times.get(session)
        if times is None:
            self._times[session] = deque(maxlen=self._calls)
            return 0.0
        return times[0] + self._seconds - now if len(times) == self._calls else 0.0
