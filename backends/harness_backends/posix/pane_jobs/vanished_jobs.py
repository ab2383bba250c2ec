"""Shell functions that detect that a pane's job has ended without leaving an exit code.

If a harness process or shell is killed or replaced with its terminal, or the disk is full, ``N.exit`` is not written,
and the job would be listed as running for ever. These show that it has ended:

- the pane's slot, ``next``, which names the last job that the pane's own shell started; it runs one at a time;
- the process id of that shell;
- for a shell nested in the pane's own, which has no slot: the markers in the pane's log.

Such a job gets its exit code from a marker, otherwise it is ``unknown``; a shell that writes the code later replaces
that. The time of its end is unknown: its age counts from its start.
"""

from __future__ import annotations

__all__ = ["SETTLE"]

# hx_lives PID: the process exists, also one of another user.
# hx_is_over JOB: it has ended without an exit code; sets hx_verdict to the content of N.exit. hx_prompt says which
# shell the caller has seen at its prompt: the pane's "own", or one "inside" it; "any": no process of the job is left.
# hx_held holds "|UID JOB|" of each pane that tmux knows, or nothing.
# hx_conclude PROMPT JOB...: write N.exit for those that have ended, and release their panes. PROMPT becomes hx_prompt;
# without it each is checked twice, since a record is written a moment before the slot.
# hx_conclude_all: the same for all jobs that have not ended; it needs hx_socket.
SETTLE = r"""
hx_lives() {
  hx_line=
  { read -r hx_line <"/proc/$1/stat"; } 2>/dev/null
  case ${hx_line##*) } in Z*) return 1 ;; esac
  kill -0 "$1" 2>/dev/null || [ -d "/proc/$1" ] || ps -p "$1" >/dev/null 2>&1
}
hx_field() { hx_value=${hx_head#*" #% $1: "}; hx_value=${hx_value%%" #% "*}; }
hx_is_over() {
  [ ! -e "$hx_jobs/$1.exit" ] || return 1
  hx_head=
  { IFS= read -r hx_head <"$hx_jobs/$1.cmd"; } 2>/dev/null
  case $hx_head in 'hxc '*' #% log: panes/'*' #% nonce: '*) ;; *) return 1 ;; esac
  hx_head="${hx_head%%' #| '*} #% " hx_secret=
  hx_field log
  hx_log=$hx_root/$hx_value hx_home=$hx_root/${hx_value%/*}
  hx_field nonce
  { read -r hx_secret <"$hx_home/nonce"; } 2>/dev/null || return 1
  hx_verdict='128 unknown'
  [ "$hx_prompt" != any ] || return 0
  if [ "$hx_value" = "$hx_secret" ]; then hx_over_own "$1"; else hx_over_inside "$1"; fi
}
hx_over_own() {
  hx_mark= hx_next= hx_shell=
  { read -r hx_mark hx_next <"$hx_home/next"; } 2>/dev/null
  case $hx_mark in
    "$1") [ -n "$hx_prompt" ] || return 1; : >"$hx_home/next"; return 0 ;;
    -) [ "$hx_next" = "$1" ] && [ "$hx_prompt" != own ] || return 0 ;;
    *) return 0 ;;
  esac
  { read -r hx_shell <"$hx_home/pid"; } 2>/dev/null
  [ -n "$hx_shell" ] && ! hx_lives "$hx_shell"
}
hx_over_inside() {
  hx_none=$hx_prompt
  case $hx_held in
    *"|${hx_home##*/} $1|"*) ;;
    *"|${hx_home##*/} "*) hx_none=1 ;;
  esac
  case $hx_head in *' #% host: '*) [ -n "$hx_prompt" ]; return ;; esac
  hx_nonce_of=$hx_value
  hx_field offset
  hx_size=$(($({ wc -c <"$hx_log"; } 2>/dev/null || echo 0))) hx_cut=
  [ $((hx_size - hx_value)) -le 1048576 ] || { hx_value=$((hx_size - 1048576)); hx_cut=1; }
  hx_code=$(
    { tail -c "+$((hx_value + 1))" "$hx_log" 2>/dev/null; echo torn; } | LC_ALL=C tr '\007\000' '\n ' |
    LC_ALL=C awk -F';' -v job="$1" -v inner="$hx_nonce_of" -v outer="$hx_secret" -v begun="$hx_cut" -v none="$hx_none" '
      !/\033]133;[ACDX];/ { next }
      { sub(/.*\033]133;/, ""); ended = ($1 == "D" || $1 == "X"); from = ended ? $3 : $2; of = ended ? $4 : $3 }
      $1 != "X" && of !~ /^[0-9]+$/ { next }
      from == outer && code == "" { over = 1 }
      from != inner { next }
      $1 == "C" && of == job { begun = 1; over = 0; code = "" }
      $1 == "D" && of == job { code = $2 }
      of != job && (begun || of > 0 && $1 == "C") { over = 1 }
      $1 == "A" && begun { over = 1 }
      END { if (code != "") print code; else if (over || none && !begun) print "128 unknown" }
    '
  )
  hx_verdict=$hx_code
  [ -n "$hx_verdict" ]
}
hx_conclude() {
  hx_prompt=$1 hx_over=
  shift
  for hx_n; do if hx_is_over "$hx_n"; then hx_over="$hx_over $hx_n"; fi; done
  [ -n "$hx_over" ] || return 0
  [ -n "$hx_prompt" ] || hx_nap 1
  for hx_n in $hx_over; do
    hx_is_over "$hx_n" || continue
    (umask 077; set -C; printf '%s\n' "$hx_verdict" >"$hx_jobs/$hx_n.exit") 2>/dev/null || continue
    touch -r "$hx_jobs/$hx_n.cmd" "$hx_jobs/$hx_n.exit" </dev/null 2>/dev/null
    [ ! -r "$hx_home/free" ] || ( hx_field pane; TMUX_PANE=$hx_value hx_job=$hx_n; . "$hx_home/free" ) </dev/null
  done >/dev/null 2>&1
  hx_held=
}
hx_holders() {
  hx_held="|$(
    tmux -L "$hx_socket" list-panes -a -F '#{@harness_uid} #{@harness_busy}' </dev/null 2>/dev/null | tr '\n' '|'
  )"
}
hx_conclude_all() {
  hx_open=
  for hx_n in "$hx_jobs"/*.cmd; do
    [ -s "$hx_n" ] && [ ! -e "${hx_n%.cmd}.exit" ] || continue
    hx_n=${hx_n%.cmd}
    hx_open="$hx_open ${hx_n##*/}"
  done
  [ -n "$hx_open" ] || return 0
  hx_holders
  hx_conclude "" $hx_open
}
"""
"""The functions ``hx_conclude`` and ``hx_conclude_all``; they need ``hx_root``, ``hx_jobs`` and ``hx_nap``."""
