"""Middleware that lets every call through: logging, a time limit, more redaction, a smaller result."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import anyio

from ..context import ToolContext
from ..contract import OutputLimit
from ..failures import timed_out
from ..limits import cut_result
from ..seams import Next, Outputs, Redactor
from ..values import CallOutcome, CallStatus, JsonObject, ToolCall

__all__ = ["Logging", "Redaction", "Timeout", "Truncation"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Logging:
    """Tells two functions of every call; either may be None. What they raise is logged and goes no further.

    Args:
        before: gets the call, its arguments redacted.
        after: gets the call, its outcome (None when it was cancelled or a later middleware failed) and the seconds.
    """

    before: Callable[[ToolCall], None] | None = None
    after: Callable[[ToolCall, CallOutcome | None, float], None] | None = None

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        shown = _shown(call, ctx)
        started = anyio.current_time()
        outcome: CallOutcome | None = None
        if self.before is not None:
            _safely(partial(self.before, shown))
        try:
            outcome = await following(call)
            return outcome
        finally:
            seconds = anyio.current_time() - started
            if self.after is not None:
                _safely(partial(self.after, shown, outcome, seconds))


def _shown(call: ToolCall, ctx: ToolContext) -> ToolCall:
    arguments: JsonObject | str = call.arguments
    redact = ctx.redactor
    return replace(call, arguments=redact.text(arguments) if isinstance(arguments, str) else redact.json(arguments))


def _safely(tell: Callable[[], None]) -> None:
    try:
        tell()
    except Exception:  # whoever only watches stops nothing
        log.exception("a function that is told of calls failed")


@dataclass(frozen=True, slots=True)
class Timeout:
    """Ends a call after so many seconds, the time that a person takes to approve it included."""

    seconds: float

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        with anyio.move_on_after(self.seconds):
            return await following(call)
        result = ctx.redactor.result(timed_out(self.seconds, ctx.notes.partial))
        return CallOutcome(call, result, CallStatus.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Takes more out than the executor's own redactor does: of results, and of progress."""

    redactor: Redactor

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        ctx.notes.redactor = _Both(ctx.notes.redactor or ctx.redactor, self.redactor)
        outcome = await following(call)
        return replace(outcome, result=self.redactor.result(outcome.result))


@dataclass(frozen=True, slots=True)
class _Both(Redactor):
    """One redactor after the other."""

    first: Redactor
    second: Redactor

    def text(self, text: str) -> str:
        return self.second.text(self.first.text(text))

    def complete(self, text: str) -> int:
        return min(self.first.complete(text), self.second.complete(text))


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cuts results further than their tools do."""

    limit: OutputLimit
    outputs: Outputs | None = None

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        outcome = await following(call)
        return replace(outcome, result=await cut_result(outcome.result, self.limit, self.outputs, ctx.call_id))
