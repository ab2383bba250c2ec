"""Slash commands for state and safety: todos, memories, approvals, rules, pause, status, context and tools."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from ....errors import HarnessError
from ....fleets import FleetContext
from ....results import Status as JobStatus
from ....results import without_helpers
from ....wording import counted
from .base import BadArguments, Choice, SlashCommand, agent_of, duration, no_arguments, one_of
from .jobs_of_hosts import connected_hosts, fleet_of, list_jobs

if TYPE_CHECKING:
    from ....agent.agent import Agent, AgentState
    from ....context import ExecutionContext
    from ....toolkit import Tool
    from ....toolkit.assembly import Toolkit
    from ....toolkit.permissions.remembered_answers import TimedApproval
    from ....toolkit.permissions.rules.rule import Rule
    from ....toolkit.session.notebook import Memory as Kept
    from ....toolkit.session.notebook import MemoryLocation, Notebook
    from .base import PromptContext

__all__ = [
    "Approve",
    "Context",
    "Memory",
    "Pause",
    "Permissions",
    "Resume",
    "Status",
    "Todos",
    "Tools",
    "approval_state",
    "percent",
    "tokens",
]


# -- Todos and memories.


SHOWN_OF_NOTE = 200
"""Maximum number of characters of a memory in the list."""
MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Todos(SlashCommand):
    """``/todos``."""

    name = "todos"
    about = "Show the agent's todo list and its progress."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the todo list of the conversation."""
        no_arguments(args)
        todos = await _notebook(context).todos(context.executor.session_id)
        if not todos:
            context.output.say("the todo list is empty")
            return
        redact = context.toolkit.redactor.text
        context.output.say(*(f"{MARKS[one.status.value]} {redact(one.content)}" for one in todos))


def _notebook(context: PromptContext) -> Notebook:
    if context.toolkit.notebook is None:
        raise HarnessError("todos and memories are disabled here")
    return context.toolkit.notebook


class Memory(SlashCommand):
    """``/memory``."""

    name = "memory"
    usage = "[add TEXT|forget ID]"
    about = "List the agents' memories for this target, add one, or remove one."

    async def run(self, context: PromptContext, args: str) -> None:
        """List, add or remove memories."""
        verb, _, rest = args.partition(" ")
        if not verb:
            await self._list(context)
        elif verb == "add":
            await self._add(context, rest.strip())
        elif verb == "forget":
            await self._forget(context, rest.strip())
        else:
            raise BadArguments(f"{verb!r} is neither 'add' nor 'forget'")

    async def _list(self, context: PromptContext) -> None:
        found = await _notebook(context).memories(_places(context))
        if not found:
            context.output.say("no memories are stored; /memory add TEXT stores one for this target")
            return
        redact = context.toolkit.redactor.text
        context.output.table(("ID", "SCOPE", "TEXT"), [_memory_row(one, redact(one.content)) for one in found])

    async def _add(self, context: PromptContext, text: str) -> None:
        from ....toolkit.session.notebook import MemoryScope, memory_text, place_at

        try:
            content = memory_text(text)
        except ValueError as error:
            raise BadArguments(f"cannot store the memory: {error}") from None
        if context.toolkit.redactor.text(content) != content:
            raise HarnessError("the text seems to contain a secret; store where to find it instead")
        execution = context.execution
        place = place_at(MemoryScope.HOST, execution.identity, execution.capabilities.home, None)
        kept = await _notebook(context).remember(place, content)
        context.output.say(f"stored as {kept.memory_id} for {execution.target}")

    async def _forget(self, context: PromptContext, memory_id: str) -> None:
        from ....toolkit.session.notebook import memory_number

        number = memory_number(memory_id)
        if number is None:
            raise BadArguments(f"{memory_id!r} is not a memory ID such as m12" if memory_id else "missing memory ID")
        known = {one.number for one in await _notebook(context).memories(_places(context))}
        gone = await _notebook(context).forget(number) if number in known else None
        if gone is None:
            raise HarnessError(f"unknown memory {memory_id!r} for this target; /memory lists them")
        context.output.say(f"removed: {context.toolkit.redactor.text(gone.content)}")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the verbs."""
        return () if words else (Choice("add", "for this target"), Choice("forget"))


def _places(context: PromptContext) -> tuple[MemoryLocation, ...]:
    """Return the locations of memories that apply here."""
    from ....toolkit.session.notebook import MemoryLocation, MemoryScope, place_at

    execution, cwd = context.execution, context.executor.cwd
    identity, home = execution.identity, execution.capabilities.home
    lasting = (MemoryScope.PROJECT, MemoryScope.HOST, MemoryScope.GLOBAL)
    own = MemoryLocation(MemoryScope.SESSION, session_id=context.executor.session_id)
    return (own, *(place_at(scope, identity, home, cwd) for scope in lasting))


def _memory_row(memory: Kept, text: str) -> tuple[str, ...]:
    line = " ".join(text.split())
    return (
        memory.memory_id,
        memory.place.scope.value,
        line if len(line) <= SHOWN_OF_NOTE else f"{line[: SHOWN_OF_NOTE - 3]}...",
    )


# -- Advance approval, rules, and pausing the agent.


LASTING = 50
"""Maximum number of listed rules."""
MODES = {
    "ask": "read-only calls run, all others ask",
    "auto": "all calls run, except those that must ask each time",
    "deny": "no call runs",
    "strict": "all calls ask",
}


def approval_state(timed: TimedApproval) -> str:
    """Return the state of advance approval in a few words."""
    remaining = timed.remaining
    if timed.state == "all":
        return "all approved" if remaining is None else f"all approved for {duration(remaining)}"
    return "none approved" if timed.state == "none" else "ask"


class Approve(SlashCommand):
    """``/approve``."""

    name = "approve"
    usage = "[ask|all|none|TIME]"
    about = "Ask for each call, approve or deny all calls that would ask, or approve all for TIME (15m)."
    details = ("  Denied calls stay denied, and calls that must ask each time still ask.",)

    async def run(self, context: PromptContext, args: str) -> None:
        """Show or set advance approval."""
        if args:
            try:
                every_host = isinstance(context.execution, FleetContext)
                context.timed.set(args.lower(), "" if every_host else context.execution.identity)
            except ValueError as error:
                raise BadArguments(str(error)) from None
        target = context.execution.target
        context.output.say(_SENTENCES[context.timed.state].format(target=target) + _until(context.timed))

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the states and a common time."""
        if words:
            return ()
        return (
            Choice("ask", "ask for each call"),
            Choice("all", "approve calls that would ask, until changed"),
            Choice("none", "deny calls that would ask"),
            Choice("15m", "approve calls that would ask, for 15 minutes"),
        )


