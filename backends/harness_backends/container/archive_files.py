"""Read-only files of an image with only a shell and no tools, through the engine's archives."""

from __future__ import annotations

import io
import posixpath
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from harness.backend import ANY, AnyVersion, Files, Progress, SourceFile, WriteMode
from harness.errors import FileError, UnsupportedOperation
from harness.results import DirEntry, FileContent, FileStat, FileType, WriteResult
from harness.target import Target
from harness.transport import Transport

from ..posix.files.copying import Downloads
from ..posix.files.file_calls import FileCalls, Hasher, display_path, file_error, parse_scheme
from ..posix.files.search import Search, glob_paths, list_entries, search
from ..posix.files.shell_library import PATH_LIBRARY, Refusal, call
from ..posix.files.transfer import Sink
from ..posix.persistent_shell import PersistentShell, open_held_shell
from .engine import EngineError
from .information import hidden_by
from .tar_entry import EntryReader, TarEntry, TarError
from .transport import ContainerTransport

__all__ = [
    "builtin_library",
    "find_script",
    "open_archive_files",
    "parse_place",
]


# -- A probe of files with shell builtins only, and the parser of its answer. Pure.
#
# It replaces the library for targets with tools (:mod:`..posix.files.shell_library`) for directories, with the same
# calls and answers. Sizes are unknown here: they are -1.


# hxp_gone: exits with the reason why $real does not exist. hxp_deep: a subshell for paths beyond the maximum length.
# The output is counted, so that the caller sees when it exceeds the limit ($left, unless $all).
_LIBRARY = r"""
hxf_scheme=sha256
hxf_link() { exit 1; }
hxp_gone() {
  [ -x "$dir" ] || exit 71
  [ -L "$real" ] || exit 70
  case $( (: <"$real") 2>&1 ) in
    *ymbolic*) exit 77 ;;
    *ermission*) exit 71 ;;
    *'ot a directory'*) exit 73 ;;
  esac
  exit 70
}
hxp_enter() {
  hxf_abs "$1"
  hxf_enter || hxf_missing
  [ -e "$real" ] || { [ "$2" = 0 ] && [ -L "$real" ]; } || hxp_gone
  [ -z "$slash" ] || [ -d "$real" ] || exit 73
}
hxp_follow() {
  if [ -L "$real" ] && [ -d "$real" ] && cd -P "$real" 2>/dev/null; then real=$PWD; fi
}
hxp_kind() {
  if [ -d "$1" ]; then kind=d; elif [ -f "$1" ]; then kind=f; else kind=o; fi
}
hxp_find() {
  hxp_enter "$1" "$2"
  [ "$2" = 0 ] || hxp_follow
  hxp_kind "$real"
  leads=$kind readable=0
  [ ! -L "$real" ] || kind=l
  [ ! -r "$real" ] || readable=1
  printf '%s\0' "$kind" "$leads" "$readable" "$real" "$$"
  [ ! -r /proc/self/mountinfo ] || while IFS= read -r line; do printf '%s\0' "$line"; done </proc/self/mountinfo
}
hxf_status() { hxp_enter "$1" "$2"; }
hxf_tree() {
  hxp_enter "$1" 1
  hxp_follow
  [ -d "$real" ] || exit 73
  { [ -r "$real" ] && cd "$real" 2>/dev/null; } || exit 71
  shape=$2 mark=$3 left=$4 pattern=$5 all= under=
  [ "$left" != 0 ] || all=1
  case $shape in expand) hxf_expand ;; *) hxp_dir '' ;; esac
}
hxp_say() {
  printf '%s%s -1 %s\n' "$mark" "$kind" "$1"
  left=$((left - ${#mark} - ${#1} - 6))
  [ -n "$all" ] || [ "$left" -gt 0 ] || exit 0
}
hxp_dir() {
  for name in "$1"* "$1".[!.]* "$1"..?*; do
    if [ -L "$name" ]; then kind=l; else [ -e "$name" ] || continue; hxp_kind "$name"; fi
    hxp_say "$under$name"
    if [ "$shape" = list ] || [ "$kind" != d ]; then continue; fi
    case $shape/${name##*/} in visible/.*) continue ;; esac
    if [ "${#name}" -lt 2000 ]; then hxp_dir "$name/"; else hxp_deep "$name"; fi
  done
}
hxp_deep() {
  (cd -P "./$1" 2>/dev/null || exit 9; under=$under$1/; hxp_dir ''; exit 9)
  [ $? = 9 ] || exit 0
}
hxf_expand() {
  IFS=
  for name in $pattern; do
    [ -e "$name" ] || [ -L "$name" ] || continue
    hxp_kind "$name"
    hxp_say "$name"
  done
}
"""

