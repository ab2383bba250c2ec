"""Model providers and the environment variables of their keys; importing this loads nothing of the agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import HarnessError
from ..settings import CommandLineChoices, SettingsTable, load_tables
from ..withheld_environment import exclude_from_child_env

__all__ = [
    "COMPATIBLE",
    "KEYLESS",
    "KEY_VARIABLES",
    "PROVIDERS",
    "key_names",
    "local_url",
    "withhold_keys",
]


# -- Environment variables of model keys


KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "alibaba": ("ALIBABA_API_KEY", "DASHSCOPE_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure": ("AZURE_OPENAI_API_KEY",),
    "azure-responses": ("AZURE_OPENAI_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("CO_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks": ("FIREWORKS_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "heroku": ("HEROKU_INFERENCE_KEY",),
    "huggingface": ("HF_TOKEN",),
    "meta": ("META_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshotai": ("MOONSHOTAI_API_KEY",),
    "nebius": ("NEBIUS_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "ovhcloud": ("OVHCLOUD_API_KEY",),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "together": ("TOGETHER_API_KEY",),
    "vercel": ("VERCEL_AI_GATEWAY_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "zai": ("ZAI_API_KEY",),
}
"""The usual variables of each provider's key; the first that is set is used, and sent only to that provider."""


def withhold_keys(choices: CommandLineChoices | None = None) -> None:
    """Remove the keys of models from the environment of local commands; call it before connecting to the target.

    Invalid settings are reported when the models are loaded; here they leave only the usual variables.
    """
    try:
        tables = load_tables("models", choices)
    except HarnessError:
        tables = ()
    exclude_from_child_env(key_names(tables))


def key_names(tables: Iterable[SettingsTable]) -> frozenset[str]:
    """Return the usual variables and those that profiles in trusted files name. Pure."""
    usual = {name for names in KEY_VARIABLES.values() for name in names}
    keys = (_key(profile) for table in tables if table.trusted for profile in table.values.values())
    return frozenset(usual | {name for key in keys if isinstance(name := key.get("env"), str)})


def _key(profile: object) -> Mapping[str, object]:
    key = profile.get("key") if isinstance(profile, Mapping) else None
    return key if isinstance(key, Mapping) else {}


# -- Facts about providers that need no library


COMPATIBLE = "openai-compatible"
"""Any service with OpenAI's chat completions API, at a ``base_url``."""

KEYLESS = frozenset({COMPATIBLE, "ollama", "vllm", "litellm"})
"""Providers that may work without a key."""

PROVIDERS = (*sorted({*KEY_VARIABLES, *KEYLESS, "bedrock", "google-cloud"}),)
"""Provider names for messages and completion; others that pydantic-ai supports work too."""

_LOCAL = {"ollama": ("OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1")}


def local_url(provider: str, environ: Mapping[str, str]) -> str:
    """Return the usual address of a provider on this machine; empty if the provider is not local."""
    variable, url = _LOCAL.get(provider, ("", ""))
    return environ.get(variable) or url
