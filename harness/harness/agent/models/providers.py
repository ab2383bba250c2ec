"""What is known of providers without asking their libraries: their usual key variables, and which need no key."""

from __future__ import annotations

from collections.abc import Mapping

from ..keynames import KEY_VARIABLES

__all__ = ["COMPATIBLE", "KEYLESS", "KEY_VARIABLES", "PROVIDERS", "local_url"]

COMPATIBLE = "openai-compatible"
"""Any service that speaks OpenAI's chat completions, at a ``base_url``."""

KEYLESS = frozenset({COMPATIBLE, "ollama", "vllm", "litellm"})
"""Providers that may need no key."""

PROVIDERS = (*sorted({*KEY_VARIABLES, *KEYLESS, "bedrock", "google-cloud"}),)
"""The names for messages and completion; others that pydantic-ai knows work too."""

_LOCAL = {"ollama": ("OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1")}


def local_url(provider: str, environ: Mapping[str, str]) -> str:
    """Where a provider that runs on this machine usually is; empty for one that does not."""
    variable, url = _LOCAL.get(provider, ("", ""))
    return environ.get(variable) or url
