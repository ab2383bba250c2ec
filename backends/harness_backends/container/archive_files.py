"""Files of an image that has nothing but a poor shell, from the archive of its engine."""

from __future__ import annotations

import io
import posixpath
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

from harness.backend import ANY, AnyVersion, Files, Progress, WriteMode
from harness.errors import FileError, UnsupportedOperation
from harness.results import DirEntry, FileContent, FileStat, FileType, WriteResult

from ..posix.files.calls import FileCalls, Hasher, display_path, file_error
from ..posix.files.local_copy import replace_local
from ..posix.files.search import Search, glob_paths, list_entries, search
from ..posix.files.shell_library import PATH_LIBRARY, Refusal, call
from ..posix.files.transfer import Sink
from ..posix.persistent_shell import PersistentShell, open_held_shell
from .http import EngineError
from .information import hidden_by
from .tarentry import EntryReader, TarEntry, TarError
from .transport import ContainerTransport

__all__ = [
    "builtin_library",
    "find_script",
    "open_archive_files",
    "parse_place",
]


# -- What a ``sh`` without any program can tell of files: builtins only. Pure text, and the reading of its answer.
#
# It takes the place of the library for targets with tools (:mod:`..posix.files.shell_library`) where that looks at
# directories, with the same calls and the same answers. Sizes are not known here: they are -1.


# hxp_gone: why there is nothing at $real. hxp_deep: a shell of its own for what is deeper than a path may be long.
# What the shell writes is counted, so that the caller sees when it is more than it wanted ($left, unless $all).
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
    """What is at a path. ``real`` has no links in it but for the last, when ``type`` is that, or it was ``followed``.

    ``leads_to`` is what a link leads to, and ``readable`` is said of that, for the container's user. ``pid`` is the
    shell's, and ``mounts`` are the lines of ``/proc/self/mountinfo``, none when that cannot be read.
    """

    type: FileType
    leads_to: FileType
    readable: bool
    real: str
    pid: int
    mounts: tuple[str, ...]
    followed: bool = False


def find_script(path: str, *, follow: bool) -> str:
    """The call that answers with a :class:`FileFacts`; with ``follow`` links that lead to directories are followed."""
    return call("hxp_find", path, int(follow))


def parse_place(text: str) -> FileFacts:
    """Read the answer."""
    kind, leads, readable, real, pid, *mounts = text.removesuffix("\0").split("\0")
    return FileFacts(
        _TYPES.get(kind, "other"), _TYPES.get(leads, "other"), readable == "1", real, int(pid), tuple(mounts)
    )


# -- Files of an image that has nothing but ``sh``: looked at by its shell, read from its engine's archive, never
# written.
#
# * The shell decides, as the container's user: what is there, what may be read, where a directory leads.
# * The engine delivers content and properties, as a tar archive. It reads as root, so it is asked only for what the
#   shell has found readable; who renames files of the container in that moment may make it read another one of the
#   container. It sees the volumes that it has mounted, and not always other mounts: see :mod:`.information`.
# * Nothing is changed: without a program that renames, a write could leave half a file under the real name.


READ_LIMIT = 256 << 20
"""Most bytes that one read returns. A download has no limit."""
MAX_SYMLINKS = 40

Check = Callable[[TarEntry], None]


class _LimitReached(Exception):
    pass


class _EntryCopier:
    """Takes the first entry out of an archive: ``check`` sees what it is, ``sink`` gets its content."""

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
    """True when an archive begins with what was asked for, and not with what is in it."""
    return place.followed or entry.name == posixpath.basename(place.real)


