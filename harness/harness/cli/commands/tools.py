"""``harness tools``: list the tools that models are offered, print their schemas, call one as a model would."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ...context import ExecutionContext
from ...errors import HarnessError
from ...extras import install_command
from ..completed_names import complete_tool
from ..exits import FAILED, HARNESS_FAILED, REFUSED
from ..options import RenamedOption, command, group
from ..output import note, print_json, read_stdin, readable, report, table, warn
from ..runtime import CliSession, TargetRequirements, on_target, session_of
from ..streams import Interruption, StreamWriter
from .servers import recorded_tools, servers_of, with_recorded, with_servers

if TYPE_CHECKING:
    from ...toolkit import CallOutcome, Registry, Tool
    from ...toolkit.assembly import ToolkitSettings
    from ...toolkit.catalog import Catalogue
    from ...toolkit.permissions.approver import Approver
    from ...toolkit.session.questions import Questioner

__all__ = ["tools"]

SHOWN = 60
"""Maximum number of characters of a description in the list."""


class ProviderName(click.ParamType[str]):
    """The name of a provider; the toolkit, which knows the names, is imported on use."""

    name = "provider"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from ...toolkit.providers import PROVIDERS

        if value not in PROVIDERS:
            self.fail(f"{value!r} is not one of {', '.join(PROVIDERS)}", param, ctx)
        return str(value)


def _catalogue(session: CliSession) -> tuple[ToolkitSettings, Catalogue]:
    from ...toolkit.assembly import load_toolkit_settings
    from ...toolkit.catalog import load_catalogue

    settings = load_toolkit_settings(session.invocation.choices)
    catalogue = load_catalogue(settings.tools)
    for problem in catalogue.problems:
        warn(problem, as_json_document=session.json)
    return settings, catalogue


def _reached(settings: ToolkitSettings, catalogue: Catalogue, profile: str | None) -> Registry:
    """Return the tools that can be called: all known ones, or those of the tool profile."""
    from ...toolkit.catalog import NO_PROFILE, offered

    name = settings.tools.tool_profile if profile is None else profile
    return catalogue.known if name in ("", NO_PROFILE) else offered(settings.tools, catalogue.known, name)


PROFILE = click.option(
    "--tool-profile",
    "profile",
    cls=RenamedOption,
    old="--profile",
    metavar="NAME",
    help="Use this tool profile; none: harness's own names.",
)


# -- list


@command("list")
@click.option("--pack", "packs", multiple=True, metavar="NAME", help="List only the tools of this pack; repeatable.")
@click.option("--read-only", is_flag=True, help="List only read-only tools.")
@click.option("--all", "every", is_flag=True, help="Include opt-in tools.")
@PROFILE
@click.option("--check", is_flag=True, help="Check which required programs the target lacks.")
@click.pass_context
def list_tools(
    ctx: click.Context, packs: tuple[str, ...], read_only: bool, every: bool, profile: str | None, check: bool
) -> int:
    """List the tools that models are offered: builtin ones, and those of packages, tool files and MCP servers."""
    session = session_of(ctx)
    if every and profile is not None:
        raise click.UsageError("--all and --tool-profile contradict each other: a profile has no opt-in tools")
    settings, catalogue = _catalogue(session)
    listed = _listed(settings, catalogue, packs, profile, every=every, read_only=read_only)
    if not packs:
        listed = _with_servers_tools(session, listed, read_only=read_only)
    if not check:
        _show(session, listed, None)
        return 0

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        missing = await listed.registry.missing_requirements(target)
        _show(session, listed, {name: list(programs) for name, programs in missing.items()})

    return on_target(session, work, TargetRequirements(create=True))


@dataclass(frozen=True, slots=True)
class _Listed:
    """The listed tools, the names of the offered ones, and the number and packs of opt-in tools that are not listed."""

    registry: Registry
    offered: frozenset[str]
    others: tuple[str, ...] = ()
    number: int = 0
    faced: bool = False
    packs: bool = False
    notes: tuple[str, ...] = ()


def _listed(
    settings: ToolkitSettings,
    catalogue: Catalogue,
    packs: tuple[str, ...],
    profile: str | None,
    *,
    every: bool,
    read_only: bool,
) -> _Listed:
    from ...toolkit.catalog import offered as offered_of

    shown = catalogue.registry if profile is None else offered_of(settings.tools, catalogue.known, profile)
    faced = shown.own is not shown and not every
    whole = catalogue.known if every or (packs and not faced) else shown
    chosen = whole.packs(*packs) if packs else whole
    chosen = chosen.read_only() if read_only else chosen
    offered = frozenset(tool.name for tool in shown.list())
    rest = [] if faced or packs or every else [tool for tool in catalogue.known.list() if tool.name not in offered]
    names = tuple(sorted({pack for tool in rest for pack in tool.traits.packs}))
    wanted = whole if every or packs else _wanted(settings, catalogue, profile)
    return _Listed(chosen, offered, names, len(rest), faced, every, _not_installed(wanted))


def _with_servers_tools(session: CliSession, listed: _Listed, *, read_only: bool) -> _Listed:
    """Return the list with the recorded tools of MCP servers, by their names for models, without starting a server."""
    found, unlisted = recorded_tools(session)
    servers = found.read_only() if read_only else found
    registry, notes = listed.registry.filter(lambda tool: True), list(listed.notes)
    for source in servers.sources:
        tools = [tool for tool in servers.list() if servers.source_of(tool.name) == source]
        try:
            registry.add_source(source, tools)
        except ValueError as error:
            notes.append(f"the tools of server {source} are not offered: {error}")
    if unlisted:
        what = f"server {unlisted[0]}" if len(unlisted) == 1 else f"servers {', '.join(unlisted)}"
        notes.append(f"the tools of {what} are not known yet; 'harness servers list --check' reads them")
    offered = listed.offered | {tool.name for tool in servers.list()}
    return replace(listed, registry=registry, offered=offered, notes=tuple(notes))


def _wanted(settings: ToolkitSettings, catalogue: Catalogue, profile: str | None) -> Registry:
    """Return the tools that would be offered if every extra were installed."""
    from ...toolkit.catalog import NO_PROFILE
    from ...toolkit.tool_profiles import load_profile

    name = settings.tools.tool_profile if profile is None else profile
    none = name in ("", NO_PROFILE)
    return settings.tools.offered(catalogue.known) if none else load_profile(name).over(catalogue.known)


def _show(session: CliSession, listed: _Listed, missing: dict[str, list[str]] | None) -> None:
    registry = listed.registry
    if session.json:
        print_json([_described(listed, tool, missing) for tool in registry.list()])
        return
    headers = (
        "NAME",
        *(("OWN NAME",) if listed.faced else ()),
        *(("PACK",) if listed.packs else ()),
        *("CATEGORY", "CHANGES", "NEEDS" if missing is None else "LACKS", "SOURCE", "DESCRIPTION"),
    )
    table(headers, [_row(listed, tool, missing) for tool in registry.list()])
    for line in listed.notes:
        note(line)
    if listed.number:
        packs = f" (pack {', '.join(listed.others)})" if listed.others else ""
        note(f"{listed.number} more tools are opt-in{packs}; --all lists them")


def _not_installed(wanted: Registry) -> tuple[str, ...]:
    """Return one sentence for each missing extra that some of these tools need."""
    from ...toolkit.registry import missing_libraries

    waiting: dict[str, dict[str, tuple[str, ...]]] = {}
    for tool in wanted.list():
        if missing := missing_libraries(tool):
            waiting.setdefault(tool.traits.extra, {})[tool.name] = missing
    return tuple(_needed(extra, tools) for extra, tools in waiting.items())


def _needed(extra: str, tools: dict[str, tuple[str, ...]]) -> str:
    modules = ", ".join(dict.fromkeys(module for missing in tools.values() for module in missing))
    what = "is not offered: it needs" if len(tools) == 1 else "are not offered: they need"
    install = f"; {install_command(extra)}" if extra else ""
    return f"{', '.join(tools)} {what} modules that are not installed ({modules}){install}"


def _row(listed: _Listed, tool: Tool[Any], missing: dict[str, list[str]] | None) -> tuple[str, ...]:
    traits = tool.traits
    programs = traits.requires if missing is None else missing.get(tool.name, ())
    first = tool.description.partition(". ")[0].strip()
    short = first if len(first) <= SHOWN else f"{first[: SHOWN - 3]}..."
    return (
        tool.name,
        *((tool.own.name,) if listed.faced else ()),
        *((" ".join(traits.packs),) if listed.packs else ()),
        str(traits.category),
        "yes" if traits.mutating else "no",
        " ".join(programs),
        listed.registry.source_of(tool.name) or "",
        short,
    )


def _described(listed: _Listed, tool: Tool[Any], missing: dict[str, list[str]] | None) -> dict[str, object]:
    from ...toolkit.registry import missing_libraries

    traits = tool.traits
    facts = {
        "name": tool.name,
        "own_name": tool.own.name,
        "offered": tool.name in listed.offered,
        "description": tool.description,
        "category": str(traits.category),
        "mutating": traits.mutating,
        "parallelizable": traits.parallelizable,
        "cacheable": traits.cacheable,
        "requires": traits.requires,
        "missing_libraries": missing_libraries(tool),
        "aliases": traits.aliases,
        "packs": traits.packs,
        "source": listed.registry.source_of(tool.name),
    }
    return facts if missing is None else {**facts, "missing": missing.get(tool.name, [])}


# -- schema


@command("schema")
@click.option("--provider", type=ProviderName(), help="Print the schema in the format of this provider's API.")
@PROFILE
@click.argument("name", metavar="NAME|all", shell_complete=complete_tool)
@click.pass_context
def schema(ctx: click.Context, provider: str | None, profile: str | None, name: str) -> int:
    """Print the schema that a model gets of one tool, or of all offered tools, as JSON."""
    from ...toolkit.catalog import offered

    session = session_of(ctx)
    settings, catalogue = _catalogue(session)
    if name == "all":
        shown = catalogue.registry if profile is None else offered(settings.tools, catalogue.known, profile)
        chosen = with_recorded(session, shown)
    else:
        chosen = with_recorded(session, _reached(settings, catalogue, profile)).include(name)
    if provider is None:
        definitions: list[Any] = list(chosen.definitions())
    else:
        from ...toolkit.providers import provider as provider_of

        definitions = list(provider_of(provider).definitions(chosen.list()))
    print_json(definitions if name == "all" or len(definitions) != 1 else definitions[0])
    return 0


# -- call

CALL_HELP = """Call a tool once, as a model would, with policy, audit log and redaction.

