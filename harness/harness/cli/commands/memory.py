"""``harness memory``: what agents have written down to know it later, and what the operator adds."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ...context import ExecutionContext
from ...errors import HarnessError
from ..options import command, group
from ..output import note, print_json, readable, table
from ..runtime import PLAIN, CliSession, on_target, session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...toolkit.interfaces import Redactor
    from ...toolkit.session.notebook import Memory, MemoryLocation

__all__ = ["memory"]

SHOWN = 100
"""Characters of a memory in a list; --json has all."""
SCOPES = ("session", "project", "host", "global")
NONE = "nothing is written down"


# -- list


@command("list")
@click.option("--scope", type=click.Choice(SCOPES), help="Only those of this scope.")
@click.pass_context
def list_memories(ctx: click.Context, scope: str | None) -> int:
    """List what is written down, the oldest first. The target options choose what is about that target."""
    from ...toolkit.session.notebook_stores import SqliteNotebook

    session = session_of(ctx)
    redact = _redactor(session).text

    async def main(interruption: Interruption) -> int:
        found = await SqliteNotebook().memories()
        chosen = [one for one in found if scope in (None, one.place.scope) and _is_about(session, one)]
        _show(session, [replace(one, content=redact(one.content)) for one in chosen])
        return 0

    return run_async(main)


def _is_about(session: CliSession, memory: Memory) -> bool:
    if dict(session.settings.origins)["target"] != "command line":
        return True
    target = str(session.settings.target)
    return memory.place.target == target or memory.place.target.startswith(f"{target}#")


def _show(session: CliSession, memories: Sequence[Memory]) -> None:
    from ...toolkit.session.notebook import memory_json

    if session.json:
        print_json([memory_json(one) for one in memories])
    elif not memories:
        note(NONE)
    else:
        table(("ID", "SCOPE", "WHERE", "WRITTEN", "TEXT"), [_row(one) for one in memories])


def _row(memory: Memory) -> tuple[str, ...]:
    place, text = memory.place, readable(memory.content)
    where = f"{place.target} {place.cwd}".strip() or place.session_id[:12]
    written = time.strftime("%Y-%m-%d %H:%M", time.localtime(memory.created))
    return memory.memory_id, place.scope, where, written, text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


# -- add, forget


@command("add")
@click.option(
    "--scope",
    type=click.Choice(("project", "host", "global")),
    default="host",
    show_default=True,
    help="How far it holds: a directory of the target, the target, or everywhere.",
)
@click.option("--cwd", metavar="DIR", help="The directory of a project; the default is the home of the target's user.")
@click.argument("text")
@click.pass_context
def add(ctx: click.Context, scope: str, cwd: str | None, text: str) -> int:
    """Write TEXT down, for agents to know. A text that holds what looks like a secret is refused."""
    from ...toolkit.session.notebook import MemoryLocation, MemoryScope, place_at

    if cwd is not None and scope != "project":
        ctx.fail("--cwd goes with --scope project")
    session = session_of(ctx)
    content = _checked(session, text)

    async def on_it(target: ExecutionContext, interruption: Interruption) -> None:
        await _add(session, place_at(MemoryScope(scope), target.identity, target.capabilities.home, cwd), content)

    async def anywhere(interruption: Interruption) -> int:
        await _add(session, MemoryLocation(MemoryScope.GLOBAL), content)
        return 0

    return run_async(anywhere) if scope == "global" else on_target(session, on_it, PLAIN)


def _checked(session: CliSession, text: str) -> str:
    """What may be kept.

    Raises:
        HarnessError: it may not.
    """
    from ...toolkit.session.notebook import memory_text

    try:
        content = memory_text(text)
    except ValueError as error:
        raise HarnessError(f"it cannot be kept: {error}") from error
    if _redactor(session).text(content) != content:
        raise HarnessError("it holds what looks like a secret", hint="write down where it is kept instead")
    return content


def _redactor(session: CliSession) -> Redactor:
    from ...settings import load_tables
    from ...toolkit.catalog import tool_settings_of
    from ...toolkit.redaction.redactor import PatternRedactor

    settings = tool_settings_of(load_tables("tools", session.invocation.choices))
    variables = {**os.environ, **dict(session.settings.config.env)}
    return PatternRedactor.with_environment(variables, patterns=settings.secrets)


async def _add(session: CliSession, place: MemoryLocation, content: str) -> None:
    from ...toolkit.session.notebook import memory_json
    from ...toolkit.session.notebook_stores import SqliteNotebook

    kept = await SqliteNotebook().remember(place, content)
    print_json({"added": memory_json(kept)}) if session.json else click.echo(kept.memory_id)


@command("forget")
@click.argument("memory_id", metavar="ID")
@click.pass_context
def forget(ctx: click.Context, memory_id: str) -> int:
    """Remove what is written down, by the ID that 'list' shows, whatever scope it has."""
    from ...toolkit.session.notebook import memory_json, memory_number
    from ...toolkit.session.notebook_stores import SqliteNotebook

    session = session_of(ctx)
    redact = _redactor(session).text

    async def main(interruption: Interruption) -> int:
        number = memory_number(memory_id)
        gone = None if number is None else await SqliteNotebook().forget(number)
        if gone is None:
            raise HarnessError(f"there is no memory {memory_id!r}", hint="harness memory list shows them")
        gone = replace(gone, content=redact(gone.content))
        print_json({"forgotten": memory_json(gone)}) if session.json else click.echo(readable(gone.content))
        return 0

    return run_async(main)


memory = group(
    "memory",
    "list",
    (list_memories, add, forget),
    "What agents have written down to know it later: list it, add to it, forget some of it.",
)
