"""``harness resume``: resume, list, rename, delete, export and import stored conversations."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import ConfigError, HarnessError
from ..completed_names import complete_conversation, complete_file, complete_model
from ..options import Invocation, RenamedOption, command, invocation_of
from ..output import note, print_json, read_stdin, readable, table, warn
from ..runtime import CliSession, session_of
from ..streams import Interruption, run_async
from .fleet.conversation_hosts import stored_target
from .fleet.options import FleetOptions, fleet_options
from .fleet.session import SessionTarget, target_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...agent.storage import ConversationStore, ConversationSummary

__all__ = ["resume"]

HELP = """Resume a stored conversation, on its target and in its tmux session.

ID is a name, or the start of an ID that --list shows. --last resumes the most recently changed conversation: of the
target given by the target options, or of all. Calls that were running when its harness exited are reported.

A target given by the target options must be the conversation's own, unless --allow-other-target is given. So must hosts
given by --hosts, --inventory or several --ssh; without them, a conversation on many hosts works on its own.
"""
SHOWN = 60
"""Maximum number of characters of a title in a list; --json prints the stored title."""
NONE = "no conversation is stored"
IMPORT_LIMIT = 256 << 20
"""Maximum size of an imported document in bytes."""


@command("resume", help=HELP, many_hosts=True)
@fleet_options(session=True)
@click.option("--last", is_flag=True, help="Use the most recently changed conversation.")
@click.option(
    "--allow-other-target",
    "here",
    cls=RenamedOption,
    old="--here",
    is_flag=True,
    help="Resume on the given target, even if the conversation belongs to another one.",
)
@click.option("--list", "listed", is_flag=True, help="List conversations (of the given target, if any).")
@click.option(
    "-n", "limit", type=click.IntRange(1), metavar="N", default=30, show_default=True, help="Limit --list to N."
)
@click.option("--name", metavar="TEXT", help="Set the conversation's name; an empty TEXT removes it.")
@click.option("--delete", is_flag=True, help="Delete the conversation.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the conversation to FILE as JSON; - is stdout.",
)
@click.option(
    "--import",
    "import_",
    metavar="FILE",
    shell_complete=complete_file,
    help="Import an exported conversation from FILE; - is stdin.",
)
@click.option("--model", metavar="NAME", default="", shell_complete=complete_model, help="Resume with this model.")
@click.option("--plain", is_flag=True, help="Use line mode.")
@click.argument("session_id", metavar="[ID]", default="", shell_complete=complete_conversation)
@click.pass_context
def resume(
    ctx: click.Context,
    last: bool,
    here: bool,
    listed: bool,
    limit: int,
    name: str | None,
    delete: bool,
    export: str | None,
    import_: str | None,
    model: str,
    plain: bool,
    session_id: str,
    fleet: FleetOptions,
) -> int:
    from ...agent.storage import ConversationStore

    given = {"--list": listed, "--name": name is not None, "--delete": delete, "--export": export, "--import": import_}
    actions = [option for option, value in given.items() if value]
    if len(actions) > 1:
        ctx.fail(f"{actions[0]} and {actions[1]} contradict each other")
    if session_id and last:
        ctx.fail("ID and --last contradict each other")
    store, invocation = ConversationStore(), invocation_of(ctx)
    if listed:
        return _blocking(partial(_list, store, ctx, fleet, limit))
    if import_ is not None:
        return _blocking(partial(_import, store, invocation, import_))
    if not session_id and not last:
        ctx.fail("missing conversation: give ID or --last; --list shows them")
    chosen = _Choice(ctx, session_id, fleet)
    if name is not None:
        return _blocking(partial(_rename, store, chosen, name))
    if delete:
        return _blocking(partial(_delete, store, chosen))
    if export is not None:
        return _blocking(partial(_export, store, chosen, export))
    return _go_on(chosen, store, model, here=here, plain=plain)


def _blocking(work: Callable[[], Awaitable[int]]) -> int:
    async def main(interruption: Interruption) -> int:
        return await work()

    return run_async(main)


# -- choosing


@dataclass(frozen=True, slots=True)
class _Choice:
    """The conversation of the command line: an ID, or the last one of its target or its hosts."""

    ctx: click.Context
    session_id: str
    fleet: FleetOptions

    @property
    def invocation(self) -> Invocation:
        """The options that every command takes."""
        return invocation_of(self.ctx)

    async def find(self, store: ConversationStore) -> ConversationSummary:
        """Return the conversation; without an ID, the last one of the command line's target, or of all."""
        if self.session_id:
            return await store.find(self.session_id)
        target = _target(self.ctx, self.fleet)
        found = await store.last(target=target)
        if found is None:
            raise HarnessError(f"no conversation with {target} is stored" if target else NONE, hint="see --list")
        return found


def _target(ctx: click.Context, fleet: FleetOptions) -> str:
    """Return the target or the fleet given on the command line; empty if none was given."""
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        return target_of(session, fleet).url
    is_chosen = dict(session.settings.origins)["target"] == "command line"
    return str(session.settings.target) if is_chosen else ""


def _go_on(chosen: _Choice, store: ConversationStore, model: str, *, here: bool, plain: bool) -> int:
    from ..prompt.app import PromptOptions, run_prompt

    found: list[ConversationSummary] = []

    async def choose() -> int:
        found.append(await chosen.find(store))
        await store.check_free(found[0].session_id)  # before a connection is opened
        return 0

    if code := _blocking(choose):
        raise click.exceptions.Exit(code)  # interrupted
    summary = found[0]
    where = _where(chosen, summary, here=here)
    model = model or _model_of(where.session, summary)
    return run_prompt(where.session, PromptOptions(model, summary.session_id, plain=plain, here=here), where)


