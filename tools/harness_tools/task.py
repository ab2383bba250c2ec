"""``task``: an agent of its own for a part of the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Annotated, Any

from anyio import to_thread
from pydantic import AliasChoices, Field

from harness.toolkit import Arguments, Category, JsonObject, Text, Tool, ToolContext, ToolResult, Traits
from harness.toolkit.agent_files import AgentTypeFiles
from harness.toolkit.arguments import with_choices
from harness.toolkit.spawning import AgentType, SpawnRequest, SpawnTool, run_agent

from .agenttypes import GENERAL, describe_types, known_types, type_named, with_own_names
from .texts import Line

__all__ = ["Task", "type_choices", "type_lines"]

LONGEST = 1_800
DEFAULT = 300
PROMPT = 100_000
DESCRIPTION = """\
Give a part of the work to another agent and wait for its last message. It begins without your conversation, so the \
prompt has to say everything. Each of its calls is judged as yours are. It works in a pane of its own; what it leaves \
running is ended with it. Types:
{types}"""


class _Arguments(Arguments):
    prompt: Line = Field(max_length=PROMPT, description="what it is to do, and what it is to report")
    description: str = Field("", max_length=200, description="the same in a few words, for people")
    subagent_type: Annotated[str, Field(max_length=64)] = Field(
        GENERAL, description="its type", validation_alias=AliasChoices("subagent_type", "type", "agent_type")
    )
    model: str | None = Field(None, max_length=200, description="the model that it uses, instead of yours")
    system: str | None = Field(None, max_length=PROMPT, description="further instructions, before the prompt")
    tools: tuple[Line, ...] | None = Field(None, max_length=200, description="only these tools, of those that you have")
    resume: Line | None = Field(None, max_length=500, description="session_id of an agent that is to go on")
    timeout: int = Field(DEFAULT, ge=1, description=f"seconds; {LONGEST} is the most that counts")
    backend: Line | None = Field(
        None, max_length=2_000, description="URL of the target that it works on, instead of yours"
    )


class Task(SpawnTool[_Arguments]):
    """``task``.

    Args:
        files: types of sub-agents that are declared in files. The description names those that are there now.
        further: those of the program.
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
        super().__init__("task", DESCRIPTION.format(types=describe_types(self.types)), _Arguments, traits)

    @property
    def schema(self) -> JsonObject:
        return with_choices(super().schema, {"subagent_type": [kind.name for kind in self.types]})

    def with_types(self, types: Sequence[AgentType]) -> Task:
        return Task(self._files, types)

    async def run(self, args: _Arguments, ctx: ToolContext) -> ToolResult:
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
            timeout=float(min(args.timeout, LONGEST)),
            backend=args.backend or "",
        )
        return _clamped(await run_agent(request, ctx), args.timeout)


def _clamped(result: ToolResult, seconds: int) -> ToolResult:
    """The result, with a word on a time limit that was longer than any. Pure."""
    if seconds <= LONGEST:
        return result
    note = Text(f"[timeout was {seconds} s; {LONGEST} s is the longest]")
    return replace(result, content=(*result.content, note), metadata={**result.metadata, "timeout_clamped": LONGEST})


def type_lines(tool: Tool[Any], names: Mapping[str, str] | None = None) -> str:
    """One line for each type of agents, for the end of a description.

    Args:
        names: what a profile calls some of them.
    """
    return f" Types:\n{describe_types(tool.types, names)}" if isinstance(tool, Task) else ""


def type_choices(tool: Tool[Any], names: Mapping[str, str] | None = None) -> Mapping[str, Sequence[str]]:
    """The names of the types, as the values of ``subagent_type``; ``names`` as in :func:`type_lines`."""
    if not isinstance(tool, Task):
        return {}
    return {"subagent_type": [(names or {}).get(kind.name, kind.name) for kind in tool.types]}


def _no_type(name: str, types: tuple[AgentType, ...], problems: Sequence[str]) -> ToolResult:
    wrong = next((problem for problem in problems if f"/{name}.md:" in problem), "")
    if wrong:
        return ToolResult.failure("unknown_type", f"the type of agent {name!r} cannot be used: {wrong}")
    known = [kind.name for kind in types]
    close = get_close_matches(name, known, n=1)
    advice = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    return ToolResult.failure("unknown_type", f"there is no type of agent {name!r}; {advice}")
