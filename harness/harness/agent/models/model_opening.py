"""Opens a model: reads its key and loads its provider's library, in a thread."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType

import anyio.to_thread

from ...errors import ConfigError
from ...extras import install_extra
from ..provider_keys import KEYLESS
from .keys import EnvironmentKey, KeySource, read_key
from .model import ModelProfile, OpenModel

__all__ = ["open_model"]

MISSING = "the agent needs a library that is not installed"


@asynccontextmanager
async def open_model(profile: ModelProfile, *, environ: Mapping[str, str] | None = None) -> AsyncIterator[OpenModel]:
    """Open the model of a profile, with an HTTP client that is closed at the end. Sends nothing to the provider.

    Args:
        profile: the profile of the model.
        environ: the variables in which keys are looked up; by default ``os.environ``.

    Raises:
        ConfigError: there is no key, no such provider, or its library is not installed.
    """
    key = await _key_of(profile, os.environ if environ is None else environ)
    library = await anyio.to_thread.run_sync(_library, abandon_on_cancel=True)
    async with library.opened(profile, key) as model:
        yield model


def _library() -> ModuleType:
    try:
        return import_module(".provider_clients", __package__)
    except ImportError as error:
        raise ConfigError(f"{MISSING}: {error.name}", hint=install_extra("agent")) from None


async def _key_of(profile: ModelProfile, environ: Mapping[str, str]) -> str:
    sources = profile.key_sources
    if not sources:
        return ""
    if profile.key is None:
        sources = tuple(source for source in sources if _is_set(source, environ)) or sources
    try:
        return await read_key(sources[0], environ)
    except ConfigError as error:
        if profile.key is None and profile.provider in KEYLESS:
            return ""
        raise ConfigError(f"model {profile.name}: {error.message}", hint=error.hint) from None


def _is_set(source: KeySource, environ: Mapping[str, str]) -> bool:
    return isinstance(source, EnvironmentKey) and bool(environ.get(source.name))
