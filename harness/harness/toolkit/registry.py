"""The tools that there are: where each comes from, by which names it is called, and which of them are offered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..errors import ToolError
from .tool import Tool
from .values import ToolResult

__all__ = ["BUILTIN", "Registry"]

BUILTIN = "builtin"


@dataclass(frozen=True, slots=True)
class _Entry:
    tool: Tool[Any]
    source: str


class Registry:
    """A set of tools with unique names."""

    def __init__(self, tools: Iterable[Tool[Any]] = (), *, source: str = BUILTIN) -> None:
        self._entries: dict[str, _Entry] = {}
        for tool in tools:
            self.register(tool, source)

    def register(self, tool: Tool[Any], source: str = BUILTIN, *, replace: bool = False) -> None:
        """Add a tool.

        Raises:
            ValueError: its name or one of its aliases is taken, and ``replace`` is not set.
        """
        names = {tool.name, *tool.traits.aliases}
        taken = names & self._names(without=tool.name if replace else "")
        if taken:
            raise ValueError(f"a tool is already called {sorted(taken)[0]!r}")
        self._entries[tool.name] = _Entry(tool, source)

    def _names(self, without: str = "") -> set[str]:
        tools = [entry.tool for name, entry in self._entries.items() if name != without]
        return {name for tool in tools for name in (tool.name, *tool.traits.aliases)}

    def get(self, name: str) -> Tool[Any] | None:
        """The tool of that name or alias, or None."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry.tool
        return next((entry.tool for entry in self._entries.values() if name in entry.tool.traits.aliases), None)

    def lookup(self, name: str) -> Tool[Any]:
        """The tool of that name or alias.

        Raises:
            ToolError: there is none.
        """
        tool = self.get(name)
        if tool is None:
            raise ToolError(self.unknown(name).text, code="invalid_args")
        return tool

    def unknown(self, name: str) -> ToolResult:
        """What a model is told that calls a tool that is not there."""
        close = get_close_matches(name, sorted(self._names()), n=1)
        advice = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(self._entries))}"
        return ToolResult.failure("unknown_tool", f"there is no tool {name!r}; {advice}")

    def list(self) -> list[Tool[Any]]:
        """All tools, by name."""
        return [self._entries[name].tool for name in sorted(self._entries)]
