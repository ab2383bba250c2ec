"""The shell library: functions that read and write files on the target. Pure."""

from __future__ import annotations

import re
import shlex
from enum import IntEnum

__all__ = [
    "INLINE_READ",
    "STAGE_PREFIX",
    "Refusal",
    "call",
    "encode_inline",
    "library",
    "standalone",
]


# -- The writing part of the shell library.
#
# A write stages its content in a hidden file next to the real one, checks that it is complete, and then, under a lock
# on the directory, compares the current version with the expected one and renames. If it is stopped, it removes the
# hidden file; after a kill, a later write in that directory removes it once it is a day old. To stop it, its input is
# closed and then a signal is sent, which must not interrupt the removal: neither the shell nor its ``rm``.
#
# The lock is a directory ``.hx-lock``: every target can create one, so that harness processes with different tools,
# e.g. inside and outside of a container, exclude each other. It is held for a few milliseconds (a large file is hashed
# before, and only its stamp is compared under the lock) and is stale after a minute. It counts as impossible to create
# after five failures without an existing lock, as one failure may be due to a lock that was just released. For an
# append in a directory that is not writable, ``flock`` on the directory is used instead.
#
# A read-only file is not written without ``hxf_force``, although a rename, or root, could do so: ``cp`` and editors
# refuse it too. Forced, it keeps its permissions; an append to a file that cannot be opened for writing goes into a
# copy that replaces it. If the directory is not writable either, a later step reports the reason.
#
# The new file must differ from the old one only in its content. GNU ``cp`` copies permissions, the access control list
# (whose mask appears as the group's bits), the security label and other extended attributes in one process; before 8.20
# it may empty the file, and is not used. Without it only the permission bits are kept, and an access control list that
# the old ``ls`` of GNU shows is an error. What ``cp`` cannot set:
#
# * Capabilities and the IMA signature belong to the old content. The kernel removes capabilities with any write.
# * A file system without attributes (*not supported*; also labels if the whole mount has one, as in containers) has
#   none to lose. The label is still compared, as a wrong one can block access. If new files get no label, SELinux is
#   off, and the old file's label is meaningless.
# * Anything else, ``user.*`` above all, stops the write.
#
# A new file gets its directory's default access control list, to which the umask does not apply.


STAGE_PREFIX = ".hx-tmp-"