ARGUMENTS are a JSON object; - reads them from standard input, to keep them out of the process list.

A call that requires approval asks at the terminal; without a terminal it is denied. --yes approves this call in
advance; it does not override a denial by policy.

Exit codes: 0 success, 1 the result is an error, 125 the call could not run or its outcome is unknown, 126 denied.
Ctrl-C cancels the call.
"""


@command("call", help=CALL_HELP)
@click.option("--yes", is_flag=True, help="Approve the call if it requires approval.")
@click.option(
    "--assume-read",
    "seen",
    cls=RenamedOption,
    old="--seen",
    multiple=True,
    metavar="PATH",
    help="Treat this file as already read (tools only change files that were read); repeatable.",
)
@PROFILE
@click.argument("name", shell_complete=complete_tool)
@click.argument("arguments", metavar="[ARGUMENTS]", default="{}")
@click.pass_context
def call(ctx: click.Context, yes: bool, seen: tuple[str, ...], profile: str | None, name: str, arguments: str) -> int:
    from ...toolkit import ToolCall
    from ...toolkit.assembly import open_toolkit
    from ...toolkit.events import InternalFailure

    session = session_of(ctx)
    session.invocation.passes_codes = True
    settings, catalogue = _catalogue(session)
    registry = _reached(settings, catalogue, profile)
    remote = () if registry.get(name) is not None else servers_of(session, tool=name)
    if not remote and registry.get(name) is None:
        with_recorded(session, registry).lookup(name)  # raises an error that suggests the nearest name
    text = read_stdin().decode("utf-8", "replace") if arguments == "-" else arguments

    async def work(target: ExecutionContext, interruption: Interruption) -> int:
        variables = dict(session.settings.config.env)
        async with (
            with_servers(session, remote, registry),
            open_toolkit(settings, catalogue=catalogue, variables=variables) as toolkit,
            toolkit.executor(
                target,
                approver=_approver(session, yes=yes),
                questioner=_questioner(session),
                registry=registry,
            ) as executor,
        ):
            tool = registry.lookup(name)
            await _need(registry.include(tool.name), target)
            for path in seen:
                known = await target.read_file(path, limit=0)
                executor.reads.record_read(known.path, known.version, whole=True)
            with executor.events.subscribe() as events:
                outcome = await executor.call(ToolCall(tool.name, text))
                failures = [event.message for event in events.drain() if isinstance(event, InternalFailure)]
        if outcome.error is None:  # else _finish reports the error
            note(*failures)
        return _finish(session, outcome, str(target.target), interruption)

    return on_target(session, work, TargetRequirements(create=True))


def _approver(session: CliSession, *, yes: bool) -> Approver | None:
    from ..asking import PreApproved, TerminalApprover

    if yes:
        return PreApproved()
    at_terminal = TerminalApprover()
    return at_terminal if not session.invocation.batch and at_terminal.usable() else None


def _questioner(session: CliSession) -> Questioner | None:
    from ..asking import TerminalQuestioner

    return None if session.invocation.batch else TerminalQuestioner()


async def _need(registry: Registry, target: ExecutionContext) -> None:
    for name, programs in (await registry.missing_requirements(target)).items():
        hint = "use --tmux" if programs == ("tmux",) else "install it on the target"
        raise HarnessError(f"{name} needs {', '.join(programs)}", target=target.target, hint=hint)


def _code(outcome: CallOutcome) -> int:
    from ...toolkit import CallStatus

    if outcome.status is CallStatus.DENIED:
        return REFUSED
    if outcome.error is not None or outcome.status is CallStatus.UNKNOWN:
        return HARNESS_FAILED
    return FAILED if outcome.result.is_error else 0


def _finish(session: CliSession, outcome: CallOutcome, target: str, interruption: Interruption) -> int:
    code = _code(outcome)
    if session.json:
        print_json(_outcome_json(outcome, target))
    elif code == REFUSED:
        note(*outcome.result.text.splitlines())
    elif outcome.error is not None:
        report(outcome.error, as_json_document=False)
    else:
        text = _text(outcome)
        if os.isatty(1):  # no escape sequence of a tool result may reach the terminal
            text = "\n".join(readable(line) for line in text.split("\n"))
        ending = "" if text.endswith("\n") or not text else "\n"
        StreamWriter(1, interruption).write((text + ending).encode("utf-8", "surrogateescape"))
    return code


def _text(outcome: CallOutcome) -> str:
    from ...toolkit import Text

    blocks = outcome.result.content
    return "\n".join(
        block.text if isinstance(block, Text) else f"[{readable(block.media_type)}, {len(block.data)} bytes]"
        for block in blocks
    )


def _outcome_json(outcome: CallOutcome, target: str) -> dict[str, object]:
    result = outcome.result
    return {
        "tool": outcome.call.name,
        "call_id": outcome.call.call_id,
        "target": target,
        "status": str(outcome.status),
        "is_error": result.is_error,
        "error_code": result.error_code,
        "text": _text(outcome),
        "data": result.data,
        "metadata": dict(result.metadata),
        "seconds": round(outcome.seconds, 6),
    }


tools = group(
    "tools",
    "list",
    (list_tools, schema, call),
    "List the tools that models are offered, print their schemas, call one.",
)
