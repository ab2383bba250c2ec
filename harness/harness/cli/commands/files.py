"""``harness read`` and ``harness write``: read and write files on the target byte-exactly."""

from __future__ import annotations

from typing import Any

import click

from ...backend import ANY, AnyVersion, WriteMode
from ...context import ExecutionContext
from ..options import command
from ..output import content_json, print_json, read_stdin
from ..progress_bar import transfer_progress
from ..runtime import PLAIN, on_target, session_of
from ..streams import Interruption, StreamWriter
from .fleet.options import FleetOptions, fleet_options

__all__ = ["read", "write"]


@command("read", many_hosts=True)
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Start at this byte.")
@click.option("--limit", type=click.IntRange(0), metavar="BYTES", help="Read at most this many bytes.")
@fleet_options()
@click.argument("path")
@click.pass_context
def read(ctx: click.Context, offset: int, limit: int | None, fleet: FleetOptions, path: str) -> int:
    """Print the file PATH on the target, byte for byte.

    --json adds its version, for 'harness write --expect'.

    With --hosts, --inventory or several --ssh, equal contents are printed once, with the hosts' names.
    """
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from .fleet.files import read_on_fleet

        return read_on_fleet(session, fleet, path, offset=offset, limit=limit)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            content = await target.read_file(path, offset=offset, limit=limit, progress=progress)
        if session.json:
            print_json(content_json(content))
        else:
            StreamWriter(1, interruption).write(content.data)

    return on_target(session, work, PLAIN)


@command("write", many_hosts=True)
@click.option("--append", is_flag=True, help="Append to the file.")
@click.option("--create", is_flag=True, help="Fail if the file exists.")
@click.option("--mode", metavar="OCTAL", help="Set its permissions, such as 0644 (default: keep them).")
@click.option("--expect", metavar="VERSION", help="Write only if the file has this version ('none': does not exist).")
@click.option("--force", is_flag=True, help="Write even a read-only file; its permissions are kept.")
@click.option("--no-parents", is_flag=True, help="Do not create missing directories.")
@fleet_options(changes=True)
@click.argument("path")
@click.pass_context
def write(
    ctx: click.Context,
    append: bool,
    create: bool,
    mode: str | None,
    expect: str | None,
    force: bool,
    no_parents: bool,
    fleet: FleetOptions,
    path: str,
) -> int:
    """Write standard input to the file PATH on the target, atomically.

    Readers see the old or the new content; a failure keeps the old.

    With --hosts, --inventory or several --ssh, each host gets the whole input; a host that fails keeps the old content.
    """
    if append and create:
        raise click.UsageError("--append and --create contradict each other")
    kind: WriteMode = "append" if append else "create" if create else "overwrite"
    expected: str | AnyVersion | None = ANY if expect is None else None if expect == "none" else expect
    how: dict[str, Any] = {"mode": kind, "expect": expected, "parents": not no_parents, "force": force}
    how["permissions"] = _octal(mode)
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from .fleet.files import write_on_fleet

        return write_on_fleet(session, fleet, path, read_stdin, how)
    data = read_stdin()

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            result = await target.write_file(path, data, progress=progress, **how)
        if session.json:
            print_json(result)

    return on_target(session, work, PLAIN)


def _octal(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.removeprefix("0o")
    if not digits or set(digits) - set("01234567") or int(digits, 8) > 0o7777:
        raise click.BadParameter(f"{text!r} is not an octal mode such as 0644", param_hint="--mode")
    return int(digits, 8)