WRITE_LIBRARY = r"""
hxf_force= hxf_keep= hxf_new=
hxf_drop() {
  trap '' 1 2 13 15
  [ -z "$hxf_staged" ] || rm -f "$hxf_staged" "$hxf_added"
  [ -z "$hxf_locked" ] || rmdir "$hxf_locked" 2>/dev/null
  [ -z "$hxf_staged" ] || hxf_unmake
}
hxf_unmake() {
  while [ "$hxf_made" -gt 0 ] && rmdir "$dir" 2>/dev/null; do hxf_made=$((hxf_made - 1)) dir=${dir%/*}; done
}
hxf_parents() {
  up=${file%/*}
  at=$up
  case $up/ in *//* | */./* | */../*) ;; *)
    while [ -n "$at" ] && [ ! -e "$at" ] && [ ! -L "$at" ]; do hxf_made=$((hxf_made + 1)) at=${at%/*}; done ;;
  esac
  mkdir -p "${up:-/}" || {
    hxf_ancestor
    exit 1
  }
  hxf_enter || hxf_missing
}
hxf_place() {
  if [ "$mode" = create ]; then hxf_enter; else hxf_follow; fi || {
    [ "$1" = 1 ] || hxf_missing
    hxf_parents
  }
  [ ! -d "$real" ] || exit 72
  [ -z "$slash" ] || exit 72
  if [ -e "$real" ] || [ -L "$real" ]; then
    [ "$mode" != create ] || exit 74
    [ "$expect" != none ] || exit 76
    [ -f "$real" ] || exit 78
    [ -n "$hxf_force" ] || ! hxf_read_only || exit 93
  fi
}
hxf_read_only() {
  [ -w "$dir" ] || return 1
  if [ "$hxf_uid" != 0 ]; then
    [ ! -w "$real" ]
    return $?
  fi
  set -- $(hxf_stat "$real")
  case $2 in *[2367]? | *[2367]?? | *[2367]) return 1 ;; esac
}
hxf_begin() {
  hxf_staged='' hxf_added='' hxf_locked='' hxf_made=0
  trap hxf_drop 0
  trap 'trap - 0; [ -z "$hxf_keep" ] || hxf_staged=; hxf_drop; exit 143' 1 2 13 15
  hxf_abs "$1"
  mode=$2 expect=$3
  hxf_place "$4"
  stage=$dir/$5
  [ "$mode" != append ] || [ -w "$dir" ] || stage=${TMPDIR:-/tmp}/$5
}
hxf_write() {
  hxf_begin "$1" "$2" "$3" "$4" "$6"
  permissions=$5 size=$7 sha256=$8 cksum=$9
  shift 9
  if [ "$mode" = append ] && [ "$1" = inline ]; then
    hxf_guard
  else
    hxf_stage
    hxf_guard
  fi
  created=0
  [ -e "$real" ] || created=1
  "hxf_$mode"
  hxf_reply "$created" "$real" "$hash"
  [ "$2" != 1 ] || hxf_sweep
}
hxf_copy() {
  "$@"
  code=$?
  [ "$code" != 153 ] || exit 75
  [ "$code" != 0 ] || return 0
  [ -e "$stage" ] || [ ! -f "$real" ] || [ ! -w "$real" ] || exit 91
  exit 1
}
hxf_into() { (umask 077; set -C; hxf_data | cat >"$stage"); }
hxf_onto() { (umask 077; hxf_data | cat >>"$stage"); }
hxf_chunk() {
  hxf_begin "$@"
  hxf_staged=$stage
  hxf_copy hxf_onto
  hxf_staged=
  printf %s "$hxf_made"
}
hxf_unstage() {
  hxf_abs "$1"
  hxf_follow || exit 0
  hxf_made=$3
  rm -rf "$dir/$2" "$dir/$2.all" "${TMPDIR:-/tmp}/$2"
  hxf_unmake
}
hxf_stage() {
  hxf_staged=$stage
  [ -f "$stage" ] || hxf_copy hxf_into
  set -- $(hxf_stat "$stage")
  [ "$3" = "$size" ] || exit 84
  if [ -n "$sha256" ]; then
    hxf_hash "$stage"
    case $hash in "$sha256" | "$cksum") ;; *) exit 84 ;; esac
  fi
  hash=
  hxf_sync "$stage"
}
hxf_sync() {
  why=$(dd if=/dev/null of="$1" conv=notrunc,fsync 2>&1) && return 0
  case $why in
    *'No space'* | *'quota'* | *'rror reading'* | *'nput/output error'*) printf '%s\n' "$why" >&2; exit 1 ;;
  esac
}
hxf_acquire() {
  tries=200 odd=0 lock=$dir/.hx-lock
  if [ ! -w "$dir" ]; then
    hxf_acquire_unwritable
    return 0
  fi
  until mkdir "$lock" 2>/dev/null; do
    if [ -e "$lock" ]; then
      odd=0
    else
      why=$(mkdir "$lock" 2>&1) && break
      odd=$((odd + 1))
      [ "$odd" -lt 5 ] || [ -e "$lock" ] || { printf '%s\n' "$why" >&2; exit 1; }
    fi
    hxf_break
    hxf_pause
  done
  hxf_locked=$lock
}
hxf_acquire_unwritable() {
  hxf_has flock && [ -r "$dir" ] || return 0
  exec 9<"$dir"
  until flock -n 9 2>/dev/null; do
    [ $? = 1 ] || return 0
    hxf_pause
  done
}
hxf_pause() {
  tries=$((tries - 1))
  [ "$tries" -gt 0 ] || exit 79
  sleep 0.05 2>/dev/null || sleep 1
}
hxf_break() {
  [ -n "$(find "$lock" -prune -mmin +1 2>/dev/null)" ] || return 0
  mv "$lock" "$stage.lock" 2>/dev/null && rmdir "$stage.lock"
}
hxf_guard() {
  want=${expect#=} before=
  case $expect in =sha256:* | =cksum:*) hxf_prepare ;; esac
  hxf_acquire
  case $expect in
    any) return 0 ;;
    none) [ ! -e "$real" ] || exit 76; return 0 ;;
  esac
  [ -f "$real" ] || exit 76
  if [ -z "$before" ] || ! hxf_stamp "$real" || [ "$stamp" != "$before" ]; then hxf_current; fi
  [ "$hash" = "$want" ] || exit 76
  hash=
}
hxf_prepare() {
  [ -f "$real" ] || exit 76
  set -- $(hxf_stat "$real")
  [ "$3" -gt 1048576 ] && hxf_stamp "$real" || return 0
  before=$stamp
  hxf_current
}
hxf_current() {
  case $want in
    stat:*) hxf_stamp "$real" || exit 85; hash=$stamp ;;
    "$hxf_scheme":*) hxf_hash "$real" ;;
    cksum:*) hash=$(hxf_scheme=cksum; hxf_hash "$real"; printf %s "$hash") ;;
    *) exit 85 ;;
  esac
}
hxf_dress() {
  if [ "$created" = 1 ]; then
    if [ -n "$permissions" ]; then chmod "$permissions" "$stage" || exit 1; return 0; fi
    hxf_listed || chmod "${hxf_new:-=rw}" "$stage" || exit 1
    return 0
  fi
  set -- $(hxf_stat "$real")
  bits=$2 owner=$4:$5 clear=
  set -- $(hxf_stat "$stage")
  if [ "$4:$5" != "$owner" ] && ! chown "$owner" "$stage" 2>/dev/null; then
    chgrp "${owner#*:}" "$stage" 2>/dev/null
    clear=1
  fi
  "hxf_liken_$hxf_cp"
  [ -z "$clear" ] || chmod ug-s "$stage"
}
hxf_listed() {
  case "
$(ls -ld "$real" "$stage" 2>/dev/null)" in *'
-'?????????+*) return 0 ;; esac
  return 1
}
hxf_liken_plain() { chmod "${permissions:-$bits}" "$stage" || exit 1; }
hxf_liken_old() {
  ! hxf_listed || hxf_fail 'its access control list cannot be kept: cp is too old'
  if hxf_labelled "$real" && ! why=$(chcon --reference="$real" "$stage" 2>&1); then
    ! hxf_labelled "$stage" || hxf_fail "$why"
  fi
  hxf_liken_plain
}
hxf_labelled() { case $(ls -ld "$1") in ??????????.*) return 0 ;; esac; return 1; }
hxf_liken_new() {
  if hxf_like mode,xattr; then
    [ -z "$permissions" ] || hxf_liken_plain
    return 0
  fi
  told=$(printf '%s\n' "$why" | grep -v -e 'Operation not supported' -e 'built without' -e 'for reading: Permission' \
    -e "setting attribute 'security\.\(capability\|ima\|selinux\)' for") && hxf_fail "$told"
  told=$why
  hxf_like mode || ! hxf_listed || hxf_fail "$told"
  set -- $(stat -c %C "$real" "$stage" 2>/dev/null)
  [ "$1" = "$2" ] || [ "$2" = '?' ] || hxf_fail "its security label $1 cannot be kept: $told"
  hxf_liken_plain
}
hxf_like() {
  why=$(cp --attributes-only --preserve="$1" "$real" "$stage" 2>&1) || return 1
  [ -s "$stage" ] || [ "$size" = 0 ] || exit 84
}
hxf_fail() { printf '%s\n' "$1" >&2; exit 88; }
hxf_overwrite() {
  hxf_dress
  if [ "$expect" = none ]; then hxf_claim 76; else mv -f "$stage" "$real" || exit 1; fi
  hxf_staged=
}
hxf_create() {
  hxf_dress
  hxf_claim 74
  hxf_staged=
}
hxf_claim() {
  if ln "$stage" "$real" 2>/dev/null; then
    rm -f "$stage"
    return 0
  fi
  [ ! -e "$real" ] && [ ! -L "$real" ] || exit "$1"
  (set -C; : >"$real") 2>/dev/null || { [ -e "$real" ] && exit "$1"; }
  mv -f "$stage" "$real" || exit 1
}
hxf_append() {
  if [ -n "$hxf_staged" ]; then
    hxf_added=$hxf_staged
    hxf_data() { cat "$hxf_added"; }
  fi
  if [ "$created" = 1 ] || [ -w "$real" ]; then
    (: >>"$real") || exit 1
    hxf_add || hxf_unadded
    if [ -n "$permissions" ]; then chmod "$permissions" "$real" || exit 1; fi
    hxf_sync "$real"
  else
    [ -n "$hxf_force" ] || exit 71
    hxf_join
  fi
  set -- $(hxf_stat "$real")
  hxf_version "$real" "$3"
}
hxf_join() {
  [ -w "$dir" ] || exit 71
  stage=$dir/${stage##*/}.all
  hxf_staged=$stage
  hxf_copy hxf_joined
  hxf_sync "$stage"
  hxf_dress
  mv -f "$stage" "$real" || exit 1
  rm -f "$hxf_added"
  hxf_staged=
}
hxf_joined() { (umask 077; set -C; { cat "$real" && hxf_data; } >"$stage"); }
hxf_add() { hxf_data | cat >>"$real"; }
hxf_unadded() {
  [ $? != 153 ] || echo 'File too large' >&2
  [ "$created" = 0 ] || [ -s "$real" ] || rm -f "$real"
  exit 90
}
hxf_sweep() {
  for old in "$dir"/.hx-tmp-*; do
    [ -f "$old" ] || [ -d "$old" ] || continue
    find "$dir/." ! -name . -prune -name '.hx-tmp-*' -type f -mtime +0 -exec rm -f {} + 2>/dev/null
    find "$dir/." ! -name . -prune -name '.hx-tmp-*' -type d -user "$hxf_uid" -mtime +0 -exec rm -rf {} + 2>/dev/null
    return 0
  done
}
"""


