"""``harness permissions``: list, add, remove and test permission rules."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import click

from ...context import ExecutionContext
from ...errors import ConfigError, HarnessError
from ..completed_names import complete_pattern
from ..exits import FAILED, REFUSED
from ..options import RenamedOption, command, group
from ..output import note, print_json, readable, table
from ..runtime import PLAIN, CliSession, on_target, session_of
from ..streams import Interruption
from .servers import recorded_tools, servers_of, with_recorded

if TYPE_CHECKING:
    from ...toolkit import Registry, ToolContext
    from ...toolkit.contract import PermissionRequest
    from ...toolkit.permissions.decision import Decision
    from ...toolkit.permissions.policy import RulePolicy
    from ...toolkit.permissions.rules.rule import Action, Rule
    from ...toolkit.permissions.rules.settings import PermissionSettings
    from ...toolkit.values import SubjectKind

__all__ = [
    "PermissionCase",
    "permissions",
    "read_cases",
]


# -- The commands that ``harness permissions test -`` reads from standard input, one JSON value per line.


MAX_LINE_BYTES = 1 << 20
_HALF_CHARACTER = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates other than those by which ``surrogateescape`` represents bytes."""
DECISIONS = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class PermissionCase:
    """A command and its expected decision; empty accepts any decision."""

    command: str
    expected: str = ""


async def read_cases() -> AsyncIterator[PermissionCase]:
    """Read cases until the end of standard input, each as soon as its line is complete.

    Raises:
        HarnessError: Standard input is closed, or a line is invalid.
    """
    if sys.stdin is None:
        raise HarnessError("standard input is closed", hint="give it a file or a pipe")
    number = 0
    async for line in _lines(sys.stdin.fileno()):
        number += 1
        if line.strip():
            yield _case(line, number)


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    held = b""
    while data := await _read(descriptor):
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            yield line
        if len(held) > MAX_LINE_BYTES:
            raise HarnessError(f"a line of standard input is longer than {MAX_LINE_BYTES} bytes")
    if held:
        yield held


async def _read(descriptor: int) -> bytes:
    with suppress(PermissionError):  # epoll refuses regular files, which are always ready
        await anyio.wait_readable(descriptor)
    return os.read(descriptor, 1 << 16)


def _case(line: bytes, number: int) -> PermissionCase:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _not_a_case(number, "is not JSON") from None
    command = value.get("command") if isinstance(value, dict) else value
    if isinstance(command, str) and _HALF_CHARACTER.search(command):
        raise _not_a_case(number, "contains an unpaired surrogate, which is not valid text")
    if isinstance(value, str):
        return PermissionCase(value)
    if not isinstance(value, dict) or not isinstance(command, str):
        raise _not_a_case(number, "is neither a JSON string nor an object with 'command'")
    expected = value.get("decision", "")
    if expected and expected not in DECISIONS:
        raise _not_a_case(number, f"expects a decision other than {', '.join(DECISIONS)}")
    return PermissionCase(command, expected)


def _not_a_case(number: int, problem: str) -> HarnessError:
    return HarnessError(f"line {number} of standard input {problem}", hint='write one JSON string per line: "df -h"')


# -- ``harness permissions``.


# -- list


@command("list")
@click.pass_context
def list_rules(ctx: click.Context) -> None:
    """List the mode and the rules in order of precedence."""
    from ...toolkit.permissions.rules.store import RuleFile, rule_file_path

    session = session_of(ctx)
    settings = _settings(session)
    stored = RuleFile(rule_file_path()).load()
    rules = (*stored.rules, *settings.rules)
    if session.json:
        file = {"file": str(rule_file_path()), "failure": stored.failure}
        print_json(
            {
                "mode": settings.mode.value,
                "only": settings.allowed_tools,
                **file,
                "rules": [_rule(one) for one in rules],
            }
        )
        return
    only = f"; only these tools: {', '.join(settings.allowed_tools)}" if settings.allowed_tools else ""
    click.echo(f"mode: {settings.mode.value}{only}")
    if stored.failure:
        note(f"approval is required for every call: {stored.failure}")
    elif not rules:
        note("no user rules; 'harness permissions add' adds one")
    table(("ID", "ACTION", "TARGET", "TOOL", "ARGUMENT", "FROM"), [_row(rule) for rule in rules])


