"""All tools of this machine in one registry (builtin, of other packages, declared), and the ``[tools]`` settings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..command import parse_duration
from ..deprecated_names import renamed_fields
from ..errors import ConfigError
from ..settings import SettingsTable, user_config_path
from ..settings_schema import parse_size
from .contract import Tool
from .declared_tools import CommandTool, parse_specs
from .delegation import AgentTypeFiles
from .interfaces import MAX_AGENT_DEPTH
from .plugins import TOOLS, adopted, find, load_tools
from .registry import FixedSource, Registry, is_builtin, missing_libraries, opt_in
from .result_cache import CAPACITY, MAX_BYTES, TIME_LIMIT
from .session.output_store import OutputStore, ReadOutput
from .tool_profiles import load_profile

__all__ = [
    "MAX_AGENT_DEPTH",
    "NO_PROFILE",
    "Catalogue",
    "ToolSettings",
    "agent_depth",
    "command_tools_directory",
    "load_catalogue",
    "offered",
    "tool_settings_of",
]


# -- Settings of the tools: the ``[tools]`` table of the settings files.
#
# A file in a directory that is not trusted may only remove tools.


NO_PROFILE = "none"
"""The profile name for harness's own tool names."""
STRICTER = frozenset({"exclude", "read_only"})
"""Keys that a file that is not trusted may set."""


@renamed_fields(
    disabled="disabled_plugins",
    partial_read_counts="allow_overwrite_after_partial_read",
    profile="tool_profile",
    secrets="redact_patterns",
)
@dataclass(frozen=True, slots=True)
class ToolSettings:
    """The operator's settings for tools."""

    packs: tuple[str, ...] = ()
    """Only the tools of these packs; empty means all but the opt-in packs."""
    extra_packs: tuple[str, ...] = ()
    """Additional opt-in packs."""
    include: tuple[str, ...] = ()
    """Only these tools; empty means all."""
    exclude: tuple[str, ...] = ()
    read_only: bool = False
    """Only tools that change nothing."""
    disabled_plugins: tuple[str, ...] = ()
    """Packages, or sources such as ``plugin:my-package:weather``, whose plugins are not imported."""
    cache: bool = True
    """Cache results of read-only calls."""
    cache_max_results: int = CAPACITY
    """Maximum number of cached results; the least recently used are removed first."""
    cache_max_bytes: int = MAX_BYTES
    """Maximum total size of the cached results in bytes."""
    cache_max_age: float = TIME_LIMIT
    """Maximum age of a cached result in seconds."""
    allow_overwrite_after_partial_read: bool = False
    """A file that was partly read may be overwritten as a whole."""
    tool_profile: str = ""
    """The tool profile for models; empty means harness's own tools."""
    max_agent_depth: int | None = None
    """Agents at this depth cannot start others; 0 disables sub-agents. None uses the profile's value."""
    redact_patterns: tuple[str, ...] = ()
    """Additional regular expressions for secrets; the first group, if there is one, is the secret."""

    def choose(self, registry: Registry) -> Registry:
        """Return the tools that these settings permit.

        Raises:
            ConfigError: a named pack or tool does not exist.
        """
        try:
            registry.packs(*self.extra_packs)  # an unknown name is an error
            chosen = registry.packs(*self.packs, *self.extra_packs) if self.packs else registry
            chosen = chosen.include(*self.include) if self.include else chosen
            left = registry.exclude(*self.exclude)  # an unknown name is an error
            chosen = chosen.filter(lambda tool: left.get(tool.name) is not None)
        except ValueError as error:
            raise ConfigError(f"[tools] of the settings: {error}", hint="harness tools list shows all tools") from error
        return chosen.read_only() if self.read_only else chosen

    def offered(self, chosen: Registry) -> Registry:
        """Return those of the permitted tools that models are offered: without opt-in packs that are not set."""
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
    disabled_plugins: list[str] | None = None
    cache: bool | None = None
    cache_max_results: int | None = Field(None, ge=1, le=100_000)
    cache_max_bytes: Annotated[int | None, BeforeValidator(_read_size)] = Field(None, ge=1 << 10, le=1 << 40)
    cache_max_age: Annotated[float | None, BeforeValidator(_read_duration)] = Field(None, ge=1, le=86400)
    allow_overwrite_after_partial_read: bool | None = None
    tool_profile: str | None = None
    max_agent_depth: int | None = Field(None, ge=0, le=10)
    redact_patterns: list[str] | None = None


def tool_settings_of(tables: Iterable[SettingsTable]) -> ToolSettings:
    """Combine the settings of all files in order: later values take precedence, and exclusions accumulate.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or a file that is not trusted sets a key that it may not.
    """
    settings = ToolSettings()
    for table in tables:
        found = _checked(table)
        settings = replace(settings, **_changes(settings, found))
    return settings