def _where(chosen: _Choice, summary: ConversationSummary, *, here: bool) -> SessionTarget:
    """Return the target or the hosts of the conversation, or those of the command line.

    Raises:
        ConfigError: Those of the conversation do not exist any more, or those of the command line are others.
    """
    from ..conversation import check_target, choices_for, has_target, works_on_many_hosts

    invocation, fleet = chosen.invocation, chosen.fleet
    given, on_hosts = invocation.choices, fleet.used_by(invocation)
    invocation.choices = choices_for(summary, given, here=here, on_hosts=on_hosts)
    session = _session_for(chosen.ctx, summary)
    if works_on_many_hosts(summary) and not (here or on_hosts or has_target(given)):
        return stored_target(session, summary)
    where = target_of(session, fleet)
    check_target(summary, where.url, session.settings.tmux, here=here)
    return where


def _session_for(ctx: click.Context, summary: ConversationSummary) -> CliSession:
    """Return the session with the choices of the command line and of the conversation.

    Raises:
        ConfigError: The target does not exist any more, or the settings are invalid.
    """
    try:
        return session_of(ctx)
    except HarnessError as error:
        what = f"conversation {summary.session_id} belongs to {summary.target}: {error.message}"
        hint = "; ".join(filter(None, (error.hint, "give another target and --allow-other-target to resume it there")))
        raise ConfigError(what, hint=hint) from error


def _model_of(session: CliSession, summary: ConversationSummary) -> str:
    """Return the name of the conversation's model profile; empty, for the default, if it does not exist any more."""
    from ...agent.models import load_models
    from ..conversation import stored_model

    if os.environ.get("HARNESS_MODEL") or not summary.model:
        return ""
    profile, why = stored_model(load_models(session.invocation.choices), summary)
    if why:
        note(why)
    return profile.name if profile is not None else ""


# -- list, rename and delete


async def _list(store: ConversationStore, ctx: click.Context, fleet: FleetOptions, limit: int) -> int:
    target, listed = _target(ctx, fleet), await store.listed()
    found = [one for one in listed.found if target in ("", one.target)]
    for damaged in listed.damaged:
        warn(str(damaged), as_json_document=invocation_of(ctx).json)
    if invocation_of(ctx).json:
        print_json([_readable(one) for one in found[:limit]])
    elif not found and not listed.damaged:
        note(NONE)
    else:
        table(("ID", "CHANGED", "TARGET", "TMUX", "MODEL", "TURNS", "WHAT"), [_row(one) for one in found[:limit]])
        if len(found) > limit:
            note(f"{len(found) - limit} older conversations are not shown (-n {len(found)})")
    return 0


def _row(one: ConversationSummary) -> tuple[str, ...]:
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.changed))
    what = f"{one.name}: {one.title}" if one.name else one.title
    short = what if len(what) <= SHOWN else f"{what[: SHOWN - 3]}..."
    state = " (unfinished)" if one.unfinished else ""
    return one.session_id, changed, one.target, one.tmux or "-", one.model, str(one.turns), f"{short}{state}"


async def _rename(store: ConversationStore, chosen: _Choice, name: str) -> int:
    summary = await store.rename((await chosen.find(store)).session_id, name)
    _say(chosen.invocation, "renamed", summary)
    return 0


async def _delete(store: ConversationStore, chosen: _Choice) -> int:
    from ...agent.storage import ConversationCorrupt

    try:
        summary = await chosen.find(store)
    except ConversationCorrupt as damaged:
        if not chosen.session_id:
            raise
        await store.delete(damaged.session_id)
        _say_id(chosen.invocation, "deleted", damaged.session_id)
        return 0
    await store.delete(summary.session_id)
    _say(chosen.invocation, "deleted", summary)
    return 0


def _say_id(invocation: Invocation, what: str, session_id: str) -> None:
    if invocation.json:
        print_json({what: {"session_id": session_id}})
    else:
        click.echo(f"{what}: {session_id}")


def _say(invocation: Invocation, what: str, summary: ConversationSummary) -> None:
    if invocation.json:
        print_json({what: _readable(summary)})
    else:
        click.echo(f"{what}: {summary.session_id} {readable(summary.name or summary.title)}".rstrip())


def _readable(summary: ConversationSummary) -> ConversationSummary:
    return replace(summary, title=readable(summary.title), name=readable(summary.name))


# -- files


async def _export(store: ConversationStore, chosen: _Choice, path: str) -> int:
    from anyio import to_thread

    from ..conversation import write_new

    summary = await chosen.find(store)
    document = await store.exported(summary.session_id)
    if path == "-":
        click.echo(document)
        return 0
    await to_thread.run_sync(write_new, Path(path), document)  # Ctrl-C waits for the thread, so no write happens later
    _say(chosen.invocation, "exported", summary)
    return 0


async def _import(store: ConversationStore, invocation: Invocation, path: str) -> int:
    _say(invocation, "imported", await store.imported(_read(path), check=_message_check()))
    return 0


def _message_check() -> Callable[[str], object] | None:
    """Return a function that rejects invalid messages; None if the library that validates them is not installed."""
    try:
        from ...agent.messages.history import loaded
    except ImportError:
        return None
    return loaded


def _read(path: str) -> str:
    try:
        data = read_stdin() if path == "-" else _file(path)
    except OSError as error:
        raise HarnessError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise HarnessError(
            f"{path} is not a conversation document: byte {error.start + 1} is not valid UTF-8"
        ) from None


def _file(path: str) -> bytes:
    """Return a file's bytes, without blocking on a pipe that has no writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise HarnessError(f"{path} is not a regular file", hint="'-' reads standard input")
        if info.st_size > IMPORT_LIMIT:
            raise HarnessError(f"{path} is too large for a conversation: {info.st_size} bytes")
        return file.read()
