"""Code around calls: logging, limits, refusals, budgets, and noticing an agent that goes round in circles."""

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
from .contract import OutputLimit, ToolContext
from .interfaces import Next, OutputStoreBase, Redactor
from .pipeline import refused, timed_out
from .redaction.patterns import MARK
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


# -- Middleware that lets every call through: logging, a time limit, more redaction, a smaller result.


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
        ctx.notes.redactor = _ChainedRedactor(ctx.notes.redactor or ctx.redactor, self.redactor)
        outcome = await following(call)
        return replace(outcome, result=self.redactor.result(outcome.result))


@dataclass(frozen=True, slots=True)
class _ChainedRedactor(Redactor):
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
    outputs: OutputStoreBase | None = None

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        outcome = await following(call)
        return replace(outcome, result=await cut_result(outcome.result, self.limit, self.outputs, ctx.call_id))


# -- What a session may cost.


@dataclass(slots=True)
class Budget:
    """An amount that is spent, in any unit. Models, tools and people may spend from the same one."""

    limit: float
    unit: str = "USD"
    spent: float = 0.0

    @property
    def left(self) -> float:
        """What is left, never less than nothing."""
        return max(0.0, self.limit - self.spent)

    @property
    def exhausted(self) -> bool:
        """Nothing is left."""
        return self.spent >= self.limit

    def spend(self, amount: float) -> None:
        """Count what was used, also beyond the limit: it was used. A negative amount gives back."""
        self.spent = max(0.0, self.spent + amount)

    def __str__(self) -> str:
        return f"{self.spent:g} of {self.limit:g} {self.unit}"


class CostBudget:
    """Refuses calls that cost more than the session has left; a call that did not run costs nothing.

    Args:
        limit: for each session.
        price: what a call costs, known before it runs.
    """

    def __init__(self, limit: float, price: Callable[[ToolCall, ToolContext], float], *, unit: str = "USD") -> None:
        self._limit = limit
        self._price = price
        self._unit = unit
        self._budgets: dict[str, Budget] = {}

    def of(self, session_id: str) -> Budget:
        """The budget of a session: to ask, to show, or to spend from."""
        return self._budgets.setdefault(session_id, Budget(self._limit, self._unit))

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        budget = self.of(ctx.session_id)
        price = self._price(call, ctx)
        if budget.exhausted or price > budget.left:
            text = f"not run: this session has used {budget}, and the call costs {price:g}"
            return CallOutcome(call, ToolResult.failure("over_budget", text), CallStatus.DENIED)
        budget.spend(price)  # before it runs: calls that run at once share what is left
        outcome = await following(call)
        if outcome.status is CallStatus.DENIED or outcome.cached:
            budget.spend(-price)
        return outcome


# -- Middleware that refuses calls: by the tool's name, and when they come too fast.


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


class RejectRedactedText:
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


# -- Noticing an agent that goes round in circles.


AGENTS = 1_000
"""Agents whose last calls are remembered."""
MAX_CYCLE_LENGTH = 4
"""Calls of the longest circle that is noticed."""
Step = tuple[str, str]
"""A call and its result, as hashes."""


def find_repetition(steps: Sequence[Step], call: str, repeats: int) -> int:
    """How many calls the circle has that ``call`` is one of: 1 for the same again, 2 for two in turn. 0: none.

    A circle is the same calls with the same results, ``repeats`` times at the end of ``steps``. Pure.
    """
    for length in range(1, MAX_CYCLE_LENGTH + 1):
        tail = list(steps[-length * repeats :])
        circle = tail[:length]
        if len(tail) == length * repeats and tail == circle * repeats and call in {step[0] for step in circle}:
            return length
    return 0


class LoopDetector:
    """Refuses every call of a cycle: up to ``MAX_CYCLE_LENGTH`` calls that an agent has made ``repeats`` times in turn
    with the same results each time. What is refused is no step, so they stay refused until another call is made.
    Another result on the way keeps it from being a circle. Agents do not count for one another.
    """

    def __init__(self, repeats: int = 4) -> None:
        if repeats < 2:
            raise ValueError("what happens once is no circle")
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
        return f"this very call was made {repeats} times with the same result"
    return f"the same {length} calls, of which this is one, were made {repeats} times in turn with the same results"


def _result(result: ToolResult) -> str:
    blocks = [block.data.hex() if isinstance(block, Image) else block.text for block in result.content]
    return _hash(str(result.is_error), result.error_code, *blocks)


def _hash(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8) + data)
    return found.hexdigest()