# -- The shell side of :mod:`.files`: a library of POSIX shell functions, and the calls into it. Pure.
#
# Every function runs in its own subshell, so its variables need no cleanup. ``file`` is the absolute path, ``real`` the
# path without links, ``dir`` and ``base`` its two parts; ``slash`` is set if the caller's path ends with ``/``. A
# refusal is an exit code (:class:`Refusal`) that is found by testing the file, not by a program's message; for exit
# code 1 the failed program's message on standard error, in locale C, gives the reason.


INLINE_READ = 256 << 10
"""Bytes: up to this size, a file's content is part of the persistent shell's reply."""
HASH_LIMIT = 64 << 20
"""Bytes: above this size, the version of a partly read file is its stamp (inode, size, times), not its hash."""
LOCK_NAME = ".hx-lock"


class Refusal(IntEnum):
    """Exit codes of the library's refusals."""

    MISSING = 70
    DENIED = 71
    IS_DIRECTORY = 72
    NOT_DIRECTORY = 73
    EXISTS = 74
    NO_SPACE = 75
    STALE = 76
    LOOP = 77
    SPECIAL = 78
    BUSY = 79
    NO_USER = 80
    NOT_EMPTY = 81
    PROTECTED = 82
    OTHER_DEVICE = 83
    DAMAGED = 84
    NO_DIGEST = 85
    SLOW = 86
    BIG = 87
    UNLIKE = 88
    FORBIDDEN = 89
    PARTIAL = 90
    FIXED = 91
    MOUNTED = 92
    READ_ONLY = 93
    NO_TEE = 94


