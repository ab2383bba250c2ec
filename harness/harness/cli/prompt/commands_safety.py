"""Slash commands for what may run: approvals in advance, the rules, and holding the agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anyio import to_thread

from .commands_base import BadArguments, Choice, SlashCommand, agent_of, duration, no_arguments

if TYPE_CHECKING:
    from ...toolkit.permissions.rules import Rule
    from ...toolkit.permissions.timed import TimedApproval
    from .context import PromptContext

__all__ = ["Approve", "Pause", "Permissions", "Resume", "approval_state"]

LASTING = 50
"""Rules that are listed."""
MODES = {
    "ask": "read-only things run, everything else asks",
    "auto": "everything runs but what must be asked each time",
    "deny": "nothing runs",
    "strict": "everything asks",
}


def approval_state(timed: TimedApproval) -> str:
    """What happens to what would be asked, in a few words."""
    remaining = timed.remaining
    if timed.state == "all":
        return "all approved" if remaining is None else f"all approved for {duration(remaining)}"
    return "none approved" if timed.state == "none" else "ask"


class Approve(SlashCommand):
    """``/approve``."""

    name = "approve"
    usage = "[ask|all|none|TIME]"
    about = "Ask about each call, approve or refuse all that would be asked, or approve all for TIME (15m)."
    details = ("  What is denied stays denied, and what must be asked each time is asked.",)

    async def run(self, context: PromptContext, args: str) -> None:
        """Show or set it."""
        if args:
            try:
                context.timed.set(args.lower(), context.execution.identity)
            except ValueError as error:
                raise BadArguments(str(error)) from None
        target = context.execution.target
        context.output.say(_SENTENCES[context.timed.state].format(target=target) + _until(context.timed))

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """The states, and usual times."""
        if words:
            return ()
        return (
            Choice("ask", "ask about each call"),
            Choice("all", "approve what would be asked, until this is changed"),
            Choice("none", "refuse what would be asked"),
            Choice("15m", "approve what would be asked, for so long"),
        )


_SENTENCES = {
    "ask": "approvals: you are asked",
    "all": "approvals: everything that would be asked runs unasked on {target}",
    "none": "approvals: everything that would be asked is refused",
}


def _until(timed: TimedApproval) -> str:
    remaining = timed.remaining
    if timed.state != "all":
        return ""
    return " until you say /approve ask" if remaining is None else f" for {duration(remaining)}; then you are asked"


class Permissions(SlashCommand):
    """``/permissions``."""

    name = "permissions"
    about = "Show the mode and the rules: what runs, what asks, what is denied."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print them, those that count first first."""
        no_arguments(args)
        settings = context.toolkit.settings.permissions
        stored = await to_thread.run_sync(context.toolkit.rules.load)
        output = context.output
        output.say(f"mode: {settings.mode.value} ({MODES[settings.mode.value]})")
        if settings.only:
            output.say(f"only these tools: {', '.join(settings.only)}")
        output.say(f"approvals: {approval_state(context.timed)}")
        if stored.failure:
            output.warn(f"everything asks: {stored.failure}")
        rules = (*_answered(context), *stored.rules, *settings.rules)
        if not rules:
            output.say("no rules; an answer 'always', or harness permissions add, makes one")
            return
        redact = context.toolkit.redactor.text
        rows = [tuple(redact(cell) for cell in _row(rule)) for rule in rules[:LASTING]]
        output.table(("ID", "ACTION", "TARGET", "TOOL", "ARGUMENT", "FROM"), rows)
        if len(rules) > LASTING:
            output.say(f"and {len(rules) - LASTING} more: harness permissions list")


def _answered(context: PromptContext) -> tuple[Rule, ...]:
    """What was answered in this session."""
    from ...toolkit.permissions.policy import RulePolicy

    policy = context.executor.services.policy
    return policy.session_rules(context.executor.session_id) if isinstance(policy, RulePolicy) else ()


def _row(rule: Rule) -> tuple[str, ...]:
    argument = "(any)" if rule.argument is None else rule.argument
    kind = {"glob": " (pattern)", "below": " (and below)"}.get(rule.match, "") if rule.argument is not None else ""
    where = f" (in {rule.cwd})" if rule.cwd else ""
    return rule.rule_id, rule.action.value, rule.target, rule.tool, f"{argument}{kind}{where}", rule.origin


class Pause(SlashCommand):
    """``/pause``."""

    name = "pause"
    usage = "[REASON]"
    about = "Let the agent begin nothing until /resume; what runs goes on."

    async def run(self, context: PromptContext, args: str) -> None:
        """Hold it."""
        agent = agent_of(context)
        if agent.state.doing == "paused":
            context.output.say("it is paused already; /resume lets it go on")
            return
        agent.pause("operator", args)


class Resume(SlashCommand):
    """``/resume``."""

    name = "resume"
    about = "Let the agent go on; it is told what you ran meanwhile."
    details = ("  To go on with another conversation: /session resume ID.",)

    async def run(self, context: PromptContext, args: str) -> None:
        """Let it go on."""
        if args:
            raise BadArguments("it lets a paused agent go on; /session resume ID goes on with a conversation")
        agent = agent_of(context)
        if agent.state.doing != "paused":
            context.output.say("it is not paused")
            return
        agent.resume("operator")
