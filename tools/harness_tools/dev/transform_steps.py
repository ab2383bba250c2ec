"""The steps of a ``transform`` pipeline, as a model writes them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema

__all__ = ["Count", "Filter", "Flatten", "Format", "GroupBy", "SortBy", "Step"]

TEMPLATE = 10_000
"""Characters of a template."""


def _as_text(value: object) -> object:
    """Values are compared as texts, so a number or a truth value is one, too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else value


Key = Annotated[
    str,
    Field(min_length=1, max_length=1_000, description="field of each item; a.b is field b of the object in field a"),
]
Value = Annotated[str, BeforeValidator(_as_text)]


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        """Say which name was meant: at this depth the general message does not know."""
        unknown = [name for name in values if name not in cls.model_fields] if isinstance(values, dict) else []
        if unknown:
            close = get_close_matches(str(unknown[0]), list(cls.model_fields), n=1, cutoff=0.5)
            advice = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(cls.model_fields)}"
            raise ValueError(f"no such argument {str(unknown[0])[:100]!r}; {advice}")
        return values


class GroupBy(_Step):
    """Groups in the order of their first items: {key, items}."""

    op: Literal["group_by"]
    key: Key


class SortBy(_Step):
    """Numbers by size, before texts; items without the field first."""

    op: Literal["sort_by"]
    key: Key
    desc: bool = Field(False, description="the other way round")


class Filter(_Step):
    """Keep the items for which one condition holds; values are compared as texts."""

    op: Literal["filter"]
    key: Key
    eq: Value | None = Field(None, description="it is this")
    neq: Value | None = Field(None, description="it is not this")
    contains: Value | None = Field(None, description="it contains this text; a list: one of its members is this")
    exists: bool | None = Field(None, description="true: it is there and not null; false: it is not")

    @model_validator(mode="after")
    def _one_condition(self) -> Filter:
        given = [name for name in ("eq", "neq", "contains", "exists") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of eq, neq, contains and exists, not {' and '.join(given) or 'none'}")
        return self


class Count(_Step):
    """How many there are; with a key, how many of each value: {key, count}."""

    op: Literal["count"]
    key: Key | None = None


class Flatten(_Step):
    """Undo group_by, and put the items of nested lists into one."""

    op: Literal["flatten"]


class Format(_Step):
    """Each item as a text."""

    op: Literal["format"]
    template: str = Field(
        min_length=1, max_length=TEMPLATE, description="text with {field} or {a.b}; {{ and }} are braces"
    )


class _PlainChoice:
    """The schema as alternatives alone: a discriminator refers to definitions that no provider resolves."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = dict(handler(core))
        schema.pop("discriminator", None)
        schema["anyOf"] = schema.pop("oneOf", schema.get("anyOf", []))
        return schema


Step = Annotated[GroupBy | SortBy | Filter | Count | Flatten | Format, Field(discriminator="op"), _PlainChoice()]