PATH_LIBRARY = r"""
hxf_abs() {
  case $1 in
    /*) file=$1 ;;
    '~') file=$hxf_home ;;
    '~/'*) file=$hxf_home/${1#??} ;;
    '~'*) hxf_user "$1" ;;
    *) file=$hxf_home/$1 ;;
  esac
}
hxf_user() {
  who=${1%%/*}
  case $who in '~'[!A-Za-z_]* | '~'*[!A-Za-z0-9._-]*) exit 80 ;; esac
  eval "file=$who"
  case $file in /*) ;; *) exit 80 ;; esac
  case $1 in */*) file=$file/${1#*/} ;; esac
}
hxf_enter() {
  slash=
  while :; do case $file in ?*/) file=${file%/} slash=/ ;; *) break ;; esac; done
  base=${file##*/} dir=${file%/*}
  case $base in
    '' | . | ..)
      cd -P "$file" 2>/dev/null || return 1
      real=$PWD base=${PWD##*/} dir=${PWD%/*}
      dir=${dir:-/}
      return 0 ;;
  esac
  cd -P "${dir:-/}" 2>/dev/null || return 1
  dir=$PWD
  case $dir in */) real=$dir$base ;; *) real=$dir/$base ;; esac
}
hxf_follow() {
  hxf_enter || return 1
  hops=0
  while [ -L "$real" ]; do
    hops=$((hops + 1)) asked=$slash
    [ "$hops" -le 40 ] || exit 77
    hxf_link "$real"
    case $link in /*) file=$link ;; *) file=$dir/$link ;; esac
    hxf_enter || return 1
    slash=$slash$asked
  done
}
hxf_link() {
  if command -v readlink >/dev/null 2>&1; then
    link=$(readlink "$1" | hxf_head 8192; echo x)
    case $link in ??*) link=${link%??} ;; *) exit 1 ;; esac
  else
    link=$(ls -ld "$1" && echo x) || exit 1
    link=${link%??}
    link=${link#*"$1 -> "}
  fi
}
hxf_ancestor() {
  while :; do
    case $file in /?*/*) file=${file%/*} ;; *) file=/ ;; esac
    [ -e "$file" ] || [ -L "$file" ] || continue
    [ -d "$file" ] || [ ! -e "$file" ] || exit 73
    return 0
  done
}
hxf_missing() {
  hxf_ancestor
  [ -d "$file" ] || exit 70
  [ -x "$file" ] || exit 71
  exit 70
}
hxf_existing() {
  hxf_follow || hxf_missing
  if [ ! -e "$real" ]; then [ -x "$dir" ] || exit 71; exit 70; fi
  [ -z "$slash" ] || [ -d "$real" ] || exit 73
}
hxf_protect() {
  home=$(cd -P "$hxf_home" 2>/dev/null && printf '%sx' "$PWD")
  home=${home%x}
  case $home/ in "${real%/}"/*) exit 82 ;; esac
}
"""

