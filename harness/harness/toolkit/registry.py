"""The tools of a session: registration, sources, presets, and changes while it runs."""

from __future__ import annotations

import shlex
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import ToolError
from .contract import NAME, Tool
from .values import Category, JsonObject, ToolResult

if TYPE_CHECKING:
    from ..context import ExecutionContext

__all__ = [
    "ALWAYS",
    "BUILTIN",
    "COMPACT",
    "OPT_IN",
    "FixedSource",
    "Registry",
    "ToolSource",
    "harmless",
    "in_packs",
    "is_builtin",
    "missing_libraries",
    "only_reads",
    "opt_in",
    "schema_gaps",
    "without_compact",
]


# -- Which tools are offered: rules that use a tool's own properties, never a list of names.


ALWAYS = frozenset({"tool_search"})
"""Tools that every choice of packs includes: models find the other tools with them."""
OPT_IN = frozenset({"dev", "web", "agents"})
"""Opt-in packs: forty schemas in every request are expensive."""
INSIDE = frozenset({Category.NONE})
"""Categories that touch nothing outside the conversation."""


def only_reads(tool: Tool[Any]) -> bool:
    """Return whether no call of the tool changes anything. ``Tool.traits`` covers the worst of its calls."""
    return not tool.traits.mutating


def harmless(tool: Tool[Any]) -> bool:
    """Return whether the tool changes nothing outside the conversation."""
    return only_reads(tool) or tool.traits.category in INSIDE


def in_packs(tool: Tool[Any], packs: frozenset[str]) -> bool:
    """Return whether the tool belongs to one of the packs, or to every choice of packs."""
    return tool.name in ALWAYS or not packs.isdisjoint(tool.traits.packs)


def opt_in(tool: Tool[Any]) -> bool:
    """Return whether the tool only belongs to opt-in packs."""
    return bool(tool.traits.packs) and OPT_IN.issuperset(tool.traits.packs)


def missing_libraries(tool: Tool[Any]) -> tuple[str, ...]:
    """Return the modules that the tool requires and that are not installed, without importing any."""
    return tuple(name for name in tool.traits.libraries if find_spec(name) is None)


def schema_gaps(tool: Tool[Any]) -> tuple[str, ...]:
    """Return the required arguments that the schema does not describe: a model could not pass them."""
    schema = tool.schema
    properties, required = schema.get("properties"), schema.get("required")
    described = properties if isinstance(properties, dict) else {}
    wanted = required if isinstance(required, list) else []
    return tuple(str(name) for name in wanted if name not in described)


# -- Sources of tools other than the program itself: plugins, servers, files.


class ToolSource(ABC):
    """A named set of tools, which may be different each time it is fetched."""

    name: str
    """The name under which the registry stores, replaces and removes the tools."""

    @abstractmethod
    async def tools(self) -> Sequence[Tool[Any]]:
        """Fetch the complete set. May be slow and may fail; the registry keeps its tools until this returns."""


@dataclass(frozen=True, slots=True)
class FixedSource(ToolSource):
    """A fixed set of tools."""

    name: str
    fixed: tuple[Tool[Any], ...]

    async def tools(self) -> Sequence[Tool[Any]]:
        return self.fixed


# -- The registered tools: their sources, names and aliases, and which of them are offered.
#
# A registry changes atomically: every change creates a new table and replaces the old one, so that a reader in another
# task or thread sees the tools before or after it, and a failed change changes nothing.


BUILTIN = "builtin"
"""The source of harness's own tools, or the part of its name before ``:``."""
TMUX = "tmux"
"""What tools require that work in harness's own panes."""
PANES = "panes"
"""What tools require that capture panes or type into them; the operator's own will do."""
COMPACT = "compact"
"""The tool that needs a :class:`.interfaces.Compactor`."""
NAMED = 5
"""Tools of a source that an error message names."""


@dataclass(frozen=True, slots=True)
class _Entry:
    tool: Tool[Any]
    source: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.tool.name, *self.tool.traits.aliases)


