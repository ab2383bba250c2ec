"""Slash commands for the conversation, its length, the model and the theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anyio import to_thread

from ....errors import HarnessError
from ....system.account import expand_home
from .base import BadArguments, Choice, SlashCommand, agent_of, brief, moment, no_arguments, one_of

if TYPE_CHECKING:
    from ....agent.models import ModelProfile
    from ....agent.storage import ConversationStore, ConversationSummary
    from .base import PromptContext

__all__ = ["Compact", "Model", "SessionCommand", "Theme", "theme_rows"]

VERBS = ("list", "new", "resume", "name", "export")
LISTED = 20
"""Maximum number of listed conversations."""


class SessionCommand(SlashCommand):
    """``/session``."""

    name, aliases = "session", ("sessions",)
    usage = "[list|new|resume ID|name TEXT|export FILE]"
    about = "Show the current conversation, list those of this target, resume one or start a new one."

    async def run(self, context: PromptContext, args: str) -> None:
        """Run the given verb."""
        verb, _, rest = args.partition(" ")
        rest = rest.strip()
        if not verb:
            await self._show(context)
        elif verb == "list":
            await self._list(context, rest)
        elif verb == "new":
            no_arguments(rest)
            await context.front.open_session(None)
        elif verb == "resume":
            await self._resume(context, rest)
        elif verb == "name":
            await self._rename(context, rest)
        elif verb == "export":
            await self._export(context, rest)
        else:
            one_of(verb, VERBS, "subcommand")

    def refused_in_turn(self, args: str) -> bool:
        """Return True for verbs that change the conversation."""
        return args.partition(" ")[0] in ("new", "resume")

    async def _show(self, context: PromptContext) -> None:
        session_id = agent_of(context).session_id
        if context.store is None:
            context.output.say(f"conversation {session_id}, not stored")
            return
        summary = await context.store.find(session_id)
        name = f" {summary.name!r}" if summary.name else ""
        context.output.say(
            f"conversation {session_id}{name}, started {moment(summary.created)}, {summary.turns} turns",
            f"to resume it later: harness resume {session_id}",
        )

    async def _list(self, context: PromptContext, text: str) -> None:
        listed = await _store(context).listed(identity=context.execution.identity, limit=LISTED, text=text)
        found = listed.found
        for damaged in listed.damaged:
            context.output.warn(str(damaged))
        if not found:
            context.output.say("there are no conversations with this target")
            return
        own = context.agent.session_id if context.agent is not None else ""
        context.output.table(
            ("ID", "CHANGED", "TURNS", "MODEL", "NAME OR FIRST PROMPT"), [_row(one, own) for one in found]
        )

    async def _resume(self, context: PromptContext, text: str) -> None:
        if not text:
            raise BadArguments(
                "missing conversation: give its ID, the start of the ID, or its name; /session list lists them"
            )
        summary = await _store(context).find(text)
        if context.agent is not None and summary.session_id == context.agent.session_id:
            context.output.say(f"conversation {summary.session_id} is already open")
            return
        if summary.identity != context.execution.identity:
            raise HarnessError(
                f"conversation {summary.session_id} belongs to {summary.target}, not to {context.execution.target}",
                hint=f"harness resume {summary.session_id}",
            )
        await context.front.open_session(summary.session_id)

    async def _rename(self, context: PromptContext, name: str) -> None:
        name = context.toolkit.redactor.text(name)
        summary = await _store(context).rename(agent_of(context).session_id, name)
        context.output.say(f"conversation {summary.session_id} is named {name!r}" if name else "name removed")

    async def _export(self, context: PromptContext, path: str) -> None:
        from ...conversation import write_new

        if not path:
            raise BadArguments("missing file: give a path on this machine")
        session_id = agent_of(context).session_id
        document = await _store(context).exported(session_id)
        await to_thread.run_sync(lambda: write_new(expand_home(path), document))
        context.output.say(f"conversation {session_id} exported to {path} (harness resume --import)")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the verbs."""
        if words:
            return ()
        return (
            Choice("list", "list those of this target"),
            Choice("new", "start a new one"),
            Choice("resume", "resume a stored one"),
            Choice("name", "name the current one"),
            Choice("export", "write the current one to a file"),
        )


def _store(context: PromptContext) -> ConversationStore:
    if context.store is None:
        raise HarnessError("conversations are not stored here")
    return context.store


def _row(summary: ConversationSummary, own: str) -> tuple[str, ...]:
    state = " (this one)" if summary.session_id == own else " (unfinished)" if summary.unfinished else ""
    what = f"{summary.name or brief(summary.title)}{state}"
    return summary.session_id, moment(summary.changed), str(summary.turns), summary.model, what


class Compact(SlashCommand):
    """``/compact``."""

    name = "compact"
    about = "Compact the older messages into a summary."

    async def run(self, context: PromptContext, args: str) -> None:
        """Compact the messages."""
        no_arguments(args)
        agent = agent_of(context)
        if agent.state.turn_id:
            context.output.say("/compact waits for the end of the turn; C-c cancels both")
        done = await agent.compact_between()
        if done is None:
            context.output.say("there is nothing to compact yet")
        else:
            context.output.say(f"compacted {done.before} messages into {done.after}")

    def may_wait(self, args: str) -> bool:
        """Return True, as it waits for the end of the turn."""
        return True


class Model(SlashCommand):
    """``/model``."""

    name, aliases = "model", ("models",)
    usage = "[NAME]"
    about = "List the models, or switch to another one from the next response on."

    async def run(self, context: PromptContext, args: str) -> None:
        """List or switch."""
        if context.models is None:
            raise HarnessError("the model settings are invalid", hint="'harness models' shows the error")
        if not args:
            self._list(context)
            return
        profile = context.models.profile(args)
        if context.agent is None:
            await context.front.use_model(profile)
        elif profile == context.agent.profile:
            context.output.say(f"{profile.name} is already the model")
        else:
            await context.agent.switch_model(profile)
            context.output.say(f"switched to {profile.name} ({profile.label})")

    def _list(self, context: PromptContext) -> None:
        assert context.models is not None
        current = context.agent.profile if context.agent is not None else None
        profiles = list(context.models.profiles)
        if current is not None and current not in profiles:
            profiles.insert(0, current)
        if not profiles:
            context.output.say(
                "no model is configured; 'harness models' explains how, and /model PROVIDER:MODEL chooses one"
            )
            return
        rows = [_model_row(one, is_current=one == current) for one in profiles]
        context.output.table(("", "NAME", "MODEL", "CONTEXT"), rows)

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the model profiles."""
        if words or context.models is None:
            return ()
        return [Choice(one.name, f"{one.label}") for one in context.models.profiles]


def _model_row(profile: ModelProfile, *, is_current: bool) -> tuple[str, ...]:
    limit = f"{profile.context_window // 1000}k" if profile.context_window else ""
    return "*" if is_current else "", profile.name, f"{profile.label}", limit


class Theme(SlashCommand):
    """``/theme``."""

    name = "theme"
    usage = "[NAME]"
    about = "List the themes, or use another one."

    async def run(self, context: PromptContext, args: str) -> None:
        """List or switch."""
        front = context.front
        if not args:
            context.output.table(("", "THEME"), theme_rows(front.themes, front.theme))
            return
        front.set_theme(one_of(args, front.themes, "theme"))
        context.output.say(f"theme {args}")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """Return the themes."""
        return () if words else [Choice(name) for name in context.front.themes]


def theme_rows(names: Sequence[str], current: str) -> list[tuple[str, ...]]:
    """Return the themes as table rows, with the current one marked. Pure."""
    return [("*" if name == current else "", name) for name in names]
