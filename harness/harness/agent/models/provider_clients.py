"""Opens a model with its provider's library, and detects cut-off streams."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from traceback import clear_frames
from types import ModuleType
from typing import Any, cast

import anyio
import anyio.to_thread
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.profiles import ModelProfile as PydanticProfile
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from ...errors import ConfigError
from ..provider_keys import COMPATIBLE, KEY_VARIABLES, KEYLESS, local_url
from .failures import model_failure
from .model import ModelProfile, OpenModel, context_limit_of

__all__ = [
    "StreamEndDetector",
    "load_libraries",
    "may_be_cut",
    "opened",
    "watch_ends",
]


# -- Detects cut-off streams of chat completions from servers that need not give a reason for the end.
#
# OpenAI's own API always sends a ``finish_reason``; some compatible servers never do, but most of these end with
# ``[DONE]``. A stream with neither, whose end HTTP signals only by closing the connection, may be incomplete.


TOLD = re.compile(rb'"finish_reason"\s*:\s*"|[\r\n]data:\s*\[DONE\]')
"""Marks the end of a response; within the text of a response the quotes would be escaped."""
OVERLAP = 64
"""Bytes that are searched again together with the next ones: more than the longest match."""
LIBRARIES = ("httpx2", "httpx")
"""HTTP libraries that OpenAI's library may use."""
CUT = "the stream ended before the response was complete"


def may_be_cut(status: int, version: str, headers: Mapping[str, str]) -> bool:
    """Return whether a body is an event stream that only the end of the connection terminates. Pure.

    Args:
        status: the HTTP status code.
        version: the HTTP version, such as ``HTTP/1.1``.
        headers: with names in lower case. Compressed bodies are not examined.
    """
    streamed = headers.get("content-type", "").lower().startswith("text/event-stream")
    framed = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
    plain = headers.get("content-encoding", "identity").lower() == "identity"
    return status == 200 and streamed and plain and not framed and version.startswith("HTTP/1")


class StreamEndDetector:
    """Searches for the end of a response in the bytes of a stream, which are fed in parts of any size."""

    def __init__(self) -> None:
        self.told = False
        self._last = b"\n"

    def feed(self, data: bytes) -> None:
        """Search the next bytes."""
        if not self.told:
            seen = self._last + data
            self.told = TOLD.search(seen) is not None
            self._last = seen[-OVERLAP:]


@cache
def _watched_by(library: ModuleType) -> Callable[[Any], Any]:
    """Return a class that wraps a body and fails if the body ends before the response does."""

    base: Any = library.AsyncByteStream

    class Watched(base):  # type: ignore[misc]  # the base is chosen at run time
        def __init__(self, stream: Any) -> None:
            self._stream = stream
            self._end = StreamEndDetector()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._stream:
                self._end.feed(data)
                yield data
            if not self._end.told:
                raise library.RemoteProtocolError(CUT)

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Watched


def watch_ends(client: Any) -> None:
    """Make cut-off streams of a client of OpenAI's library fail; other clients are unchanged."""
    http = getattr(client, "_client", None)
    loaded = (sys.modules[name] for name in LIBRARIES if name in sys.modules)
    library = next((one for one in loaded if isinstance(http, one.AsyncClient)), None)
    if http is None or library is None:
        return

    async def look_at(response: Any) -> None:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if may_be_cut(response.status_code, response.http_version, headers):
            response.stream = _watched_by(library)(response.stream)

    hooks = http.event_hooks
    http.event_hooks = {**hooks, "response": [*hooks.get("response", ()), look_at]}


# -- Models of pydantic-ai from profiles: every provider that it supports, and services compatible with OpenAI's API


NEED_URL = frozenset({COMPATIBLE, "litellm"})
NO_KEY = "none"
"""Sent where there is no key, so that no library looks for another provider's key."""
CLOSING = 5.0
"""Maximum seconds for closing the connections."""
WIRE = {"openai": "openai-chat"}
"""Providers that have a different name in pydantic-ai."""
STORING = frozenset({"azure-responses", "openai-responses"})
"""Providers that store requests and responses unless told not to."""
THINKING = {"off": False, "low": "low", "medium": "medium", "high": "high"}


def load_libraries(profile: ModelProfile) -> None:
    """Import the libraries of the profile's provider, which takes about half a second, before its first request.

    Errors are ignored here; :func:`opened` reports them.
    """
    kind = "openai" if profile.provider == COMPATIBLE else profile.provider
    with suppress(Exception):
        _class_of(replace(profile, provider=kind))
    with suppress(Exception):
        import_module(f"pydantic_ai.models.{kind.partition('-')[0]}")