# hxf_first and hxf_hex read one line of a program; a program that floods its output is ended by that.
#
# What the programs of this PATH can do is asked with a dozen of them. A process is told what another one has found out
# in hxf_facts: how stat works, its format of times, whether find has -printf, and head -c, how cp works, and the user.
PROBE_LIBRARY = r"""
hxf_has() { command -v "$1" >/dev/null 2>&1; }
hxf_hex() { IFS= read -r first && case $first in *[!0-9a-f]*) return 1 ;; esac; }
hxf_first() { IFS= read -r first && printf '%s\n' "$first"; }
hxf_probe() {
  hxf_facts='ls -'
  if stat -c %f / 2>/dev/null </dev/null | hxf_hex; then
    case $(stat -c %.9Y / 2>/dev/null </dev/null | hxf_first) in
      *[0-9].[0-9]*) hxf_facts='gnu %.9Y' ;;
      *) hxf_facts='gnu %Y' ;;
    esac
  elif stat -f %z / 2>/dev/null </dev/null | hxf_hex; then hxf_facts='bsd -'
  fi
  if find / -prune -printf '%y %s %Px\n' 2>/dev/null </dev/null |
    { IFS= read -r first && [ -z "${first##d * x}" ]; }; then
    hxf_facts="$hxf_facts printf"
  else hxf_facts="$hxf_facts -"; fi
  if printf 'x\nx' 2>/dev/null | head -c 2 2>/dev/null | { IFS= read -r first && [ "$first" = x ]; }; then
    hxf_facts="$hxf_facts head"
  else hxf_facts="$hxf_facts -"; fi
  case $(cp --version 2>/dev/null </dev/null) in
    *coreutils\)' '[0-7].* | *coreutils\)' 8.'[0-9][!0-9]* | *coreutils\)' 8.1'[0-9]*) hxf_facts="$hxf_facts old" ;;
    'cp ('* | 'cp '[0-9]*) hxf_facts="$hxf_facts new" ;;
    *) hxf_facts="$hxf_facts plain" ;;
  esac
  hxf_facts="$hxf_facts $(id -u 2>/dev/null </dev/null)"
}
hxf_use() { hxf_stats=$1 hxf_time=$2 hxf_find=$3 hxf_heads=$4 hxf_cp=$5 hxf_uid=$6; }
[ -n "$hxf_facts" ] || hxf_probe
hxf_use $hxf_facts
if [ "$hxf_stats" = gnu ]; then
  hxf_stat() { stat -c "%f %a %s %u %g $hxf_time" "$1" | hxf_first; }
  hxf_stamp() { stamp=$(stat -c '%i-%s-%y-%z' "$1" | tr ' ' _ | hxf_first) && stamp=stat:$stamp; }
  hxf_inode() { stat -c %i "$1" | hxf_first; }
  hxf_device() { stat -c %d "$1" | hxf_first; }
  hxf_entry() { set -- -exec stat -c "$mark"'x%f %s %n' {} +; hxf_scan "$@"; }
elif [ "$hxf_stats" = bsd ]; then
  hxf_stat() { stat -f '%Xp %Mp%Lp %z %u %g %Fm' "$1" | hxf_first; }
  hxf_stamp() { stamp=$(stat -f '%i-%z-%Fm-%Fc' "$1" | hxf_first) && stamp=stat:$stamp; }
  hxf_inode() { stat -f %i "$1" | hxf_first; }
  hxf_device() { stat -f %d "$1" | hxf_first; }
  hxf_entry() { set -- -exec stat -f "$mark"'x%Xp %z %N' {} +; hxf_scan "$@"; }
else
  hxf_stat() { TZ=UTC0 ls -ldn "$1" | awk "$hxf_awk" | hxf_first; }
  hxf_stamp() { return 1; }
  hxf_inode() { set -- $(ls -di "$1" | hxf_first); printf '%s\n' "$1"; }
  hxf_device() { df -P "$1" | awk 'END { print $1, $NF }'; }
  hxf_entry() {
    set -- -exec sh -c 'awk=$1 mark=$2; shift 2; for f do
      set -- $(ls -ldn "$f" | awk "$awk"); [ $# -lt 3 ] || printf "%sx%s %s %s\n" "$mark" "$1" "$3" "$f"
    done' sh "$hxf_awk" "$mark" {} +
    hxf_scan "$@"
  }
fi
hxf_awk='NR == 1 {
  n = split("8000 4000 a000 1000 2000 6000 c000", kind, " "); type = kind[index("-dlpcbs", substr($1, 1, 1))]
  for (who = 0; who < 3; who++) {
    r = substr($1, 2 + who * 3, 1) == "r"; w = substr($1, 3 + who * 3, 1) == "w"; x = substr($1, 4 + who * 3, 1)
    bits = bits (r * 4 + w * 2 + (x ~ /[xst]/)); if (x ~ /[sStT]/) special += who == 0 ? 4 : who == 1 ? 2 : 1
  }
  size = $5; at = 6; if (size ~ /,/) { size = 0; at = 7 }
  print type, special + 0 bits, size, $3, $4, $at "_" $(at + 1) "_" $(at + 2)
}'
if [ "$hxf_find" = printf ]; then
  hxf_entry() { hxf_scan -printf "$mark"'%y %s %P\n'; }
fi
if [ "$hxf_heads" = head ]; then
  hxf_head() { head -c "$1"; }
else
  hxf_head() { dd bs=1 count="$1" 2>/dev/null; }
fi
hxf_scheme=sha256
if hxf_has sha256sum; then hxf_digest() { sha256sum "$@"; }
elif hxf_has shasum; then hxf_digest() { shasum -a 256 "$@"; }
elif hxf_has sha256; then hxf_digest() { sha256 -q "$@"; }
elif hxf_has openssl; then hxf_digest() { openssl dgst -sha256 -r "$@"; }
else hxf_scheme=cksum
fi
hxf_hash() {
  case $hxf_scheme in
    sha256) hash=$(hxf_digest <"$1" | hxf_first) || exit 1; hash=sha256:${hash%% *} ;;
    cksum) hash=$(cksum <"$1" | hxf_first) || exit 1; hash=cksum:${hash%% *}:${hash#* } ;;
  esac
}
hxf_version() {
  if [ "$2" -gt "$hxf_hash_limit" ] && hxf_stamp "$1"; then hash=$stamp; else hxf_hash "$1"; fi
}
hxf_reply() { printf '%s\0' "$hxf_scheme" "$@"; }
"""

