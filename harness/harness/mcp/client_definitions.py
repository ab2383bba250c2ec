"""What a server says of its tools, as plain values that can be compared and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..toolkit.values import Json, JsonObject
from .client_log import plain

if TYPE_CHECKING:
    from mcp.types import Tool

__all__ = ["ToolDefinition", "definition_from", "definition_of"]

DESCRIPTION = 8_000
"""Characters of a description."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool of a server: ``name`` is its own. ``read_only`` is what the server claims."""

    name: str
    description: str = ""
    schema: JsonObject = field(default_factory=dict)
    read_only: bool = False

    @property
    def digest(self) -> str:
        """Changes when anything that a model or a policy goes by does."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def as_json(self) -> JsonObject:
        """For a file."""
        return {
            "name": self.name,
            "description": self.description,
            "schema": dict(self.schema),
            "read_only": self.read_only,
        }


def definition_of(tool: Tool) -> ToolDefinition:
    """From the protocol's form. What cannot be seen is taken out of the descriptions: nobody could approve it."""
    title = tool.title or ""
    text = tool.description or title
    hints = tool.annotations
    return ToolDefinition(
        name=tool.name,
        description=plain(text)[:DESCRIPTION],
        schema=_visible(tool.input_schema),
        read_only=hints is not None and hints.read_only_hint is True,
    )


def definition_from(value: object) -> ToolDefinition:
    """From :meth:`ToolDefinition.as_json`.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("no definition of a tool")
    description, schema, read_only = value.get("description"), value.get("schema"), value.get("read_only")
    if not isinstance(description, str) or not isinstance(schema, dict) or not isinstance(read_only, bool):
        raise ValueError("no definition of a tool")
    return ToolDefinition(value["name"], description, schema, read_only)


def _visible(schema: Mapping[str, Json]) -> JsonObject:
    return {key: _visible_value(key, value) for key, value in schema.items()}


def _visible_value(key: str, value: Json) -> Json:
    if isinstance(value, str):
        return plain(value) if key in {"description", "title"} else value
    if isinstance(value, list):
        return [_visible_value(key, item) for item in value]
    if isinstance(value, dict):
        return dict(_visible(value))
    return value
