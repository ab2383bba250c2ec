"""Every tool of this machine in one registry (builtin, of other packages, declared), and the ``[tools]`` settings."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..command import parse_duration
from ..errors import ConfigError
from ..settings import SettingsTable, user_config_path
from ..settings_schema import parse_size
from .contract import Tool
from .declared_tools import CommandTool, parse_specs
from .delegation import AgentTypeFiles
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
# A file of a directory that is not trusted may only take tools away.


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


# -- Every tool of this machine in one registry: builtin ones, those of other packages, and those that are declared.


OWN_TOOLS = "builtin:toolkit"
"""The source of the tools that belong to the pipeline itself."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools, and one sentence for each source that could not be had.

    ``registry`` has those that models are offered, ``known`` also those that have to be asked for.
    """

    registry: Registry
    known: Registry
    problems: tuple[str, ...] = ()


def command_tools_directory() -> Path:
    """Where declared tools are: ``tools/*.toml`` beside the user's settings."""
    return user_config_path().parent / "tools"


def load_catalogue(
    settings: ToolSettings | None = None, *, directory: Path | None = None, sources: Iterable[FixedSource] = ()
) -> Catalogue:
    """Import and read everything, and leave what the settings leave. It blocks.

    Args:
        directory: of the declarations; the default is :func:`command_tools_directory`.
        sources: the program's own tools. They are treated as those of a package are: one that states no category is
            of the category ``plugin``.

    Raises:
        ConfigError: the settings name a pack, a tool or a profile that is not there, one of ``sources`` has the name
            of another source or a tool with the name of another tool, or the profile uses the name of such a tool.
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
            problems.append(f"the tools of {source} are left out: {error}")
    problems += [f"a type of sub-agents is left out: {problem}" for problem in AgentTypeFiles().list().problems]
    for own in sources:
        _add(registry, own)
    known = settings.choose(registry)
    return Catalogue(offered(settings, known, settings.profile), known, tuple(problems))


def _add(registry: Registry, source: FixedSource) -> None:
    try:
        if is_builtin(source.name):
            raise ValueError(f"the name {source.name!r} is reserved for the tools of harness")
        registry.add_source(source.name, [adopted(tool) for tool in source.fixed])
    except ValueError as error:
        raise ConfigError(f"the tools of {source.name} cannot be added: {error}") from error


def offered(settings: ToolSettings, known: Registry, profile: str = "") -> Registry:
    """The tools that models are offered of those that are known: a profile's, or our own; none that lacks a library.

    Tools that are not built in are offered with and without a profile.

    Raises:
        ConfigError: there is no such profile, or it uses the name of a tool that is not built in.
    """
    usable = known.filter(lambda tool: not missing_libraries(tool))
    without_profile = settings.offered(usable)
    if profile in ("", NO_PROFILE):
        return without_profile

    def may_be_shown(tool: Tool[Any]) -> bool:
        return is_builtin(usable.source_of(tool.name) or "") or without_profile.get(tool.name) is not None

    return load_profile(profile).over(usable.filter(may_be_shown))


def agent_depth(settings: ToolSettings, profile: str | None = None) -> int:
    """The depth at which agents start no others: what is set, else the profile's, else our own.

    Args:
        profile: that of the session; None is what the settings say.

    Raises:
        ConfigError: there is no such profile.
    """
    if settings.max_agent_depth is not None:
        return settings.max_agent_depth
    name = settings.profile if profile is None else profile
    own = None if name in ("", NO_PROFILE) else load_profile(name).max_agent_depth
    return MAX_AGENT_DEPTH if own is None else own


_Sources = Iterator[tuple[str, tuple[Tool[Any], ...]]]


def _plugins(settings: ToolSettings, problems: list[str]) -> _Sources:
    loaded = load_tools(find(TOOLS, disabled=settings.disabled))
    problems += [f"the tools of {one.plugin.source} could not be loaded: {one.reason}" for one in loaded.failures]
    for plugin, tools in loaded.found:
        yield plugin.source, tools


def _declared(directory: Path, problems: list[str]) -> _Sources:
    for path in sorted(directory.glob("*.toml")) if directory.is_dir() else ():
        try:
            yield f"file:{path.name}", tuple(CommandTool(spec) for spec in parse_specs(_read(path), path))
        except ConfigError as error:
            problems.append(f"declared tools are left out: {error}")
        except (OSError, ValueError) as error:
            problems.append(f"declared tools are left out: {path}: {error}")


def _read(path: Path) -> dict[str, Any]:
    """The file, when nobody else can have written it: what it declares runs as the operator."""
    import tomllib

    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        if info.st_uid not in {os.geteuid(), 0} or info.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise ConfigError(f"{path} can be written by others", hint=f"own it, and chmod go-w {path}")
        return tomllib.load(file)