def _row(rule: Rule) -> tuple[str, ...]:
    argument = "(any)" if rule.argument is None else rule.argument
    where = f" (in {rule.cwd})" if rule.cwd else ""
    kind = {"glob": " (pattern)", "below": " (and below)"}.get(rule.match, "") if rule.argument is not None else ""
    target = rule.target if rule.hosts is None else f"{rule.target} (hosts {rule.hosts})"
    return rule.rule_id, rule.action.value, target, rule.tool, f"{argument}{kind}{where}", rule.origin


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.rule_id,
        "action": rule.action.value,
        "target": rule.target,
        "tool": rule.tool,
        "argument": rule.argument,
        "match": rule.match.value,
        "cwd": rule.cwd,
        "hosts": rule.hosts,
        "origin": rule.origin,
    }


def _settings(session: CliSession) -> PermissionSettings:
    from ...settings import load_tables
    from ...toolkit.permissions.rules.settings import settings_of

    return settings_of(load_tables("permissions", session.invocation.choices))


# -- add, remove


@command("add")
@click.option("--allow", is_flag=True, help="Allow without asking.")
@click.option("--deny", is_flag=True, help="Always deny, even if another rule allows it.")
@click.option("--ask", is_flag=True, help="Require approval each time.")
@click.option("--tool", default="run_shell", metavar="NAME", show_default=True, help="Tool of the rule; '*' is any.")
@click.option(
    "--allow-missing",
    "is_absent",
    cls=RenamedOption,
    old="--absent",
    is_flag=True,
    help="Add the rule even if tool NAME is not installed.",
)
@click.option("--on", "where", metavar="TARGET", help="Target URL or pattern of the rule (default: the chosen target).")
@click.option(
    "--hosts",
    metavar="PATTERN",
    shell_complete=complete_pattern,
    help="Apply the rule to these hosts only: names, ranges and groups, '@db,!db1'.",
)
@click.option("--glob", "is_glob", is_flag=True, help="Treat ARGUMENT as a pattern, not as exact text.")
@click.option("--any", "is_any", is_flag=True, help="Match any argument.")
@click.argument("argument", required=False)
@click.pass_context
def add_rule(
    ctx: click.Context,
    /,
    tool: str,
    where: str | None,
    hosts: str | None,
    is_glob: bool,
    is_any: bool,
    is_absent: bool,
    argument: str | None,
    **actions: bool,
) -> None:
    """Add a user rule for ARGUMENT: the exact command, path or URL.

    With --hosts, the rule applies to calls on each of these hosts, on one target and on many, and its target is any.
    """
    from ...toolkit.permissions.rules.rule import ANYTHING, Action, Match, Rule
    from ...toolkit.permissions.rules.settings import check_hosts
    from ...toolkit.permissions.rules.store import RuleFile, rule_file_path

    action = _one_of(ctx, actions)
    if action is None:
        ctx.fail("missing action: give --allow, --deny or --ask")
    if (argument is None) is not is_any:
        ctx.fail("give either ARGUMENT or --any")
    session = session_of(ctx)
    match = Match.GLOB if is_glob else Match.LITERAL
    own = tool if is_absent else _own_name(session, tool)
    if hosts is not None:
        check_hosts(hosts, "--hosts")
    target = where or (str(session.settings.target) if hosts is None else ANYTHING)
    rule = Rule(Action(action), target, own, argument, match, hosts=hosts)
    RuleFile(rule_file_path()).add([rule])
    print_json({"added": _rule(rule)}) if session.json else click.echo(f"{rule.rule_id}  {readable(str(rule))}")


def _one_of(ctx: click.Context, flags: Mapping[str, bool]) -> str | None:
    """Return the name of the flag that was given, or None; two flags are a usage error."""
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        ctx.fail(f"give only one of {' and '.join(f'--{name}' for name in given)}")
    return given[0] if given else None