READ_LIBRARY = r"""
hxf_readable() {
  hxf_existing
  [ ! -d "$real" ] || exit 72
  [ -f "$real" ] || exit 78
  [ -r "$real" ] || exit 71
}
hxf_read() {
  hxf_abs "$1"
  hxf_readable
  offset=$2 limit=$3 cap=$4
  stat=$(hxf_stat "$real") || exit 1
  set -- $stat
  size=$3 whole= hash=
  left=$((size > offset ? size - offset : 0))
  [ "$offset" = 0 ] && { [ -z "$limit" ] || [ "$limit" -ge "$size" ]; } && whole=1
  [ -z "$limit" ] || [ "$limit" -ge "$left" ] || left=$limit
  if [ "$size" = 0 ]; then how=unsized; elif [ "$left" -le "$cap" ]; then how=here; else how=apart; fi
  [ "$how" = unsized ] || [ -n "$whole" ] || hxf_version "$real" "$size"
  hxf_reply "$stat" "$real" "$hash" "$how"
  case $how in
    unsized) hxf_patient ;;
    here) hxf_part "$offset" "$left" ;;
  esac
}
hxf_part() {
  [ "$2" -gt 0 ] || return 0
  if [ "$1" = 0 ]; then hxf_head "$2" <"$real"; else tail -c "+$(($1 + 1))" "$real" | hxf_head "$2"; fi
}
hxf_patient() {
  if timeout 5 true 2>/dev/null; then
    { timeout 10 cat "$real" || [ $? != 124 ] || echo 'hxf: no end' >&2; } | hxf_head "$((cap + 1))"
  else
    hxf_head "$((cap + 1))" <"$real"
  fi
}
hxf_piece() {
  file=$1
  hxf_readable
  inode=$(hxf_inode "$real") || exit 1
  hxf_reply "$inode"
  hxf_part "$2" "$3"
}
hxf_digest_of() {
  file=$1
  hxf_readable
  hxf_hash "$real"
  hxf_reply "$hash"
}
hxf_status() {
  hxf_abs "$1"
  if [ "$2" = 1 ]; then hxf_existing; else
    hxf_enter || hxf_missing
    [ -e "$real" ] || [ -L "$real" ] || { [ -x "$dir" ] || exit 71; exit 70; }
    [ -z "$slash" ] || [ -d "$real" ] || exit 73
  fi
  stat=$(hxf_stat "$real") || exit 1
  link=
  [ ! -L "$real" ] || hxf_link "$real"
  hxf_reply "$stat" "$real" "$link"
}
hxf_tree() {
  hxf_abs "$1"
  hxf_existing
  [ -d "$real" ] || exit 73
  { [ -r "$real" ] && cd "$real" 2>/dev/null; } || exit 71
  shape=$2 mark=$3 pattern=$5
  case $shape in expand) found=hxf_expand ;; *) found=hxf_entry ;; esac
  if [ "$4" = 0 ]; then "$found"; else "$found" | hxf_head "$4"; fi
}
hxf_scan() {
  case $shape in
    list) find . ! -name . -prune "$@" ;;
    search) find . ! -name . "$@" ;;
    visible) find . ! -name . \( ! -name '.?*' -o -prune -name . \) "$@" ;;
  esac
}
hxf_expand() {
  IFS=
  for name in $pattern; do
    [ -e "$name" ] || [ -L "$name" ] || continue
    type=f
    [ ! -d "$name" ] || type=d
    printf '%s%s 0 %s\n' "$mark" "$type" "$name"
  done
}
"""

