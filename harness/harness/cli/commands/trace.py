"""``harness trace``: summarize a trace, replay it, or show its model requests."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import HarnessError
from ..options import HarnessGroup, RenamedOption, command, invocation_of
from ..output import note, readable, table

if TYPE_CHECKING:
    from ...agent.trace.reading import TraceLine, TraceSummary

__all__ = ["trace"]

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@command("summary")
@FILE
@click.pass_context
def summary(ctx: click.Context, file: Path) -> int:
    """Print a trace's totals: turns, requests, tokens, calls, approvals."""
    from ...agent.trace.reading import read_trace, summary_of

    found = summary_of(read_trace(file))
    if invocation_of(ctx).json:
        _print_exact(asdict(found))
    else:
        _print_summary(found)
    return 0


def _print_summary(found: TraceSummary) -> None:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.started))
    turns = ", ".join(f"{count} {status}" for status, count in found.turns.items()) or "none"
    cost = f", {found.cost:.4f} USD" if found.cost is not None else ""
    times = f"{found.request_seconds:.1f} s in total, {found.slowest_request:.1f} s at most"
    rows = [
        ("target", found.target),
        ("conversations", ", ".join(found.sessions)),
        ("models", ", ".join(found.models)),
        ("started", f"{began}, {found.seconds:.1f} s to the last line"),
        ("turns", turns),
        ("requests", f"{found.requests}, {times}"),
        ("first output", f"after {found.first_seconds:.2f} s on average"),
        ("failures", f"{found.failures}, {found.retries} retries"),
        ("tokens", f"{found.input_tokens} in ({found.cache_read_tokens} cached), {found.output_tokens} out{cost}"),
        ("approvals", f"{found.asked} requested, {found.refused} denied, {found.asked_seconds:.1f} s of waiting"),
        ("jobs, compactions, reconnects", f"{found.jobs}, {found.compactions}, {found.reconnects}"),
    ]
    for name, value in rows:
        click.echo(f"{name}: {readable(value)}")
    if found.tools:
        click.echo()
    table(
        ("TOOL", "CALLS", "ERRORS", "CACHED", "SECONDS", "SLOWEST"),
        [
            (name, str(one.calls), str(one.errors), str(one.cached), f"{one.seconds:.2f}", f"{one.slowest:.2f}")
            for name, one in sorted(found.tools.items(), key=lambda item: -item[1].seconds)
        ],
    )
    if found.dropped:
        note(f"{found.dropped} lines were dropped, because the disk was too slow")
    if found.damaged:
        note(f"{found.damaged} lines are truncated or invalid and were skipped")


@command("replay")
@click.option("--turn", type=click.IntRange(1), metavar="N", help="Replay only the Nth turn of the trace.")
@click.option("--full", "whole", cls=RenamedOption, old="--whole", is_flag=True, help="Print complete outputs.")
@FILE
@click.pass_context
def replay(ctx: click.Context, turn: int | None, whole: bool, file: Path) -> int:
    """Print what happened, turn by turn; nothing runs again."""
    from ...agent.trace.reading import read_trace, replayed, turns_of

    turns = turns_of(read_trace(file))
    if turn is not None and turn > len(turns):
        raise HarnessError(f"the trace has {len(turns)} turns", hint=f"harness trace summary {file}")
    chosen = turns if turn is None else turns[turn - 1 : turn]
    if invocation_of(ctx).json:
        lines = [{"turn": one.place, "lines": [dict(line.values) for line in one.lines]} for one in chosen]
        _print_exact(lines)
    else:
        for line in replayed(chosen, whole=whole):
            click.echo(readable(line))
    return 0


@command("context")
@click.option("--request", type=click.IntRange(1), metavar="N", help="Print all messages of this request as JSON.")
@FILE
@click.pass_context
def context(ctx: click.Context, request: int | None, file: Path) -> int:
    """Show how the context sent to the model grew and shrank, request by request."""
    from ...agent.trace.reading import read_trace

    lines = read_trace(file)
    if request is not None:
        return _print_context(lines, request)
    return _print_steps(lines, as_json_document=invocation_of(ctx).json)


def _print_context(lines: tuple[TraceLine, ...], request: int) -> int:
    from ...agent.trace.reading import context_of

    messages = context_of(lines, request)
    if messages is None:
        raise HarnessError(f"the trace does not contain all of request {request}", hint="see 'harness trace context'")
    _print_exact(messages)
    return 0


def _print_steps(lines: tuple[TraceLine, ...], *, as_json_document: bool) -> int:
    from ...agent.trace.reading import context_steps, turns_of

    steps = context_steps(lines)
    if as_json_document:
        _print_exact([asdict(step) for step in steps])
        return 0
    places = {turn.turn_id: str(turn.place) for turn in turns_of(lines)}
    rows = [
        (
            *(str(step.request), places.get(step.turn_id, ""), str(step.step), step.model),
            *(str(step.messages), f"+{step.added}", f"-{step.removed}" if step.removed else "", str(step.new_bytes)),
            *("failed" if step.failed else str(step.input_tokens), str(step.output_tokens), f"{step.seconds:.2f}"),
        )
        for step in steps
    ]
    headers = ("REQUEST", "TURN", "STEP", "MODEL", "MESSAGES", "NEW", "GONE", "NEW BYTES", "IN", "OUT", "SECONDS")
    table(headers, rows)
    return 0


def _print_exact(value: object) -> None:
    """Print a JSON document in ASCII, as a trace may hold unpaired surrogates, which UTF-8 cannot encode."""
    import json

    click.echo(json.dumps(value))


trace = HarnessGroup(
    "trace",
    help="Summarize or replay a --trace file, or show its model requests.",
    no_args_is_help=False,
)
for item in (summary, replay, context):
    trace.add_command(item)
