"""Shell code that finds and kills processes, including shells of lost connections. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

__all__ = [
    "END",
    "IDENTITY",
    "LIST",
    "SEEK",
    "SINCE",
    "identity_line",
    "kill_stale_shells_script",
    "parse_shell_identity",
]


# -- Shell functions that kill a job: its process group, and descendants outside of it.
#
# Processes that a command moved to their own session (``setsid``, ``sudo`` with its own terminal) are found by their
# parents, and remembered by process id and start time, since a parent may exit first. Processes whose parents no longer
# belong to the job, such as daemons, are left alone: a timeout must not stop a service that the command restarted.


# hx_since PID: sets hx_stat and hx_began, the process's start time: field 22 of the stat file, the 20th after the name,
# which may contain blanks. Builtins only.
SINCE = r"""
hx_since() {
  hx_stat= hx_began=
  { read -r hx_stat </proc/$1/stat; } 2>/dev/null || return 0
  hx_began=${hx_stat##*) } hx_field=19
  while [ "$hx_field" -gt 0 ]; do hx_began=${hx_began#* }; hx_field=$((hx_field - 1)); done
  hx_began=${hx_began%% *}
}
"""

# hx_list: a line "PID STATE PARENT GROUP SESSION BEGAN" for each process. A name may contain any bytes, also newlines:
# grep prefixes each line with the file's name, and no line within a name is long enough for the pattern. Without grep
# or sed, builtins read the files; without /proc (BSD, macOS), ps reports all but session and start time.
LIST = r"""
hx_list() {
  if [ ! -r /proc/self/stat ]; then
    ps -A -o pid= -o stat= -o ppid= -o pgid= 2>/dev/null </dev/null | while read -r hx_p hx_s hx_u hx_g; do
      echo "$hx_p ${hx_s%"${hx_s#?}"} $hx_u $hx_g 0 0"
    done
  elif command -v grep >/dev/null && command -v sed >/dev/null; then
    hx_d='\([0-9]*\)'
    LC_ALL=C grep '' /dev/null /proc/[0-9]*/stat 2>/dev/null | LC_ALL=C sed -n \
      "s/^[^:]*\/$hx_d\/stat:.*) \([A-Za-z]\) $hx_d $hx_d $hx_d \(-\{0,1\}[0-9]* \)\{15\}$hx_d .*/\1 \2 \3 \4 \5 \7/p"
  else
    hx_list_slowly
  fi
}
hx_list_slowly() {
  for hx_f in /proc/[0-9]*/stat; do
    hx_line=
    { while read -r hx_s; do hx_line="$hx_line $hx_s"; done <"$hx_f"; } 2>/dev/null
    [ -n "$hx_line" ] || continue
    hx_f=${hx_f#/proc/}
    set -- ${hx_line##*) }
    [ "$#" -lt 20 ] || echo "${hx_f%/stat} $1 $2 $3 $4 ${20}"
  done
}
"""

# hx_seek GROUP KNOWN: "LIVE DEAD TREE...": whether the group has live members, and zombies (0 or 1 each), and the live
# processes of the tree outside it, as PID:BEGAN. Its leader's session belongs to it. GROUP is 0 if no group is left;
# then only KNOWN and their descendants count. Run it in a subshell: its variables name processes.
SEEK = r"""
hx_seek() {
  hx_group=$1 hx_known=" $2 " hx_live=0 hx_dead=0 hx_found= hx_others=
  set -- $(hx_list)
  while [ "$#" -ge 6 ]; do
    eval "hx_up$1=\$3 hx_in$1="
    if [ "$hx_group" != 0 ] && [ "$4" = "$hx_group" ]; then
      eval "hx_in$1=1"
      case $2 in Z | X) hx_dead=1 ;; *) hx_live=1 ;; esac
    else
      case $2$hx_known in
        [ZX]*) ;;
        *" $1:$6 "*) eval "hx_in$1=1"; hx_found="$hx_found $1:$6" ;;
        *)
          if [ "$hx_group" != 0 ] && [ "$5" = "$hx_group" ]; then
            eval "hx_in$1=1"; hx_found="$hx_found $1:$6"
          else
            hx_others="$hx_others $1:$6"
          fi ;;
      esac
    fi
    shift 6
  done
  for hx_p in $hx_others; do hx_climb "${hx_p%%:*}" && hx_found="$hx_found $hx_p"; done
  echo "$hx_live $hx_dead$hx_found"
}
hx_climb() {
  hx_at=$1
  while [ "${hx_at:-0}" -gt 1 ]; do
    eval "hx_is=\${hx_in$hx_at-} hx_at=\${hx_up$hx_at-}"
    [ -z "$hx_is" ] || { eval "hx_in$1=1"; return 0; }
  done
  return 1
}
"""

# hx_end JOB WHY SIGNAL TENTHS ...: kill a job's processes and print why they were killed, which is another reason than
# WHY if a kill came before; 0 if none is left, 6 if the command had ended by itself, and nothing was killed, else 7.
# Zombies that their new parent has not reaped do not count. Where other users' processes are hidden, a group exists if
# it accepts signals.
# hx_decide JOB WHY: decide whether the kill or the command's own end comes first; 1 if it had ended. While this is
# undecided, N.why exists and is empty, and the keeper, which has seen the end, waits for that before it writes N.exit.
# The command is looked at after N.why is created and just before it is signalled: an end that the keeper concluded
# without N.why is seen here. If its keeper has exited too, what the command has left behind is killed.
# hx_halt: processes that keep starting sessions are stopped while the last of them are searched; not under pdksh, which
# takes a stopped child for an exited one.
_END = r"""
hx_look() {
  hx_group=0 hx_live=0 hx_dead=0
  if hx_alive "$1"; then hx_group=$hx_pg; elif [ -z "$hx_tree" ]; then return; fi
  hx_known=" $hx_tree "
  hx_tree=$(hx_seek "$hx_group" "$hx_tree")
  hx_live=${hx_tree%% *}; hx_tree=${hx_tree#* }
  hx_dead=${hx_tree%% *}; hx_tree=${hx_tree#"$hx_dead"}
  [ "$hx_group" = 0 ] || [ "$hx_live$hx_dead" != 00 ] || hx_live=1
  hx_new=
  for hx_p in $hx_tree; do case $hx_known in *" $hx_p "*) ;; *) hx_new="$hx_new $hx_p" ;; esac; done
}
hx_left_over() {
  hx_look "$1"
  [ "$hx_live" = 1 ] || [ -n "$hx_tree" ]
}
hx_signal() {
  [ "$hx_group" = 0 ] || hx_kill "-$1" "-$hx_group"
  hx_strike "$1" "$hx_tree"
}
hx_halt() {
  [ -z "${KSH_VERSION-}" ] || return 0
  for hx_try in 1 2 3; do
    hx_signal STOP
    hx_left_over "$hx_job"
    [ -n "$hx_new" ] || break
  done
}
hx_strike() {
  for hx_p in $2; do hx_kill "-$1" "${hx_p%%:*}"; done
}
hx_runs() {
  hx_alive "$1" || return 1
  hx_since "$hx_pg"
  if [ -n "$hx_stat" ]; then
    case ${hx_stat##*) } in [ZX]*) return 1 ;; esac
  else
    hx_kill -0 "$hx_pg"
  fi
}
hx_has_ended() {
  [ ! -e "$hx_jobs/$1.exit" ] || return 0
  ! hx_runs "$1" || return 1
  [ -n "$hx_keeper" ] || return 0
  hx_since "$hx_keeper"
  [ -n "$hx_began" ] && [ "$hx_began" = "$hx_kept" ]
}
hx_decide() {
  hx_left=50
  until (umask 077; set -C; command : >"$hx_jobs/$1.why") 2>/dev/null; do
    { read -r hx_why <"$hx_jobs/$1.why"; } 2>/dev/null && return 0
    [ -e "$hx_jobs/$1.why" ] && [ "$hx_left" -gt 0 ] || break
    hx_left=$((hx_left - 1)); hx_nap 0.1
  done
  if hx_has_ended "$1"; then rm -f "$hx_jobs/$1.why"; return 1; fi
  hx_why=$2
  { printf '%s\n' "$2" >"$hx_jobs/$1.why"; } 2>/dev/null || hx_spill_why "$1" "$2" || rm -f "$hx_jobs/$1.why"
}
hx_end() {
  [ -s "$hx_jobs/$1.cmd" ] || [ -s "$hx_jobs/$1.pid" ] || return 6
  hx_job=$1 hx_reason=$2 hx_left=40 hx_tree= hx_why=
  while [ ! -s "$hx_jobs/$1.pid" ] && [ ! -s "$hx_jobs/$1.exit" ] && [ "$hx_left" -gt 0 ]; do
    hx_left=$((hx_left - 1)); hx_nap 0.05
  done
  shift 2
  while [ "$#" -ge 2 ]; do
    hx_left_over "$hx_job" || [ -z "$hx_why" ] || return 0
    if [ -z "$hx_why" ]; then
      hx_decide "$hx_job" "$hx_reason" || return 6
      echo "$hx_why"
    fi
    [ "$1" != KILL ] || hx_halt
    hx_signal "$1"
    hx_nap 0.01
    hx_left=$2
    while [ "$hx_left" -gt 0 ]; do
      hx_alive "$hx_job" || hx_left_over "$hx_job" || return 0
      hx_left=$((hx_left - 1)); hx_nap 0.1
      [ $((hx_left % 4)) = 0 ] || continue
      hx_left_over "$hx_job" || return 0
      hx_strike "$1" "$hx_new"
    done
    shift 2
  done
  hx_left_over "$hx_job" && return 7
  return 0
}
"""

END = LIST + SEEK + _END
"""The function ``hx_end``.

It needs ``hx_jobs``, and ``hx_alive``, ``hx_kill`` and ``hx_nap`` of :mod:`.jobs.shell_library`.
"""


# -- The kill of a stale shell: a persistent shell whose connection was lost. Pure.
#
# Data sent over a broken connection may still be on its way: the kernel retransmits it for minutes once the network is
# back, even if the sending program has exited, and the stale shell would execute it. So a new persistent shell first
# kills the stale one; from then on it is certain what the stale shell did.


# hx_who ID: reply "PID BEGAN BOOT" of the persistent shell, as a process id alone identifies nothing. Builtins only.
IDENTITY = f"""{SINCE}
hx_who() {{
  hx_boot=
  {{ read -r hx_boot </proc/sys/kernel/random/boot_id; }} 2>/dev/null
  hx_since $$
  hx_take
  echo "$hx_nl$hx_nonce $1$hx_nl$$ $hx_began $hx_boot"
  hx_end_frame "$1" 0
}}
"""


def identity_line(number: int) -> str:
    """Return the line that makes a persistent shell with :data:`IDENTITY` tell which process it is."""
    return f"hx_who {number}\n"


# hx_end PID BEGAN BOOT: the shell has exited, or is a zombie, when this returns.
_END_OF_SHELL = f"""{SINCE}
hx_boot=
{{ read -r hx_boot </proc/sys/kernel/random/boot_id; }} 2>/dev/null
hx_there() {{
  hx_since "$1"
  [ "$hx_began" = "$2" ] && [ "$hx_boot" = "$3" ] && case ${{hx_stat##*) }} in [ZX]*) return 1 ;; esac
}}
hx_end() {{
  hx_there "$@" || return 0
  kill -9 "$1"
  hx_left=10000
  while [ "$hx_left" -gt 0 ] && hx_there "$@"; do hx_left=$((hx_left - 1)); done
}}
"""


def parse_shell_identity(text: str) -> tuple[str, str, str] | None:
    """Parse the output of :func:`identity_line`; return None on a target without ``/proc``."""
    words = text.split()
    return (words[0], words[1], words[2]) if len(words) == 3 and words[0].isdecimal() and words[1].isdecimal() else None


def kill_stale_shells_script(former: Sequence[tuple[str, str, str]]) -> str:
    """Return the script that kills these stale shells, given their :func:`parse_shell_identity` values."""
    return _END_OF_SHELL + "".join(f"hx_end {shlex.join(one)}\n" for one in former)
