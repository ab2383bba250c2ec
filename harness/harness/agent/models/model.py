"""A model: its profile from the settings, the open model, its costs and its context limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...deprecated_names import renamed_fields
from ..provider_keys import KEY_VARIABLES
from .keys import EnvironmentKey, KeySource

if TYPE_CHECKING:
    from decimal import Decimal

    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RequestUsage

__all__ = [
    "ModelProfile",
    "OpenModel",
    "Price",
    "Reasoning",
    "context_limit_of",
    "cost_of",
]


# -- The profile


TIMEOUT = 300.0
RETRIES = 4

Reasoning = Literal["", "off", "low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. None: such tokens cost as much as other input."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


@renamed_fields(context_limit="context_window", max_output="max_output_tokens")
@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A model, its address and its parameters. Zero and empty leave the choice to the provider."""

    name: str
    provider: str
    model: str
    base_url: str = ""
    key: KeySource | None = None
    """None: the provider's usual variable, or no key if ``base_url`` is set."""
    context_window: int = 0
    """Maximum tokens of a request and its response."""
    max_output_tokens: int = 0
    """Maximum tokens of one response."""
    temperature: float | None = None
    top_p: float | None = None
    reasoning: Reasoning = ""
    prices: Price | None = None
    timeout: float = TIMEOUT
    """Seconds without data after which a request fails."""
    retries: int = RETRIES
    """Maximum retries of a request after a temporary failure."""

    @property
    def label(self) -> str:
        """``provider:model``."""
        return f"{self.provider}:{self.model}"

    @property
    def key_sources(self) -> tuple[KeySource, ...]:
        """The possible sources of its key, of which the first that is set is used; empty: no key is read here."""
        if self.key is not None:
            return (self.key,)
        if self.base_url:
            return ()  # a provider's usual key must not be sent to another address
        return tuple(EnvironmentKey(name) for name in KEY_VARIABLES.get(self.provider, ()))


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
