"""``harness memory``: list, add and remove the agents' memories."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ...context import ExecutionContext
from ...errors import HarnessError
from ..options import command, group
from ..output import note, print_json, readable, table
from ..redaction import session_redactor
from ..runtime import PLAIN, CliSession, on_target, session_of
from ..streams import Interruption, run_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...toolkit.session.notebook import Memory, MemoryLocation

__all__ = ["memory"]

SHOWN = 100
"""Maximum number of characters of a memory in a list; --json prints all."""
SCOPES = ("session", "project", "host", "global")
NONE = "no memories are stored"


# -- list


@command("list")
@click.option("--scope", type=click.Choice(SCOPES), help="List only memories of this scope.")
@click.pass_context
def list_memories(ctx: click.Context, scope: str | None) -> int:
    """List memories, oldest first. The target options restrict the list to that target."""
    from ...toolkit.session.notebook_stores import SqliteNotebook

    session = session_of(ctx)
    redact = session_redactor(session.settings, session.invocation.choices).text

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
    help="Scope of the memory: project directory, target or global.",
)
@click.option("--cwd", metavar="DIR", help="The project directory (default: home directory on the target).")
@click.argument("text")
@click.pass_context
def add(ctx: click.Context, scope: str, cwd: str | None, text: str) -> int:
    """Store TEXT as a memory for agents. A text that seems to contain a secret is refused."""
    from ...toolkit.session.notebook import MemoryLocation, MemoryScope, place_at

    if cwd is not None and scope != "project":
        ctx.fail("--cwd needs --scope project")
    session = session_of(ctx)
    content = _checked(session, text)

    async def on_it(target: ExecutionContext, interruption: Interruption) -> None:
        await _add(session, place_at(MemoryScope(scope), target.identity, target.capabilities.home, cwd), content)

    async def anywhere(interruption: Interruption) -> int:
        await _add(session, MemoryLocation(MemoryScope.GLOBAL), content)
        return 0

    return run_async(anywhere) if scope == "global" else on_target(session, on_it, PLAIN)


def _checked(session: CliSession, text: str) -> str:
    """Return the text as stored.

    Raises:
        HarnessError: The text is invalid, or it seems to contain a secret.
    """
    from ...toolkit.session.notebook import memory_text

    try:
        content = memory_text(text)
    except ValueError as error:
        raise HarnessError(f"cannot store the memory: {error}") from error
    if session_redactor(session.settings, session.invocation.choices).text(content) != content:
        raise HarnessError("the text seems to contain a secret", hint="store where to find it instead")
    return content


async def _add(session: CliSession, place: MemoryLocation, content: str) -> None:
    from ...toolkit.session.notebook import memory_json
    from ...toolkit.session.notebook_stores import SqliteNotebook

    kept = await SqliteNotebook().remember(place, content)
    print_json({"added": memory_json(kept)}) if session.json else click.echo(kept.memory_id)


@command("forget")
@click.argument("memory_id", metavar="ID")
@click.pass_context
def forget(ctx: click.Context, memory_id: str) -> int:
    """Remove a memory of any scope, by the ID that 'list' shows."""
    from ...toolkit.session.notebook import memory_json, memory_number
    from ...toolkit.session.notebook_stores import SqliteNotebook

    session = session_of(ctx)
    redact = session_redactor(session.settings, session.invocation.choices).text

    async def main(interruption: Interruption) -> int:
        number = memory_number(memory_id)
        gone = None if number is None else await SqliteNotebook().forget(number)
        if gone is None:
            raise HarnessError(f"unknown memory {memory_id!r}", hint="'harness memory list' lists them")
        gone = replace(gone, content=redact(gone.content))
        print_json({"forgotten": memory_json(gone)}) if session.json else click.echo(readable(gone.content))
        return 0

    return run_async(main)


memory = group(
    "memory",
    "list",
    (list_memories, add, forget),
    "List, add and remove the agents' memories.",
)
