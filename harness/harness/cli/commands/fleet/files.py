"""Files on many hosts: ``harness read``, ``write``, ``upload`` and ``download`` with ``--hosts``."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from anyio import to_thread

from ....context import ExecutionContext
from ....errors import FileError, HarnessError
from ....results import FileContent, WriteResult
from ...output import content_json
from ...runtime import PLAIN, CliSession
from ...streams import Interruption
from .calls import hosts_of_options, map_on_hosts
from .options import FleetOptions
from .report import FleetReport, MergedText

if TYPE_CHECKING:
    from ....fleets import Host

__all__ = [
    "TransferReport",
    "create_directory",
    "directory_name",
    "download_from_fleet",
    "read_on_fleet",
    "upload_to_fleet",
    "write_on_fleet",
]

T = TypeVar("T")
MIN_INTERVAL = 0.1
"""Seconds between two updates of the transferred bytes."""


class TransferReport(FleetReport[T]):
    """A report whose line with counts has the transferred bytes of all hosts.

    Args:
        session: As for :class:`FleetReport`, like all further arguments but the last one.
        size: The bytes for each host, where they are known.
    """

    def __init__(
        self, session: CliSession, hosts: Sequence[Host], interruption: Interruption, *, size: int | None = None
    ) -> None:
        super().__init__(session, hosts, interruption)
        self._whole = None if size is None else size * len(hosts)
        self._by_host: dict[str, int] = {}
        self._done = 0
        self._due = 0.0

    def transferred(self, name: str, done: int, whole: int | None) -> None:
        """Count the bytes that one host has sent or received."""
        self._done += done - self._by_host.get(name, 0)
        self._by_host[name] = done
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + MIN_INTERVAL
            self.show_counts()

    def progress_text(self) -> str:
        of = "" if self._whole is None else f" of {self._whole / 1e6:.1f}"
        return f", {self._done / 1e6:.1f}{of} MB" if self._done else ""


# -- read and write


class _ContentReport(TransferReport[FileContent]):
    """The report of ``harness read``: equal contents once."""

    def __init__(self, session: CliSession, hosts: Sequence[Host], interruption: Interruption) -> None:
        super().__init__(session, hosts, interruption)
        self._contents: dict[bytes, bytes] = {}

    def share(self, content: FileContent) -> FileContent:
        """Return the content with the bytes of an equal one, so that they are in memory once."""
        return replace(content, data=self._contents.setdefault(content.data, content.data))

    def result_json(self, result: FileContent) -> Mapping[str, object]:
        return content_json(result)

    def result_key(self, result: FileContent) -> Hashable:
        return result.data

    def merged_text(self, result: FileContent) -> MergedText:
        return MergedText(result.data)


def read_on_fleet(session: CliSession, options: FleetOptions, path: str, *, offset: int, limit: int | None) -> int:
    """Print a file of each host, equal contents once, and return the exit code."""

    async def work(report: _ContentReport, name: str, context: ExecutionContext) -> FileContent:
        progress = partial(report.transferred, name)
        return report.share(await context.read_file(path, offset=offset, limit=limit, progress=progress))

    return map_on_hosts(session, options, PLAIN, partial(_ContentReport, session), work)


class _WriteReport(TransferReport[WriteResult]):
    """The report of ``harness write`` and ``upload``: only JSON shows what was written."""

    def result_json(self, result: WriteResult) -> Mapping[str, object]:
        return asdict(result)


def write_on_fleet(
    session: CliSession, options: FleetOptions, path: str, read: Callable[[], bytes], how: Mapping[str, Any]
) -> int:
    """Write the same content to a file on each host and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        path: The file.
        read: Returns the content; called when the options are known to be right, as it may wait for a person.
        how: Further arguments of ``write_file``.
    """
    hosts = hosts_of_options(session, options)
    data = read()

    async def work(report: _WriteReport, name: str, context: ExecutionContext) -> WriteResult:
        return await context.write_file(path, data, progress=partial(report.transferred, name), **how)

    return map_on_hosts(session, options, PLAIN, partial(_WriteReport, session, size=len(data)), work, chosen=hosts)


# -- upload and download


def upload_to_fleet(session: CliSession, options: FleetOptions, local: str, path: str, *, force: bool) -> int:
    """Copy a file of this machine to the same path of each host and return the exit code.

    Raises:
        FileError: The file of this machine cannot be found.
    """
    try:
        size = Path(local).stat().st_size
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise FileError(f"{local}: {reason}", target="this machine") from error

    async def work(report: _WriteReport, name: str, context: ExecutionContext) -> WriteResult:
        return await context.upload(local, path, force=force, progress=partial(report.transferred, name))

    return map_on_hosts(session, options, PLAIN, partial(_WriteReport, session, size=size), work)


@dataclass(frozen=True, slots=True)
class _Download:
    """A file that was copied to this machine."""

    local: str
    size: int


class _DownloadReport(TransferReport[_Download]):
    """The report of ``harness download``: only JSON shows the files of this machine."""

    def result_json(self, result: _Download) -> Mapping[str, object]:
        return asdict(result)


def download_from_fleet(
    session: CliSession, options: FleetOptions, path: str, directory: str, *, file_name: str, overwrite: bool
) -> int:
    """Copy a file of each host to ``DIRECTORY/HOST/FILE_NAME`` and return the exit code.

    Args:
        session: The program's settings.
        options: The hosts, and how many at a time.
        path: The file on the hosts.
        directory: The directory on this machine; it is created.
        file_name: The name of the files in it.
        overwrite: Replace files that exist.
    """

    async def work(report: _DownloadReport, name: str, context: ExecutionContext) -> _Download:
        folder = Path(directory, directory_name(name))
        created = await to_thread.run_sync(create_directory, folder)
        local = str(folder / file_name)
        try:
            progress = partial(report.transferred, name)
            size = await context.download(path, local, overwrite=overwrite, force=overwrite, progress=progress)
        except BaseException:
            if created:
                _remove_empty(folder)
            raise
        return _Download(local, size)

    return map_on_hosts(session, options, PLAIN, partial(_DownloadReport, session), work)


def create_directory(folder: Path) -> bool:
    """Create a directory of this machine and return whether it was missing.

    Raises:
        HarnessError: It cannot be created.
    """
    existed = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "cannot be created").lower()
        raise HarnessError(f"{folder}: {reason}", target="this machine") from error
    return not existed


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it has files of others
        folder.rmdir()


def directory_name(host: str) -> str:
    """Return a host's name as the name of one directory, different for each name: ``/`` becomes ``%2F``."""
    name = quote(host, safe="@:+,=[]~", errors="surrogatepass")
    return f"%2E{name[1:]}" if name.startswith(".") else name
