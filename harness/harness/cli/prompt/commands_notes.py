"""Slash commands for what is written down: the list of things to do, and memories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...errors import HarnessError
from .commands_base import BadArguments, Choice, SlashCommand, no_arguments

if TYPE_CHECKING:
    from ...toolkit.notebook import Memory as Kept
    from ...toolkit.notebook import Notebook, Place
    from .context import PromptContext

__all__ = ["Memory", "Todos"]

SHOWN = 200
"""Characters of a memory in the list."""
MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Todos(SlashCommand):
    """``/todos``."""

    name = "todos"
    about = "Show what the agent has to do, and how far it is."

    async def run(self, context: PromptContext, args: str) -> None:
        """Print the list of the session."""
        no_arguments(args)
        todos = await _notebook(context).todos(context.executor.session_id)
        if not todos:
            context.output.say("nothing is on the list")
            return
        redact = context.toolkit.redactor.text
        context.output.say(*(f"{MARKS[one.status.value]} {redact(one.content)}" for one in todos))


def _notebook(context: PromptContext) -> Notebook:
    if context.toolkit.notebook is None:
        raise HarnessError("nothing is written down here")
    return context.toolkit.notebook


class Memory(SlashCommand):
    """``/memory``."""

    name = "memory"
    usage = "[add TEXT|forget ID]"
    about = "Show what agents know of this target, write something down for them, or forget it."

    async def run(self, context: PromptContext, args: str) -> None:
        """List, add or forget."""
        verb, _, rest = args.partition(" ")
        if not verb:
            await self._list(context)
        elif verb == "add":
            await self._add(context, rest.strip())
        elif verb == "forget":
            await self._forget(context, rest.strip())
        else:
            raise BadArguments(f"{verb!r} is neither add nor forget")

    async def _list(self, context: PromptContext) -> None:
        found = await _notebook(context).memories(_places(context))
        if not found:
            context.output.say("nothing is written down; /memory add TEXT writes something down for this target")
            return
        redact = context.toolkit.redactor.text
        context.output.table(("ID", "SCOPE", "TEXT"), [_row(one, redact(one.content)) for one in found])

    async def _add(self, context: PromptContext, text: str) -> None:
        from ...toolkit.notebook import MemoryScope, memory_text, place_at

        try:
            content = memory_text(text)
        except ValueError as error:
            raise BadArguments(f"it cannot be kept: {error}") from None
        if context.toolkit.redactor.text(content) != content:
            raise HarnessError("it holds what looks like a secret; write down where that is kept instead")
        execution = context.execution
        place = place_at(MemoryScope.HOST, execution.identity, execution.capabilities.home, None)
        kept = await _notebook(context).remember(place, content)
        context.output.say(f"{kept.memory_id} is written down for {execution.target}")

    async def _forget(self, context: PromptContext, memory_id: str) -> None:
        from ...toolkit.notebook import memory_number

        number = memory_number(memory_id)
        if number is None:
            raise BadArguments(f"{memory_id!r} is no memory's ID, such as m12" if memory_id else "say which: its ID")
        known = {one.number for one in await _notebook(context).memories(_places(context))}
        gone = await _notebook(context).forget(number) if number in known else None
        if gone is None:
            raise HarnessError(f"there is no memory {memory_id!r} here; /memory lists them")
        context.output.say(f"forgotten: {context.toolkit.redactor.text(gone.content)}")

    def choices(self, context: PromptContext, words: Sequence[str]) -> Iterable[Choice]:
        """What can be done."""
        return () if words else (Choice("add", "for this target"), Choice("forget"))


def _places(context: PromptContext) -> tuple[Place, ...]:
    """Where what is written down holds here."""
    from ...toolkit.notebook import MemoryScope, Place, place_at

    execution, cwd = context.execution, context.executor.cwd
    identity, home = execution.identity, execution.capabilities.home
    lasting = (MemoryScope.PROJECT, MemoryScope.HOST, MemoryScope.GLOBAL)
    own = Place(MemoryScope.SESSION, session_id=context.executor.session_id)
    return (own, *(place_at(scope, identity, home, cwd) for scope in lasting))


def _row(memory: Kept, text: str) -> tuple[str, ...]:
    line = " ".join(text.split())
    return memory.memory_id, memory.place.scope.value, line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."