class ArchiveFiles(Files):
    """See :class:`harness.backend.Files` and this module. What cannot be known here is -1: sizes, owners."""

    def __init__(self, transport: ContainerTransport, shell: PersistentShell) -> None:
        self._transport = transport
        self._calls = FileCalls(shell, transport, "/", builtin_library("/"))
        self._inside: bool | None = None

    # -- looking

    async def list_dir(self, path: str) -> list[DirEntry]:
        return await list_entries(self._calls, path)

    async def walk(self, path: str, *, max_entries: int = 100_000) -> list[DirEntry]:
        return await search(self._calls, Search(path, "search"), max_entries)

    async def glob(self, pattern: str, *, root: str = ".", max_entries: int = 100_000) -> list[str]:
        return await glob_paths(self._calls, pattern, root, max_entries)

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """One file's metadata. The size of a directory is not known (-1), and times are whole seconds.

        Podman names root as the owner of everything, so that its owners are not known either (-1).
        """
        place = await self._locate(path) if follow else await self._find(path, follow=False)
        await self._check_visible(path, place)
        entry = await self._head(path, place.real)
        if entry is not None and place.type == "link" != entry.type:
            raise self._not_shown(path, "it is a link, and its engine shows only what it leads to")
        if entry is None or not _is_at(entry, place):
            raise self._not_shown(path, "its engine does not show it itself")
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
        """Read a file or a part of it, :data:`READ_LIMIT` bytes at most. The whole file comes from the engine."""
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
                    f"{display_path(path)}: holds {entry.size} bytes; at most {READ_LIMIT} are read at once here",
                    target=self._transport.target,
                    hint="read it in parts, or download it",
                )

        entry = await self._content(path, place, check, keep)
        return FileContent(part.getvalue(), entry.size, entry.mode, hasher.version(), place.real)

    async def download(self, path: str, local: str, progress: Progress | None = None, *, force: bool = False) -> int:
        """Copy a file to this machine with its permissions; as large as it was when the engine opened it."""
        place = await self._readable(path)
        done = total = 0

        def check(entry: TarEntry) -> None:
            nonlocal total
            total = entry.size

        async with replace_local(local, force=force) as replacement:

            async def keep(data: bytes) -> None:
                nonlocal done
                await replacement.write(data)
                done += len(data)
                if progress is not None:
                    progress(done, total)

            entry = await self._content(path, place, check, keep)
            await replacement.commit(entry.mode & 0o777)
        return done

    async def _readable(self, path: str) -> FileFacts:
        """Where a file is that the container's user may read."""
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
            raise self._not_shown(path, "its engine does not show it")
        if not copy.reader.complete:
            raise self._changed(path)
        return copy.reader.entry

    # -- finding

    async def _find(self, path: str, *, follow: bool) -> FileFacts:
        return parse_place((await self._calls.run(path, find_script(path, follow=follow))).text)

    async def _locate(self, path: str) -> FileFacts:
        """Where a path leads. A shell cannot read links: Docker shows where they point, Podman what they lead to.

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
                    raise self._not_shown(path, "it is a link, and its engine does not show where it leads")
                return replace(place, type=place.leads_to, followed=True)
            asked = posixpath.join(posixpath.dirname(place.real), entry.link) + slash
        raise file_error(path, Refusal.LOOP, b"", self._transport.target)

    async def _check_visible(self, path: str, place: FileFacts) -> None:
        """Refuse what the engine would answer with another file, or with none."""
        if await self._sees_all(place):
            return
        point = hidden_by(place.mounts, place.real, self._transport.info.mounts)
        if point is not None:
            raise self._not_shown(path, f"it is on the mount {display_path(point)}, which its engine does not show")

    async def _sees_all(self, place: FileFacts) -> bool:
        """True when the engine looks from inside. It shows nothing of ``/proc`` then, and knows our shell there."""
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
            what = "its engine does not show it" if error.status == 404 else f"its engine refused: {error.message}"
            raise self._not_shown(path, what) from error
        except TarError as error:
            raise self._not_shown(path, f"what its engine sent is damaged: {error}") from error

    def _not_shown(self, path: str, why: str) -> FileError:
        return FileError(
            f"{display_path(path)}: cannot be had: {why}", target=self._transport.target, hint="read it with a command"
        )

    def _changed(self, path: str) -> FileError:
        return FileError(
            f"{display_path(path)}: changed while it was read", target=self._transport.target, hint="try again"
        )

    # -- what is not done here

    def _refuse(self, path: str) -> NoReturn:
        engine = self._transport.engine.name
        raise UnsupportedOperation(
            f"{display_path(path)}: cannot be changed safely: "
            f"the image {self._transport.info.image} has no tools for it, "
            "or nothing in the container is writable",
            target=self._transport.target,
            hint=f"copy with {engine} cp; an image with cat, stat and mv (busybox has all) and a writable /tmp does it",
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
async def open_archive_files(transport: ContainerTransport) -> AsyncIterator[ArchiveFiles]:
    """The files of a container that has nothing but ``sh``; its shell is started by the first use."""
    async with open_held_shell(transport) as shell:
        yield ArchiveFiles(transport, shell)
