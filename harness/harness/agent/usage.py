"""Usage and cost of a conversation, and their limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..toolkit.values import Json, JsonObject
from .models import cost_of
from .settings import AgentSettings

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    from .models import OpenModel

__all__ = ["BudgetUse", "Usage", "budgets_nearly_used", "over_limit", "spent_on"]

MAX_REQUEST_TOKENS = 1 << 40
"""Maximum tokens of one request that are counted; a larger number is a provider's error."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Input and output tokens, how many of them used the provider's cache, and the cost in US dollars.

    ``cost`` counts responses with a known price; ``unpriced`` is the number of responses without. ``estimated`` is the
    number of tokens that no provider counted, and ``estimated_cost`` their cost: a provider may not count the tokens
    of a cancelled response.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    answers: int = 0
    estimated: int = 0
    estimated_cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
            self.answers + other.answers,
            self.estimated + other.estimated,
            self.estimated_cost + other.estimated_cost,
        )

    @property
    def tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def known_cost(self) -> float | None:
        """US dollars; None if no response has a known price."""
        return None if self.unpriced and self.unpriced == self.answers else self.cost

    def json(self) -> JsonObject:
        """Return the stored and printed form; ``estimated_tokens`` and its cost only if some are estimated."""
        estimated: dict[str, Json] = {}
        if self.estimated:
            estimated = {"estimated_tokens": self.estimated, "estimated_cost": self.estimated_cost}
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "cost": self.known_cost,
            "answers": self.answers,
            **estimated,
        }

    @classmethod
    def of(cls, value: JsonObject) -> Usage:
        """Return the usage from the form of :meth:`json`; missing values are 0."""

        def number(name: str) -> int:
            found = value.get(name)
            return found if isinstance(found, int) else 0

        cost, about = value.get("cost"), value.get("estimated_cost")
        spent = cls(
            number("input_tokens"),
            number("output_tokens"),
            number("cache_read_tokens"),
            number("cache_write_tokens"),
            answers=number("answers"),
            estimated=number("estimated_tokens"),
            estimated_cost=float(about) if isinstance(about, int | float) else 0.0,
        )
        known = isinstance(cost, int | float)
        return replace(spent, cost=float(cost) if known else 0.0, unpriced=0 if known else spent.answers)  # type: ignore[arg-type]  # known says so


def over_limit(settings: AgentSettings, steps: int, turn: Usage, session: Usage) -> str:
    """Return why no further model request may be sent. Pure.

    A limit of the conversation ends it permanently, so only tokens that a provider counted count towards it. A turn
    that an estimate has ended can be continued.

    Args:
        settings: the limits.
        steps: model responses in this turn so far.
        turn: usage of this turn.
        session: usage of the conversation, including this turn.

    Returns:
        The reason, or an empty string if a request may be sent.
    """
    about = ", in part by an estimate" if turn.estimated else ""
    if steps >= settings.max_steps:
        return f"the turn has reached max_steps ({steps}): say 'go on' to continue"
    if settings.turn_budget_usd is not None and turn.cost >= settings.turn_budget_usd:
        budget = f"its budget is ${settings.turn_budget_usd:.2f}: say 'go on' to continue"
        return f"the turn has cost ${turn.cost:.2f}{about}; {budget}"
    cost, tokens = session.cost - session.estimated_cost, session.tokens - session.estimated
    if settings.conversation_budget_usd is not None and cost >= settings.conversation_budget_usd:
        return (
            f"the conversation has cost ${cost:.2f}; conversation_budget_usd is ${settings.conversation_budget_usd:.2f}"
        )
    if settings.conversation_max_tokens is not None and tokens >= settings.conversation_max_tokens:
        return (
            f"the conversation has used {tokens} tokens; conversation_max_tokens is {settings.conversation_max_tokens}"
        )
    if (settings.turn_budget_usd is not None or settings.conversation_budget_usd is not None) and turn.unpriced:
        return "a budget is set, but the model has no known price: set prices in its profile"
    return ""


NEARLY_USED = 0.8
"""The fraction of a budget from which it is nearly used."""


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """How much of a budget is used, in US dollars or tokens; ``setting`` is the one that sets it."""

    setting: str
    used: float
    limit: float


def budgets_nearly_used(settings: AgentSettings, turn: Usage, session: Usage) -> list[BudgetUse]:
    """Return the budgets of which most is used, the most used first. Pure; arguments as for :func:`over_limit`."""
    uses = [
        BudgetUse(name, used, limit)
        for name, used, limit in (
            ("turn_budget_usd", turn.cost, settings.turn_budget_usd),
            ("conversation_budget_usd", session.cost - session.estimated_cost, settings.conversation_budget_usd),
            ("conversation_max_tokens", session.tokens - session.estimated, settings.conversation_max_tokens),
        )
        if limit is not None and used >= NEARLY_USED * limit
    ]
    return sorted(uses, key=lambda use: -use.used / use.limit)


def spent_on(response: ModelResponse | None, opened: OpenModel, asked: int) -> Usage:
    """Return the usage of one request, also of one whose response was cancelled or cut off. Pure.

    The provider's counts are used; where they are missing or incomplete, an estimate is.

    Args:
        response: the response as far as it was received; None: nothing was received.
        opened: the model.
        asked: estimated tokens of the request.
    """
    from pydantic_ai.messages import ModelResponse

    from .messages.history import estimate

    response = response or ModelResponse(parts=[])
    counted = _sane(response.usage)
    usage = replace(counted, input_tokens=counted.input_tokens or asked)
    ended = response.state == "complete" or response.finish_reason is not None
    if not (ended and (counted.input_tokens or counted.output_tokens)):
        came = estimate([response]) if response.parts else 0
        usage = replace(usage, output_tokens=max(counted.output_tokens, came))
    cost = cost_of(usage, opened.profile)
    estimated = usage.input_tokens + usage.output_tokens - counted.input_tokens - counted.output_tokens
    known = cost_of(counted, opened.profile) if estimated else cost
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        float(cost) if cost is not None else 0.0,
        unpriced=0 if cost is not None else 1,
        answers=1,
        estimated=estimated,
        estimated_cost=float(cost - known) if cost is not None and known is not None else 0.0,
    )


def _sane(usage: RequestUsage) -> RequestUsage:
    """Return a provider's counts, limited to plausible values."""
    named = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    return replace(usage, **{name: min(max(0, getattr(usage, name)), MAX_REQUEST_TOKENS) for name in named})
