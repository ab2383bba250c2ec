"""The writing part of the shell library of :mod:`.filescript`.

A write stages its content in a hidden file beside the real one, proves that all of it arrived, and then, under a lock
on the directory, compares what is there with what the caller expects and renames. Whatever stops it removes the hidden
file; what a kill leaves behind is removed by a later write in that directory once it is a day old.

The lock is a directory ``.hx-lock``: every target can make one, so that harnesses with different tools at hand, in a
container and outside it for example, exclude each other. It is held for a few milliseconds (a large file is hashed
before, and only its stamp is compared under the lock) and counts as left behind after a minute. That it cannot be made
is believed when it failed five times with no lock to be seen: once, others took it and left it. Only who appends to a
file in a directory that they may not write to cannot make one; ``flock`` on the directory is the best that is left.

A file that its owner made read-only is not written without ``hxf_force``, although a rename, or root, could: as ``cp``
and editors refuse it. Forced, it keeps its permissions; what is appended to one that cannot be opened for writing goes
into a copy that takes its place. Where the directory takes no new file either, what follows says why.

The new file shall differ from the old one in its content alone. Permissions, the access control list (the group's bits
of a file that has one are its mask), the security label and other extended attributes are taken over by ``cp`` of GNU,
which lists and labels go with, in one process; before 8.20 it may empty the file, and is not used. Without it the bits
are kept, and a list that ``ls`` shows is an error where GNU's tools, too old, show it. What ``cp`` may not set:

* Capabilities and the signature of IMA belong to the old content. The kernel takes the first away with any write.
* A file system that takes no attributes (*not supported*; so are labels where one is given to the whole mount, as in
  containers) has none to lose. The label is compared, all the same: a file with another one can lock people out. Where
  new files get no label SELinux is off, and that of the old one, from other times, means nothing.
* Anything else, ``user.*`` above all, stops the write.

A new file has the list that its directory gives to new files, and then no umask counts.
"""

from __future__ import annotations

__all__ = ["STAGE_PREFIX", "WRITE_LIBRARY"]

STAGE_PREFIX = ".hx-tmp-"

WRITE_LIBRARY = r"""
hxf_force=
hxf_uid=$(id -u 2>/dev/null </dev/null)
hxf_drop() {
  [ -z "$hxf_staged" ] || rm -f "$hxf_staged" "$hxf_added"
  [ -z "$hxf_locked" ] || rmdir "$hxf_locked" 2>/dev/null
  if [ -n "$hxf_staged" ]; then
    while [ "$hxf_made" -gt 0 ] && rmdir "$dir" 2>/dev/null; do hxf_made=$((hxf_made - 1)) dir=${dir%/*}; done
  fi
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
  trap 'exit 143' 1 2 13 15
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
}
hxf_unstage() {
  hxf_abs "$1"
  mode=overwrite expect=any
  hxf_place 0
  rm -f "$dir/$2" "${TMPDIR:-/tmp}/$2"
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
    hxf_listed || chmod =rw "$stage" || exit 1
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
hxf_cp=new
case $(cp --version 2>/dev/null </dev/null) in
  *coreutils\)' '[0-7].* | *coreutils\)' 8.'[0-9][!0-9]* | *coreutils\)' 8.1'[0-9]*) hxf_cp=old ;;
  'cp ('* | 'cp '[0-9]*) ;;
  *) hxf_cp=plain ;;
esac
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
    [ -f "$old" ] || continue
    find "$dir/." ! -name . -prune -name '.hx-tmp-*' -type f -mtime +0 -exec rm -f {} + 2>/dev/null
    return 0
  done
}
"""