def _changes(settings: ToolSettings, found: dict[str, Any]) -> dict[str, Any]:
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    for name in ("exclude", "disabled_plugins", "redact_patterns"):
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
    if loosened:
        table.check_trusted(f"tools.{loosened[0]}")
    return found


# -- All tools of this machine in one registry: builtin ones, those of other packages, and declared ones.


OWN_TOOLS = "builtin:toolkit"
"""The source of the tools that belong to the pipeline itself."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools, and one sentence for each source that could not be loaded.

    ``registry`` has the tools that models are offered, ``known`` also the opt-in ones.
    """

    registry: Registry
    known: Registry
    problems: tuple[str, ...] = ()


def command_tools_directory() -> Path:
    """Return the directory of declared tools: ``tools/*.toml`` next to the user's settings."""
    return user_config_path().parent / "tools"


def load_catalogue(
    settings: ToolSettings | None = None, *, directory: Path | None = None, sources: Iterable[FixedSource] = ()
) -> Catalogue:
    """Import and read all tools and apply the settings; blocks.

    Args:
        settings: the default has no settings.
        directory: of the declarations; the default is :func:`command_tools_directory`.
        sources: the program's own tools. They are treated like those of a package: a tool without a category gets
            the category ``plugin``.

    Raises:
        ConfigError: the settings name an unknown pack, tool or profile, the name of one of ``sources`` or its tools
            is taken, or the profile uses the name of one of its tools.
    """
    settings = settings or ToolSettings()
    registry = Registry()
    problems: list[str] = []
    found = [
        *_plugins(settings, problems),
        (OWN_TOOLS, (ReadOutput(OutputStore()),)),
        *_declared(directory or command_tools_directory(), problems),
    ]
    for source, tools in found:
        try:
            registry.add_source(source, tools)
        except ValueError as error:
            problems.append(f"the tools of {source} are skipped: {error}")
    problems += [f"a sub-agent type is skipped: {problem}" for problem in AgentTypeFiles().list().problems]
    for own in sources:
        _add(registry, own)
    known = settings.choose(registry)
    return Catalogue(offered(settings, known, settings.tool_profile), known, tuple(problems))


def _add(registry: Registry, source: FixedSource) -> None:
    try:
        if is_builtin(source.name):
            raise ValueError(f"the name {source.name!r} is reserved for harness's own tools")
        registry.add_source(source.name, [adopted(tool) for tool in source.fixed])
    except ValueError as error:
        raise ConfigError(f"the tools of {source.name} cannot be added: {error}") from error


def offered(settings: ToolSettings, known: Registry, profile: str = "") -> Registry:
    """Return the tools that models are offered: a profile's or harness's own, without those that lack a library.

    Tools that are not built in are offered with and without a profile.

    Raises:
        ConfigError: unknown profile, or it uses the name of a tool that is not built in.
    """
    usable = known.filter(lambda tool: not missing_libraries(tool))
    without_profile = settings.offered(usable)
    if profile in ("", NO_PROFILE):
        return without_profile

    def may_be_shown(tool: Tool[Any]) -> bool:
        return is_builtin(usable.source_of(tool.name) or "") or without_profile.get(tool.name) is not None

    return load_profile(profile).over(usable.filter(may_be_shown))


def agent_depth(settings: ToolSettings, profile: str | None = None) -> int:
    """Return the depth at which agents cannot start others: from the settings, the profile, or the default.

    Args:
        settings: the settings of the tools.
        profile: the session's profile; None uses the settings.

    Raises:
        ConfigError: unknown profile.
    """
    if settings.max_agent_depth is not None:
        return settings.max_agent_depth
    name = settings.tool_profile if profile is None else profile
    own = None if name in ("", NO_PROFILE) else load_profile(name).max_agent_depth
    return MAX_AGENT_DEPTH if own is None else own


_Sources = Iterator[tuple[str, tuple[Tool[Any], ...]]]


def _plugins(settings: ToolSettings, problems: list[str]) -> _Sources:
    loaded = load_tools(find(TOOLS, disabled=settings.disabled_plugins))
    problems += [f"the tools of {one.plugin.source} could not be loaded: {one.reason}" for one in loaded.failures]
    for plugin, tools in loaded.found:
        yield plugin.source, tools


def _declared(directory: Path, problems: list[str]) -> _Sources:
    for path in sorted(directory.glob("*.toml")) if directory.is_dir() else ():
        try:
            yield f"file:{path.name}", tuple(CommandTool(spec) for spec in parse_specs(_read(path), path))
        except ConfigError as error:
            problems.append(f"declared tools are skipped: {error}")
        except (OSError, ValueError) as error:
            problems.append(f"declared tools are skipped: {path}: {error}")


def _read(path: Path) -> dict[str, Any]:
    """Read a file that only its owner can have written: the commands it declares run as the operator."""
    import tomllib

    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        if info.st_uid not in {os.geteuid(), 0} or info.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise ConfigError(f"{path} is writable by others", hint=f"own it, and chmod go-w {path}")
        return tomllib.load(file)
