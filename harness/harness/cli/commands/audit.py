"""``harness audit``: show, verify, export and resolve the calls in the audit log."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import click

from ...command import parse_duration
from ...context import ExecutionContext
from ...errors import HarnessError
from ..exits import FAILED
from ..options import RenamedOption, command, group, invocation_of
from ..output import note, print_json, readable, table
from ..redaction import session_redactor
from ..runtime import PLAIN, CliSession, on_target, session_of
from ..streams import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...toolkit.audit import AuditCall, ChainHead, Filters, Report, UnresolvedCall

__all__ = ["audit"]

STATUSES = ("ok", "error", "denied", "cancelled", "timeout", "unknown", "running")
TELLING = ("command", "cmd", "path", "file_path", "file", "url", "literal_text")
"""Arguments that describe a call, by their names in any tool profile, in order of preference."""
SHOWN = 60
"""Maximum number of characters of a call in a list."""
NONE = "this machine has no audit log yet"


class TimestampParam(click.ParamType[float]):
    """A time in the past: how long ago, or a date, in local time unless it has a UTC offset."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return time.time() - parse_duration(str(value))
        except ValueError:
            pass
        try:
            return datetime.fromisoformat(str(value)).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: write 2h, 3d, 2026-01-31 or 2026-01-31T12:30", param, ctx)