_SENTENCES = {
    "ask": "approvals: calls ask",
    "all": "approvals: calls that would ask run without asking on {target}",
    "none": "approvals: calls that would ask are denied",
}


def _until(timed: TimedApproval) -> str:
    remaining = timed.remaining
    if timed.state != "all":
        return ""
    return " until /approve ask" if remaining is None else f" for {duration(remaining)}; then they ask again"


class Permissions(SlashCommand):
    """``/permissions``."""

    name = "permissions"
    about = "Show the mode and the permission rules."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the mode and the rules in order of precedence."""
        no_arguments(args)
        settings = context.toolkit.settings.permissions
        stored = await to_thread.run_sync(context.toolkit.rules.load)
        output = context.output
        output.say(f"mode: {settings.mode.value} ({MODES[settings.mode.value]})")
        if settings.allowed_tools:
            output.say(f"only these tools: {', '.join(settings.allowed_tools)}")
        output.say(f"approvals: {approval_state(context.timed)}")
        if stored.failure:
            output.warn(f"approval is required for every call: {stored.failure}")
        rules = (*_answered(context), *stored.rules, *settings.rules)
        if not rules:
            output.say("no rules; an answer 'always' or 'harness permissions add' adds one")
            return
        redact = context.toolkit.redactor.text
        rows = [tuple(redact(cell) for cell in _rule_row(rule)) for rule in rules[:LASTING]]
        output.table(("ID", "ACTION", "TARGET", "TOOL", "ARGUMENT", "FROM"), rows)
        if len(rules) > LASTING:
            output.say(f"and {len(rules) - LASTING} more: harness permissions list")


def _answered(context: PromptContext) -> tuple[Rule, ...]:
    """Return the rules from answers in this session."""
    from ....toolkit.permissions.policy import RulePolicy

    policy = context.executor.services.policy
    return policy.session_rules(context.executor.session_id) if isinstance(policy, RulePolicy) else ()


def _rule_row(rule: Rule) -> tuple[str, ...]:
    argument = "(any)" if rule.argument is None else rule.argument
    kind = {"glob": " (pattern)", "below": " (and below)"}.get(rule.match, "") if rule.argument is not None else ""
    where = f" (in {rule.cwd})" if rule.cwd else ""
    return rule.rule_id, rule.action.value, rule.target, rule.tool, f"{argument}{kind}{where}", rule.origin


class Pause(SlashCommand):
    """``/pause``."""

    name = "pause"
    usage = "[REASON]"
    about = "Pause the agent; running calls continue."

    async def run(self, context: PromptContext, args: str) -> None:
        """Pause the agent."""
        agent = agent_of(context)
        if agent.state.doing == "paused":
            context.output.say("the agent is already paused; /resume resumes it")
            return
        agent.pause("operator", args)


class Resume(SlashCommand):
    """``/resume``."""

    name = "resume"
    about = "Resume the agent; it is told what you ran in the meantime."
    details = ("  To resume another conversation: /session resume ID.",)

    async def run(self, context: PromptContext, args: str) -> None:
        """Resume the agent."""
        if args:
            raise BadArguments("it resumes a paused agent; use /session resume ID for a conversation")
        agent = agent_of(context)
        if agent.state.doing != "paused":
            context.output.say("the agent is not paused")
            return
        agent.resume("operator")


# -- Status, context and tools.


SHOWN_OF_TEXT = 70
"""Maximum number of characters of a tool's description in the list."""


