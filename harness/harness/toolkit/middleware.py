"""Code around calls: logging, limits, refusals, budgets, and detection of agents that repeat themselves."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ..deprecated_names import renamed_names
from .arguments import decode
from .contract import Next, OutputLimit, ToolContext
from .interfaces import OutputStoreBase
from .pipeline import refused, timed_out
from .redaction.patterns import MARK
from .redaction.redactor import Redactor
from .results import cut_result
from .values import CallOutcome, CallStatus, Image, JsonObject, ToolCall, ToolResult

__all__ = [
    "AllowList",
    "Budget",
    "CostBudget",
    "DenyList",
    "Logging",
    "LoopDetector",
    "RateLimit",
    "Redaction",
    "RejectRedactedText",
    "Timeout",
    "Truncation",
    "denied",
    "find_repetition",
]

if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, NoMarks="RejectRedactedText", StuckLoop="LoopDetector")


# -- Middleware that lets every call pass: logging, a timeout, more redaction, a smaller result.


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Logging:
    """Calls functions before and after every call. Their exceptions are logged and ignored.

    Args:
        before: called with the call, its arguments redacted; may be None.
        after: called with the call, its outcome (None if it was cancelled or a later middleware failed) and the
            duration in seconds; may be None.
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
    except Exception:  # an observer must not stop calls
        log.exception("a logging function failed")


