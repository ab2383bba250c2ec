"""Tools and hooks of installed packages, found by entry point: ``harness.tools`` and ``harness.hooks``.

::

    [project.entry-points."harness.tools"]
    weather = "my_package.weather:tools"     # a list of tools, or a function that returns one

    [project.entry-points."harness.hooks"]
    guard = "my_package.guard:hook"          # a Hook, or a function that returns one

A package's tools are one source of the registry, named after the package and the entry point, so that they are removed
and replaced together. A plugin that cannot be loaded is reported and skipped. A hook that cannot be loaded refuses
every call instead, because it may have been installed to guard them.

Plugins are only imported when they are needed, and disabled ones never.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Generic, TypeVar

from .contract import Hook, Tool, ToolContext, Traits
from .values import Category, JsonObject, Subject, ToolCall, ToolResult

__all__ = [
    "HOOKS",
    "OWN",
    "PROFILES",
    "TOOLS",
    "Loaded",
    "Plugin",
    "PluginFailure",
    "adopted",
    "find",
    "imported",
    "load_hooks",
    "load_tools",
]

TOOLS = "harness.tools"
HOOKS = "harness.hooks"
PROFILES = "harness.profiles"
OWN = "harness-ops"
"""The distribution whose tools are builtin."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point: its package, its name, and the object it refers to (``module:attribute``)."""

    distribution: str
    name: str
    value: str

    @property
    def source(self) -> str:
        """The name of its tools' source in the registry: ``builtin:core``, ``plugin:my-package:weather``."""
        return f"builtin:{self.name}" if self.distribution == OWN else f"plugin:{self.distribution}:{self.name}"


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A plugin that could not be loaded, and why."""

    plugin: Plugin
    reason: str


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """The loaded objects by plugin, and the failures."""

    found: tuple[tuple[Plugin, T], ...] = ()
    failures: tuple[PluginFailure, ...] = ()


def find(group: str, *, disabled: Collection[str] = ()) -> tuple[Plugin, ...]:
    """Return the entry points of a group without importing them: harness's first, then by package and name.

    Args:
        group: the group's name.
        disabled: packages, or sources as :attr:`Plugin.source`, to leave out.
    """
    from importlib.metadata import entry_points  # slow to load

    found = {
        Plugin(point.dist.name if point.dist else "", point.name, point.value.partition("[")[0].strip())
        for point in entry_points(group=group)
    }
    kept = (one for one in found if one.distribution not in disabled and one.source not in disabled)
    return tuple(sorted(kept, key=lambda one: (one.distribution != OWN, one.distribution, one.name, one.value)))


def load_tools(plugins: Iterable[Plugin]) -> Loaded[tuple[Tool[Any], ...]]:
    """Import the plugins' tools; those of other packages are :func:`adopted`."""

    def tools(plugin: Plugin) -> tuple[Tool[Any], ...]:
        named = imported(plugin)
        made = named() if callable(named) and not isinstance(named, Tool) else named
        listed = tuple(made) if isinstance(made, Iterable) else (made,)
        for tool in listed:
            if not isinstance(tool, Tool):
                raise TypeError(f"{tool!r} is not a tool")
        return listed if plugin.distribution == OWN else tuple(adopted(tool) for tool in listed)

    return _load(plugins, tools)


def load_hooks(plugins: Iterable[Plugin]) -> Loaded[Hook]:
    """Import the plugins' hooks. A hook that cannot be loaded is replaced by one that refuses every call."""

    def hook(plugin: Plugin) -> Hook:
        named = imported(plugin)
        made = named if isinstance(named, Hook) else named()
        if not isinstance(made, Hook):
            raise TypeError(f"{made!r} is not a hook")
        return made

    loaded = _load(plugins, hook)
    refusing = tuple((one.plugin, _Refusing(one)) for one in loaded.failures)
    return replace(loaded, found=loaded.found + refusing)


def imported(plugin: Plugin) -> Any:
    """Import and return the object that the entry point refers to."""
    module, _, path = plugin.value.partition(":")
    found: Any = import_module(module)
    for name in path.split(".") if path else ():
        found = getattr(found, name)
    return found


def _load(plugins: Iterable[Plugin], make: Callable[[Plugin], T]) -> Loaded[T]:
    found: list[tuple[Plugin, T]] = []
    failures: list[PluginFailure] = []
    for plugin in plugins:
        try:
            found.append((plugin, make(plugin)))
        except (Exception, SystemExit) as error:  # an import may raise anything
            failures.append(PluginFailure(plugin, f"{type(error).__name__}: {error}"))
    return Loaded(tuple(found), tuple(failures))


@dataclass(frozen=True, slots=True)
class _Refusing(Hook):
    failure: PluginFailure

    async def before(self, call: ToolCall, ctx: ToolContext) -> ToolCall | str:
        plugin = self.failure.plugin
        return (
            f"the hook {plugin.source} could not be loaded ({self.failure.reason}); "
            f"repair it, or add {plugin.source!r} to disabled_plugins in [tools] of the settings"
        )


def adopted(tool: Tool[Any]) -> Tool[Any]:
    """Return a tool of another package with safe traits: without a category it gets the category ``plugin``.

    Such a tool counts as mutating, runs alone, and is not cached. The traits of a tool with a category are trusted.
    """
    return tool if tool.traits.category is not Category.NONE else _PluginToolAdapter(tool)


def _careful(traits: Traits) -> Traits:
    if traits.category is not Category.NONE:
        return traits
    return replace(traits, category=Category.PLUGIN, mutating=True, parallelizable=False, cacheable=False)


class _PluginToolAdapter(Tool[Any]):
    """A tool of another package with harness's traits."""

    def __init__(self, inner: Tool[Any]) -> None:
        super().__init__(inner.name, inner.description, inner.arguments, _careful(inner.traits))
        self._inner = inner

    @property
    def schema(self) -> JsonObject:
        return self._inner.schema

    def parse(self, raw: JsonObject) -> Any:
        return self._inner.parse(raw)

    def traits_of(self, args: Any) -> Traits:
        return _careful(self._inner.traits_of(args))

    def subjects(self, args: Any) -> tuple[Subject, ...]:
        return self._inner.subjects(args)

    def private_arguments(self, args: Any) -> frozenset[str]:
        return self._inner.private_arguments(args)

    def covered_arguments(self) -> frozenset[str]:
        return self._inner.covered_arguments()

    def preview(self, args: Any) -> str | None:
        return self._inner.preview(args)

    def execution_place(self, args: Any) -> str:
        return self._inner.execution_place(args)

    def requires_approval(self, args: Any) -> bool:
        return self.traits_of(args).mutating or self._inner.requires_approval(args)

    def paths(self, args: Any) -> tuple[str, ...]:
        return self._inner.paths(args)

    async def run(self, args: Any, ctx: ToolContext) -> ToolResult:
        return await self._inner.run(args, ctx)