def _registry(session: CliSession) -> Registry:
    """Return the installed tools, without those of MCP servers."""
    from ...toolkit.assembly import load_toolkit_settings
    from ...toolkit.catalog import load_catalogue

    return load_catalogue(load_toolkit_settings(session.invocation.choices).tools).known


def _own_name(session: CliSession, name: str) -> str:
    """Return a tool's own name from any of its names, including those of profiles.

    Patterns and names that an MCP server's tool may have are returned unchanged.

    Raises:
        HarnessError: No tool has the name or matches the pattern, and no server's tool may.
    """
    from ...patterns.wildcards import has_wildcard, matches

    try:
        registry = _registry(session)
        if tool := _tool_of(registry, name):
            return tool
        fits = any(matches(name, tool.name) for tool in registry.list())
        if fits or (servers_of(session) if has_wildcard(name) else _may_be_a_servers(session, name)):
            return name
        problem = with_recorded(session, registry).unknown(name).text
    except ConfigError:  # invalid settings of tools must not keep a rule from being added
        return name
    raise HarnessError(f"{problem}; no rule was added", hint="--allow-missing adds it for a tool that is not installed")


def _may_be_a_servers(session: CliSession, name: str) -> bool:
    """Return whether a server has the tool, or may have it because its tools have never been listed."""
    recorded, unlisted = recorded_tools(session)
    return recorded.get(name) is not None or any(name.startswith(f"{server}_") for server in unlisted)


def _tool_of(registry: Registry, name: str) -> str:
    """Return the own name of an installed tool; empty if it is not installed."""
    from ...toolkit.tool_profiles import face_names

    known = registry.get(name)
    if known is not None:
        return known.name
    own = face_names().get(name, "")
    return own if own and registry.get(own) is not None else ""


@command("remove")
@click.argument("rule_id", metavar="ID")
@click.pass_context
def remove_rule(ctx: click.Context, rule_id: str) -> None:
    """Remove a user rule, by the ID that 'list' shows. Rules of settings files are removed there."""
    from ...toolkit.permissions.rules.store import RuleFile, rule_file_path

    session = session_of(ctx)
    rule = RuleFile(rule_file_path()).remove(rule_id)
    if rule is None:
        raise _no_such_rule(rule_id, _settings(session))
    print_json({"removed": _rule(rule)}) if session.json else click.echo(readable(str(rule)))


def _no_such_rule(rule_id: str, settings: PermissionSettings) -> HarnessError:
    elsewhere = next((rule.origin for rule in settings.rules if rule.rule_id == rule_id), "")
    if elsewhere:
        return ConfigError(f"rule {rule_id} is set in {elsewhere}", hint="remove it there")
    return HarnessError(f"unknown rule {rule_id!r}", hint="'harness permissions list' lists them")


# -- test


@command("test")
@click.option("--tool", metavar="NAME", help="Test a call of this tool (default: by the kind of SUBJECT).")
@click.option("--read", is_flag=True, help="Treat SUBJECT as a path to read.")
@click.option("--write", is_flag=True, help="Treat SUBJECT as a path to write.")
@click.option("--url", is_flag=True, help="Treat SUBJECT as a URL to fetch.")
@click.option("--cwd", metavar="DIR", help="Assume this working directory.")
@click.argument("subject")
@click.pass_context
def test_rule(ctx: click.Context, /, tool: str | None, cwd: str | None, subject: str, **kinds: bool) -> int:
    """Print the decision about SUBJECT, a command, on the target, its rule and its reason. SUBJECT does not run.

    The exit code is 0 if it would run, 1 if approval would be required, and 126 if it would be denied.

    With - as SUBJECT, read them from standard input: one JSON string per line, or {"command": ..., "decision": ...}.
    One JSON line is printed for each. If a decision differs from the expected one, the line shows the expected one and
    the exit code is 1, otherwise 0.
    """
    session, kind = session_of(ctx), _kind(_one_of(ctx, kinds))
    registry = _registry(session)
    known = registry.get(_tool_of(registry, tool)) if tool else None
    if tool and known is None and not _may_be_a_servers(session, tool):
        with_recorded(session, registry).lookup(tool)  # raises an error that suggests the nearest name

    async def work(execution: ExecutionContext, interruption: Interruption) -> int:
        name, policy, context = known.name if known else tool, _policy(session), _context(execution, registry)

        async def decided(text: str) -> Decision:
            return await policy.explain(_request(kind, name, text, cwd, execution), context)

        if subject == "-":
            return await _decide_each(decided)
        decision = await decided(subject)
        if session.json:
            print_json(_decision(decision))
        else:
            _print_decision(decision)
        return {"allow": 0, "ask": FAILED}.get(decision.action, REFUSED)

    return on_target(session, work, PLAIN)