_TYPES: dict[str, FileType] = {"f": "file", "d": "dir", "l": "link"}


def builtin_library(home: str) -> str:
    """The library, for a shell whose environment may lack HOME."""
    return f"hxf_home=${{HOME:-{shlex.quote(home or '/')}}}\n{PATH_LIBRARY}\n{_LIBRARY}"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts about a path.

    ``real`` contains no links, except the last part if ``type`` is ``link`` or it was ``followed``. ``leads_to`` is the
    type of a link's target, and ``readable`` refers to that, for the container's user. ``pid`` is the shell's, and
    ``mounts`` are the lines of ``/proc/self/mountinfo``, empty if that is not readable.
    """

    type: FileType
    leads_to: FileType
    readable: bool
    real: str
    pid: int
    mounts: tuple[str, ...]
    followed: bool = False


def find_script(path: str, *, follow: bool) -> str:
    """Return the call that prints a :class:`FileFacts`; with ``follow``, links to directories are followed."""
    return call("hxp_find", path, int(follow))


def parse_place(text: str) -> FileFacts:
    """Parse the answer of :func:`find_script`."""
    kind, leads, readable, real, pid, *mounts = text.removesuffix("\0").split("\0")
    return FileFacts(
        _TYPES.get(kind, "other"), _TYPES.get(leads, "other"), readable == "1", real, int(pid), tuple(mounts)
    )


# -- Files of an image with only ``sh``: found by its shell, read from the engine's archive, never written.
#
# * The shell decides, as the container's user, what exists, what is readable, and where a directory leads. * The engine
# delivers content and properties, as a tar archive. It reads as root, so it is asked only for files that the shell has
# found readable; a process that renames files in that moment can make it read another file of the container.
#   It sees the volumes that it has mounted, but not always other mounts: see :mod:`.information`.
# * Files are never written: without a program that renames, a write could leave a partial file under the real name.


READ_LIMIT = 256 << 20
"""Maximum bytes that one read returns; a download has no limit."""
MAX_SYMLINKS = 40

Check = Callable[[TarEntry], None]


class _LimitReached(Exception):
    pass


class _EntryCopier:
    """A copier of an archive's first entry: ``check`` gets its header, ``sink`` its content."""

    def __init__(self, check: Check, sink: Sink | None) -> None:
        self.reader = EntryReader()
        self._check = check
        self._sink = sink

    async def feed(self, data: bytes) -> None:
        before = self.reader.entry
        content = self.reader.feed(data)
        entry = self.reader.entry
        if before is None and entry is not None:
            self._check(entry)
        if content and self._sink is not None:
            await self._sink(content)
        if self.reader.complete or (entry is not None and self._sink is None):
            raise _LimitReached


def _is_at(entry: TarEntry, place: FileFacts) -> bool:
    """Return True if an archive starts with the requested path, and not with its content."""
    return place.followed or entry.name == posixpath.basename(place.real)


class _ArchiveSource(SourceFile):
    """A file that is read up to the size that it had when it was opened; it may grow meanwhile."""

    def __init__(
        self, read: Callable[[Check, Sink], Awaitable[TarEntry]], entry: TarEntry, path: str, target: Target
    ) -> None:
        self.path = path
        self.size = entry.size
        self.mode = entry.mode & 0o777
        self.mtime = entry.mtime
        self.data = None
        self._read = read
        self._target = target

    async def copy(self, offset: int, sink: Sink) -> None:
        await self._copy(offset, self.size, sink)

    async def _copy(self, start: int, end: int, sink: Sink) -> None:
        done = 0

        def check(entry: TarEntry) -> None:
            if entry.size < end:
                raise FileError(f"{display_path(self.path)}: the file shrank while it was read", target=self._target)

        async def keep(data: bytes) -> None:
            nonlocal done
            part = data[max(0, start - done) : max(0, end - done)]
            done += len(data)
            if part:
                await sink(part)

        await self._read(check, keep)

    async def version(self, length: int, scheme: str) -> str | None:
        hasher = Hasher(parse_scheme(scheme))

        async def add(data: bytes) -> None:
            hasher.update(data)

        await self._copy(0, length, add)
        return hasher.version()

    async def check_unchanged(self) -> None:
        """Accept a file that has grown; one that shrank cannot be read to its end."""


