"""Opening a model by the library of its provider, and streams that end as they should."""

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
from .model import OpenModel, context_limit_of
from .profiles import ModelProfile

__all__ = [
    "StreamEndDetector",
    "load_libraries",
    "may_be_cut",
    "opened",
    "watch_ends",
]


# -- Noticing that a stream of chat completions was cut off, where the server need not say why an answer ends.
#
# OpenAI's own API always gives a ``finish_reason``; some servers that are compatible with it never do, and most of
# these end with ``[DONE]``. What has neither, over a connection whose close is the only end that HTTP knows of, may
# be half.


TOLD = re.compile(rb'"finish_reason"\s*:\s*"|[\r\n]data:\s*\[DONE\]')
"""What says that an answer has come to its end; in the text of an answer the quotes would be escaped."""
OVERLAP = 64
"""Bytes that are looked at again with the next ones: more than what is looked for."""
LIBRARIES = ("httpx2", "httpx")
"""What OpenAI's library may be built on."""
CUT = "the stream ended before the answer did"


def may_be_cut(status: int, version: str, headers: Mapping[str, str]) -> bool:
    """Whether a body is a stream of events that ends when the connection does, however that came about. Pure.

    Args:
        headers: with names in lower case. What is compressed is not looked at.
    """
    streamed = headers.get("content-type", "").lower().startswith("text/event-stream")
    framed = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
    plain = headers.get("content-encoding", "identity").lower() == "identity"
    return status == 200 and streamed and plain and not framed and version.startswith("HTTP/1")


class StreamEndDetector:
    """Looks for the end of an answer in the bytes of a stream, which come in pieces of any size."""

    def __init__(self) -> None:
        self.told = False
        self._last = b"\n"

    def feed(self, data: bytes) -> None:
        """Look at the next bytes."""
        if not self.told:
            seen = self._last + data
            self.told = TOLD.search(seen) is not None
            self._last = seen[-OVERLAP:]


@cache
def _watched_by(library: ModuleType) -> Callable[[Any], Any]:
    """Makes of a body one that fails at its end when that is not the answer's."""

    base: Any = library.AsyncByteStream

    class Watched(base):  # type: ignore[misc]  # of whichever library is there
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
    """Let streams of a client of OpenAI's library fail where they were cut off; another client is left alone."""
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


# -- Profiles become models of pydantic-ai: any provider that it knows, and whatever is compatible with OpenAI's.


NEED_URL = frozenset({COMPATIBLE, "litellm"})
NO_KEY = "none"
"""Sent where there is no key, so that no library looks for one: it would be another provider's."""
CLOSING = 5.0
"""Seconds for the connections to be closed."""
WIRE = {"openai": "openai-chat"}
"""Providers that pydantic-ai has under another name."""
STORING = frozenset({"azure-responses", "openai-responses"})
"""Providers that keep what hosts say unless they are asked not to."""
THINKING = {"off": False, "low": "low", "medium": "medium", "high": "high"}


def load_libraries(profile: ModelProfile) -> None:
    """Import what the profile's provider needs: half a second that its first request need not wait for.

    What is wrong is not said here, but by :func:`opened`.
    """
    kind = "openai" if profile.provider == COMPATIBLE else profile.provider
    with suppress(Exception):
        _class_of(replace(profile, provider=kind))
    with suppress(Exception):
        import_module(f"pydantic_ai.models.{kind.partition('-')[0]}")


@asynccontextmanager
async def opened(profile: ModelProfile, key: str) -> AsyncIterator[OpenModel]:
    """The model of a profile; its connections are closed at the end.

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
    except Exception as error:  # every provider's library has errors of its own
        said = str(model_failure(error, profile))
        _let_go(error)
        raise ConfigError(said) from None
    return provider, OpenModel(profile, model, _settings(profile, model), context_limit_of(profile))


def _let_go(error: BaseException | None) -> None:
    """Drop what was half made now, in this thread: in one with an event loop its end would begin a task that fails."""
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
        raise ConfigError(f"model {profile.name}: {profile.provider} takes no key from a profile")
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
        raise ConfigError(f"model {profile.name}: no provider is named {profile.provider!r}") from None


def _amazon(provider: Provider[Any]) -> Provider[Any]:
    """Amazon's library logs keys, and takes the number of its retries from files and variables only; ours are shown."""
    logging.getLogger("botocore").setLevel(logging.INFO)
    client = provider.client.meta
    service = client.service_model.service_id.hyphenize()
    client.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
    return provider


def _redirect(provider: Provider[Any], base_url: str, profile: ModelProfile) -> None:
    """For a provider whose address is no argument of it."""
    if not hasattr(provider.client, "base_url"):
        raise ConfigError(f"model {profile.name}: {profile.provider} takes no base_url")
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
    """A stream without a proper end was cut off. Some servers that are only compatible never send one."""
    if profile.provider == COMPATIBLE:
        return None
    from pydantic_ai.profiles.openai import OpenAIModelProfile

    return OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)


def _settings(profile: ModelProfile, model: Model) -> ModelSettings:
    wanted = {
        "max_tokens": profile.max_output or None,
        "temperature": profile.temperature,
        "top_p": profile.top_p,
        "thinking": THINKING.get(profile.reasoning),
        "timeout": profile.timeout,
        "max_retries": 0,  # ours are shown to the operator
        "cache": True,
        "openai_store": False if profile.provider in STORING else None,
    }
    known = {name: value for name, value in wanted.items() if value is not None}
    return cast("ModelSettings", {name: known[name] for name in known if name not in model.unsupported_settings})
