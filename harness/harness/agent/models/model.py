"""An open model, its costs and its context limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...deprecated_names import renamed_fields
from .profiles import ModelProfile, Price

if TYPE_CHECKING:
    from decimal import Decimal

    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage

__all__ = [
    "OpenModel",
    "context_limit_of",
    "cost_of",
]


# -- The open model


@renamed_fields(context_limit="context_window")
@dataclass(frozen=True, slots=True)
class OpenModel:
    """A profile's model with its HTTP client; ``settings`` are sent with every request."""

    profile: ModelProfile
    model: Model = field(repr=False)
    settings: ModelSettings
    context_window: int = 0
    """Maximum tokens: from the profile, else from the list of genai-prices; 0: unknown."""


# -- Cost and context limit: from the profile, else from the list of genai-prices


MILLION = 1_000_000
LISTED = {
    "azure-responses": "azure",
    "bedrock": "aws",
    "google-cloud": "google",
    "openai-responses": "openai",
    "xai": "x-ai",
}
"""Providers that have a different name in the list."""


def cost_of(usage: RequestUsage, profile: ModelProfile) -> Decimal | None:
    """Return the US dollars, or None if no price is known.

    Input tokens include those read from or written to a cache.
    """
    if profile.prices is not None:
        return _by(profile.prices, usage)
    return None if profile.base_url else _listed_cost(usage, profile)


def _by(prices: Price, usage: RequestUsage) -> Decimal:
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input if prices.cache_write is None else prices.cache_write
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    total = plain * prices.input + usage.output_tokens * prices.output
    return (total + usage.cache_read_tokens * read + usage.cache_write_tokens * write) / MILLION


def _listed_cost(usage: RequestUsage, profile: ModelProfile) -> Decimal | None:
    try:
        from genai_prices import calc_price

        provider = LISTED.get(profile.provider, profile.provider)
        return calc_price(usage, profile.model, provider_id=provider).total_price
    except (ImportError, LookupError, ValueError):
        return None


def context_limit_of(profile: ModelProfile) -> int:
    """Return the model's maximum tokens: from the profile, else from the list; 0 if unknown."""
    if profile.context_window or profile.base_url:
        return profile.context_window
    try:
        from genai_prices.data_snapshot import get_snapshot

        provider = LISTED.get(profile.provider, profile.provider)
        found = get_snapshot().find_provider_model(profile.model, None, provider, None)[1]
    except (ImportError, LookupError, ValueError):
        return 0
    return found.context_window or 0
