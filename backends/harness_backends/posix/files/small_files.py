"""Many small files at once: read by one process, and received and verified by one.

To read, one ``cat`` follows the metadata of all files, which is compared with that afterwards. To receive, ``tar``
unpacks the files into a private directory next to their destination. Those that replace a file get its attributes. One
hash of all content and sizes there is compared with what was sent. Then new files get their names by ``ln``, which
replaces nothing and follows no link, and others by ``mv`` under the lock that every writer takes. What cannot be
received so is left to the caller: what would replace a link, a read-only file or one of another owner than the first
one, what would lose an attribute, and files of a directory that gives other attributes than the first one. Whatever
fails before changes nothing.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Sequence

from harness.backend import ReceiveRequest, SmallFile
from harness.errors import FileError

from .content import FileWriter, slices, stage_name
from .copying import COPY_LIBRARY, masked_mode, touch_times
from .file_calls import FileCalls, Hasher, Scheme, fields_of, parse_stat, version_of
from .shell_library import call
from .transfer import collect, drain, feed

__all__ = ["SmallFiles"]

MAX_METADATA_BYTES = 256 << 10
"""Bytes of the metadata of all files that are read at once."""

# The stage is the working directory, so that no path is followed that others could change. Files of its own directory
# (number 0) inherit from the stage what they would inherit there; those of other directories only if these are alike.
# What replaces a file is moved from the directory N of the stage to N.old. A file leaves the stage with its name. mv
# renames only within one mount, which a hard link proves.
BATCH_LIBRARY = r"""
hxf_stats() {
  if stat -c %s / >/dev/null 2>&1 </dev/null; then
    stat -L -c "%f %a %s %u %g $hxf_time" "$@"
  else
    for path do hxf_stat "$path"; done
  fi
}
hxf_read_several() {
  readable=
  for path do
    hxf_abs "$path"
    shift
    if [ -f "$file" ] && [ -r "$file" ]; then
      [ ! -L "$file" ] || { hxf_follow && file=$real; } || exit 70
      readable=${readable}1
      set -- "$@" "$file"
    else
      readable=${readable}0
    fi
  done
  [ "$#" -gt 0 ] || exit 71
  before=$(hxf_stats "$@") || exit 1
  hxf_reply "$readable" "$before"
  cat "$@" || exit 1
  [ "$before" = "$(hxf_stats "$@")" ] || exit 76
}
hxf_hash_several() {
  hxf_scheme=${1:-$hxf_scheme}
  shift
  for path do
    hxf_abs "$path"
    hxf_readable
    shift
    set -- "$@" "$real"
  done
  case $hxf_scheme in
    sha256) hashes=$(hxf_digest "$@" | while read -r hash _; do echo "sha256:${hash#\\}"; done) ;;
    cksum) hashes=$(cksum "$@" | while read -r hash size _; do echo "cksum:$hash:$size"; done) ;;
    *) exit 85 ;;
  esac
  hxf_reply "$hashes"
}
hxf_receive_several() {
  hxf_abs "$1"
  cd -P "$file" 2>/dev/null || exit 70
  home=$PWD stage=${PWD%/}/$2 sweep=$4 hxf_locked= flags=
  hxf_signature . top
  trap 'trap "" 1 2 13 15; cd /; [ -z "$hxf_locked" ] || rmdir "$hxf_locked"; rm -rf "$stage"' 0
  trap 'exit 143' 1 2 13 15
  (umask 077; mkdir "$stage") || { trap - 0; exit 1; }
  cd -P "$stage" && [ "$PWD" = "$stage" ] || exit 71
  want=$3
  shift 4
  hxf_check_stage $(ls -ldn .)
  (umask 077; mkdir "$@" && exec tar -xmof -) || exit 1
  hxf_hash run
  [ "$hash" = "$want" ] || exit 84
  . ./run
  hxf_reply "$flags"
  dir=$home
  [ "$sweep" != 1 ] || hxf_sweep
}
hxf_old() { old=${1%/*}.old/${1##*/}; }
hxf_located() {
  act=$1
  shift
  for path do
    shift
    hxf_old "$path"
    [ -f "$path" ] || path=$old
    set -- "$@" "$path"
  done
  "$act" "$@"
}
hxf_new() {
  act=$1
  shift
  for path do
    shift
    [ ! -f "$path" ] || set -- "$@" "$path"
  done
  [ "$#" = 0 ] || "$act" "$@"
}
hxf_check_stage() {
  [ "$3" = "$hxf_uid" ] || exit 71
  case $1 in d???--[-S]--- | d???--[-S]---.) ;; *) exit 88 ;; esac
}
hxf_verify() {
  hash=$({ cat "$@" && hxf_stats "$@" | while read -r _ _ size _; do echo "$size"; done; } | hxf_sum | hxf_first)
  hxf_scheme_hash
  [ "$hash" = "$want" ] || exit 84
}
hxf_touch() {
  TZ=UTC0 touch -m -d "$exact" "$@" 2>/dev/null || TZ=UTC0 touch -m -t "$short" "$@" || exit 1
}
hxf_chmod() { chmod "$mode" "$@" || exit 1; }
hxf_sync_stage() {
  why=$(sync -f . 2>&1) && return 0
  case $why in *'No space'* | *'quota'* | *'nput/output error'*) printf '%s\n' "$why" >&2; exit 1 ;; esac
  for path do hxf_sync "$path"; done
}
hxf_signature() {
  set -- "$2" $(ls -ldn "$1/.")
  case $2 in d?????[Ss]???) kind=s ;; d?????[-x]???) kind=- ;; *) kind= ;; esac
  eval "$1=\$kind\$5"
  [ -n "$kind" ]
}
hxf_is_alike() { [ "$number" = 0 ] || { hxf_signature "$file" here && [ "$here" = "$top" ]; }; }
hxf_dress_several() {
  hxf_abs "$1"
  number=$2 force=$3 owner= modes=
  shift 3
  for name do
    shift
    [ ! -f "$file/$name" ] || [ -L "$file/$name" ] || set -- "$@" "$name"
  done
  [ "$#" -gt 0 ] && [ -w "$file" ] && [ "$hxf_cp" != old ] && hxf_is_alike || return 0
  stats=$(cd "$file" && hxf_stats "$@") 2>/dev/null || return 0
  hxf_dress_listed "$@" <<END
$stats
END
}
hxf_dress_listed() {
  unread=$#
  while [ "$unread" -gt 0 ] && read -r _ bits _ uid gid _; do
    name=$1 unread=$((unread - 1))
    shift
    ! hxf_may_replace || set -- "$@" "$name"
  done
  [ -n "$owner" ] && [ "$unread" = 0 ] || return 0
  hxf_give "$@" || return 0
  mkdir "$number.old" && (cd "$number" && mv -f "$@" "$stage/$number.old/") || exit 1
}
hxf_may_replace() {
  [ -z "$owner" ] || [ "$owner" = "$uid:$gid" ] || return 1
  if [ "$force" = 1 ]; then :
  elif [ "$hxf_uid" != 0 ]; then [ -w "$file/$name" ] || return 1
  else case $bits in *[2367]? | *[2367]?? | *[2367]) ;; *) return 1 ;; esac
  fi
  owner=$uid:$gid modes="$modes $bits"
}
hxf_give() {
  [ "$(hxf_owner "$number/$1")" = "$owner" ] || (cd "$number" && chown "$owner" "$@") 2>/dev/null || return 1
  if [ "$hxf_cp" = new ]; then
    (cd "$file" && cp --attributes-only --preserve=mode,xattr "$@" "$stage/$number/") 2>/dev/null
    return
  fi
  for bits in $modes; do
    chmod "$bits" "$number/$1" || return 1
    shift
  done
}
hxf_owner() {
  set -- $(hxf_stat "$1")
  printf %s "$4:$5"
}
hxf_name() {
  hxf_abs "$1"
  number=$2
  shift 2
  hxf_is_alike || return 0
  hxf_create_several "$@"
  [ ! -d "$number.old" ] || hxf_replace_several "$@"
}
hxf_create_several() {
  for name do
    shift
    [ ! -f "$number/$name" ] || [ -e "$file/$name" ] || [ -L "$file/$name" ] || set -- "$@" "$name"
  done
  [ "$#" -gt 0 ] || return 0
  if (cd "$number" && ln "$@" "$file/" && rm -f "$@") 2>/dev/null; then return 0; fi
  for name do
    ! hxf_is_linked "$number/$name" || rm -f "$number/$name"
  done
}
hxf_is_linked() {
  set -- $(ls -ldn "$1" 2>/dev/null)
  [ "$2" = 2 ]
}
hxf_replace_several() {
  for name do
    shift
    [ ! -f "$number.old/$name" ] || set -- "$@" "$name"
  done
  hxf_is_one_mount "$1" || return 0
  dir=$file
  hxf_acquire
  for name do
    shift
    [ ! -f "$file/$name" ] || [ -L "$file/$name" ] || set -- "$@" "$name"
  done
  [ "$#" = 0 ] || (cd "$number.old" && mv -f "$@" "$file/") 2>/dev/null
  rmdir "$hxf_locked"
  hxf_locked=
}
hxf_is_one_mount() {
  set -- "$number.old/$1" "$file/${stage##*/}.$number"
  [ "$number" = 0 ] || { ln "$1" "$2" && rm -f "$2"; } 2>/dev/null
}
hxf_report() {
  for path do
    hxf_old "$path"
    if [ -f "$path" ] || [ -f "$old" ]; then flags=${flags}0; else flags=${flags}1; fi
  done
}
"""
_LIBRARY = COPY_LIBRARY + BATCH_LIBRARY


class SmallFiles:
    """Small files of one target, many at once. Each method needs a channel of its own."""

    def __init__(self, calls: FileCalls, writer: FileWriter) -> None:
        self._calls = calls
        self._writer = writer

    async def read(self, paths: Sequence[str], max_bytes: int) -> list[SmallFile | None]:
        """Read files; None for those that are not regular or may not be read."""
        process = await self._calls.open_channel(_LIBRARY + call("hxf_read_several", *paths))
        answer = bytearray()

        async def keep(data: bytes) -> None:
            answer.extend(data)
            if len(answer) > max_bytes + MAX_METADATA_BYTES:
                raise FileError("the files have more content than was found", target=self._calls.where)

        self._calls.checked(paths[0], await drain(process, keep))
        with self._calls.understanding(paths[0], bytes(answer[:100])):
            return _parse_files(answer, len(paths))

    async def versions(self, paths: Sequence[str], scheme: str) -> list[str]:
        """Return the hashes of files; an error of one is an error of all."""
        process = await self._calls.open_channel(_LIBRARY + call("hxf_hash_several", scheme, *paths))
        reply = self._calls.checked(paths[0], await collect(process))
        with self._calls.understanding(paths[0], reply.stdout):
            (_, text), _ = fields_of(reply.stdout, 2)
            versions = text.split("\n")
            if len(versions) != len(paths):
                raise ValueError(f"{len(versions)} hashes of {len(paths)} files")
        return versions

    async def receive(self, files: Sequence[SmallFile], requests: Sequence[ReceiveRequest]) -> list[bool]:
        """Create or replace files, and return of each whether this call has done it."""
        batch = _Batch(files, requests)
        version, archive = batch.build(await self._calls.scheme())
        first, stage = requests[0].path, stage_name()
        sweep = int(self._writer.sweep_due(first))
        numbers = range(len(batch.directories))
        order = call("hxf_receive_several", batch.directories[0], stage, version, sweep, *numbers)
        process = await self._calls.open_channel(_LIBRARY + order)
        try:
            reply = await feed(process, slices(archive))
        except BaseException:
            if self._calls.connected:  # after a lost connection the program cleans up itself
                await self._writer.unstage(first, stage)
            raise
        self._calls.checked(first, reply)
        with self._calls.understanding(first, reply.stdout):
            (_, flags), _ = fields_of(reply.stdout, 2)
            if len(flags) != len(files):
                raise ValueError(f"{len(flags)} results of {len(files)} files")
        return [flag == "1" for flag in flags]


def _parse_files(answer: bytearray, count: int) -> list[SmallFile | None]:
    """Return the files of an answer: which are readable, lines of metadata, and content without anything between."""
    end = -1
    for _ in range(3):
        end = answer.index(b"\0", end + 1)
    (_, readable, text), _ = fields_of(bytes(answer[: end + 1]), 3)
    stats = [parse_stat(line) for line in text.split("\n")]
    if len(readable) != count or len(stats) != readable.count("1"):
        raise ValueError("metadata of another number of files")
    if (
        any(stat.size < 0 or stat.type != "file" for stat in stats)
        or sum(stat.size for stat in stats) != len(answer) - end - 1
    ):
        raise ValueError("content that does not fit the metadata")
    files, start = [], end + 1
    for stat in stats:
        files.append(SmallFile(stat.mode & 0o777, stat.mtime, bytes(memoryview(answer)[start : start + stat.size])))
        start += stat.size
    left = iter(files)
    return [next(left) if flag == "1" else None for flag in readable]


class _Batch:
    """Files to create: an archive, with the script that gives them their attributes and their names."""

    def __init__(self, files: Sequence[SmallFile], requests: Sequence[ReceiveRequest]) -> None:
        self._files = files
        self._requests = requests
        parents = [posixpath.dirname(request.path) or "." for request in requests]
        self.directories = list(dict.fromkeys(parents))
        known = {directory: number for number, directory in enumerate(self.directories)}
        self.numbers = [known[parent] for parent in parents]
        """The number of the directory of each file."""
        self._names = [f"./{posixpath.basename(request.path)}" for request in requests]
        self._staged = [f"./{number}/{name[2:]}" for number, name in zip(self.numbers, self._names, strict=True)]

    def build(self, scheme: Scheme) -> tuple[str, bytes]:
        """Return the version of the script, and the archive, which contains it."""
        script = self._script(scheme).encode("utf-8", "surrogateescape")
        buffer = io.BytesIO()
        with tarfile.open(
            fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            _add(archive, "run", script)
            for path, file in zip(self._staged, self._files, strict=True):
                _add(archive, path, file.data)
        return version_of(script, scheme), buffer.getvalue()

    def _script(self, scheme: Scheme) -> str:
        hasher = Hasher(scheme)
        for file in self._files:
            hasher.update(file.data)
        hasher.update("".join(f"{len(file.data)}\n" for file in self._files).encode())
        modes: dict[tuple[str, bool], list[str]] = {}
        times: dict[float, list[str]] = {}
        names: dict[int, list[str]] = {}
        for request, path, number, name in zip(self._requests, self._staged, self.numbers, self._names, strict=True):
            modes.setdefault((_mode_of(request), request.permissions is not None), []).append(path)
            if request.mtime is not None:
                times.setdefault(request.mtime, []).append(path)
            names.setdefault(number, []).append(name)
        force = int(self._requests[0].force)
        lines = [
            call("hxf_dress_several", self.directories[number], number, force, *paths)
            for number, paths in names.items()
        ]
        lines += [f"want={hasher.version()}", call("hxf_located", "hxf_verify", *self._staged)]
        for time, paths in times.items():
            exact, short = touch_times(time)
            lines += [f"exact={exact} short={short}", call("hxf_located", "hxf_touch", *paths)]
        for (mode, is_exact), paths in modes.items():
            lines += [f"mode={mode}", call("hxf_located" if is_exact else "hxf_new", "hxf_chmod", *paths)]
        lines += [call("hxf_located", "hxf_sync_stage", *self._staged)]
        lines += [call("hxf_name", self.directories[number], number, *paths) for number, paths in names.items()]
        lines += [call("hxf_report", *self._staged)]
        return "\n".join(lines) + "\n"


def _mode_of(request: ReceiveRequest) -> str:
    if request.permissions is not None:
        return f"{request.permissions:04o}"
    return "=rw" if request.new_permissions is None else masked_mode(request.new_permissions)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))
