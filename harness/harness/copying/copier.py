"""The copy itself: directories first, then files, several at a time, then what directories get last."""

from __future__ import annotations

import posixpath
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TypeVar

import anyio

from ..backend import ReceiveRequest, SmallFile, SourceFile
from ..errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLost,
    FileError,
    FileNotFound,
    HarnessError,
    HostKeyError,
    NotADirectory,
    TargetGone,
    TargetNotFound,
    UnsupportedOperation,
)
from ..results import DirEntry
from .plan import (
    MAX_BATCH_BYTES,
    CopyJob,
    CopySide,
    DestinationRoot,
    KnownDirectory,
    batches_of,
    check_not_a_link,
    check_not_into_itself,
    is_small,
    resolve_destination,
)
from .results import CopyObserver, CopyStatus, CopySummary, FileCopy
from .sources import SourceEntry, SourceList, list_sources
from .workers import for_each

__all__ = ["Copier", "CopyOptions"]

T = TypeVar("T")
FILES_AT_ONCE = 4
OWNER_MODE = 0o700
"""What a directory needs while files are copied into it."""
MIN_LISTED = 8
"""So many files in an existing directory make it worth listing."""
MAX_FAILED_BATCHES = 3
"""So many batches that fail as a whole show that the target cannot take them."""
MAX_PAUSE = 10.0
"""Seconds between two attempts to reconnect."""
_FINAL = (AuthenticationError, HostKeyError, TargetGone, TargetNotFound)
"""Errors of a connection that trying again does not change."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How to copy."""

    recursive: bool = False
    """Copy directories."""
    preserve: bool = False
    """Give copies the mode and the time of their sources."""
    force: bool = False
    """Replace read-only files."""
    reconnect: float = 60.0
    """Seconds to try to reconnect after a lost connection."""


