"""What a session may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..context import ToolContext
from ..seams import Next
from ..values import CallOutcome, CallStatus, ToolCall, ToolResult

__all__ = ["Budget", "CostBudget"]


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