class AuditHeadParam(click.ParamType["ChainHead"]):
    """A chain head, as printed by ``harness audit verify``."""

    name = "head"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> ChainHead:
        from ...toolkit.audit import ChainHead

        try:
            return ChainHead.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _filters(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Add the options that filter calls; --target, --ssh and --container filter them, too."""
    options = (
        click.option(
            "--since", type=TimestampParam(), metavar="TIME", help="Only calls since 2h or 3d ago, or since a date."
        ),
        click.option("--until", type=TimestampParam(), metavar="TIME", help="Only calls before this time."),
        click.option("--tool", default="", metavar="NAME", help="Only calls of this tool."),
        click.option("--status", type=click.Choice(STATUSES), default=None, help="Only calls with this status."),
        click.option("--session", default="", metavar="ID", help="Only calls of this session."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _chosen(session: CliSession, options: dict[str, Any]) -> Filters:
    from ...toolkit.audit import Filters

    is_chosen = dict(session.settings.origins)["target"] == "command line"
    target = str(session.settings.target) if is_chosen else ""
    return Filters(**(options | {"status": options["status"] or ""}), target=target)


# -- show, export, verify


@command("show")
@click.argument("number", type=int, required=False)
@click.option(
    "-n", "--last", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="Show the last N."
)
@_filters
@click.pass_context
def show(ctx: click.Context, /, number: int | None, last: int, **options: Any) -> int:
    """List the last calls, newest last, or print the details of call NUMBER.

    The target options restrict the list to that target.
    """
    from ...toolkit.audit import AuditPaths, audit_directory, calls, one_call, open_reader, this_process

    session = session_of(ctx)
    try:
        with open_reader(AuditPaths(audit_directory())) as db:
            if number is not None:
                call = one_call(db, number, this_process())
            else:
                found = calls(db, _chosen(session, options), this_process(), last)
    except FileNotFoundError:
        call, found = None, []
        note(NONE)
    if number is not None:
        return _show_one(session, number, call)
    if session.json:
        print_json(found)
    else:
        table(("CALL", "TIME", "TARGET", "TOOL", "STATUS", "DECIDED BY", "WHAT"), [_row(call) for call in found])
    return 0


def _show_one(session: CliSession, number: int, call: AuditCall | None) -> int:
    if call is None:
        raise HarnessError(f"the audit log has no call {number}", hint="'harness audit show' lists the calls")
    if session.json:
        print_json(call)
        return 0
    click.echo(f"call: {number}\nstatus: {call.status}")
    for record in (call.call, *call.later):
        click.echo()
        for name, value in record.items():
            if name not in ("prev", "seq", "number"):
                click.echo(f"{name}: {_when(value) if name == 'at' else readable(_text(value))}")
    return 0


def _row(call: AuditCall) -> tuple[str, ...]:
    record = call.call
    names = ("backend", "tool")
    target, tool = (str(record.get(name, "")) for name in names)
    decided = str(record.get("decided_by", ""))
    return str(call.number), _when(record.get("at")), target, tool, call.status, decided, _what(record.get("arguments"))


def _what(arguments: object) -> str:
    """Return the argument that describes a call best: its command, path or URL, or else its first text."""
    given = arguments if isinstance(arguments, dict) else {}
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    name = next((name for name in (*TELLING, *texts) if name in texts), "")
    first, *more = texts.get(name, "").splitlines() or [""]
    return first if len(first) <= SHOWN and not more else f"{first[: SHOWN - 3]}..."


def _text(value: object) -> str:
    from ..output import as_json

    return value if isinstance(value, str) else as_json(value)


def _when(moment: object) -> str:
    seconds = moment if isinstance(moment, int | float) else 0.0
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


@command("export")
@_filters
@click.pass_context
def export(ctx: click.Context, /, **options: Any) -> int:
    """Print audit records as JSON, one per line, oldest first: all of them, or those of the filtered calls.

    Each line is a record as it was hashed, plus its hash.
    """
    from ...toolkit.audit import AuditPaths, audit_directory, open_reader, records, this_process

    session = session_of(ctx)
    try:
        with open_reader(AuditPaths(audit_directory())) as db:
            for body, digest in records(db, _chosen(session, options), this_process()):
                sys.stdout.write(f'{body[:-1]},"hash":"{digest}"}}\n')
    except FileNotFoundError:
        note(NONE)
    return 0


@command("verify")
@click.option(
    "--expect-head",
    "head",
    cls=RenamedOption,
    old="--head",
    type=AuditHeadParam(),
    metavar="COUNT:HASH",
    help="Fail unless the log still contains this head, as printed by an earlier verify.",
)
@click.pass_context
def verify(ctx: click.Context, head: ChainHead | None) -> int:
    """Check that no record was changed, moved or removed, and print the chain head, to be stored elsewhere.

    The exit code is 1 if a record was, or if other users can read the audit log.
    """
    from ...toolkit.audit import AuditPaths, audit_directory
    from ...toolkit.audit import verify_audit as check

    report = check(AuditPaths(audit_directory()), head)
    if invocation_of(ctx).json:
        facts = {"first": report.first, "records": report.records, "unsettled": report.unsettled}
        found = {"problems": report.problems, "wrong_rights": report.wrong_rights}
        print_json({"whole": report.is_whole, "head": str(report.head), **facts, **found})
    else:
        _print_report(report)
    if report.wrong_rights:
        note(report.wrong_rights)
    return 0 if report.is_whole and not report.wrong_rights else FAILED


def _print_report(report: Report) -> None:
    for problem in report.problems:
        click.echo(readable(problem))
    if not report.is_whole:
        click.echo("audit verification failed: records were changed, moved or removed")
    elif not report.records:
        note(NONE)
        return
    else:
        click.echo(f"{report.records} records, from {report.first} to {report.head.count}, verified")
    if report.unsettled:
        calls = "1 call has" if report.unsettled == 1 else f"{report.unsettled} calls have"
        click.echo(f"{calls} no known outcome; 'harness audit orphans' lists the unresolved ones")
    click.echo(f"head: {report.head}")


# -- calls with an unknown outcome


@command("orphans")
@click.pass_context
def orphans(ctx: click.Context) -> int:
    """List calls with an unknown outcome (harness was killed or the connection was lost while they ran)."""
    session = session_of(ctx)
    found = [orphan for orphan in _orphans() if not orphan.is_running]
    if session.json:
        print_json([{"number": one.call.number, "process": one.life.value, "call": one.call.record} for one in found])
    else:
        table(("CALL", "TIME", "TARGET", "TOOL", "JOB", "ITS HARNESS", "WHAT"), [_orphan_row(one) for one in found])
    return 0


def _orphans() -> list[UnresolvedCall]:
    from ...toolkit.audit import AuditPaths, audit_directory, open_store, orphans_of, this_process

    place = AuditPaths(audit_directory())
    if not place.database.exists():
        note(NONE)
        return []
    with open_store(place, this_process()) as store:
        return orphans_of(store)


def _orphan_row(orphan: UnresolvedCall) -> tuple[str, ...]:
    call = orphan.call
    target, tool = (str(call.record.get(name, "")) for name in ("backend", "tool"))
    life = f"on {call.process.host}" if orphan.life.value == "elsewhere" else orphan.life.value
    when, what = _when(call.record.get("at")), _what(call.record.get("arguments"))
    return str(call.number), when, target, tool, call.job_id, life, what


@command("resolve")
@click.argument("number", type=int)
@click.argument("decision", type=click.Choice(("failed", "succeeded", "abort")))
@click.option("--note", "text", default="", metavar="TEXT", help="Explain the decision; required with 'succeeded'.")
@click.pass_context
def resolve(ctx: click.Context, number: int, decision: str, text: str) -> int:
    """Record the outcome of a call listed by 'harness audit orphans'; 'abort' closes it with an unknown outcome."""
    from ...toolkit.audit import AuditPaths, Decision, audit_directory, open_store, resolution, this_process

    place, process = AuditPaths(audit_directory()), this_process()
    if not place.database.exists():
        raise HarnessError(NONE)
    text = _redact(session_of(ctx))(text)
    with open_store(place, process) as store:
        store.write([resolution(store, number, cast("Decision", decision), text, process.user)])
    if invocation_of(ctx).json:
        print_json({"number": number, "decision": decision, "note": text, "by": process.user})
    else:
        click.echo(f"call {number}: {decision}")
    return 0


def _redact(session: CliSession) -> Callable[[str], str]:
    """Return what redacts stored texts."""
    return session_redactor(session.settings, session.invocation.choices).text


@command("reconcile")
@click.pass_context
def reconcile(ctx: click.Context) -> int:
    """Resolve calls of exited harness processes from the job records on the target."""
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        from ...toolkit.assembly import load_toolkit_settings
        from ...toolkit.audit import open_audit_log

        settings = load_toolkit_settings(session.invocation.choices)
        async with open_audit_log(retention=settings.retention) as ledger:
            found = await ledger.reconcile(target, _redact(session))
        groups = {name: getattr(found, name) for name in ("settled", "running", "unclear", "retryable")}
        if session.json:
            print_json({name: [call.number for call in calls] for name, calls in groups.items()})
        else:
            rows = [
                (name, str(call.number), _what(call.record.get("arguments")))
                for name in groups
                for call in groups[name]
            ]
            table(("FOUND", "CALL", "WHAT"), rows)

    return on_target(session, work, PLAIN)


audit = group(
    "audit",
    "show",
    (show, verify, export, orphans, resolve, reconcile),
    "Show, verify and export the audit log.",
)
