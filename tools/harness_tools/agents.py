"""``task``, which starts sub-agents, and ``tool_search``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any

from anyio import to_thread
from pydantic import AliasChoices, Field, field_validator

from harness.toolkit import (
    Arguments,
    Category,
    Json,
    JsonObject,
    OutputLimit,
    Text,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
)
from harness.toolkit.arguments import with_choices
from harness.toolkit.delegation import AgentType, AgentTypeFiles, SpawnRequest, SpawnTool, run_agent, type_key
from harness.toolkit.plugins import TOOLS, find, load_tools
from harness.toolkit.registry import is_builtin
from harness.toolkit.results import fit_items
from harness.toolkit.tool_profiles import face_names

from .texts import Line

__all__ = [
    "TYPES",
    "USUAL",
    "describe_types",
    "known_types",
    "terms_of",
    "tools",
    "type_choices",
    "type_lines",
    "type_named",
    "with_own_names",
]


# -- The types of sub-agents: the built-in ones and those from files or the program.


READ = ("read_file", "ls", "glob", "grep", "checkfor", "stump", "sig", "imports", "conflicts", "tabcount", "clean_diff")
LOOK = ("run_shell", "bash_output", "list_shells", "capture_pane")
ALONE = ("errs", "time", "tool_search", "read_output")
WEB = ("fetch_url", "web_search")
USUAL = frozenset((*READ, *LOOK, *ALONE, *WEB))
"""Tool names that a type may list although they are not offered: an opt-in pack, or a program missing on the target."""

NOT_YOURS = "You work for another agent: only your last message is returned, so put the complete answer there."
GENERAL = "general"
TYPES = (
    AgentType(
        GENERAL,
        "has every tool; for work of many steps",
        system=f"{NOT_YOURS} Do what you are asked, check it, and report what you changed.",
    ),
    AgentType(
        "explore",
        "investigates and changes nothing; for finding out where things are and how they work",
        (*READ, *LOOK, *ALONE, *WEB),
        f"{NOT_YOURS} Find out what you are asked, and change nothing: run only read-only commands. "
        "Report paths, names and facts.",
        USUAL,
    ),
    AgentType(
        "plan",
        "reads, and returns a plan of steps; for deciding before acting",
        (*READ, *ALONE, *WEB),
        f"{NOT_YOURS} Change nothing. Report a plan: the steps in order, what each touches, and how it is checked.",
        USUAL,
    ),
    AgentType(
        "reviewer",
        "reads what was done, and reports faults",
        (*READ, *ALONE),
        f"{NOT_YOURS} Change nothing. Report only faults, the worst first, each with its location and its effect.",
        USUAL,
    ),
)


OTHER_NAMES = {"generalpurpose": "general", "codereviewer": "reviewer", "explorer": "explore", "planner": "plan"}
MAX_SHOWN = 30
"""Maximum types that a description names."""
MAX_ABOUT_CHARS = 160


def known_types(*further: Iterable[AgentType]) -> tuple[AgentType, ...]:
    """Return the built-in types and further ones; a later type replaces one of the same name. Pure."""
    found = {_key(kind.name): kind for kinds in (TYPES, *further) for kind in kinds}
    return tuple(found.values())


def type_named(name: str, types: Sequence[AgentType] = TYPES) -> AgentType | None:
    """Return the type of that name, or None; hyphens and case do not matter. Pure."""
    return next((kind for kind in types if _key(kind.name) == _key(name)), None)


def describe_types(types: Sequence[AgentType], names: Mapping[str, str] | None = None) -> str:
    """Return one line for each type: its name and its purpose. Pure.

    Args:
        names: Other names for some of them.
    """
    lines = [f"- {(names or {}).get(kind.name, kind.name)}: {_short(kind.about)}" for kind in types[:MAX_SHOWN]]
    more = [f"- and {len(types) - MAX_SHOWN} more."] if len(types) > MAX_SHOWN else []
    return "\n".join([*lines, *more])


def with_own_names(kind: AgentType) -> AgentType:
    """Return a type from a file with harness's names for tools that profiles rename.

    A built-in tool that is not offered is omitted: the settings exclude it, or the target lacks a program. Any other
    unknown name is kept, as an error to report.
    """
    if not kind.declared_at:
        return kind
    system = "\n\n".join(part for part in (NOT_YOURS, kind.system) if part)
    if kind.tools is None:
        return replace(kind, system=system)
    own = _builtin_names()
    tools = tuple(name if name in own else face_names().get(name, name) for name in kind.tools)
    return replace(kind, system=system, tools=tools, usual=own.intersection(tools))


@lru_cache(maxsize=1)
def _builtin_names() -> frozenset[str]:
    """Return the names and aliases of the built-in tools, regardless of the settings."""
    loaded = load_tools(plugin for plugin in find(TOOLS) if is_builtin(plugin.source))
    return frozenset(name for _, tools in loaded.found for tool in tools for name in (tool.name, *tool.traits.aliases))


def _key(name: str) -> str:
    plain = type_key(name)
    return OTHER_NAMES.get(plain, plain)


def _short(text: str) -> str:
    shown = text if len(text) <= MAX_ABOUT_CHARS else f"{text[: MAX_ABOUT_CHARS - 3]}..."
    return shown if shown.endswith((".", "!", "?")) else f"{shown}."


# -- ``tool_search``: search all tools, also those that are not offered.


NAME_HIT = 10
DESCRIPTION_HIT = 3
SHOWN = OutputLimit(24_000, 0)
ROOM = OutputLimit(23_000, 0)
"""Maximum size of the list of tools; the rest is for notices."""
TERMS = 20


class _SearchArguments(Arguments):
    query: Line = Field(max_length=1_000, description="words to find in names and descriptions")
    limit: int = Field(8, ge=1, le=50, description="maximum number of tools")

    @field_validator("query")
    @classmethod
    def _words(cls, query: str) -> str:
        if not terms_of(query):
            raise ValueError("it contains no words")
        return query


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """A tool, its score, and whether it can be called."""

    tool: Tool[Any]
    score: int
    is_offered: bool = True

    @property
    def facts(self) -> dict[str, Json]:
        """Return the match as a JSON value."""
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
    """Return how a tool of an opt-in pack becomes available. Pure."""
    pack = tool.traits.packs[0] if tool.traits.packs else ""
    return f'ask the user to add its pack, extra_packs = ["{pack}"] in [tools] of the settings' if pack else "no pack"


def terms_of(query: str) -> tuple[str, ...]:
    """Return the words of a query in lower case, separated by ``_`` and punctuation. Pure."""
    letters = "".join(letter if letter.isalnum() else " " for letter in query.lower())
    return tuple(dict.fromkeys(letters.split()))[:TERMS]


def found_in(tools: Iterable[Tool[Any]], terms: Sequence[str], *, is_offered: bool = True) -> list[ToolMatch]:
    """Return the tools with a positive score. Pure."""
    scored = (ToolMatch(tool, _score(tool, terms), is_offered) for tool in tools if tool.own.name != "tool_search")
    return [one for one in scored if one.score]


def _score(tool: Tool[Any], terms: Sequence[str]) -> int:
    """Return the score: each term counts once in the names, including aliases, and once in the description."""
    names = " ".join((tool.name, *tool.traits.aliases)).lower()
    text = tool.description.lower()
    return sum(NAME_HIT * (term in names) + DESCRIPTION_HIT * (term in text) for term in terms)


class ToolSearch(Tool[_SearchArguments]):
    """``tool_search``."""

    def __init__(self) -> None:
        text = "Find tools by what they do: names, descriptions and schemas, also of those that are not offered here."
        traits = Traits(parallelizable=True, packs=("core",), limit=SHOWN)
        super().__init__("tool_search", text, _SearchArguments, traits)

    async def run(self, args: _SearchArguments, ctx: ToolContext) -> ToolResult:
        offered = ctx.offered or ctx.registry
        terms = terms_of(args.query)
        found = [*found_in(offered.list(), terms), *found_in(offered.aside, terms, is_offered=False)]
        found.sort(key=lambda one: (-one.score, not one.is_offered, one.tool.name))
        return _listed(args, found)


def _listed(args: _SearchArguments, found: list[ToolMatch]) -> ToolResult:
    shown, cut = fit_items(found[: args.limit], _found_text, ROOM)
    left = max(0, len(found) - args.limit) + cut
    matches: list[Json] = [one.facts for one in shown]
    data: Json = {"query": args.query, "count": len(shown), "left_out": left, "tools": matches}
    if not found:
        return ToolResult.of(f"no tool matches {args.query!r}", data=data, metadata={"count": 0})
    more = f"\n\n[{left} more match less well; use other words or a higher limit]" if left else ""
    return ToolResult.of(_found_text(shown) + more, data=data)


def _found_text(found: Sequence[ToolMatch]) -> str:
    return "\n\n".join(str(one) for one in found)


# -- ``task``: a sub-agent for a part of the work.


MAX_TIMEOUT = 1_800
DEFAULT = 300
PROMPT = 100_000
DESCRIPTION = """\
Give a part of the work to a sub-agent and wait for its last message. It does not see your conversation, so the prompt \
must contain everything. Its calls follow the same rules as yours. It works in a separate pane; what it leaves running \
is ended with it. Types:
{types}"""


class _TaskArguments(Arguments):
    prompt: Line = Field(max_length=PROMPT, description="what to do, and what to report")
    description: str = Field("", max_length=200, description="the same in a few words, for the user")
    subagent_type: Annotated[str, Field(max_length=64)] = Field(
        GENERAL, description="its type", validation_alias=AliasChoices("subagent_type", "type", "agent_type")
    )
    model: str | None = Field(None, max_length=200, description="its model, instead of yours")
    system: str | None = Field(None, max_length=PROMPT, description="further instructions, before the prompt")
    tools: tuple[Line, ...] | None = Field(None, max_length=200, description="only these tools, of those that you have")
    resume: Line | None = Field(None, max_length=500, description="session_id of an agent to resume")
    timeout: int = Field(DEFAULT, ge=1, description=f"seconds, at most {MAX_TIMEOUT}")
    backend: Line | None = Field(
        None, max_length=2_000, description="URL of the target that it works on, instead of yours"
    )


class Task(SpawnTool[_TaskArguments]):
    """``task``.

    Args:
        files: Types of sub-agents that are declared in files; the description names those that exist now.
        further: Types from the program.
    """

    def __init__(self, files: AgentTypeFiles | None = None, further: Sequence[AgentType] = ()) -> None:
        self._files = files or AgentTypeFiles()
        self.types = known_types(self._files.list().types, further)
        traits = Traits(
            category=Category.AGENT,
            mutating=True,
            parallelizable=True,
            aliases=("subagent", "Agent"),
            packs=("agents",),
        )
        super().__init__("task", DESCRIPTION.format(types=describe_types(self.types)), _TaskArguments, traits)

    @property
    def schema(self) -> JsonObject:
        return with_choices(super().schema, {"subagent_type": [kind.name for kind in self.types]})

    def with_types(self, types: Sequence[AgentType]) -> Task:
        return Task(self._files, types)

    async def run(self, args: _TaskArguments, ctx: ToolContext) -> ToolResult:
        files = await to_thread.run_sync(self._files.list)
        types = known_types(files.types, ctx.spawner.types() if ctx.spawner is not None else ())
        named = type_named(args.subagent_type, types)
        if named is None:
            return _no_type(args.subagent_type, types, files.problems)
        kind = await to_thread.run_sync(with_own_names, named)
        system = "\n\n".join(part for part in (kind.system, args.system) if part)
        request = SpawnRequest(
            prompt=args.prompt,
            kind=kind,
            description=args.description,
            system=system,
            model=args.model or kind.model,
            tools=args.tools,
            resume=args.resume or "",
            timeout=float(min(args.timeout, MAX_TIMEOUT)),
            backend=args.backend or "",
        )
        return _clamped(await run_agent(request, ctx), args.timeout)


def _clamped(result: ToolResult, seconds: int) -> ToolResult:
    """Return the result, with a notice if the timeout exceeded the maximum. Pure."""
    if seconds <= MAX_TIMEOUT:
        return result
    note = Text(f"[timeout was {seconds} s; {MAX_TIMEOUT} s is the maximum]")
    return replace(
        result, content=(*result.content, note), metadata={**result.metadata, "timeout_clamped": MAX_TIMEOUT}
    )


def type_lines(tool: Tool[Any], names: Mapping[str, str] | None = None) -> str:
    """Return one line for each type of agent, for the end of a description.

    Args:
        names: A profile's names for some of them.
    """
    return f" Types:\n{describe_types(tool.types, names)}" if isinstance(tool, Task) else ""


def type_choices(tool: Tool[Any], names: Mapping[str, str] | None = None) -> Mapping[str, Sequence[str]]:
    """Return the names of the types as the values of ``subagent_type``; ``names`` as in :func:`type_lines`."""
    if not isinstance(tool, Task):
        return {}
    return {"subagent_type": [(names or {}).get(kind.name, kind.name) for kind in tool.types]}


def _no_type(name: str, types: tuple[AgentType, ...], problems: Sequence[str]) -> ToolResult:
    wrong = next((problem for problem in problems if f"/{name}.md:" in problem), "")
    if wrong:
        return ToolResult.failure("unknown_type", f"the agent type {name!r} cannot be used: {wrong}")
    known = [kind.name for kind in types]
    close = get_close_matches(name, known, n=1)
    advice = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return ToolResult.failure("unknown_type", f"unknown agent type {name!r}; {advice}")


# -- The tools of the pack.


def tools() -> list[Tool[Any]]:
    """Return one of each tool."""
    return [Task(), ToolSearch()]