@dataclass(frozen=True, slots=True)
class Timeout:
    """Cancels a call after a number of seconds, including the time for its approval."""

    seconds: float

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        with anyio.move_on_after(self.seconds):
            return await following(call)
        result = ctx.redactor.result(timed_out(self.seconds, ctx.notes.partial))
        return CallOutcome(call, result, CallStatus.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Redacts results and progress with a second redactor, after the executor's."""

    redactor: Redactor

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        ctx.notes.redactor = _ChainedRedactor(ctx.notes.redactor or ctx.redactor, self.redactor)
        outcome = await following(call)
        return replace(outcome, result=self.redactor.result(outcome.result))


@dataclass(frozen=True, slots=True)
class _ChainedRedactor(Redactor):
    """Applies two redactors in order."""

    first: Redactor
    second: Redactor

    def text(self, text: str) -> str:
        return self.second.text(self.first.text(text))

    def complete(self, text: str) -> int:
        return min(self.first.complete(text), self.second.complete(text))


@dataclass(frozen=True, slots=True)
class Truncation:
    """Truncates results further than their tools do."""

    limit: OutputLimit
    outputs: OutputStoreBase | None = None

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        outcome = await following(call)
        return replace(outcome, result=await cut_result(outcome.result, self.limit, self.outputs, ctx.call_id))


# -- The costs of a session.


@dataclass(slots=True)
class Budget:
    """An amount that can be spent, in any unit. Models, tools and operators may share one."""

    limit: float
    unit: str = "USD"
    spent: float = 0.0

    @property
    def left(self) -> float:
        """The remaining amount, never negative."""
        return max(0.0, self.limit - self.spent)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.limit

    def spend(self, amount: float) -> None:
        """Add an amount that was used, even beyond the limit. A negative amount is a refund."""
        self.spent = max(0.0, self.spent + amount)

    def __str__(self) -> str:
        return f"{self.spent:g} of {self.limit:g} {self.unit}"


class CostBudget:
    """Refuses calls that cost more than the session has left; a call that did not run costs nothing.

    Args:
        limit: the budget of each session.
        price: returns the cost of a call before it runs.
        unit: the unit of the amounts.
    """

    def __init__(self, limit: float, price: Callable[[ToolCall, ToolContext], float], *, unit: str = "USD") -> None:
        self._limit = limit
        self._price = price
        self._unit = unit
        self._budgets: dict[str, Budget] = {}

    def of(self, session_id: str) -> Budget:
        """Return the budget of a session, to read it or to spend from it."""
        return self._budgets.setdefault(session_id, Budget(self._limit, self._unit))

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        budget = self.of(ctx.session_id)
        price = self._price(call, ctx)
        if budget.exhausted or price > budget.left:
            text = f"not run: this session has used {budget}, and the call costs {price:g}"
            return CallOutcome(call, ToolResult.failure("over_budget", text), CallStatus.DENIED)
        budget.spend(price)  # before it runs: concurrent calls share the budget
        outcome = await following(call)
        if outcome.status is CallStatus.DENIED or outcome.cached:
            budget.spend(-price)
        return outcome


# -- Middleware that refuses calls: by the tool's name, and by rate.


def denied(call: ToolCall, ctx: ToolContext, reason: str, by: str) -> CallOutcome:
    """Return the outcome of a call that a middleware refuses."""
    return CallOutcome(call, ctx.redactor.result(refused(reason, by)), CallStatus.DENIED)


def _is_named(call: ToolCall, ctx: ToolContext, names: frozenset[str]) -> bool:
    """Return whether the tool has one of these names, as its name or as an alias."""
    tool = ctx.registry.get(call.name)
    return not names.isdisjoint({call.name, *(tool.traits.aliases if tool is not None else ())})


class DenyList:
    """Refuses these tools, by name or alias."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        if _is_named(call, ctx, self._names):
            return denied(call, ctx, f"{call.name} is not allowed", "deny list")
        return await following(call)


class AllowList:
    """Refuses all other tools."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        if not _is_named(call, ctx, self._names):
            return denied(call, ctx, f"{call.name} is not an allowed tool", "allow list")
        return await following(call)


class RejectRedactedText:
    """Refuses calls that would write ``[redacted]``, which would overwrite a secret with its placeholder."""

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        if MARK in json.dumps(call.arguments, default=str) and self._changes(call, ctx):
            text = f"not run: {MARK} replaces a redacted secret; do not write text that contains it"
            return CallOutcome(call, ToolResult.failure("redacted", text), CallStatus.DENIED)
        return await following(call)

    def _changes(self, call: ToolCall, ctx: ToolContext) -> bool:
        tool = ctx.registry.lookup(call.name)
        return tool.traits_of(tool.parse(decode(call.arguments, call.name))).mutating


class RateLimit:
    """Refuses calls of a session above a rate; refused calls do not count.

    Args:
        calls: the maximum number of calls within ``seconds``.
        seconds: the length of the interval.
        clock: a monotonic clock in seconds; the default is the event loop's.
    """

    def __init__(self, calls: int, seconds: float, *, clock: Callable[[], float] = anyio.current_time) -> None:
        if calls < 1 or seconds <= 0:
            raise ValueError("calls must be at least 1, and seconds positive")
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
        """Return the seconds until the session may call again; sessions without recent calls are removed."""
        for name in [name for name, times in self._times.items() if now - times[-1] >= self._seconds]:
            del self._times[name]
        times = self._times.get(session)
        if times is None:
            self._times[session] = deque(maxlen=self._calls)
            return 0.0
        return times[0] + self._seconds - now if len(times) == self._calls else 0.0


# -- Detecting agents that repeat themselves.


AGENTS = 1_000
"""Maximum number of agents whose last calls are stored."""
MAX_CYCLE_LENGTH = 4
"""Calls in the longest cycle that is detected."""
Step = tuple[str, str]
"""A call and its result, as hashes."""


def find_repetition(steps: Sequence[Step], call: str, repeats: int) -> int:
    """Return the length of the cycle that contains ``call``: 1 for the same call repeated, 0 for no cycle.

    A cycle is the same calls with the same results, ``repeats`` times at the end of ``steps``. Pure.
    """
    for length in range(1, MAX_CYCLE_LENGTH + 1):
        tail = list(steps[-length * repeats :])
        circle = tail[:length]
        if len(tail) == length * repeats and tail == circle * repeats and call in {step[0] for step in circle}:
            return length
    return 0


class LoopDetector:
    """Refuses every call of a cycle: up to ``MAX_CYCLE_LENGTH`` calls that an agent has repeated with equal results.

    A refused call is not a step, so the calls stay refused until the agent makes another call. A different result
    breaks the cycle. Each agent is checked separately.

    Args:
        repeats: how often the calls must be repeated, at least 2.
    """

    def __init__(self, repeats: int = 4) -> None:
        if repeats < 2:
            raise ValueError("repeats must be at least 2")
        self._repeats = repeats
        self._steps: OrderedDict[tuple[str, str], deque[Step]] = OrderedDict()

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        steps = self._of(ctx)
        asked = _hash(call.name, json.dumps(call.arguments, sort_keys=True, default=str))
        length = find_repetition(tuple(steps), asked, self._repeats)
        if length:
            text = f"not run: {_said(length, self._repeats)}; try something else"
            return CallOutcome(call, ToolResult.failure("stuck", text), CallStatus.DENIED)
        outcome = await following(call)
        steps.append((asked, _result(outcome.result)))
        return outcome

    def _of(self, ctx: ToolContext) -> deque[Step]:
        key = (ctx.session_id, ctx.agent_id)
        steps = self._steps.setdefault(key, deque(maxlen=MAX_CYCLE_LENGTH * self._repeats))
        self._steps.move_to_end(key)
        while len(self._steps) > AGENTS:
            self._steps.popitem(last=False)
        return steps


def _said(length: int, repeats: int) -> str:
    if length == 1:
        return f"this call was made {repeats} times with the same result"
    return f"these {length} calls, including this one, were repeated {repeats} times with the same results"


def _result(result: ToolResult) -> str:
    blocks = [block.data.hex() if isinstance(block, Image) else block.text for block in result.content]
    return _hash(str(result.is_error), result.error_code, *blocks)


def _hash(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8) + data)
    return found.hexdigest()
