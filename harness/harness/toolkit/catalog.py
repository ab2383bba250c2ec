"""Settings of the tools: the ``[tools]`` table of the settings files.

A file of a directory that is not trusted may only take tools away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..command import parse_duration
from ..errors import ConfigError
from ..settings import SettingsTable
from ..settings_schema import parse_size
from .presets import opt_in
from .registry import Registry
from .results_cache import CAPACITY, MAX_BYTES, TIME_LIMIT

__all__ = ["MAX_AGENT_DEPTH", "NO_PROFILE", "ToolSettings", "tool_settings_of"]

MAX_AGENT_DEPTH = 2
"""The depth at which agents start no others, unless a setting or a profile says so; a person's agent is at depth 0."""
NO_PROFILE = "none"
"""The word for our own names, where a profile is named."""
STRICTER = frozenset({"exclude", "read_only"})
"""What a file that is not trusted may set."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """What the operator has set about tools."""

    packs: tuple[str, ...] = ()
    """Only the tools of these packs; empty is all but those that have to be asked for."""
    extra_packs: tuple[str, ...] = ()
    """These packs, too."""
    include: tuple[str, ...] = ()
    """Only these tools; empty is all."""
    exclude: tuple[str, ...] = ()
    read_only: bool = False
    """Only tools that change nothing."""
    disabled: tuple[str, ...] = ()
    """Packages, or sources such as ``plugin:my-package:weather``, whose plugins are not imported."""
    cache: bool = True
    """Results of calls that change nothing are remembered."""
    cache_max_results: int = CAPACITY
    """So many at most; those that were not used longest make room."""
    cache_max_bytes: int = MAX_BYTES
    """And so many bytes together."""
    cache_max_age: float = TIME_LIMIT
    """Seconds for which each holds at most."""
    partial_read_counts: bool = False
    """A file of which a part was read may be replaced as a whole."""
    profile: str = ""
    """Models are offered the tools of this profile; empty is our own."""
    max_agent_depth: int | None = None
    """Agents at this depth start no others: 0 keeps every agent from it. None leaves it to the profile."""
    secrets: tuple[str, ...] = ()
    """Further patterns of secrets, as regular expressions; the first group, where there is one, is the secret."""

    def choose(self, registry: Registry) -> Registry:
        """The tools that these settings leave, which may be called.

        Raises:
            ConfigError: a pack or a tool that is named is not there.
        """
        try:
            registry.packs(*self.extra_packs)  # one that means nothing is a mistake
            chosen = registry.packs(*self.packs, *self.extra_packs) if self.packs else registry
            chosen = chosen.include(*self.include) if self.include else chosen
            left = registry.exclude(*self.exclude)  # a name that means nothing is a mistake
            chosen = chosen.filter(lambda tool: left.get(tool.name) is not None)
        except ValueError as error:
            raise ConfigError(
                f"[tools] of the settings: {error}", hint="harness tools list shows what there is"
            ) from error
        return chosen.read_only() if self.read_only else chosen

    def offered(self, chosen: Registry) -> Registry:
        """Those of them that models are told of: not what has to be asked for, unless it was."""
        if self.packs or self.include:
            return chosen
        extra = frozenset(self.extra_packs)
        return chosen.set_aside(lambda tool: not opt_in(tool) or not extra.isdisjoint(tool.traits.packs))


def _read_size(value: object) -> object:
    return parse_size(value) if isinstance(value, str) else value


def _read_duration(value: object) -> object:
    return parse_duration(value) if isinstance(value, str | int) and not isinstance(value, bool) else value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    packs: list[str] | None = None
    extra_packs: list[str] | None = None
    include: list[str] | None = None
    exclude: list[str] | None = None
    read_only: bool | None = None
    disabled: list[str] | None = None
    cache: bool | None = None
    cache_max_results: int | None = Field(None, ge=1, le=100_000)
    cache_max_bytes: Annotated[int | None, BeforeValidator(_read_size)] = Field(None, ge=1 << 10, le=1 << 40)
    cache_max_age: Annotated[float | None, BeforeValidator(_read_duration)] = Field(None, ge=1, le=86400)
    partial_read_counts: bool | None = None
    profile: str | None = None
    max_agent_depth: int | None = Field(None, ge=0, le=10)
    secrets: list[str] | None = None


def tool_settings_of(tables: Iterable[SettingsTable]) -> ToolSettings:
    """The settings of all files, in their order: what comes later counts, and what is kept out adds up.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or a file that is not trusted sets what it may not.
    """
    settings = ToolSettings()
    for table in tables:
        found = _checked(table)
        settings = replace(settings, **_changes(settings, found))
    return settings


def _changes(settings: ToolSettings, found: dict[str, Any]) -> dict[str, Any]:
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    for name in ("exclude", "disabled", "secrets"):
        if name in changes:
            changes[name] = tuple(dict.fromkeys((*getattr(settings, name), *changes[name])))
    return changes


def _checked(table: SettingsTable) -> dict[str, Any]:
    try:
        found = _Table.model_validate(dict(table.values)).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["tools", *(str(part) for part in first["loc"])])
        raise ConfigError(f"{table.origin}: {where}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    loosened = sorted(set(found) - STRICTER) + (["read_only"] if found.get("read_only") is False else [])
    if loosened and not table.trusted:
        raise ConfigError(
            f"{table.origin}: tools.{loosened[0]} may only be set by files that are trusted",
            hint="add the directory to trusted_dirs in your own settings, or set it there",
        )
    return found
