"""What a ``sh`` without any program can tell of files: builtins only. Pure text, and the reading of its answer.

It takes the place of the library for targets with tools (:mod:`..posix.filescript`) where that looks at directories,
with the same calls and the same answers. Sizes are not known here: they are -1.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.results import FileType

from ..posix.filescript import PATH_LIBRARY, call

__all__ = ["Place", "find_script", "parse_place", "poor_library"]

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


def poor_library(home: str) -> str:
    """The library, for a shell whose environment may lack HOME."""
    return f"hxf_home=${{HOME:-{shlex.quote(home or '/')}}}\n{PATH_LIBRARY}\n{_LIBRARY}"


@dataclass(frozen=True, slots=True)
class Place:
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
    """The call that answers with a :class:`Place`; with ``follow`` links that lead to directories are followed."""
    return call("hxp_find", path, int(follow))


def parse_place(text: str) -> Place:
    """Read the answer."""
    kind, leads, readable, real, pid, *mounts = text.removesuffix("\0").split("\0")
    return Place(_TYPES.get(kind, "other"), _TYPES.get(leads, "other"), readable == "1", real, int(pid), tuple(mounts))
