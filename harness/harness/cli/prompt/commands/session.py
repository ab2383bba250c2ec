"""Slash commands for the conversation: which one it is, how long it is, who answers, and how it looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anyio import to_thread

from ....account import expand_home
from ....errors import HarnessError
from .base import BadArguments, Choice, SlashCommand, agent_of, brief, moment, no_arguments, one_of

if TYPE_CHECKING:
    from ....agent.models import ModelProfile
    from ....agent.storage import ConversationStore, ConversationSummary
    from .base import PromptContext

__all__ = ["Compact", "Model", "SessionCommand", "Theme", "theme_rows"]

VERBS = ("list", "new", "resume", "name", "export")
LISTED = 20
"""Conversations that are listed."""


class SessionCommand(SlashCommand):
    """``/session``."""

    name, aliases = "session", ("sessions",)
    usage = "[list|new|resume ID|name TEXT|export FILE]"
    about = "Say which conversation this is, list those with this target, go on with one, or begin another."

    async def run(self, context: PromptContext, args: str) -> None:
        """Do one of these."""
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
            one_of(verb, VERBS, "thing to do with sessions:")

    def refused_in_turn(self, args: str) -> bool:
        """To leave a conversation."""
        return args.partition(" ")[0] in ("new", "resume")

    async def _show(self, context: PromptContext) -> None:
        session_id = agent_of(context).session_id
        if context.store is None:
            context.output.say(f"session {session_id}, which is not stored")
            return
        summary = await context.store.find(session_id)
        name = f" {summary.name!r}" if summary.name else ""
        context.output.say(
            f"session {session_id}{name}, begun {moment(summary.created)}, {summary.turns} turns",
            f"to go on with it later: harness resume {session_id}",
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
            raise BadArguments("say which: its ID, the beginning of it, or its name; /session list lists them")
        summary = await _store(context).find(text)
        if context.agent is not None and summary.session_id == context.agent.session_id:
            context.output.say(f"session {summary.session_id} is this one")
            return
        if summary.identity != context.execution.identity:
            raise HarnessError(
                f"session {summary.session_id} is with {summary.target}, and this is {context.execution.target}",
                hint=f"harness resume {summary.session_id}",
            )
        await context.front.open_session(summary.session_id)

    async def _rename(self, context: PromptContext, name: str) -> None:
        name = context.toolkit.redactor.text(name)
        summary = await _store(context).rename(agent_of(context).session_id, name)
        context.output.say(f"session {summary.session_id} is called {name!r}" if name else "the name is gone")

    async def _export(self, context: PromptContext, path: str) -> None:
        from ...commands.resume import write_new

        if not path:
            raise BadArguments("say which file on this machine")
        session_id = agent_of(context).session_id
        document = await _store(context).exported(session_id)
        await to_thread.run_sync(lambda: write_new(expand_home(path), document))
        context.output.say(f"session {session_id} is in {path} (harness resume --import)")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """What can be done."""
        if words:
            return ()
        return (
            Choice("list", "those with this target"),
            Choice("new", "begin another"),
            Choice("resume", "go on with one"),
            Choice("name", "call this one something"),
            Choice("export", "write this one to a file"),
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
    about = "Put the older messages together into a summary now."

    async def run(self, context: PromptContext, args: str) -> None:
        """Do it."""
        no_arguments(args)
        agent = agent_of(context)
        if agent.state.turn_id:
            context.output.say("/compact waits for the end of the turn; C-c cancels both")
        done = await agent.compact_between()
        if done is None:
            context.output.say("there is nothing to put together yet")
        else:
            context.output.say(f"{done.before} messages are {done.after} now")

    def may_wait(self, args: str) -> bool:
        """The turn adds to what would be put together."""
        return True


class Model(SlashCommand):
    """``/model``."""

    name, aliases = "model", ("models",)
    usage = "[NAME]"
    about = "List the models, or go on with another one from the next answer on."

    async def run(self, context: PromptContext, args: str) -> None:
        """List or switch."""
        if context.models is None:
            raise HarnessError("the settings of models are wrong", hint="harness models says what is")
        if not args:
            self._list(context)
            return
        profile = context.models.profile(args)
        if context.agent is None:
            await context.front.use_model(profile)
        elif profile == context.agent.profile:
            context.output.say(f"{profile.name} answers already")
        else:
            await context.agent.switch_model(profile)
            context.output.say(f"{profile.name} ({profile.label}) answers from now on")

    def _list(self, context: PromptContext) -> None:
        assert context.models is not None
        current = context.agent.profile if context.agent is not None else None
        profiles = list(context.models.profiles)
        if current is not None and current not in profiles:
            profiles.insert(0, current)
        if not profiles:
            context.output.say("no model is configured; harness models says how, and /model PROVIDER:MODEL takes one")
            return
        rows = [_model_row(one, is_current=one == current) for one in profiles]
        context.output.table(("", "NAME", "MODEL", "CONTEXT"), rows)

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """The profiles."""
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
        """The themes."""
        return () if words else [Choice(name) for name in context.front.themes]


def theme_rows(names: Sequence[str], current: str) -> list[tuple[str, ...]]:
    """The themes as a table, the current one marked. Pure."""
    return [("*" if name == current else "", name) for name in names]
