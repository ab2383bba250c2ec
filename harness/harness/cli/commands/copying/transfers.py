"""``harness upload`` and ``harness download``: copy a file to or from targets."""

from __future__ import annotations

import posixpath
from pathlib import Path

import click

from ....context import ExecutionContext
from ...completed_names import complete_file
from ...options import command
from ...output import print_json
from ...progress_bar import transfer_progress
from ...runtime import PLAIN, on_target, session_of
from ...streams import Interruption
from ..fleet.options import FleetOptions, fleet_options

__all__ = ["download", "upload"]


@command("upload", many_hosts=True)
@click.option("--force", is_flag=True, help="Write even a read-only file; its permissions are kept.")
@fleet_options(changes=True)
@click.argument("local", metavar="FILE", shell_complete=complete_file)
@click.argument("path")
@click.pass_context
def upload(ctx: click.Context, force: bool, fleet: FleetOptions, local: str, path: str) -> int:
    """Copy FILE of this machine to the file PATH on the target, atomically, with its permissions.

    Readers see the old or the new content; a failure keeps the old.

    With --hosts, --inventory or several --ssh it is copied to PATH on each host.
    """
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from ..fleet.files import upload_to_fleet

        return upload_to_fleet(session, fleet, local, path, force=force)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(local) as progress:
            result = await target.upload(local, path, force=force, progress=progress)
        if session.json:
            print_json(result)

    return on_target(session, work, PLAIN)


@command("download", many_hosts=True)
@click.option("--overwrite", is_flag=True, help="Replace a file that exists; without it, that is an error.")
@fleet_options()
@click.argument("path")
@click.argument("local", metavar="FILE|DIR", shell_complete=complete_file)
@click.pass_context
def download(ctx: click.Context, overwrite: bool, fleet: FleetOptions, path: str, local: str) -> int:
    """Copy the file PATH on the target to FILE of this machine, or into the directory DIR, with its permissions.

    With --hosts, --inventory or several --ssh, each host's file is copied to DIR/HOST/NAME.
    """
    session = session_of(ctx)
    if fleet.used_by(session.invocation):
        from ..fleet.files import download_from_fleet

        name = _file_name(path)
        return download_from_fleet(session, fleet, path, local, file_name=name, overwrite=overwrite)
    destination = Path(local, _file_name(path)) if Path(local).is_dir() else Path(local)

    async def work(target: ExecutionContext, interruption: Interruption) -> None:
        with transfer_progress(path) as progress:
            size = await target.download(
                path, str(destination), overwrite=overwrite, force=overwrite, progress=progress
            )
        if session.json:
            print_json({"local": str(destination), "size": size})

    return on_target(session, work, PLAIN)


def _file_name(path: str) -> str:
    """Return the last part of a path on the target, as the name of a file in a directory of this machine.

    Raises:
        click.BadParameter: It is not the name of a file.
    """
    name = posixpath.basename(path)
    if name in {"", ".", "..", "~"} or "\0" in name:
        raise click.BadParameter(f"{path!r} does not end with the name of a file", param_hint="PATH")
    return name