def tokens(count: int) -> str:
    """Return a number of tokens for display: ``950``, ``12.3k``, ``1.2M``. Pure."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def percent(part: int, whole: int) -> str:
    """Return `` (12 %)``, or an empty text if the whole is unknown. Pure."""
    return f" ({round(100 * part / whole)} %)" if whole else ""


# -- /status


class Status(SlashCommand):
    """``/status``."""

    name = "status"
    about = "Show the target, the model, the cost and the approval mode."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the status."""
        no_arguments(args)
        facts = [*_target_facts(context), *_agent_facts(context)]
        facts.append(("jobs", await _jobs_fact(context.execution)))
        facts.append(("cache", _cache_fact(context.toolkit)))
        facts.append(("approvals", approval_state(context.timed)))
        facts.append(("mode", context.toolkit.settings.permissions.mode.value))
        context.output.say(*(f"{name + ':':11}{value}" for name, value in facts if value))
        for problem in context.toolkit.problems:
            context.output.warn(problem)


async def _jobs_fact(execution: ExecutionContext) -> str:
    fleet = fleet_of(execution)
    if fleet is None:
        jobs = without_helpers(await execution.jobs())
        running = sum(job.status is JobStatus.RUNNING for job in jobs)
        return f"{running} running (/ps)" if running else "none running"
    connected = connected_hosts(fleet)
    listed = await list_jobs(fleet, connected, running=True)
    running = sum(len(row.hosts) for row in listed.rows)
    unknown = "".join(f"; {text}" for text in listed.errors)
    where = f"on {len(connected)} connected hosts of {len(fleet)}"
    return f"{running or 'none'} running {where}{' (/ps)' if running else ''}{unknown}"


def _cache_fact(toolkit: Toolkit) -> str:
    if not toolkit.settings.tools.cache:
        return "off"
    stats = toolkit.results.stats
    asked = stats.hits + stats.misses
    answered = f"{stats.hits} of {asked} read-only calls answered from the cache{percent(stats.hits, asked)}"
    return f"{answered}; {stats.size} results, {stats.bytes:,} bytes"


def _target_facts(context: PromptContext) -> list[tuple[str, str]]:
    execution = context.execution
    facts = [("target", execution.describe())]
    if execution.has_terminal:
        facts.append(("attach", shlex.join(execution.attach_command)))
    return facts


def _agent_facts(context: PromptContext) -> list[tuple[str, str]]:
    if context.agent is None:
        return [("model", "none; 'harness models' explains how to configure one")]
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
    price = "price unknown" if cost is None else f"${cost:.4f}{' and more' if spent.unpriced else ''}"
    about = f"; {tokens(spent.estimated)} of the tokens are estimated" if spent.estimated else ""
    used = f"{tokens(spent.input_tokens)} in, {tokens(spent.output_tokens)} out"
    return f"{used}, {counted(spent.answers, 'answer')}, {price}{about}"


# -- /context


class Context(SlashCommand):
    """``/context``."""

    name = "context"
    about = "Show what fills the model's context, and how much is left."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the parts of the context."""
        no_arguments(args)
        agent = agent_of(context)
        state = agent.state
        context.output.say(f"context: {_context_fact(state)}")
        context.output.table(("WHAT", "NUMBER", "TOKENS, ABOUT"), _parts_rows(agent))
        if state.limit:
            share = agent.settings.compaction_threshold
            context.output.say(f"at {share:.0%} the older messages are compacted; /compact does it now")


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
    from ....agent.messages.history import estimate

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
    about = "List the model's tools, or describe one and its arguments."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the list or the tool."""
        registry = context.executor.registry
        if args:
            names = tuple(tool.name for tool in registry.list())
            tool = registry.get(args) or registry.lookup(one_of(args, names, "tool"))
            context.output.say(*tool_lines(tool))
            return
        rows = [(tool.name, "yes" if tool.traits.mutating else "no", _short(tool)) for tool in registry.list()]
        context.output.table(("NAME", "CHANGES", "DESCRIPTION"), rows)

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the tools."""
        return () if words else [Choice(tool.name, _short(tool)) for tool in context.executor.registry.list()]


def _short(tool: Tool[Any]) -> str:
    first = " ".join(tool.description.partition(". ")[0].split())
    return first if len(first) <= SHOWN_OF_TEXT else f"{first[: SHOWN_OF_TEXT - 3]}..."


def tool_lines(tool: Tool[Any]) -> list[str]:
    """Return a tool's description and arguments as lines. Pure."""
    properties = tool.schema.get("properties")
    required = tool.schema.get("required")
    needed = required if isinstance(required, list) else []
    lines = [tool.name, *tool.description.splitlines()]
    for name, about in (properties if isinstance(properties, dict) else {}).items():
        text = about.get("description", "") if isinstance(about, dict) else ""
        lines.append(f"  {name}{'' if name in needed else ' (optional)'}: {text}".rstrip(": "))
    return lines