def _kind(name: str | None) -> SubjectKind:
    known: dict[str, SubjectKind] = {"read": "read", "write": "write", "url": "url"}
    return known.get(name or "", "command")


def _policy(session: CliSession) -> RulePolicy:
    from ...toolkit.permissions.policy import RulePolicy
    from ...toolkit.permissions.rules.store import RuleFile, rule_file_path

    return RulePolicy(_settings(session), file=RuleFile(rule_file_path()))


async def _decide_each(decided: Callable[[str], Awaitable[Decision]]) -> int:
    """Print one JSON line for each case of standard input; return 1 if a decision differs from the expected one."""

    code = 0
    async for case in read_cases():
        decision = await decided(case.command)
        differs = case.expected not in ("", decision.action.value)
        print_json({"command": case.command, **_decision(decision), **({"expected": case.expected} if differs else {})})
        code = FAILED if differs else code
    return code


def _request(
    kind: SubjectKind, tool: str | None, subject: str, cwd: str | None, execution: ExecutionContext
) -> PermissionRequest:
    """Return the request for a call of a tool of that kind."""
    from ...toolkit import Arguments, Category, FunctionTool, ToolResult, Traits
    from ...toolkit.contract import PermissionRequest
    from ...toolkit.values import Subject, ToolCall

    names = {"read": "read_file", "write": "write_file", "url": "fetch_url"}
    categories = {"read": Category.FILE_READ, "write": Category.FILE_WRITE, "url": Category.NETWORK}
    traits = Traits(categories.get(kind, Category.SHELL), mutating=kind in ("command", "write"))

    async def nothing(args: Arguments, ctx: ToolContext) -> ToolResult:
        return ToolResult.of("")

    name = tool or names.get(kind, "run_shell")
    stand_in = FunctionTool(name, "", Arguments, traits, nothing)
    subjects = (Subject(kind, subject, cwd),)
    return PermissionRequest(ToolCall(name), stand_in, subjects, traits.mutating, traits.mutating, execution.identity)


def _context(execution: ExecutionContext, registry: Registry) -> ToolContext:
    from ...toolkit import ToolContext
    from ...toolkit.events import EventBus
    from ...toolkit.redaction.redactor import PatternRedactor
    from ...toolkit.session.file_versions import ReadTracker

    return ToolContext(execution, registry, EventBus(), ReadTracker().of("", execution), PatternRedactor())


def _decision(decision: Decision) -> dict[str, object]:
    rule = _rule(decision.rule) if decision.rule else None
    return {
        "decision": decision.action.value,
        "reason": decision.reason,
        "step": decision.step.value,
        "about": decision.about,
        "rule": rule,
    }


def _print_decision(decision: Decision) -> None:
    verbs: dict[Action, str] = dict(zip(type(decision.action), ("it runs", "it is denied", "it is asked"), strict=True))
    click.echo(f"{verbs[decision.action]}: {readable(decision.reason)}")
    click.echo(f"decided by: {readable(decision.by)}")
    if decision.about:
        click.echo(f"about: {readable(decision.about)}")


permissions = group(
    "permissions",
    "list",
    (list_rules, add_rule, remove_rule, test_rule),
    "List, add, remove and test permission rules.",
)
