"""``harness sync``: keep a directory equal to another one, with rsync over the connection of harness."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ....context import connect
from ....copying.locations import Location, path_on_target
from ....errors import HarnessError
from ...completed_names import complete_copied
from ...exits import FAILED, HARNESS_FAILED
from ...options import command, pause_option
from ...output import as_json, note
from ...runtime import CliSession, session_of
from ...streams import Interruption, StreamWriter, run_async
from .copy import RECONNECT, check_target_is_used, location_of, settings_of_host

__all__ = ["sync"]

PARTIAL = frozenset({23, 24, 25})
"""The exit codes of rsync when some files were not copied."""
MAX_DIGITS = 20
"""Digits of a size; int() refuses thousands of them."""
FORMAT = "%i\t%l\t%n"
"""What rsync prints of each change for ``--json``; it escapes control characters in names."""


@command("sync")
@click.option("-n", "--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@click.option("--delete", is_flag=True, help="Delete what the sources do not have.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out what matches, as rsync does; repeatable.")
@click.option("-c", "--checksum", is_flag=True, help="Compare contents, not sizes and times.")
@click.option("-z", "--compress", is_flag=True, help="Compress the transferred data.")
@click.option("--itemize-changes", is_flag=True, help="Print each change.")
@click.option("--rsync-option", "more", multiple=True, metavar="OPTION", help="Pass an option to rsync; repeatable.")
@pause_option(
    "--reconnect", default=RECONNECT, help="After a lost connection, try to reconnect for TIME (default: 60s)."
)
@click.argument("sources", metavar="SRC...", nargs=-1, required=True, shell_complete=complete_copied)
@click.argument("destination", metavar="DST", shell_complete=complete_copied)
@click.pass_context
def sync(
    ctx: click.Context,
    dry_run: bool,
    delete: bool,
    exclude: Sequence[str],
    checksum: bool,
    compress: bool,
    itemize_changes: bool,
    more: Sequence[str],
    reconnect: float,
    sources: Sequence[str],
    destination: str,
) -> int:
    """Make DST equal to SRC with rsync, for example 'harness sync --delete site/ web1:/var/www/'.

    It runs 'rsync -a' over the connection of harness, and both sides need rsync. The paths are those of 'harness cp',
    and one side is this machine. As with rsync, SRC/ means the content of SRC.
    """
    if any(option in {"-", "--"} or not option.startswith("-") for option in more):
        raise click.UsageError("--rsync-option takes an option, such as --rsync-option=--max-size=1m")
    session = session_of(ctx)
    options = ["-a", "--partial-dir=.rsync-partial"]
    flags = {"--dry-run": dry_run, "--delete": delete, "--checksum": checksum, "--compress": compress}
    options += [name for name, given in flags.items() if given]
    options += [f"--exclude={pattern}" for pattern in exclude]
    options += _output_options(session, itemized=itemize_changes or dry_run)
    options += more
    return _sync(session, options, [location_of(text) for text in sources], location_of(destination), reconnect)


def _output_options(session: CliSession, *, itemized: bool) -> list[str]:
    if session.json:
        return [f"--out-format={FORMAT}"]
    if itemized:
        return ["--itemize-changes"]
    return ["--info=progress2", "--no-inc-recursive"] if sys.stdout.isatty() and sys.stderr.isatty() else []


def _sync(
    session: CliSession, options: Sequence[str], sources: Sequence[Location], destination: Location, reconnect: float
) -> int:
    hosts = {place.host for place in sources}
    if len(hosts) > 1 or (None in hosts) == (destination.host is None):
        raise click.UsageError("rsync copies between this machine and one target; use 'harness cp' between two targets")
    check_target_is_used(session, [*sources, destination])
    host = destination.host if destination.host is not None else hosts.pop()
    assert host is not None
    settings = settings_of_host(session, host)

    async def main(interruption: Interruption) -> int:
        from ....copying.rsync import RsyncRun, check_rsync, path_for_rsync, run_rsync

        def path_of(place: Location) -> str:
            return path_on_target(place) if place.host is None else path_for_rsync(place.path, home)

        with session.questions():
            async with connect(settings.target, config=settings.config) as context:
                with interruption.reaches():
                    await check_rsync(context)
                    home = context.capabilities.home
                    paths = [path_of(place) for place in [*sources, destination]]
                    shown = _Printer(session, interruption)
                    run = RsyncRun(shown.output, shown.errors, shown.reconnecting)
                    return _exit_code(await run_rsync(context, options, paths, run, reconnect=reconnect))
        return 0  # cancelled; run_async returns the exit code

    return run_async(main)


def _exit_code(code: int) -> int:
    if code and code not in PARTIAL:
        note(f"rsync exited with {code}")
    return 0 if code == 0 else FAILED if code in PARTIAL else HARNESS_FAILED


class _Printer:
    """Prints what rsync prints, for ``--json`` as objects."""

    def __init__(self, session: CliSession, interruption: Interruption) -> None:
        self._json = session.json
        self._line = b""
        self._stdout, self._stderr = (StreamWriter(number, interruption) for number in (1, 2))

    def output(self, data: bytes) -> None:
        if not self._json:
            self._stdout.write(data)
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._stdout.write(as_json(_change(line)).encode() + b"\n")

    def errors(self, data: bytes) -> None:
        self._stderr.write(data)

    def reconnecting(self, error: HarnessError) -> None:
        note(f"{error}; reconnecting")


def _change(line: bytes) -> dict[str, object]:
    """Return a line of rsync as a JSON object."""
    change, size, path = (*line.decode("utf-8", "replace").split("\t", 2), "", "")[:3]
    has_size = size.isascii() and size.isdigit() and len(size) < MAX_DIGITS  # a message of the target has any text
    return {"change": change, "size": int(size) if has_size else None, "path": path}
