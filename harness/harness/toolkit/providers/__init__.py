"""Converts between the toolkit and model APIs with plain dictionaries, without client libraries.

::

    anthropic = provider("anthropic")
    request = {"model": ..., "messages": messages, **anthropic.request(tools)}
    turn = anthropic.calls(response, tools)
    outcomes = await executor.batch(turn.calls)
    messages += anthropic.results([*outcomes, *turn.withheld], tools)
"""

from __future__ import annotations

from importlib import import_module

from ...errors import ConfigError
from .base import Provider, Turn

__all__ = ["PROVIDERS", "Provider", "Turn", "provider"]

_MODULES = {
    "anthropic": ("anthropic", "Anthropic"),
    "openai": ("openai", "OpenAI"),
    "openai-strict": ("openai", "OpenAIStrict"),
    "openai-responses": ("openai", "OpenAIResponses"),
    "gemini": ("gemini", "Gemini"),
    "generic": ("base", "Generic"),
}
PROVIDERS = tuple(_MODULES)
"""The names that :func:`provider` knows."""


def provider(name: str) -> Provider:
    """Return the adapter of that name; see :data:`PROVIDERS`.

    Raises:
        ConfigError: unknown provider.
    """
    if name not in _MODULES:
        raise ConfigError(f"unknown provider {name!r}", hint=f"there are: {', '.join(PROVIDERS)}")
    module, kind = _MODULES[name]
    made: Provider = getattr(import_module(f".{module}", __package__), kind)()
    return made
