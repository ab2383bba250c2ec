"""Every tool of this machine in one registry: builtin ones, those of other packages, and those that are declared."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..settings import user_config_path
from .agent_files import AgentTypeFiles
from .commandspec import parse_specs
from .commandtool import CommandTool
from .contract import Tool
from .outputs import OutputStore
from .outputtool import ReadOutput
from .plugins import TOOLS, adopted, find, load_tools
from .presets import missing_libraries
from .profiles import load_profile
from .registry import Registry, is_builtin
from .sources import FixedSource
from .toolsettings import MAX_AGENT_DEPTH, NO_PROFILE, ToolSettings

__all__ = ["Catalogue", "agent_depth", "command_tools_directory", "load_catalogue", "offered"]

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
