"""The configured models: ``[models.NAME]`` tables of the settings files, and ``provider:model`` texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...settings import CommandLineChoices, SettingsTable, load_tables
from ...settings_schema import suggest
from ..provider_keys import PROVIDERS
from .model import ModelProfile

__all__ = ["MODEL_VARIABLE", "ModelTable", "load_models", "models_of"]

MODEL_VARIABLE = "HARNESS_MODEL"
SETUP = "add a [models.NAME] table with provider, model and key to your settings, or set HARNESS_MODEL=provider:model"


@dataclass(frozen=True, slots=True)
class ModelTable:
    """The configured models. ``default`` is the name of the one for new conversations; empty: none."""

    profiles: tuple[ModelProfile, ...] = ()
    default: str = ""

    @property
    def setup(self) -> str:
        """How to configure a model, in one line."""
        return SETUP

    def profile(self, name: str = "") -> ModelProfile:
        """Return the profile with that name, or of a ``provider:model`` text; by default the default profile.

        Raises:
            ConfigError: unknown profile, or no default.
        """
        wanted = name or self.default
        if not wanted:
            raise self._nothing_chosen()
        for profile in self.profiles:
            if profile.name == wanted:
                return profile
        if ":" in wanted:
            return _profile_of_text(wanted)
        names = tuple(profile.name for profile in self.profiles)
        known = f"the models are {', '.join(names)}; or write provider:model" if names else SETUP
        raise ConfigError(f"unknown model {wanted!r}", hint=suggest(wanted, names) or known)

    def _nothing_chosen(self) -> ConfigError:
        names = ", ".join(profile.name for profile in self.profiles)
        if names:
            return ConfigError("no model is chosen", hint=f"set model in [agent] to one of these: {names}")
        return ConfigError("no model is configured", hint=SETUP)


def load_models(
    choices: CommandLineChoices | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> ModelTable:
    """Load the models of the settings files; arguments as for :func:`harness.settings.load_settings`.

    ``HARNESS_MODEL`` overrides ``[agent] model``; without either, the only profile is the default.

    Raises:
        ConfigError: a file is unreadable, a key is unknown, a value is wrong, an untrusted file sets one, or the chosen
            model is invalid.
    """
    env = os.environ if environ is None else environ
    tables = load_tables("models", choices, environ=env, directory=directory)
    agent = load_tables("agent", choices, environ=env, directory=directory)
    return models_of(tables, agent, env.get(MODEL_VARIABLE, ""))


def models_of(tables: Iterable[SettingsTable], agent: Iterable[SettingsTable] = (), chosen: str = "") -> ModelTable:
    """Return the models of these tables; a later profile replaces an earlier one of the same name entirely.

    Raises:
        ConfigError: as for :func:`load_models`.
    """
    profiles: dict[str, ModelProfile] = {}
    for table in tables:
        from .table import profiles_in  # imports pydantic, which most programs do not need

        table.check_trusted("[models]")
        profiles.update({profile.name: profile for profile in profiles_in(table)})
    default = chosen or _model_of(agent) or (next(iter(profiles)) if len(profiles) == 1 else "")
    found = ModelTable(tuple(profiles.values()), default)
    if default and default not in profiles:
        found = ModelTable((*found.profiles, found.profile(default)), default)
    return found


def _model_of(tables: Iterable[SettingsTable]) -> str:
    model = ""
    for table in tables:
        table.check_trusted("[agent]")
        value = table.values.get("model", model)
        if not isinstance(value, str):
            raise ConfigError(f"{table.origin}: agent.model: must be the name of a model")
        model = value
    return model


def _profile_of_text(text: str) -> ModelProfile:
    provider, _, model = text.partition(":")
    if not provider or not model or not text.isprintable() or " " in text:
        raise ConfigError(f"invalid model {text!r}", hint="write provider:model, such as anthropic:NAME")
    if provider not in PROVIDERS and (close := suggest(provider, PROVIDERS)):
        raise ConfigError(f"{text!r}: unknown provider {provider!r}", hint=close)
    return ModelProfile(text, provider, model)