CHANGE_LIBRARY = r"""
hxf_mkdir() {
  hxf_abs "$1"
  hxf_enter || {
    [ "$2" = 1 ] || hxf_missing
    hxf_parents
  }
  if mkdir ${4:+-m "$4"} "$real" 2>/dev/null; then return 0; fi
  [ -e "$real" ] || [ -L "$real" ] || { mkdir ${4:+-m "$4"} "$real"; exit $?; }
  [ "$3" = 1 ] && [ -d "$real" ] || exit 74
}
hxf_remove() {
  hxf_abs "$1"
  hxf_enter || hxf_missing
  [ -e "$real" ] || [ -L "$real" ] || { [ -x "$dir" ] || exit 71; exit 70; }
  if [ -L "$real" ] || [ ! -d "$real" ]; then rm -f "$real"; exit $?; fi
  hxf_protect
  cd /
  if [ "$2" != 1 ]; then
    rmdir "$real" 2>/dev/null && return 0
    [ -z "$(ls -A "$real" 2>/dev/null | hxf_first)" ] || exit 81
    rmdir "$real"
    exit $?
  fi
  [ "$3" = 0 ] || [ "$(find "$real" 2>/dev/null | head -n "$3" | wc -l)" -lt "$3" ] || exit 87
  rm -rf "$real"
}
hxf_rename() {
  hxf_abs "$1"
  hxf_enter || hxf_missing
  [ -e "$real" ] || [ -L "$real" ] || { [ -x "$dir" ] || exit 71; exit 70; }
  [ ! -d "$real" ] || [ -L "$real" ] || hxf_protect
  from=$real from_dir=$dir
  printf to
  hxf_abs "$2"
  hxf_enter || hxf_missing
  [ "$from" != "$real" ] || return 0
  if [ -d "$real" ] && [ ! -L "$real" ]; then [ "$3" = 1 ] && exit 72; exit 74; fi
  [ "$(hxf_device "$from_dir")" = "$(hxf_device "$dir")" ] || exit 83
  if [ "$3" != 1 ]; then
    [ ! -e "$real" ] && [ ! -L "$real" ] || exit 74
    if [ -f "$from" ] && [ ! -L "$from" ] && ln "$from" "$real" 2>/dev/null; then rm -f "$from"; exit $?; fi
    [ ! -e "$real" ] && [ ! -L "$real" ] || exit 74
  fi
  mv -f "$from" "$real"
}
"""

