"""The providers, and the environment variables of their keys; known without loading the agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import HarnessError
from ..settings import CommandLineChoices, SettingsTable, load_tables
from ..withheld import exclude_from_child_env

__all__ = [
    "COMPATIBLE",
    "KEYLESS",
    "KEY_VARIABLES",
    "PROVIDERS",
    "key_names",
    "local_url",
    "withhold_keys",
]


# -- The variables that hold keys of models. Importing this loads nothing of the agent.


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
"""Where a provider's key is usually kept, the first that is set. It is sent to the provider's own address only."""


def withhold_keys(choices: CommandLineChoices | None = None) -> None:
    """Let no command on this machine inherit the keys of models: before the target is connected.

    Settings that are wrong are told when the models are loaded; here the usual variables count then.
    """
    try:
        tables = load_tables("models", choices)
    except HarnessError:
        tables = ()
    exclude_from_child_env(key_names(tables))


def key_names(tables: Iterable[SettingsTable]) -> frozenset[str]:
    """The usual variables, and those that profiles name in files that are trusted. Pure."""
    usual = {name for names in KEY_VARIABLES.values() for name in names}
    keys = (_key(profile) for table in tables if table.trusted for profile in table.values.values())
    return frozenset(usual | {name for key in keys if isinstance(name := key.get("env"), str)})


def _key(profile: object) -> Mapping[str, object]:
    key = profile.get("key") if isinstance(profile, Mapping) else None
    return key if isinstance(key, Mapping) else {}


# -- What is known of providers without asking their libraries: their usual key variables, and which need no key.


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
