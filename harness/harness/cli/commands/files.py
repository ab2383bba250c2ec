"""``harness read`` and ``harness write``: files of the target, byte-exact."""

from __future__ import annotations

import click

from ..backend import ANY, Any_, WriteMode
from ..context import ExecutionContext
from .commands import command
from .output import print_json, read_stdin, with_base64
from .progress import transfer_progress
from .runtime import PLAIN, on_target, session_of
from .streams import Interruption, StreamWriter

__all__ = ["read", "write"]


@command("read")
@click.option("--offset", type=click.IntRange(0), default=0, metavar="BYTES", help="Start here.")
@click.option("--limit", type=click.IntRange(0), metavar="BYTES", help="Read no more than this.")
@click.argument("path")
@click.pass_context
def read(ctx: click.Context, offset: int, limit: int | None, path: str) -> int:
    """Print the file PATH of the target, byte for byte.

    With --json also its version, which 'harness write --expect' takes.
    """
    session = session_of(ctx)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            content = await target.read_file(path, offset=offset, limit=limit, progress=progress)
        if session.json:
            facts = {"path": content.path, "size": content.size, "mode": f"{content.mode:04o}"}
            print_json({**facts, "version": content.version, **with_base64("text", content.data)})
        else:
            StreamWriter(1, interruption).write(content.data)

    return on_target(session, work, PLAIN)


@command("write")
@click.option("--append", is_flag=True, help="Add to the end of the file.")
@click.option("--create", is_flag=True, help="Fail when the file exists.")
@click.option("--mode", metavar="OCTAL", help="Its permissions, such as 0644; the default keeps the old ones.")
@click.option("--expect", metavar="VERSION", help="Write only if this is still its version ('none': no such file).")
@click.option("--force", is_flag=True, help="Write a read-only file, too; its permissions stay.")
@click.option("--no-parents", is_flag=True, help="Do not make missing directories.")
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
    path: str,
) -> int:
    """Write standard input to the file PATH of the target, atomically.

    A reader sees the old content or the new one; a failure leaves the old.
    """
    if append and create:
        raise click.UsageError("--append and --create contradict each other")
    kind: WriteMode = "append" if append else "create" if create else "overwrite"
    expected: str | Any_ | None = ANY if expect is None else None if expect == "none" else expect
    permissions = _octal(mode)
    session = session_of(ctx)
    data = read_stdin()

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            result = await target.write_file(
                path,
                data,
                mode=kind,
                expect=expected,
                parents=not no_parents,
                permissions=permissions,
                force=force,
                progress=progress,
            )
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