@dataclass(frozen=True, slots=True)
class _Table:
    """The tools by name, and all names and aliases with the tool's own name. Immutable."""

    entries: Mapping[str, _Entry] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    sources: frozenset[str] = frozenset()
    """The registered sources, including those without tools."""

    def without(self, drop: Callable[[_Entry], bool]) -> _Table:
        return _Table(sources=self.sources).plus(entry for entry in self.entries.values() if not drop(entry))

    def of_source(self, name: str) -> list[str]:
        """Return the names of a source's tools, sorted."""
        return sorted(entry.tool.name for entry in self.entries.values() if entry.source == name)

    def check_source_is_new(self, name: str, tools: Iterable[str] | None = None) -> None:
        """Refuse a second source of the same name.

        Args:
            name: the source's name.
            tools: the tools of the second source, if known.

        Raises:
            ValueError: a source of that name is registered.
        """
        if name not in self.sources:
            return
        second = "another one" if tools is None else f"another one of that name (tools: {_listing(tools)})"
        raise ValueError(
            f"the tool source {name!r} is already registered (tools: {_listing(self.of_source(name))}), so {second} "
            "cannot be added: rename one of them, or replace the registered one with replace=True"
        )

    def plus(self, added: Iterable[_Entry]) -> _Table:
        """Return this table with more tools.

        Raises:
            ValueError: a name is taken, by a tool in the table or by another added one.
        """
        entries, names = dict(self.entries), dict(self.names)
        for entry in added:
            for name in dict.fromkeys(entry.names):
                if not NAME.fullmatch(name):
                    raise ValueError(f"{name!r} is not a valid tool name: use letters, digits, _ and -, at most 64")
                if name in names:
                    owner = entries[names[name]]
                    raise ValueError(f"a tool is already called {name!r}: {owner.tool.name} of {owner.source}")
            entries[entry.tool.name] = entry
            names |= dict.fromkeys(entry.names, entry.tool.name)
        return _Table(entries, names, self.sources | {entry.source for entry in entries.values()})

    def own(self) -> _Table:
        """Return the table of the tools that do the work; this table if no profile is used."""
        if all(entry.tool.own is entry.tool for entry in self.entries.values()):
            return self
        own = (_Entry(entry.tool.own, entry.source) for entry in self.entries.values())
        return _Table(sources=self.sources).plus(own)