class Copier:
    """One copy.

    Args:
        sources: Targets, each with paths and patterns.
        destination: The target that files are copied to.
        path: The file or directory there.
        options: How to copy.
        observer: Receives what happens.
    """

    def __init__(
        self,
        sources: Sequence[tuple[CopySide, list[str]]],
        destination: CopySide,
        path: str,
        options: CopyOptions,
        observer: CopyObserver,
    ) -> None:
        self._sources = sources
        self._destination = destination
        self._path = path
        self._options = options
        self._observer = observer
        self._summary = CopySummary()
        self._nonce = secrets.token_hex(6)
        self._directories: dict[str, KnownDirectory] = {}
        self._failed_directories: set[str] = set()
        self._failed_batches = 0
        self._last_advance = monotonic()

    async def run(self) -> CopySummary:
        """Copy everything and return the counts; a file that fails does not stop the others.

        Raises:
            HarnessError: A target is not reached any more, or the destination does not fit the sources.
        """
        jobs = await self._plan()
        directories = [job for job in jobs if job.entry.is_directory]
        files = [job for job in jobs if not job.entry.is_directory]
        self._observer.planned(len(files), sum(max(job.entry.size, 0) for job in files))
        made = [job for job in directories if await self._make_directory(job)]
        await self._copy_files(files)
        for job in reversed(made):
            await self._finish_directory(job)
        return self._summary

    # -- the plan

    async def _plan(self) -> list[CopyJob]:
        lists: list[tuple[CopySide, SourceList]] = []
        for side, paths in self._sources:
            search = partial(list_sources, side.files, paths, recursive=self._options.recursive)
            lists.append((side, await self._connected(search)))
        for side, found in lists:
            for problem in found.problems:
                status: CopyStatus = "skipped" if problem.skipped else "failed"
                problem.error.target = problem.error.target or side.where
                self._end(FileCopy(side.name(problem.path), "", status, error=problem.error))
        roots = [entry for _, found in lists for entry in found.roots]
        count = sum(len(paths) for _, paths in self._sources)
        count = max(count, sum(found.root_count for _, found in lists))
        if not roots:
            return []
        try:
            root = await self._resolve(lists, roots, count)
        except FileError as error:
            error.target = error.target or self._destination.where
            raise
        return self._jobs(lists, root)

    async def _resolve(
        self, lists: Sequence[tuple[CopySide, SourceList]], roots: Sequence[SourceEntry], count: int
    ) -> DestinationRoot:
        files = self._destination.files
        root = await self._connected(partial(resolve_destination, files, self._path, roots, count))
        for side, found in lists:
            if side.files is files:
                await self._connected(partial(check_not_into_itself, files, root, found.roots))
        return root

    def _jobs(self, lists: Sequence[tuple[CopySide, SourceList]], root: DestinationRoot) -> list[CopyJob]:
        jobs: list[CopyJob] = []
        seen: dict[str, CopyJob] = {}
        for side, found in lists:
            for entry in found.entries:
                job = CopyJob(side, entry, root.path_of(entry))
                before = seen.setdefault(job.path, job)
                if before is job:
                    jobs.append(job)
                elif not (entry.is_directory and before.entry.is_directory):
                    self._fail(job, FileError(f"{job.path}: {before.name} is copied there, too"))
        return jobs

    # -- directories

    async def _make_directory(self, job: CopyJob) -> bool:
        """Create a directory or read the existing one; return whether it gets the mode of its source at the end."""
        if self._lacks_directory(job):
            return False
        try:
            known = await self._connected(partial(self._open_directory, job))
        except FileError as error:
            self._failed_directories.add(job.path)
            self._fail(job, error)
            return False
        self._directories[job.path] = known
        is_changed_last = known.is_new and job.entry.mode & OWNER_MODE != OWNER_MODE
        return is_changed_last or self._options.preserve

    async def _open_directory(self, job: CopyJob) -> KnownDirectory:
        files = self._destination.files
        found = await self._find(job)
        if found is None:
            await files.mkdir(job.path, exist_ok=True, mode=OWNER_MODE)
            await files.limit_mode(job.path, job.entry.mode & 0o777 | OWNER_MODE)  # now: the copy may be cut
            return KnownDirectory([], is_new=True)
        if found.type != "dir":
            raise NotADirectory(f"{job.path}: is not a directory, but {job.name} is one")
        return KnownDirectory(await files.list_dir(job.path), is_new=False)

    async def _find(self, job: CopyJob) -> DirEntry | None:
        """Return what the destination has in the place of a file or a directory; None if nothing.

        Raises:
            FileError: It is a link that is not followed.
        """
        known = self._directories.get(posixpath.dirname(job.path))
        name = posixpath.basename(job.path)
        if known is not None and known.is_new:  # no other user can write there yet
            return None
        found = await self._find_by_stat(job.path, name)  # a listing may be minutes old
        if found is None or found.type != "link":
            return found
        if not job.side.is_here and job.entry.from_target:
            check_not_a_link(job.path, found)
        try:
            stat = await self._destination.files.stat(job.path)
        except FileNotFound:
            return None
        return DirEntry(name, stat.type, stat.size)

    async def _find_by_stat(self, path: str, name: str) -> DirEntry | None:
        try:
            stat = await self._destination.files.stat(path, follow=False)
        except FileNotFound:
            return None
        return DirEntry(name, stat.type, stat.size)

    async def _finish_directory(self, job: CopyJob) -> None:
        """Give a directory its mode, and its time, which files in it would have changed."""
        files, entry = self._destination.files, job.entry
        try:
            if self._options.preserve:
                change = partial(files.set_attributes, job.path, mode=entry.mode & 0o777, mtime=entry.mtime)
            else:
                change = partial(files.limit_mode, job.path, entry.mode & 0o777)
            await self._connected(change)
        except FileError as error:
            self._fail(job, error)

    def _lacks_directory(self, job: CopyJob) -> bool:
        """Report a file whose directory could not be created."""
        parent = posixpath.dirname(job.path)
        if parent not in self._failed_directories:
            return False
        if job.entry.is_directory:
            self._failed_directories.add(job.path)
        error = FileError(f"{job.path}: its directory could not be created")
        self._end(FileCopy(job.name, self._name(job), "failed", error=error, consequence=True))
        return True

    # -- files

    async def _copy_files(self, jobs: list[CopyJob]) -> None:
        """Copy small files in batches, then what is left one at a time."""
        left = [job for job in jobs if not is_small(job)]
        small = [job for job in jobs if is_small(job)]
        await self._list_destination(small)
        for by_directory in (False, True):
            again: list[CopyJob] = []

            async def copy(batch: Sequence[CopyJob], again: list[CopyJob] = again) -> None:
                again += await self._copy_batch(batch)

            await for_each(batches_of(small, by_directory=by_directory), copy, at_once=FILES_AT_ONCE)
            small = again
            if not by_directory:  # what was left may be there by now, from another copy
                await self._list_destination(small, again=True)
        await for_each(small + left, self._copy_or_fail, at_once=FILES_AT_ONCE)

    async def _list_destination(self, jobs: Sequence[CopyJob], *, again: bool = False) -> None:
        """List the directory that existed before, or with ``again`` each one, if many files go there."""
        counts = Counter(job.directory for job in jobs if again or job.directory not in self._directories)
        for path, count in counts.items():
            if count >= MIN_LISTED and path not in self._failed_directories:
                with suppress(FileError):  # each of its files fails, and says why
                    entries = await self._connected(partial(self._destination.files.list_dir, path))
                    self._directories[path] = KnownDirectory(entries, is_new=False)

    async def _copy_batch(self, jobs: Sequence[CopyJob]) -> list[CopyJob]:
        """Copy small files together; return those that have to be copied one at a time."""
        known = [job for job in jobs if job.directory in self._directories]
        if len(known) < 2 or self._failed_batches >= MAX_FAILED_BATCHES:
            return list(jobs)
        done: set[str] = set()
        try:
            for job in await self._connected(partial(self._find_equal, known)):
                with suppress(FileError):  # it fails alone, and says why
                    self._end(await self._connected(partial(self._keep, job, self._counter())))
                    done.add(job.path)
            done |= await self._connected(partial(self._receive_batch, [job for job in known if job.path not in done]))
            self._failed_batches = 0
        except (FileError, UnsupportedOperation):  # which of them, and why, each one shows on its own
            self._failed_batches += 1
        return [job for job in jobs if job.path not in done]

    async def _find_equal(self, jobs: Sequence[CopyJob]) -> list[CopyJob]:
        """Return the files that the destination has already with the same content."""
        found = [job for job in jobs if self._has_file_of_size(job)]
        if len(found) < 2:
            return []
        try:
            there = await self._destination.files.versions([job.path for job in found])
            scheme = there[0].partition(":")[0]
            here = await found[0].side.files.versions([job.entry.path for job in found], scheme)
        except FileError:  # one of them cannot be read
            return []
        return [job for job, one, other in zip(found, here, there, strict=True) if one == other]

    async def _receive_batch(self, jobs: Sequence[CopyJob]) -> set[str]:
        """Copy the files that replace nothing but files; return their paths."""
        new = [job for job in jobs if (found := self._listed(job)) is None or found.type == "file"]
        if len(new) < 2:
            return set()
        self._observer.started(new[0].entry.path)
        files = await new[0].side.files.read_small([job.entry.path for job in new], MAX_BATCH_BYTES)
        read = [(job, file) for job, file in zip(new, files, strict=True) if file is not None]
        if not read:
            return set()
        requests = [self._request(job, file) for job, file in read]
        received = await self._destination.files.receive_small([file for _, file in read], requests)
        self._advanced()
        done = set()
        for (job, file), is_received in zip(read, received, strict=True):
            if is_received:
                self._counter().finish(job.entry.size, len(file.data))
                self._end(FileCopy(job.name, self._name(job), "copied", len(file.data)))
                done.add(job.path)
        if not done:
            raise FileError("no file was received")  # such as on a file system without hard links
        return done

    def _listed(self, job: CopyJob) -> DirEntry | None:
        """Return what the listing of its directory has in the place of a file."""
        return self._directories[job.directory].find(posixpath.basename(job.path))

    def _has_file_of_size(self, job: CopyJob) -> bool:
        found = self._listed(job)
        return found is not None and found.type == "file" and found.size == job.entry.size

    async def _copy_or_fail(self, job: CopyJob) -> None:
        if self._lacks_directory(job):
            return
        counter = self._counter()
        try:
            self._end(await self._connected(partial(self._copy, job, counter)))
        except FileError as error:
            counter.drop(job.entry.size)
            self._fail(job, error)

    async def _copy(self, job: CopyJob, counter: _ByteCounter) -> FileCopy:
        counter.restart()
        here, there = job.side.files, self._destination.files
        found = await self._find(job)
        has_file = found is not None and found.type == "file" and found.size == job.entry.size
        if has_file and await self._is_equal(job):
            return await self._keep(job, counter)
        # within one target, files that hold a channel to write would wait for each other's to read
        source = await here.open_source(job.entry.path, own_channel=here is not there)
        self._observer.started(job.entry.path)
        received = await there.receive(source, self._request(job, source), counter.update)
        counter.finish(job.entry.size, received.size)
        name = job.name
        return FileCopy(name, self._name(job), "copied", received.size, received.resumed_at)

    def _request(self, job: CopyJob, source: SourceFile | SmallFile) -> ReceiveRequest:
        preserve = self._options.preserve
        return ReceiveRequest(
            job.path,
            permissions=source.mode if preserve else None,
            new_permissions=source.mode,
            mtime=source.mtime if preserve else None,
            nonce=self._nonce,
            force=self._options.force,
        )

    async def _is_equal(self, job: CopyJob) -> bool:
        """Return whether the destination has the same content already."""
        there = await self._destination.files.version(job.path)
        scheme = (there or "").partition(":")[0]
        return there is not None and await job.side.files.version(job.entry.path, None, scheme) == there

    async def _keep(self, job: CopyJob, counter: _ByteCounter) -> FileCopy:
        if self._options.preserve:
            stat = await job.side.files.stat(job.entry.path)
            await self._destination.files.set_attributes(job.path, mode=stat.mode & 0o777, mtime=stat.mtime)
        counter.drop(job.entry.size)
        return FileCopy(job.name, self._name(job), "unchanged", job.entry.size)

    # -- reports

    def _name(self, job: CopyJob) -> str:
        return self._destination.name(job.path)

    def _fail(self, job: CopyJob, error: HarnessError) -> None:
        error.target = error.target or self._destination.where
        self._end(FileCopy(job.name, self._name(job), "failed", error=error))

    def _end(self, ended: FileCopy) -> None:
        self._summary.add(ended)
        self._observer.ended(ended)

    def _counter(self) -> _ByteCounter:
        return _ByteCounter(self._observer, self._advanced)

    def _advanced(self) -> None:
        self._last_advance = monotonic()

    # -- lost connections

    async def _connected(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call a function again after a lost connection, until nothing was transferred for the time of the options.

        Raises:
            ConnectionLost: The connection does not come back.
        """
        pause = 0.5
        started = monotonic()
        while True:
            try:
                return await call()
            except _FINAL:
                raise
            except (ConnectionLost, ConnectError) as error:
                if monotonic() + pause > max(self._last_advance, started) + self._options.reconnect:
                    raise
                self._observer.reconnecting(error)
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)


class _ByteCounter:
    """The bytes of one file, reported as what was added, also if the file starts again."""

    def __init__(self, observer: CopyObserver, advanced: Callable[[], None]) -> None:
        self._observer = observer
        self._advanced = advanced
        self._done = 0
        self._resumed_at: int | None = None

    def restart(self) -> None:
        """Take back what was reported."""
        self._observer.advanced((self._resumed_at or 0) - self._done)
        self._observer.left_out(-(self._resumed_at or 0))
        self._done, self._resumed_at = 0, None

    def update(self, done: int, whole: int | None) -> None:
        """Take the bytes of the file that are there; the first call has those of an earlier copy."""
        if self._resumed_at is None:
            self._resumed_at = self._done = done
            self._observer.left_out(done)
            return
        self._observer.advanced(done - self._done)
        self._done = done
        self._advanced()

    def finish(self, planned: int, size: int) -> None:
        """Take the end of a file that was planned with another size, such as one of ``/proc``."""
        self._observer.advanced(size - self._done)
        self._observer.left_out(max(planned, 0) - size)

    def drop(self, planned: int) -> None:
        """Take a file that is not transferred."""
        self.restart()
        self._observer.left_out(max(planned, 0))