@asynccontextmanager
async def opened(profile: ModelProfile, key: str) -> AsyncIterator[OpenModel]:
    """Open the model of a profile, and close its connections at the end.

    Raises:
        ConfigError: the profile does not fit its provider, or the provider's library is not installed.
    """
    provider, ready = await anyio.to_thread.run_sync(_made, profile, key, abandon_on_cancel=True)
    await provider.__aenter__()
    try:
        yield ready
    finally:
        with anyio.move_on_after(CLOSING, shield=True):
            await provider.__aexit__(None, None, None)


def _made(profile: ModelProfile, key: str) -> tuple[Provider[Any], OpenModel]:
    try:
        provider = _provider(profile, key)
        model = _model(profile, provider)
    except UserError as error:
        raise ConfigError(f"model {profile.name}: {error.message}") from None
    except ImportError as error:
        raise ConfigError(f"model {profile.name}: {error.msg}") from None
    except ConfigError:
        raise
    except Exception as error:  # every provider's library has its own errors
        said = str(model_failure(error, profile))
        _let_go(error)
        raise ConfigError(said) from None
    return provider, OpenModel(profile, model, _settings(profile, model), context_limit_of(profile))


def _let_go(error: BaseException | None) -> None:
    """Release partly created objects in this thread: in one with an event loop their cleanup would start a task."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


# -- the provider


def _provider(profile: ModelProfile, key: str) -> Provider[Any]:
    base_url = profile.base_url or local_url(profile.provider, os.environ)
    if not base_url and profile.provider in NEED_URL:
        raise ConfigError(f"model {profile.name}: {profile.provider} needs a base_url", hint="set it in a profile")
    if not key and base_url and profile.provider in {*KEY_VARIABLES, *KEYLESS}:
        key = NO_KEY
    if profile.provider == COMPATIBLE:
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        provider: Provider[Any] = OpenAICompatibleProvider(profile.name, base_url=base_url, api_key=key)
        watch_ends(provider.client)
        return provider
    made = _class_of(profile)
    taken = inspect.signature(made.__init__).parameters
    arguments: dict[str, Any] = {"api_key": key} if key else {}
    if key and "api_key" not in taken:
        raise ConfigError(f"model {profile.name}: {profile.provider} does not accept a key from a profile")
    named = next((name for name in ("base_url", "azure_endpoint") if name in taken), "")
    if base_url and named:
        arguments[named] = base_url
    if "aws_read_timeout" in taken:
        return _amazon(made(**{**arguments, "aws_read_timeout": profile.timeout}))
    provider = made(**arguments)
    watch_ends(provider.client)
    if base_url and not named:
        _redirect(provider, base_url, profile)
    return provider


def _class_of(profile: ModelProfile) -> type[Provider[Any]]:
    try:
        return infer_provider_class(WIRE.get(profile.provider, profile.provider))
    except ValueError:
        raise ConfigError(f"model {profile.name}: unknown provider {profile.provider!r}") from None


def _amazon(provider: Provider[Any]) -> Provider[Any]:
    """Stop botocore from logging keys, and from its own retries, which only its files and variables configure."""
    logging.getLogger("botocore").setLevel(logging.INFO)
    client = provider.client.meta
    service = client.service_model.service_id.hyphenize()
    client.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
    return provider


def _redirect(provider: Provider[Any], base_url: str, profile: ModelProfile) -> None:
    """Set the address of a provider that does not accept one as an argument."""
    if not hasattr(provider.client, "base_url"):
        raise ConfigError(f"model {profile.name}: {profile.provider} does not accept base_url")
    provider.client.base_url = base_url


# -- the model


def _model(profile: ModelProfile, provider: Provider[Any]) -> Model:
    if profile.provider in {COMPATIBLE, "openai"}:
        from pydantic_ai.models.openai import OpenAIChatModel

        return OpenAIChatModel(profile.model, provider=provider, profile=_strict(profile))
    if profile.provider == "openrouter":
        from pydantic_ai.models.openrouter import OpenRouterModel

        return OpenRouterModel(profile.model, provider=provider, profile=_strict(profile))
    kind = WIRE.get(profile.provider, profile.provider)
    return infer_model(f"{kind}:{profile.model}", provider_factory=lambda _: provider)


def _strict(profile: ModelProfile) -> PydanticProfile | None:
    """Require a proper end of streams, except from compatible servers, some of which never send one."""
    if profile.provider == COMPATIBLE:
        return None
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    return OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)


def _settings(profile: ModelProfile, model: Model) -> ModelSettings:
    wanted = {
        "max_tokens": profile.max_output_tokens or None,
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "thinking": THINKING.get(profile.reasoning),
        "timeout": profile.timeout,
        "max_retries": 0,  # harness retries itself, and shows it to the operator
        "cache": True,
        "openai_store": False if profile.provider in STORING else None,
    }
    known = {name: value for name, value in wanted.items() if value is not None}
    return cast("ModelSettings", {name: known[name] for name in known if name not in model.unsupported_settings})