class Registry:
    """A set of tools with unique names."""

    def __init__(self, tools: Iterable[Tool[Any]] = (), *, source: str = BUILTIN) -> None:
        self._table = _Table().plus(_Entry(tool, source) for tool in tools)
        self._changing = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
        self._own: tuple[_Table, Self] | None = None
        self._aside = _Table()

    # -- changes

    def register(self, tool: Tool[Any], source: str = BUILTIN, *, replace: bool = False) -> None:
        """Add a tool.

        Raises:
            ValueError: its name or one of its aliases is taken; with ``replace``, by a tool of another name.
        """
        with self._changing:
            table = self._table.without(lambda entry: entry.tool.name == tool.name) if replace else self._table
            self._table = table.plus([_Entry(tool, source)])
        self._tell()

    def unregister(self, name: str) -> None:
        """Remove the tool of that name, if there is one."""
        with self._changing:
            self._table = self._table.without(lambda entry: entry.tool.name == name)
        self._tell()

    async def register_source(self, source: ToolSource, *, replace: bool = False) -> None:
        """Fetch a set of tools and add it.

        Args:
            source: where the tools come from.
            replace: replace the registered set of the same name, if there is one.

        Raises:
            ValueError: as :meth:`add_source`. Exceptions of the source are passed on; nothing is changed then.
        """
        if not replace:
            self._table.check_source_is_new(source.name)  # before fetching it, which may be slow
        tools = await source.tools()  # without the lock, so that others can change the registry in the meantime
        self.add_source(source.name, tools, replace=replace)

    def add_source(self, name: str, tools: Iterable[Tool[Any]], *, replace: bool = False) -> None:
        """Add a set of tools under the name of its source: all of them or none.

        Args:
            name: the source's name.
            tools: all tools of the source; may be empty.
            replace: replace the registered set of the same name, if there is one.

        Raises:
            ValueError: a source of that name is registered and ``replace`` is not set, or as
                :meth:`replace_source`.
        """
        self._put_source(name, tools, replace=replace)

    def replace_source(self, name: str, tools: Iterable[Tool[Any]]) -> None:
        """Replace the tools from the source ``name`` with a new set: all of them or none.

        Raises:
            ValueError: a name is taken by a tool from another source, or used twice in the set, or the schema of a
                tool that is not built in does not describe a required argument.
        """
        self._put_source(name, tools, replace=True)

    def _put_source(self, name: str, tools: Iterable[Tool[Any]], *, replace: bool) -> None:
        entries = [_Entry(tool, name) for tool in tools]
        for entry in [] if is_builtin(name) else entries:  # builtin tools are tested; building schemas takes time
            if gaps := schema_gaps(entry.tool):
                raise ValueError(f"{entry.tool.name} of {name} requires {', '.join(gaps)}, which its schema lacks")
        with self._changing:
            table = self._table
            if not replace:
                table.check_source_is_new(name, [entry.tool.name for entry in entries])
            others = table.without(lambda entry: entry.source == name)
            self._table = dataclass_replace(others, sources=others.sources | {name}).plus(entries)
        self._tell()

    def remove_source(self, name: str) -> None:
        """Remove a source and all its tools, if it is registered."""
        with self._changing:
            others = self._table.without(lambda entry: entry.source == name)
            self._table = dataclass_replace(others, sources=others.sources - {name})
        self._tell()

    @contextmanager
    def watched(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call ``changed`` after each change while the context is open, in the thread that made the change."""
        self._watchers.append(changed)
        try:
            yield
        finally:
            self._watchers.remove(changed)

    def _tell(self) -> None:
        for changed in tuple(self._watchers):
            changed()

    # -- looking up

    def get(self, name: str) -> Tool[Any] | None:
        """Return the tool of that name or alias, or None."""
        table = self._table
        own = table.names.get(name)
        return None if own is None else table.entries[own].tool

    def lookup(self, name: str) -> Tool[Any]:
        """Return the tool of that name or alias.

        Raises:
            ToolError: unknown tool.
        """
        tool = self.get(name)
        if tool is None:
            raise ToolError(self.unknown(name).text, code="invalid_args")
        return tool

    def unknown(self, name: str) -> ToolResult:
        """Return the result for a model that calls an unknown tool."""
        return ToolResult.failure("unknown_tool", f"unknown tool {name!r}; {self._advice(name)}")

    def _advice(self, name: str) -> str:
        table = self._table
        from difflib import get_close_matches  # only needed for errors

        behind = [known for known in table.names if known.endswith(f"_{name}")]  # without the server's name
        close = behind if len(behind) == 1 else get_close_matches(name, sorted(table.names), n=1)
        if close:
            return f"did you mean {table.names[close[0]]!r}?"  # an alias is not advertised
        return f"there are: {', '.join(sorted(table.entries)) or 'none'}"

    def list(self) -> list[Tool[Any]]:
        """Return all tools, sorted by name."""
        entries = self._table.entries
        return [entries[name].tool for name in sorted(entries)]

    def source_of(self, name: str) -> str | None:
        """Return the source of the tool of that name or alias, or None."""
        table = self._table
        own = table.names.get(name)
        return None if own is None else table.entries[own].source

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the registered sources, sorted, including those without tools."""
        return tuple(sorted(self._table.sources))

    @property
    def own(self) -> Self:
        """The tools that do the work, under the names in rules, hooks and the audit log; this one without a profile.

        It does not follow later changes.
        """
        table = self._table
        if self._own is None or self._own[0] is not table:
            found = type(self)()
            found._table, found._aside = table.own(), self._aside
            self._own = (table, self if found._table is table else found)
        return self._own[1]

    @property
    def aside(self) -> tuple[Tool[Any], ...]:
        """The tools that only the choice of packs left out, by name: they can be listed but not called."""
        entries = self._aside.entries
        return tuple(entries[name].tool for name in sorted(entries))

    @property
    def aliases(self) -> Mapping[str, str]:
        """Every alias and the tool's own name; for input only, never advertised."""
        return MappingProxyType({name: own for name, own in self._table.names.items() if name != own})

    def definitions(self) -> tuple[JsonObject, ...]:
        """Return name, description and ``input_schema`` of each tool, by name; equal tools give equal text."""
        return tuple(
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
            for tool in self.list()
        )

    # -- choosing

    def filter(self, keep: Callable[[Tool[Any]], bool]) -> Self:
        """Return a registry of the tools that ``keep`` accepts; later changes of one do not affect the other."""
        chosen = type(self)()
        chosen._table = self._table.without(lambda entry: not keep(entry.tool))
        chosen._aside = self._aside.without(lambda entry: not keep(entry.tool))
        return chosen

    def set_aside(self, keep: Callable[[Tool[Any]], bool]) -> Self:
        """Return a registry as :meth:`filter` does, with the other tools available as :attr:`aside`."""
        chosen = self.filter(keep)
        others = self._table.without(lambda entry: keep(entry.tool))
        chosen._aside = others.plus(self._aside.entries.values())
        return chosen

    def read_only(self) -> Self:
        """Return a registry of the tools that change nothing, whatever their arguments are."""
        return self.filter(only_reads)

    def exclude_dangerous(self) -> Self:
        """Return a registry without the tools that change anything outside the conversation."""
        return self.filter(harmless)

    def include(self, *names: str) -> Self:
        """Return a registry of only these tools, by name or alias.

        Raises:
            ValueError: one of the names is unknown.
        """
        wanted = self._own_names(names)
        return self.filter(lambda tool: tool.name in wanted)

    def exclude(self, *names: str) -> Self:
        """Return a registry of all but these tools, by name or alias.

        Raises:
            ValueError: one of the names is unknown, so the intended tool might still be included.
        """
        unwanted = self._own_names(names)
        return self.filter(lambda tool: tool.name not in unwanted)

    def _own_names(self, names: Iterable[str]) -> frozenset[str]:
        known = self._table.names
        for name in names:
            if name not in known:
                raise ValueError(f"unknown tool {name!r}; {self._advice(name)}")
        return frozenset(known[name] for name in names)

    def packs(self, *names: str) -> Self:
        """Return a registry of the tools of these packs and ``tool_search``, with which models find the others.

        Raises:
            ValueError: no tool belongs to one of the packs.
        """
        known = {pack for tool in self.list() for pack in tool.traits.packs}
        for name in names:
            if name not in known:
                raise ValueError(f"unknown pack {name!r}; there are: {', '.join(sorted(known)) or 'none'}")
        return self.set_aside(lambda tool: in_packs(tool, frozenset(names)))

    # -- what the target lacks

    async def missing_requirements(self, execution: ExecutionContext) -> Mapping[str, tuple[str, ...]]:
        """Return the missing programs for each tool that the target cannot serve; ``tmux`` means a terminal.

        What the connection has already probed is not probed again; the rest takes one command.

        Raises:
            HarnessError: the target could not be asked.
        """
        tools = self.list()
        lacking = await _lacking(execution, {name for tool in tools for name in tool.traits.requires})
        missing = {tool.name: lacking.intersection(tool.traits.requires) for tool in tools}
        return {
            name: tuple(sorted({TMUX if program == PANES else program for program in programs}))
            for name, programs in missing.items()
            if programs
        }

    async def available(self, execution: ExecutionContext) -> Self:
        """Return a registry of the tools that the target can serve, so that models do not try the others."""
        missing = await self.missing_requirements(execution)
        return self.filter(lambda tool: tool.name not in missing)


R = TypeVar("R", bound=Registry)


def without_compact(registry: R) -> R:
    """Return the tools without the one that compacts, which would not work here."""
    return registry.filter(lambda tool: tool.own.name != COMPACT)


def is_builtin(source: str) -> bool:
    """Return whether the tools of a source are harness's own."""
    return source.partition(":")[0] == BUILTIN


def _listing(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{', '.join(found[:NAMED])}{more}" or "none"


async def _lacking(execution: ExecutionContext, programs: set[str]) -> frozenset[str]:
    offered = {TMUX: execution.has_terminal, PANES: execution.has_panes}
    lacking = {name for name, is_there in offered.items() if name in programs and not is_there}
    asked = sorted(name for name in programs - set(offered) if not execution.capabilities.has(name))
    if not asked:
        return frozenset(lacking)
    found = await execution.run_shell(_probe(asked))
    present = found.stdout.split() if found.ok else []
    return frozenset(lacking | (set(asked) - set(present)))


def _probe(programs: Iterable[str]) -> str:
    """Return one command that prints which of the programs exist."""
    each = "; ".join(f"command -v {shlex.quote(name)} >/dev/null 2>&1 && echo {shlex.quote(name)}" for name in programs)
    return f"{each}; true"
