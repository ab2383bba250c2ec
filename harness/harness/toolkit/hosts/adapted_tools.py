"""Tools of a profile in a session on a fleet: the profile's names and arguments, and ``hosts``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import ToolError
from ..tool_profiles import AdaptedTool, RenderedResult
from ..values import Json, JsonObject, ToolResult
from .tools import ABOUT_HOSTS, HOSTS, HostsTool, with_hosts_property

__all__ = ["AdaptedHostsTool"]


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The hosts as the model named them, and the profile's arguments."""

    hosts: Json
    own: Any


class AdaptedHostsTool(AdaptedTool[Any]):
    """A tool as a profile presents it, with the required argument ``hosts``; results have the merged form of hosts."""

    def __init__(self, adapted: AdaptedTool[Any], own: HostsTool) -> None:
        super().__init__(own, adapted.face, adapted.failed, adapted.tools)
        self.description = f"{adapted.description} {ABOUT_HOSTS}"
        self._adapted = adapted
        self._hosts_tool = own

    @property
    def schema(self) -> JsonObject:
        return with_hosts_property(self._adapted.schema, self._hosts_tool.fleet)

    def parse(self, raw: JsonObject) -> _Arguments:
        values = {name: value for name, value in raw.items() if name != HOSTS}
        return _Arguments(raw.get(HOSTS), self._adapted.parse(values))

    def translated(self, args: _Arguments) -> tuple[JsonObject, Any]:
        values, _ = self._adapted.translated(args.own)  # its errors have the profile's names
        found = {HOSTS: args.hosts, **values}
        try:
            return found, self._hosts_tool.parse(found)
        except ToolError as error:
            message = error.message.removeprefix(f"{self._hosts_tool.name}: ")
            raise ToolError(f"{self.name}: {message}", code=error.code, hint=error.hint) from error

    def _rendered(self, args: Any, result: ToolResult) -> RenderedResult | None:
        return None