class ArchiveFiles(Files):
    """Read-only files of a container, as described in this module; unknown sizes and owners are -1."""

    def __init__(self, transport: ContainerTransport, shell: PersistentShell, local: Callable[[], Transport]) -> None:
        self._transport = transport
        self._downloads = Downloads(shell, local)
        self.aclose = self._downloads.aclose
        self._calls = FileCalls(shell, transport, "/", builtin_library("/"))
        self._inside: bool | None = None

    # -- listing

    async def list_dir(self, path: str) -> list[DirEntry]:
        return await list_entries(self._calls, path)

    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        return await search(self._calls, Search(path, "search"), max_entries)

    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        return await glob_paths(self._calls, pattern, root, max_entries)

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Return a file's metadata; the size of a directory is unknown (-1), and times are whole seconds.

        Podman reports root as the owner of all files, so the owner is unknown too (-1).
        """
        place = await self._locate(path) if follow else await self._find(path, follow=False)
        await self._check_visible(path, place)
        entry = await self._head(path, place.real)
        if entry is not None and place.type == "link" != entry.type:
            raise self._not_shown(path, "it is a link, and the engine shows only its target")
        if entry is None or not _is_at(entry, place):
            raise self._not_shown(path, "the engine shows only its content")
        if entry.type != place.type:
            raise self._changed(path)
        size = {"dir": -1, "link": len(entry.link.encode("utf-8", "surrogateescape"))}.get(entry.type, entry.size)
        target = entry.link if entry.type == "link" else None
        uid, gid = (-1, -1) if self._transport.engine.name == "podman" else (entry.uid, entry.gid)
        return FileStat(place.real, entry.type, size, entry.mode, uid, gid, entry.mtime, target)

    # -- reading

    async def read(
        self, path: str, offset: int = 0, limit: int | None = None, progress: Progress | None = None
    ) -> FileContent:
        """Read a file or a part of it, at most :data:`READ_LIMIT` bytes; the engine sends the whole file."""
        if offset < 0 or (limit is not None and limit < 0):
            raise ValueError("offset and limit may not be negative")
        place = await self._readable(path)
        part, hasher = io.BytesIO(), Hasher("sha256")
        end = None if limit is None else offset + limit
        done = 0

        async def keep(data: bytes) -> None:
            nonlocal done
            hasher.update(data)
            part.write(data[max(0, offset - done) : None if end is None else max(0, end - done)])
            done += len(data)
            if progress is not None:
                progress(part.tell(), None)

        def check(entry: TarEntry) -> None:
            if min(entry.size, entry.size if end is None else end) - offset > READ_LIMIT:
                raise FileError(
                    f"{display_path(path)}: has {entry.size} bytes; at most {READ_LIMIT} can be read at once here",
                    target=self._transport.target,
                    hint="read it in parts, or download it",
                )

        entry = await self._content(path, place, check, keep)
        return FileContent(part.getvalue(), entry.size, entry.mode, hasher.version(), place.real)

    async def download(
        self, path: str, local: str, progress: Progress | None = None, *, force: bool = False, overwrite: bool = True
    ) -> int:
        """Copy a file to this machine with its permissions, up to its size when the engine opened it."""
        source = await self.open_source(path)
        return await self._downloads.receive(source, local, progress, force=force, overwrite=overwrite)

    async def open_source(self, path: str, *, own_channel: bool = True) -> SourceFile:
        """Open a file to be copied; the engine needs no channel of the shell."""
        place = await self._readable(path)
        entry = await self._head(path, place.real)
        if entry is None:
            raise self._not_shown(path, "the engine does not show it")
        return _ArchiveSource(partial(self._content, path, place), entry, path, self._transport.target)

    async def version(self, path: str, length: int | None = None, scheme: str = "") -> str | None:
        """Return the hash of a file, or of its first bytes; the engine sends the whole file."""
        source = await self.open_source(path)
        return await source.version(source.size if length is None else length, scheme)

    async def _readable(self, path: str) -> FileFacts:
        """Locate a file that the container's user may read."""
        place = await self._locate(path)
        kind = place.type if place.type != "link" else place.leads_to
        if kind != "file" or not place.readable:
            reason = {"dir": Refusal.IS_DIRECTORY, "file": Refusal.DENIED}.get(kind, Refusal.SPECIAL)
            raise file_error(path, reason, b"", self._transport.target)
        await self._check_visible(path, place)
        return place

    async def _content(self, path: str, place: FileFacts, check: Check, sink: Sink) -> TarEntry:
        def check_type(entry: TarEntry) -> None:
            if entry.type != "file" or not _is_at(entry, place):
                raise self._changed(path)
            check(entry)

        copy = _EntryCopier(check_type, sink)
        await self._copy(path, place.real, copy)
        if copy.reader.entry is None:
            raise self._not_shown(path, "the engine does not show it")
        if not copy.reader.complete:
            raise self._changed(path)
        return copy.reader.entry

    # -- finding

    async def _find(self, path: str, *, follow: bool) -> FileFacts:
        return parse_place((await self._calls.run(path, find_script(path, follow=follow))).text)

    async def _locate(self, path: str) -> FileFacts:
        """Follow the links of a path. The shell cannot read links; Docker shows links, Podman their targets.

        The result's type is never ``link``; with Podman its path may be that of a link.
        """
        asked = path
        slash = "/" if path.endswith("/") else ""
        for _ in range(MAX_SYMLINKS):
            place = await self._find(asked, follow=True)
            if place.type != "link":
                return place
            await self._check_visible(path, place)
            entry = await self._head(path, place.real)
            if entry is None or entry.type != "link":
                if not await self._sees_all(place):
                    raise self._not_shown(path, "it is a link, and the engine does not show its target")
                return replace(place, type=place.leads_to, followed=True)
            asked = posixpath.join(posixpath.dirname(place.real), entry.link) + slash
        raise file_error(path, Refusal.LOOP, b"", self._transport.target)

    async def _check_visible(self, path: str, place: FileFacts) -> None:
        """Reject a path for which the engine would send another file, or none."""
        if await self._sees_all(place):
            return
        point = hidden_by(place.mounts, place.real, self._transport.info.mounts)
        if point is not None:
            raise self._not_shown(path, f"it is on the mount {display_path(point)}, which the engine does not show")

    async def _sees_all(self, place: FileFacts) -> bool:
        """Return True if the engine reads from inside: then ``/proc`` has an empty entry for the shell's process id."""
        if self._inside is None:
            copy = _EntryCopier(lambda entry: None, None)
            try:
                await self._copy("/proc", f"/proc/{place.pid}", copy)
            except FileError:
                self._inside = False
            else:
                self._inside = copy.reader.entry is None
        return self._inside

    async def _head(self, path: str, real: str) -> TarEntry | None:
        copy = _EntryCopier(lambda entry: None, None)
        await self._copy(path, real, copy)
        return copy.reader.entry

    async def _copy(self, path: str, real: str, copy: _EntryCopier) -> None:
        try:
            await self._transport.copy_out(real, copy.feed)
        except _LimitReached:
            return
        except EngineError as error:
            if copy.reader.entry is not None:
                raise self._changed(path) from error
            what = "the engine does not show it" if error.status == 404 else f"the engine refused: {error.message}"
            raise self._not_shown(path, what) from error
        except TarError as error:
            raise self._not_shown(path, f"the engine sent an invalid archive: {error}") from error

    def _not_shown(self, path: str, why: str) -> FileError:
        return FileError(
            f"{display_path(path)}: cannot read the file: {why}",
            target=self._transport.target,
            hint="read it with a command",
        )

    def _changed(self, path: str) -> FileError:
        return FileError(
            f"{display_path(path)}: the file changed while it was read", target=self._transport.target, hint="try again"
        )

    # -- unsupported operations

    def _refuse(self, path: str) -> NoReturn:
        engine = self._transport.engine.name
        raise UnsupportedOperation(
            f"{display_path(path)}: cannot be changed safely: "
            f"the image {self._transport.info.image} has no tools for it, "
            "or nothing in the container is writable",
            target=self._transport.target,
            hint=f"copy with {engine} cp; an image with cat, stat and mv (e.g. busybox) and a writable /tmp suffices",
        )

    async def write(
        self,
        path: str,
        content: bytes,
        mode: WriteMode = "overwrite",
        expect: str | AnyVersion | None = ANY,
        parents: bool = True,
        permissions: int | None = None,
        progress: Progress | None = None,
        *,
        force: bool = False,
    ) -> WriteResult:
        self._refuse(path)

    async def upload(
        self, local: str, path: str, progress: Progress | None = None, *, force: bool = False
    ) -> WriteResult:
        self._refuse(path)

    async def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, mode: int = 0o777) -> None:
        self._refuse(path)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        self._refuse(path)

    async def rename(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        self._refuse(source)


@asynccontextmanager
async def open_archive_files(
    transport: ContainerTransport, local: Callable[[], Transport]
) -> AsyncIterator[ArchiveFiles]:
    """Provide the files of a container with only ``sh``; its shell starts on first use."""
    async with open_held_shell(transport) as shell:
        files = ArchiveFiles(transport, shell, local)
        try:
            yield files
        finally:
            await files.aclose()
