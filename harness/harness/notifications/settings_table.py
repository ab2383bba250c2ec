"""Validates the ``[notifications]`` table of settings files."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from ..agent.models.key_table import KeyTable
from ..command import parse_duration
from ..errors import ConfigError
from ..settings import SettingsTable
from ..settings_schema import suggest
from .settings import EventKind, TemplateName, TerminalProtocol, WebhookSettings
from .templates import check_body
from .webhook import check_url

__all__ = ["checked"]

DAY = 86400.0
HEADER = re.compile(r"[A-Za-z0-9-]+")
MAX_WEBHOOKS = 20


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class _Webhook(_Table):
    """One of ``[[notifications.webhooks]]``."""

    url: str | KeyTable
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    template: TemplateName = "json"
    body: dict[str, JsonValue] | None = None
    token: KeyTable | None = None
    headers: dict[str, str | KeyTable] = {}
    events: list[EventKind] | None = None

    @field_validator("url")
    @classmethod
    def _is_safe(cls, url: str | KeyTable) -> str | KeyTable:
        if isinstance(url, str):
            check_url(url)
        return url

    @field_validator("name")
    @classmethod
    def _is_printable(cls, name: str | None) -> str | None:
        if name is not None and not name.isprintable():
            raise ValueError("must be printable")
        return name

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, str | KeyTable]) -> dict[str, str | KeyTable]:
        for name, value in headers.items():
            if HEADER.fullmatch(name) is None or name.lower() in ("host", "content-length", "transfer-encoding"):
                raise ValueError(f"{name!r} is not a header that can be set")
            if isinstance(value, str) and not (value.isascii() and value.isprintable()):
                raise ValueError(f"the value of {name} must be printable ASCII characters")
            if isinstance(value, str) and value != value.strip():
                raise ValueError(f"the value of {name} must not start or end with a blank")
        return headers

    @field_validator("events")
    @classmethod
    def _are_some(cls, events: list[EventKind] | None) -> list[EventKind] | None:
        if events is not None and not events:
            raise ValueError("name at least one event, or remove the webhook")
        return events

    @model_validator(mode="after")
    def _check(self) -> _Webhook:
        if self.body is not None:
            if self.template != "json":
                raise ValueError("give template or body, not both")
            check_body(self.body)
        if self.token is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("token and the header Authorization contradict each other")
        return self

    def settings(self) -> WebhookSettings:
        """Return the validated value."""
        given = {} if self.events is None else {"events": tuple(self.events)}
        return WebhookSettings(
            url=self.url if isinstance(self.url, str) else self.url.source(),
            name=self.name or "",
            template=self.template,
            body=self.body,
            token=None if self.token is None else self.token.source(),
            headers={name: value if isinstance(value, str) else value.source() for name, value in self.headers.items()},
            **given,
        )


class _Notifications(_Table):
    """``[notifications]``."""

    events: list[EventKind] | None = None
    bell: bool | None = None
    terminal: TerminalProtocol | None = None
    desktop: bool | None = None
    command: list[str] | None = None
    webhooks: Annotated[list[_Webhook], Field(max_length=MAX_WEBHOOKS)] | None = None
    min_duration: Annotated[float, BeforeValidator(_seconds), Field(ge=0, le=DAY, strict=False)] | None = None
    max_per_minute: Annotated[int, Field(ge=1, le=60)] | None = None
    include_command: bool | None = None
    include_output: bool | None = None

    @field_validator("command")
    @classmethod
    def _names_program(cls, command: list[str] | None) -> list[str] | None:
        if command and ("/" in command[0] and not command[0].startswith(("/", "~/"))):
            raise ValueError("the program must be a name or an absolute path: a relative one depends on the directory")
        if command and not command[0]:
            raise ValueError("the first word must be a program")
        if any("\0" in word for word in command or ()):
            raise ValueError("words must not contain NUL bytes")
        return command


def checked(table: SettingsTable) -> dict[str, Any]:
    """Return the settings that a file has, by the fields of ``NotificationSettings``.

    Raises:
        ConfigError: a key is unknown, or a value is wrong. The message contains no value.
    """
    try:
        found = _Notifications.model_validate(dict(table.values))
    except ValidationError as error:
        raise _mistake(table.origin, error) from None
    values: dict[str, Any] = {name: getattr(found, name) for name in found.model_fields_set}
    for name in ("events", "command"):
        if name in values:
            values[name] = tuple(values[name] or ())
    if "webhooks" in values:
        values["webhooks"] = tuple(one.settings() for one in found.webhooks or ())
    return values


def _mistake(origin: str, error: ValidationError) -> ConfigError:
    found = error.errors(include_url=False, include_input=False)
    first = next((one for one in found if one["type"] != "string_type"), found[0])  # a table in place of a text
    parts = [str(part) for part in first["loc"] if part not in ("str", "KeyTable")]
    message = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    hint = ""
    if first["type"] == "extra_forbidden":
        tables: dict[int, type[_Table]] = {1: _Notifications, 3: _Webhook}
        known = tables[len(parts)].model_fields if len(parts) in tables else ()
        message, hint = "unknown key", suggest(parts[-1], tuple(known))
    where = ".".join(["notifications", *parts])
    return ConfigError(f"{origin}: {where}: {message[:1].lower()}{message[1:]}", hint=hint)
