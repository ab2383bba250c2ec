"""``harness cp`` on many hosts: from this machine to all of them, or from each one to a directory of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
from anyio import to_thread

from ....context import ExecutionContext, connect
from ....copying import Copier, CopyObserver, CopyOptions, CopySide, CopySummary, FileCopy, Location
from ....copying.locations import path_on_target
from ...runtime import PLAIN, CliSession
from ..copying.report import copy_json, problem_text, summary_json
from .calls import map_on_hosts
from .files import TransferReport, create_directory, directory_name
from .options import FleetOptions

__all__ = ["copy_on_fleet"]


@dataclass(slots=True)
class _HostCopy:
    """The copy of one host."""

    summary: CopySummary = field(default_factory=CopySummary)
    files: list[FileCopy] = field(default_factory=list)
    """Every file, if it is printed as JSON."""


class _CopyReport(TransferReport[_HostCopy]):
    """The report of a copy: only JSON shows the files that were copied."""

    def result_kind(self, result: _HostCopy) -> str:
        return "failed" if result.summary.failed else "ok"

    def result_json(self, result: _HostCopy) -> Mapping[str, object]:
        return {**summary_json(result.summary), "files": [copy_json(item) for item in result.files]}

    def result_notices(self, result: _HostCopy) -> Iterable[str]:
        return [problem_text(item) for item in result.summary.problems]


class _HostObserver(CopyObserver):
    """Counts the bytes of one host, and keeps its files for JSON."""

    def __init__(self, report: _CopyReport, name: str, copied: _HostCopy) -> None:
        self._report = report
        self._name = name
        self._copied = copied
        self._done = 0

    def advanced(self, size: int) -> None:
        self._done += size
        self._report.transferred(self._name, self._done, None)

    def ended(self, ended: FileCopy) -> None:
        if self._report.session.json:
            self._copied.files.append(ended)


def copy_on_fleet(
    session: CliSession,
    options: FleetOptions,
    sources: Sequence[Location],
    destination: Location,
    how: CopyOptions,
) -> int:
    """Copy to or from many hosts and return the exit code.

    Raises:
        click.UsageError: Neither the destination nor the sources are paths on the hosts.
    """
    to_hosts = destination.host == "" and all(source.host is None for source in sources)
    from_hosts = destination.host is None and all(source.host == "" for source in sources)
    if not (to_hosts or from_hosts):
        raise click.UsageError("with many hosts, either DST or every SRC is :PATH, and the rest is on this machine")
    paths = [path_on_target(source) for source in sources]
    directory = path_on_target(destination)

    async def work(report: _CopyReport, name: str, context: ExecutionContext) -> _HostCopy:
        copied = _HostCopy()
        observer = _HostObserver(report, name, copied)
        async with connect("local:") as here:
            local, host = CopySide(here.files), CopySide(context.files, f"{name}:")
            if to_hosts:
                copier = Copier([(local, paths)], host, directory, how, observer)
            else:
                folder = Path(directory, directory_name(name))
                await to_thread.run_sync(create_directory, folder)
                copier = Copier([(host, paths)], local, str(folder), how, observer)
            copied.summary = await copier.run()
        return copied

    return map_on_hosts(session, options, PLAIN, partial(_CopyReport, session), work)
