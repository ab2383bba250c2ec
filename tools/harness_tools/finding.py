"""``tool_search``: which tool does something, also among those that are not offered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from harness.toolkit import Arguments, Json, OutputLimit, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.limits import fit_items

from .texts import Line

__all__ = ["Found", "ToolSearch", "found_in", "terms_of"]

NAME_HIT = 10
DESCRIPTION_HIT = 3
SHOWN = OutputLimit(24_000, 0)
ROOM = OutputLimit(23_000, 0)
"""What the list of the tools may take; the rest is for what is said of it."""
TERMS = 20


class _Arguments(Arguments):
    query: Line = Field(max_length=1_000, description="words; each is looked for in names and descriptions")
    limit: int = Field(8, ge=1, le=50, description="tools at most")

    @field_validator("query")
    @classmethod
    def _words(cls, query: str) -> str:
        if not terms_of(query):
            raise ValueError("it holds no word")
        return query


@dataclass(frozen=True, slots=True)
class Found:
    """A tool, how well it fits, and whether it can be called."""

    tool: Tool[Any]
    score: int
    is_offered: bool = True

    @property
    def facts(self) -> dict[str, Json]:
        """It as a JSON value."""
        facts: dict[str, Json] = {
            "name": self.tool.name,
            "mutating": self.tool.traits.mutating,
            "offered": self.is_offered,
            "description": self.tool.description,
            "schema": dict(self.tool.schema),
        }
        packs: list[Json] = list(self.tool.traits.packs)
        return facts if self.is_offered else {**facts, "packs": packs}

    def __str__(self) -> str:
        kind = "changes something" if self.tool.traits.mutating else "changes nothing"
        head = f"{self.tool.name} ({kind}){'' if self.is_offered else f' - not offered: {_way(self.tool)}'}"
        schema = json.dumps(dict(self.tool.schema), ensure_ascii=False, separators=(",", ":"))
        return f"{head}\n{self.tool.description}\nschema: {schema}"


def _way(tool: Tool[Any]) -> str:
    """How a tool of a pack that was not chosen gets offered. Pure."""
    pack = tool.traits.packs[0] if tool.traits.packs else ""
    return f'ask the user to add its pack, extra_packs = ["{pack}"] in [tools] of the settings' if pack else "no pack"


def terms_of(query: str) -> tuple[str, ...]:
    """The words of a query, in lower case; ``_`` and punctuation part them. Pure."""
    letters = "".join(letter if letter.isalnum() else " " for letter in query.lower())
    return tuple(dict.fromkeys(letters.split()))[:TERMS]


def found_in(tools: Iterable[Tool[Any]], terms: Sequence[str], *, is_offered: bool = True) -> list[Found]:
    """The tools that fit at all. Pure."""
    scored = (Found(tool, _score(tool, terms), is_offered) for tool in tools if tool.own.name != "tool_search")
    return [one for one in scored if one.score]


def _score(tool: Tool[Any], terms: Sequence[str]) -> int:
    """Each term counts once in the names, of which other names are some, and once in the description."""
    names = " ".join((tool.name, *tool.traits.aliases)).lower()
    text = tool.description.lower()
    return sum(NAME_HIT * (term in names) + DESCRIPTION_HIT * (term in text) for term in terms)


class ToolSearch(Tool[_Arguments]):
    """``tool_search``."""

    def __init__(self) -> None:
        text = "Find tools by what they do: names, descriptions and schemas, also of those that are not offered here."
        traits = Traits(parallelizable=True, packs=("core",), limit=SHOWN)
        super().__init__("tool_search", text, _Arguments, traits)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
        offered = ctx.offered or ctx.registry
        terms = terms_of(args.query)
        found = [*found_in(offered.list(), terms), *found_in(offered.aside, terms, is_offered=False)]
        found.sort(key=lambda one: (-one.score, not one.is_offered, one.tool.name))
        return _listed(args, found)


def _listed(args: _Arguments, found: list[Found]) -> ToolResult:
    shown, cut = fit_items(found[: args.limit], _text, ROOM)
    left = max(0, len(found) - args.limit) + cut
    matches: list[Json] = [one.facts for one in shown]
    data: Json = {"query": args.query, "count": len(shown), "left_out": left, "tools": matches}
    if not found:
        return ToolResult.of(f"no tool fits {args.query!r}", data=data, metadata={"count": 0})
    more = f"\n\n[{left} more fit less well; other words, or a higher limit, show them]" if left else ""
    return ToolResult.of(_text(shown) + more, data=data)


def _text(found: Sequence[Found]) -> str:
    return "\n\n".join(str(one) for one in found)
