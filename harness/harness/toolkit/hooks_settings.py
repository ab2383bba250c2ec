"""The ``[hooks]`` table of the settings files: commands, by event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ConfigError
from ..settings import SettingsTable
from .hooks import Registered, event_named
from .hooks_command import TIMEOUT, CommandHook
from .hooks_match import Matcher

__all__ = ["hooks_of"]

LONGEST = 300.0


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    command: str | list[str] = Field(min_length=1)
    tools: list[str] = []
    targets: list[str] = []
    paths: list[str] = []
    timeout: float = Field(TIMEOUT, gt=0, le=LONGEST)
    malformed: Literal["deny", "allow"] | None = None
    background: bool = Field(False, alias="async")
    env: dict[str, str] = {}


def hooks_of(tables: Iterable[SettingsTable]) -> tuple[Registered, ...]:
    """The hooks of all files, in their order: those of the user's own file first.

    Raises:
        ConfigError: an event is unknown, an entry is wrong, or a file that is not trusted has any.
    """
    return tuple(one for table in tables for one in _of(table))


def _of(table: SettingsTable) -> Iterable[Registered]:
    if table.values and not table.trusted:
        raise ConfigError(
            f"{table.origin}: hooks run programs on this machine, and this directory is not trusted",
            hint="after reading the file, add the directory to trusted_dirs in your own settings",
        )
    for name, entries in table.values.items():
        where = f"{table.origin}: hooks.{name}"
        if not isinstance(entries, list):
            raise ConfigError(f"{where} is not a list of tables", hint=f"write [[hooks.{name}]]")
        for entry in entries:
            yield _registered(where, name, entry)


def _registered(where: str, name: str, entry: Mapping[str, Any]) -> Registered:
    try:
        event = event_named(name)
        found = _Entry.model_validate(entry)
        if found.malformed == "allow" and event == "pre_tool":
            raise ValueError("malformed = 'allow' is not for pre_tool: what cannot be understood denies")
        command = found.command if isinstance(found.command, str) else tuple(found.command)
        handler = CommandHook(command, found.timeout, found.malformed, dict(found.env))
        matcher = Matcher(tuple(found.tools), tuple(found.targets), tuple(found.paths))
        return Registered(event, handler, matcher, found.background)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}.{key}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