LIBRARY = PATH_LIBRARY + PROBE_LIBRARY + READ_LIBRARY + CHANGE_LIBRARY + WRITE_LIBRARY


FACTS = re.compile(r"(?:gnu %(?:\.9)?Y|bsd -|ls -) (?:printf|-) (?:head|-) (?:old|new|plain) [0-9]+")
"""What the library has found out about the programs, as its variable ``hxf_facts``."""


def library(home: str, facts: str = "", path: str = "") -> str:
    """Return the whole library, for a shell whose environment may lack HOME.

    Args:
        home: The home directory.
        facts: What the library has found out in another process on the same target, as :data:`FACTS`.
        path: The PATH of that process: another one may have other programs.
    """
    known = f"[ \"$PATH\" != {shlex.quote(path)} ] || hxf_facts='{facts}'\n" if facts else ""
    start = f"hxf_home=${{HOME:-{shlex.quote(home or '/')}}}\nhxf_hash_limit={HASH_LIMIT}\nhxf_facts=\n{known}"
    return start + LIBRARY


def call(function: str, *words: str | int) -> str:
    """Return a call of a library function, with quoted arguments."""
    return " ".join([function, *(shlex.quote(str(word)) for word in words)])


def standalone(functions: str, script: str) -> list[str]:
    """Return the argv that runs a script with a library in a separate process."""
    return ["sh", "-c", f"LC_ALL=C; export LC_ALL\n{functions}\n{script}"]


_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"\\'%")
_ESCAPES = {byte: chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in range(256)} | {0x25: "%%"}
_LINE = 1 << 14


def encode_inline(content: bytes) -> str:
    """Return a shell function ``hxf_data`` that writes ``content``, in lines as some shells fork for printf.

    The content is the format, not an argument of ``%b``: the printf of FreeBSD ends such an argument at a null byte.
    """
    lines = []
    for start in range(0, len(content), _LINE):
        first, *others = content[start : start + _LINE]
        escaped = "".join(map(_ESCAPES.__getitem__, others))
        lines.append(f"printf '\\{first:03o}{escaped}'")  # no option, whatever the first byte is
    return "hxf_data() {\n" + "\n".join(lines or [":"]) + "\n}\n"
