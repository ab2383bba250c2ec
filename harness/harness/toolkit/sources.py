"""Where tools come from besides the program itself: plugins, servers, files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .contract import Tool

__all__ = ["FixedSource", "ToolSource"]


class ToolSource(ABC):
    """A named set of tools, which may be another one each time that it is asked."""

    name: str
    """Under it the registry keeps the tools, replaces them and removes them."""

    @abstractmethod
    async def tools(self) -> Sequence[Tool[Any]]:
        """Fetch the whole set. May take long and may fail; the registry keeps what it had until this returns."""


@dataclass(frozen=True, slots=True)
class FixedSource(ToolSource):
    """A set that does not change."""

    name: str
    fixed: tuple[Tool[Any], ...]

    async def tools(self) -> Sequence[Tool[Any]]:
        return self.fixed
