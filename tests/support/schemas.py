"""Tools with schemas that adapters of providers get wrong."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Literal

from pydantic import BaseModel, Field

from harness.toolkit import Arguments, Tool, ToolContext, ToolResult
from harness.toolkit.values import JsonObject


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    """A place."""

    x: int = Field(ge=0, le=100)
    y: float = 0.5
    kind: Literal[1, 2, 3] | None = None


class Deep(Arguments):
    """Nested objects."""

    point: Point
    points: list[Point] = Field(default_factory=list, max_length=5)
    matrix: list[list[int]] = Field(default_factory=list)
    named: dict[str, Point] = Field(default_factory=dict, description="by name")
    environment: dict[str, str] = Field(default_factory=dict)


class Choices(Arguments):
    """Enumerations and unions."""

    colour: Colour | None = None
    level: Level = Level.LOW
    mode: Literal["a", "b"] = "a"
    number: Literal[1, 2, 3] = 1
    truth: Literal[True, "auto"] = "auto"
    wait: bool | float | str = Field(True, description="how long")
    several: list[Literal["x", "y"]] = Field(default_factory=list)
    what: int | list[int] | None = None


class Limits(Arguments):
    """Numbers, texts and defaults."""

    count: int = Field(3, ge=1, le=9)
    more: int = Field(3, gt=1, lt=9)
    share: float = Field(0.5, gt=0)
    word: str = Field("a", min_length=1, max_length=9, pattern="^[a-z]+$")
    pair: tuple[int, str] = (1, "a")
    anything: Any = None
    text: str | None = Field(None, description='with "quotes", \\ and a newline\n')


class Empty(Arguments):
    """Nothing."""


class Plain(Tool[Any]):
    """Does nothing."""

    async def run(self, args: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult.of("")


class Foreign(Plain):
    """A tool whose name and schema come from somewhere else."""

    def __init__(self, schema: JsonObject, name: str = "foreign") -> None:
        super().__init__("foreign", "From elsewhere.", Empty)
        self.name = name
        self._foreign = schema

    @property
    def schema(self) -> JsonObject:
        return self._foreign


FOREIGN: dict[str, JsonObject] = {
    "nothing": {},
    "no_properties": {"type": "object"},
    "references": {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/Node"}, "far": {"$ref": "https://example.org/x.json"}},
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}},
                "required": ["name"],
            }
        },
    },
    "top_alternatives": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"a": {"type": "string"}, "c": {"type": "integer"}},
                "required": ["a", "c"],
            },
            {
                "type": "object",
                "properties": {"b": {"type": "string"}, "c": {"type": "integer"}},
                "required": ["b", "c"],
            },
        ]
    },
    "all_of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"allOf": [{"type": "integer"}, {"minimum": 3}]}}, "required": ["b"]},
        ]
    },
    "kinds": {
        "type": "object",
        "properties": {
            "either": {"type": ["string", "null"], "description": "or nothing"},
            "three": {"type": ["string", "integer", "null"]},
            "open": {"type": "array"},
            "tuple": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            "true": True,
            "constant": {"const": "fixed"},
            "none": {"type": "null"},
            "empty_choice": {"type": "string", "enum": ["", "a"]},
            "pattern": {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
            "format": {"type": "string", "format": "uri"},
            "untyped": {"description": "anything"},
            "title": {"type": "string", "title": "Title"},
            "default": {"type": "string", "default": "x", "examples": ["y"]},
        },
        "required": ["either"],
    },
    "tuples": {"type": "object", "properties": {"pick": {"type": "string", "enum": ("b", "a")}}},  # type: ignore[dict-item]  # what plugins do
}


def nasty() -> list[Tool[Any]]:
    """All of them."""
    own: list[Tool[Any]] = [
        Plain(model.__name__.lower(), (model.__doc__ or "").strip(), model) for model in (Deep, Choices, Limits, Empty)
    ]
    return [*own, *(Foreign(schema, name) for name, schema in FOREIGN.items())]
