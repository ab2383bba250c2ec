"""Slash commands that say how things are: the session, what the model has been told, and what it may call."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...joblists import asked_for
from ...results import Status as JobStatus
from .commands_base import Choice, SlashCommand, agent_of, no_arguments, one_of
from .commands_safety import approval_state

if TYPE_CHECKING:
    from ...agent.agent import Agent, AgentState
    from ...toolkit import Tool
    from ...toolkit.assembly import Toolkit
    from .context import PromptContext

__all__ = ["Context", "Status", "Tools", "percent", "tokens"]

SHOWN = 70
"""Characters of a tool's description in the list."""


def tokens(count: int) -> str:
    """A number of tokens as people read it: ``950``, ``12.3k``, ``1.2M``. Pure."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def percent(part: int, whole: int) -> str:
    """`` (12 %)``; nothing where the whole is not known. Pure."""
    return f" ({round(100 * part / whole)} %)" if whole else ""


# -- /status


class Status(SlashCommand):
    """``/status``."""

    name = "status"
    about = "Say where commands run, who answers, what it has cost, and what may run unasked."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print it."""
        no_arguments(args)
        facts = [*_target_facts(context), *_agent_facts(context)]
        running = [job for job in asked_for(await context.execution.jobs()) if job.status is JobStatus.RUNNING]
        facts.append(("jobs", f"{len(running)} running (/ps)" if running else "none runs"))
        facts.append(("cache", _cache_fact(context.toolkit)))
        facts.append(("approvals", approval_state(context.timed)))
        facts.append(("mode", context.toolkit.settings.permissions.mode.value))
        context.output.say(*(f"{name + ':':11}{value}" for name, value in facts if value))
        for problem in context.toolkit.problems:
            context.output.warn(problem)


def _cache_fact(toolkit: Toolkit) -> str:
    if not toolkit.settings.tools.cache:
        return "off"
    stats = toolkit.results.stats
    asked = stats.hits + stats.misses
    answered = f"{stats.hits} of {asked} reading calls answered from it{percent(stats.hits, asked)}"
    return f"{answered}; {stats.size} results, {stats.bytes:,} bytes"


def _target_facts(context: PromptContext) -> list[tuple[str, str]]:
    execution = context.execution
    facts = [("target", execution.describe())]
    if execution.has_terminal:
        facts.append(("attach", shlex.join(execution.attach_command)))
    return facts


def _agent_facts(context: PromptContext) -> list[tuple[str, str]]:
    if context.agent is None:
        return [("model", "none; harness models says how to configure one")]
    state = context.agent.state
    doing = f"{state.doing} by {state.paused_by}" if state.doing == "paused" and state.paused_by else state.doing
    queued = f", {len(state.queue)} queued" if state.queue else ""
    return [
        ("session", context.agent.session_id),
        ("model", f"{state.profile} ({state.model})" if state.profile != state.model else state.model),
        ("agent", f"{doing}{queued}"),
        ("context", _context_fact(state)),
        ("used", _used_fact(state)),
    ]


def _context_fact(state: AgentState) -> str:
    limit = f" of {tokens(state.limit)}" if state.limit else ""
    return f"{tokens(state.context)}{limit} tokens{percent(state.context, state.limit)}"


def _used_fact(state: AgentState) -> str:
    spent = state.spent
    cost = spent.known_cost
    price = "price not known" if cost is None else f"${cost:.4f}{' and more' if spent.unpriced else ''}"
    about = f"; {tokens(spent.estimated)} of the tokens are estimated" if spent.estimated else ""
    used = f"{tokens(spent.input_tokens)} in, {tokens(spent.output_tokens)} out"
    return f"{used}, {spent.answers} answer{'' if spent.answers == 1 else 's'}, {price}{about}"


# -- /context


class Context(SlashCommand):
    """``/context``."""

    name = "context"
    about = "Say what fills the model's context, and how much room is left."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print it."""
        no_arguments(args)
        agent = agent_of(context)
        state = agent.state
        context.output.say(f"context: {_context_fact(state)}")
        context.output.table(("WHAT", "NUMBER", "TOKENS, ABOUT"), _parts_rows(agent))
        if state.limit:
            share = agent.settings.compact_at
            context.output.say(f"at {share:.0%} the older messages are put together; /compact does it now")


@dataclass(slots=True)
class _Sum:
    number: int = 0
    tokens: int = 0

    def add(self, size: int) -> None:
        self.number += 1
        self.tokens += size


WHAT = {
    "user-prompt": "prompts and notes",
    "text": "answers",
    "thinking": "reasoning",
    "tool-call": "calls",
    "tool-return": "results",
    "retry-prompt": "results",
}


def _parts_rows(agent: Agent) -> list[tuple[str, ...]]:
    from ...agent.messages.history import estimate

    def size(part: Any) -> int:
        return estimate(str(getattr(part, "args", "") or "") + str(getattr(part, "content", "") or ""))

    sums: dict[str, _Sum] = {}
    for message in agent.transcript.messages:
        for part in message.parts:
            sums.setdefault(WHAT.get(part.part_kind, "other"), _Sum()).add(size(part))
    tools = agent.executor.registry.definitions()
    rows = {"tools": _Sum(len(tools), sum(estimate(str(one)) for one in tools)), **sums}
    return [(what, str(one.number), tokens(one.tokens)) for what, one in rows.items()]


# -- /tools


class Tools(SlashCommand):
    """``/tools``."""

    name = "tools"
    usage = "[NAME]"
    about = "List what the model may call, or say what one tool does and takes."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print it."""
        registry = context.executor.registry
        if args:
            names = tuple(tool.name for tool in registry.list())
            tool = registry.get(args) or registry.lookup(one_of(args, names, "tool"))
            context.output.say(*tool_lines(tool))
            return
        rows = [(tool.name, "yes" if tool.traits.mutating else "no", _short(tool)) for tool in registry.list()]
        context.output.table(("NAME", "CHANGES", "DESCRIPTION"), rows)

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """The tools."""
        return () if words else [Choice(tool.name, _short(tool)) for tool in context.executor.registry.list()]


def _short(tool: Tool[Any]) -> str:
    first = " ".join(tool.description.partition(". ")[0].split())
    return first if len(first) <= SHOWN else f"{first[: SHOWN - 3]}..."


def tool_lines(tool: Tool[Any]) -> list[str]:
    """A tool's description and its arguments, as lines. Pure."""
    properties = tool.schema.get("properties")
    required = tool.schema.get("required")
    needed = required if isinstance(required, list) else []
    lines = [tool.name, *tool.description.splitlines()]
    for name, about in (properties if isinstance(properties, dict) else {}).items():
        text = about.get("description", "") if isinstance(about, dict) else ""
        lines.append(f"  {name}{'' if name in needed else ' (optional)'}: {text}".rstrip(": "))
    return lines
