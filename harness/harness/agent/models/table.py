"""Validates the ``[models.NAME]`` tables of settings files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from ...errors import ConfigError
from ...settings import SettingsTable
from ...settings_schema import suggest
from ..provider_keys import COMPATIBLE, PROVIDERS
from .key_table import Duration, KeyTable
from .model import RETRIES, TIMEOUT, ModelProfile, Price, Reasoning

__all__ = ["profiles_in"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
PLAIN_KEY = 'write where the key is kept: { env = "NAME" }, { file = "PATH" }, { command = [...] } or { keyring = ... }'


Dollars = Annotated[Decimal, BeforeValidator(str), Field(ge=0, le=1_000_000)]
Tokens = Annotated[int, Field(ge=1, le=1_000_000_000)]
Word = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=500)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True, hide_input_in_errors=True)


class _Prices(_Table):
    """``prices``, per million tokens."""

    input: Dollars = Field(strict=False)
    output: Dollars = Field(strict=False)
    cache_read: Dollars | None = Field(None, strict=False)
    cache_write: Dollars | None = Field(None, strict=False)

    def price(self) -> Price:
        """Return the validated value."""
        return Price(self.input, self.output, self.cache_read, self.cache_write)


class _Profile(_Table):
    """``[models.NAME]``."""

    provider: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9/-]*$")]
    model: Word
    base_url: str = ""
    key: KeyTable | None = None
    context_window: Tokens | None = None
    max_output_tokens: Tokens | None = None
    temperature: float | None = Field(None, ge=0, le=2, strict=False)
    top_p: float | None = Field(None, gt=0, le=1, strict=False)
    reasoning: Reasoning = ""
    prices: _Prices | None = None
    timeout: Duration = TIMEOUT
    retries: int = Field(RETRIES, ge=0, le=20)

    @field_validator("provider")
    @classmethod
    def _known(cls, provider: str) -> str:
        if provider not in PROVIDERS and (close := suggest(provider, PROVIDERS)):
            raise ValueError(f"unknown provider {provider!r}; {close}")
        return provider

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if url and (parts.scheme not in {"http", "https"} or not parts.hostname or not url.isprintable()):
            raise ValueError("write http://host or https://host")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("a URL must not contain a password, a query or a fragment; use key for secrets")
        return url

    @model_validator(mode="after")
    def _check(self) -> _Profile:
        if self.provider == COMPATIBLE and not self.base_url:
            raise ValueError(f"{COMPATIBLE} needs a base_url")
        return self


def profiles_in(table: SettingsTable) -> tuple[ModelProfile, ...]:
    """Return the profiles of one file.

    Raises:
        ConfigError: a key is unknown, or a value is wrong. The message contains no value of ``key``.
    """
    return tuple(_profile(name, values, table.origin) for name, values in table.values.items())


def _profile(name: str, values: object, origin: str) -> ModelProfile:
    where = f"{origin}: models.{name}"
    if NAME.fullmatch(name) is None:
        raise ConfigError(f"{origin}: models: invalid name {name!r}", hint="use letters, digits, '_', '-' and '.'")
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is not a table", hint=f"write [models.{name}]")
    if isinstance(values.get("key"), str):
        raise ConfigError(f"{where}.key: settings files must not contain keys", hint=PLAIN_KEY)
    try:
        return _made(name, _Profile.model_validate(dict(values)))
    except ValidationError as error:
        raise _mistake(where, error) from None


def _made(name: str, found: _Profile) -> ModelProfile:
    prices = found.prices
    return ModelProfile(
        name=name,
        provider=found.provider,
        model=found.model,
        base_url=found.base_url,
        key=None if found.key is None else found.key.source(),
        context_window=found.context_window or 0,
        max_output_tokens=found.max_output_tokens or 0,
        temperature=found.temperature,
        top_p=found.top_p,
        reasoning=found.reasoning,
        prices=None if prices is None else prices.price(),
        timeout=found.timeout,
        retries=found.retries,
    )


def _mistake(where: str, error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join([where, *(str(part) for part in first["loc"])])
    message = first["msg"].removeprefix("Value error, ")
    hint = ""
    if first["type"] == "extra_forbidden":
        message = "unknown key"
        hint = suggest(str(first["loc"][-1]), _keys_beside(first["loc"]))
    return ConfigError(f"{place}: {message[:1].lower()}{message[1:]}", hint=hint)


def _keys_beside(path: tuple[Any, ...]) -> tuple[str, ...]:
    tables: Mapping[str, type[BaseModel]] = {"prices": _Prices, "key": KeyTable}
    return tuple(tables.get(str(path[0]) if len(path) > 1 else "", _Profile).model_fields)
