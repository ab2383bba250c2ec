"""Shell functions of the persistent shell that run, watch and kill jobs; :mod:`.launch` calls them.

A command runs in a new ``sh`` in its own session. Its keeper, a background subshell of the persistent shell, waits for
its exit, writes ``N.exit`` and then one reply frame. It shares no signals with the command and outlives the connection.
Frames of different jobs never mix: the writer holds a token, the only line in a FIFO.
"""

from __future__ import annotations

import shlex

from ..pane_jobs.vanished_jobs import SETTLE
from ..process_scripts import END, SINCE
from .log_limit import LIMITER
from .memory_records import SPILL

__all__ = ["ENDED_BEFORE", "GONE", "NOT_ENDED", "PROLOGUE", "STILL_RUNNING", "WATCH"]

# The shell that becomes the command. $1 job, $2 directory, $3 umask; the command sees no positional parameters.
_CHILD = 'umask "$3"; HARNESS_JOB=$1; export HARNESS_JOB; hx_cmd=$2/$1.sh; set --; . "$hx_cmd"'

# For another user, who cannot read the record: standard input, a regular file, starts with the $1 bytes of the command.
_CHILD_OTHER = 'hx_cmd=$(dd bs="$1" count=1 2>/dev/null); umask "$2"; set --; eval "$hx_cmd"'

# The same for a prestarted shell. Its order is one line of standard input that starts with the job and ends with a
# comment sign; an incomplete or foreign line is ignored. The existence of N.out proves that the order was accepted.
_CHILD_WARM = """
hx_nl="
"
while IFS= read -r hx_line; do
  case $hx_line in "$1 "*" #") break ;; esac
  hx_line=
done
[ -n "$hx_line" ] || exit 96
exec </dev/null
hx_to=
eval "${hx_line#* }"
if [ -n "$hx_to" ]; then
  CDPATH= cd -- "$hx_to" >/dev/null 2>&1 || { [ -e "$hx_to" ] || exit 97; [ -d "$hx_to" ] || exit 98; exit 99; }
fi
umask 077
[ -e "$2/$1.in" ] && exec <"$2/$1.in"
{ command : >"$2/$1.err"; } 2>/dev/null || exit 95
exec 2>"$2/$1.err" >"$2/$1.out"
umask "$3"; HARNESS_JOB=$1; export HARNESS_JOB; hx_cmd=$2/$1.sh
unset hx_nl hx_line hx_to
set --
. "$hx_cmd"
"""

_PERL = '$SIG{INT}=$SIG{QUIT}="DEFAULT"; setpgrp; exec @ARGV or exit 127'

# A background list of a shell without job control ignores INT and QUIT, and a shell that it starts cannot undo that.
# GNU env and perl can; without them (busybox only), commands run with the two signals ignored. setsid and env would
# each read a dozen files of the locale, which they do not need.
_LAUNCHERS = r"""
case $hx_launcher in
  env | setsid) [ -n "$hx_setsid" ] || hx_launcher= ;;
  perl) [ -n "$hx_perl" ] || hx_launcher= ;;
esac
if [ -z "$hx_launcher" ]; then
  hx_launcher=none hx_machine=
  if [ -n "$hx_setsid" ]; then
    hx_launcher=setsid
    "$hx_env" --default-signal=INT,QUIT </dev/null >/dev/null 2>&1 && hx_launcher=env
  fi
  [ "$hx_launcher" != env ] && [ -n "$hx_perl" ] && hx_launcher=perl
fi
hx_group() {
  case $hx_launcher in
    env)
      [ -z "${LC_ALL+x}" ] || exec "$hx_setsid" "$hx_env" --default-signal=INT,QUIT "$@"
      LC_ALL=C; export LC_ALL
      exec "$hx_setsid" "$hx_env" --default-signal=INT,QUIT -u LC_ALL "$@"
      ;;
    setsid) exec "$hx_setsid" "$@" ;;
    perl) exec "$hx_perl" -e "$hx_reset" "$@" ;;
  esac
}
"""

# Pipes without a name, where here-documents are pipes and /proc lets them be opened for writing too; else FIFOs.
# hx_beside: sets up the streams of a background subshell. It opens the token's FIFO for reading only and returns the
# token through the persistent shell's descriptor, so that it does not block if the persistent shell was killed.
_FRAME_LOCK = r"""
hx_fifo=$hx_root/run/fifo
if {
  command exec 7<<X 8<<X 4<<X

X

X

X
  [ -p /proc/self/fd/7 ] && [ -p /proc/self/fd/8 ] && [ -p /proc/self/fd/4 ] && read -r hx_line <&7 &&
    read -r hx_line <&8 && read -r hx_line <&4 && command exec 3</proc/self/fd/7 9</proc/self/fd/8 5</proc/self/fd/4 &&
    command exec 7<>/proc/self/fd/7 8<>/proc/self/fd/8 4<>/proc/self/fd/4
} 2>/dev/null || {
  [ -n "$hx_root" ] &&
    (umask 077; mkfifo "$hx_fifo.t.$$" "$hx_fifo.a.$$" "$hx_fifo.b.$$") </dev/null 2>/dev/null &&
    command exec 7<>"$hx_fifo.t.$$" 3<"$hx_fifo.t.$$" 8<>"$hx_fifo.a.$$" 9<"$hx_fifo.a.$$" 4<>"$hx_fifo.b.$$" \
      5<"$hx_fifo.b.$$" &&
    rm -f "$hx_fifo.t.$$" "$hx_fifo.a.$$" "$hx_fifo.b.$$" </dev/null
}; then
  hx_take() { read -r hx_token <&7; }
  hx_give() { echo >&7; }
  hx_give
else
  hx_launcher=none
fi
hx_beside() {
  exec 6>&2 2>/dev/null
  if [ -e "/proc/$$/fd/7" ]; then
    exec 7<&3
    hx_give() { echo >"/proc/$$/fd/7"; }
  fi
}
"""

# hx_reply ID CODE LIMIT OUT ERR: one frame with at most LIMIT bytes of each file. Its last line has a third number, 0,
# if ERR is empty: then standard error has no frame, which the other side would have to wait for.
_REPLY = r"""
hx_reply() {
  hx_take
  hx_silent=
  [ -s "$5" ] || hx_silent=' 0'
  if [ -s "$4" ]; then
    echo "$hx_nl$hx_nonce $1"
    head -c "$3" "$4"
    echo "$hx_nl$hx_nonce $1 $2$hx_silent"
  else
    echo "$hx_nl$hx_nonce $1$hx_nl$hx_nl$hx_nonce $1 $2$hx_silent"
  fi
  [ -n "$hx_silent" ] || { head -c "$3" "$5"; echo "$hx_nl$hx_nonce $1 $2"; } >&6
  hx_give
}
"""

# hx_run ID JOB RECORD CWD START FEED LIMIT ACK LOG . : the dot proves that the line is complete. LOG limits its log.
# The record is written here, so that later lines of the persistent shell find it. The command, which follows its first
# line, is also written to its own file, so that line numbers in error messages are those of the command. A query for
# the job before its line arrives creates N.void, then finds the record empty: one of the two always sees the other.
_RUN = r"""
hx_store() {
  [ -z "$hx_doubt" ] || hx_put "$hx_pad" >"$hx_jobs/$1.sh" || return 1
  hx_doubt=1
  hx_put "$2" >"$hx_jobs/$1.cmd" && hx_put "${2#*"$hx_nl"}" >"$hx_jobs/$1.sh" && hx_doubt=
}
hx_run() {
  [ "$#" = 10 ] && [ "${10}" = . ] || return 0
  jobs >/dev/null 2>&1
  umask 077
  hx_code=0
  hx_spilled=0
  { hx_store "$2" "$3" && eval "$6"; } 2>/dev/null || hx_spill "$2" "$3" "$6" 2>/dev/null || hx_code=1004
  [ ! -e "$hx_jobs/$2.void" ] || hx_code=1006
  umask "$hx_umask"
  hx_work "$@" </dev/null &
  [ "$hx_code" != 0 ] || hx_limit "$2" "$9"
}
hx_enter() {
  [ -n "$1" ] || return 0
  CDPATH= cd -- "$1" >/dev/null && return 0
  [ -e "$1" ] || return 1
  [ -d "$1" ] || return 2
  return 3
}
hx_work() {
  hx_beside
  exec 3<&- 4>&- 5<&- 8>&- 9<&-
  hx_out=$hx_jobs/$2.out hx_err=$hx_jobs/$2.err hx_in=$hx_jobs/$2.in
  [ -n "$6" ] || [ -e "$hx_in" ] || hx_in=/dev/null
  [ "$hx_launcher" = none ] && hx_code=1005
  if [ "$hx_code" = 0 ]; then
    hx_enter "$4"
    case $? in 0) ;; 1) hx_code=1001 ;; 2) hx_code=1002 ;; *) hx_code=1003 ;; esac
  fi
  umask 077
  [ "$hx_code" != 0 ] || { command : >"$hx_out" && command : >"$hx_err"; } || hx_code=1004
  if [ "$hx_code" != 0 ]; then
    hx_refuse "$@"
  else
    hx_start "$@"
  fi
}
hx_refuse() {
  trap '' HUP TERM PIPE
  rm -f "$hx_jobs/$2.cmd" "$hx_jobs/$2.sh" "$hx_jobs/$2.in" "$hx_out" "$hx_err"
  [ "$hx_spilled" = 0 ] || rm -rf "$hx_m" "$hx_jobs/$2.pid" "$hx_jobs/$2.outgap" "$hx_jobs/$2.errgap"
  [ "$8" = 0 ] || hx_reply "-$1" "$hx_code" 0 /dev/null /dev/null
  hx_reply "$1" "$hx_code" 0 /dev/null /dev/null
}
hx_start() {
  ( exec <"$hx_in" >"$hx_out" 2>"$hx_err" 6>&- 7>&-; hx_job=$2; eval "$5" ) &
  hx_pid=$!
  trap '' HUP TERM PIPE
  hx_note "$2"
  [ "$8" = 0 ] || hx_reply "-$1" "$hx_spilled" 0 /dev/null /dev/null
  wait "$hx_pid"
  hx_code=$?
  hx_finish "$1" "$2" "$7"
}
hx_note() {
  hx_since self
  hx_keeper="${hx_stat%% *} $hx_began"
  hx_since "$hx_pid"
  echo "$hx_pid ${hx_boot:--} ${hx_began:--} $hx_keeper" >"$hx_jobs/$1.pid"
}
hx_finish() {
  hx_why= hx_left=100
  while [ -e "$hx_jobs/$2.why" ] && ! read -r hx_why <"$hx_jobs/$2.why" && [ "$hx_left" -gt 0 ]; do
    hx_left=$((hx_left - 1)); hx_nap 0.05
  done
  [ ! -s "$hx_jobs/$2.exit" ] || hx_why=unknown
  hx_exit=$hx_jobs/$2.exit
  [ "$hx_spilled" = 0 ] || hx_exit=$hx_m/exit
  echo "$hx_code${hx_why:+ $hx_why}" >"$hx_exit"
  [ "$hx_spilled" = 0 ] || ln -sf "$hx_exit" "$hx_jobs/$2.exit"
  case $hx_why in
    timed_out) hx_code=$((hx_code + 2000)) ;;
    interrupted) hx_code=$((hx_code + 3000)) ;;
    unknown) hx_code=1007 ;;
  esac
  hx_reply "$1" "$((hx_code + hx_spilled))" "$3" "$hx_out" "$hx_err"
}
"""

# hx_warm ID JOB LIMIT SLOT PREVIOUS . : prestart a shell for a future job, with an idle keeper.
# hx_fire JOB RECORD ORDER FEED SLOT LOG . : write the order to a FIFO, which never blocks.
# The two slots alternate, and a slot is free again once the previous job has accepted its order. The keeper ends with
# its shell, and the shell at the end of the FIFO, when the persistent shell exits for any reason.
_WARM = r"""
hx_warm_a= hx_warm_b=
hx_warm() {
  [ "$#" = 6 ] && [ "$6" = . ] || return 0
  jobs >/dev/null 2>&1
  case $4 in a) hx_warm_a=$2 ;; *) hx_warm_b=$2 ;; esac
  hx_expect "$@" </dev/null &
}
hx_expect() {
  hx_beside
  hx_spilled=0
  trap : HUP TERM PIPE
  umask 077
  hx_out=$hx_jobs/$2.out hx_err=$hx_jobs/$2.err
  if [ "$hx_launcher" = none ] || { [ -n "$5" ] && [ ! -e "$hx_jobs/$5.out" ] && [ -e "$hx_jobs/$5.cmd" ]; }; then
    hx_decline "-$1" 1006
    hx_decline "$1" 1006
    return
  fi
  case $4 in a) exec 3<&9 ;; *) exec 3<&5 ;; esac
  exec 4>&- 5<&- 8>&- 9<&-
  ( exec <&3 >/dev/null 3<&- 6>&- 7>&-; hx_group "$hx_sh" -c "$hx_child_warm" sh "$2" "$hx_jobs" "$hx_umask" ) &
  hx_pid=$!
  exec 3<&-
  hx_note "$2"
  hx_reply "-$1" 0 0 /dev/null /dev/null
  while :; do
    wait "$hx_pid"
    hx_code=$?
    [ "$hx_code" -gt 128 ] && kill -0 "$hx_pid" || break
  done
  trap '' HUP TERM PIPE
  if [ -e "$hx_out" ]; then
    hx_finish "$1" "$2" "$3"
  else
    rm -f "$hx_jobs/$2.cmd" "$hx_jobs/$2.sh" "$hx_jobs/$2.pid" "$hx_jobs/$2.in" "$hx_jobs/$2.why" "$hx_err"
    case $hx_code in
      95) hx_decline "$1" 1004 ;;
      97) hx_decline "$1" 1001 ;;
      98) hx_decline "$1" 1002 ;;
      99) hx_decline "$1" 1003 ;;
      *) hx_decline "$1" 1006 ;;
    esac
  fi
}
hx_decline() { hx_reply "$1" "$2" 0 /dev/null /dev/null; }
hx_fire() {
  [ "$#" = 7 ] && [ "$7" = . ] || return 0
  umask 077
  hx_order=$3
  { hx_store "$1" "$2" && eval "$4"; } 2>/dev/null || hx_order='exit 95'
  [ ! -e "$hx_jobs/$1.void" ] || hx_order='exit 96'
  umask "$hx_umask"
  case $5 in
    a) [ "$hx_warm_a" != "$1" ] || hx_put "$1 $hx_order #$hx_nl" >&8 ;;
    *) [ "$hx_warm_b" != "$1" ] || hx_put "$1 $hx_order #$hx_nl" >&4 ;;
  esac
  hx_limit "$1" "$6"
}
"""

# hx_back ID SCRIPT . : run a script in the background; its output must be short.
_BACK = r"""
hx_back() {
  [ "$#" = 3 ] && [ "$3" = . ] || return 0
  jobs >/dev/null 2>&1
  hx_behind "$@" </dev/null &
}
hx_behind() {
  hx_beside
  exec 3<&- 4>&- 5<&- 8>&- 9<&-
  trap '' HUP TERM PIPE
  hx_text=$(exec 6>&- 7>&-; LC_ALL=C; export LC_ALL; eval "$2")
  hx_code=$?
  hx_take
  hx_put "$hx_nl$hx_nonce $1$hx_nl$hx_text$hx_nl$hx_nonce $1 $hx_code 0$hx_nl"
  hx_give
}
"""

# hx_alive JOB: true if the process group has members. A process that may not be signalled (of another user) is alive.
# A reused process id is detected by its start time, a reboot by the kernel's boot id.
# hx_kill: processes of other users by sudo, or by hx_by (launch.kill_rights): first, as the login may signal sudo, but
# not its command. By a shell's own kill: the program of procps-ng 4.0.2 (Debian 12) takes -TERM -123 for -TERM -1, and
# signals every process of the machine.
# hx_going JOB: also true if its keeper, which has seen the exit, will write N.exit in a moment.
_PROCESS = r"""
hx_by=
hx_builtin_kill='kill "$@"'
hx_nap() { sleep "$1" </dev/null >/dev/null 2>&1 || sleep 1 </dev/null; }
hx_kill() {
  [ -z "$hx_by" ] || [ "$1" = -0 ] || hx_kill_by "$hx_by" "$@"
  hx_said=$(LC_ALL=C; export LC_ALL; kill "$@" 2>&1) && return 0
  case $hx_said in *[Pp]ermitted*) ;; *) return 1 ;; esac
  [ -n "$hx_by" ] || [ "$1" = -0 ] || hx_kill_by "sudo -n --" "$@"
  return 0
}
hx_kill_by() {
  hx_words=$1
  shift
  eval "$hx_words"' "$hx_sh" -c "$hx_builtin_kill" sh "$@"' </dev/null >/dev/null 2>&1
}
hx_alive() {
  hx_pg= hx_at= hx_keeper=
  { read -r hx_pg hx_at hx_then hx_keeper hx_kept <"$hx_jobs/$1.pid"; } 2>/dev/null
  case $hx_pg in ''|0|1|*[!0-9]*) return 1 ;; esac
  [ "$hx_at" = "${hx_boot:--}" ] || { hx_keeper=; return 1; }
  hx_since "$hx_pg"
  [ -z "$hx_began" ] || [ "$hx_then" = - ] || [ "$hx_began" = "$hx_then" ] || return 1
  hx_kill -0 "-$hx_pg" || { [ -n "$hx_stat" ] && [ "${hx_stat##*) Z}" = "$hx_stat" ]; }
}
hx_going() {
  [ -s "$hx_jobs/$1.pid" ] || hx_nap 0.3
  hx_alive "$1" && return 0
  [ "$hx_at" = "${hx_boot:--}" ] || return 1
  if [ -z "$hx_keeper" ]; then hx_nap 0.3; return 1; fi
  hx_since "$hx_keeper"
  [ -n "$hx_began" ] && [ "$hx_began" = "$hx_kept" ] && [ "${hx_stat##*) Z}" = "$hx_stat" ]
}
"""

# hx_wait JOB SECONDS [SOCKET UID]: 0 when N.exit exists, 9 when the job has disappeared without it, 8 after the timeout
# or when the persistent shell has exited. A job in a pane has no own process group: it disappears with its pane.
# hx_pane UID: a pane whose shells run here exists, wherever its tmux runs. Between two shells it has no process id.
# hx_readable FILE: a pane's shell wrote it, possibly under a umask that makes it unreadable for its owner.
# hx_unwritten JOB: it has ended, but the disk was full: N.exit exists and stays empty.
_WATCH = r"""
hx_living='#{?pane_dead,dead,#{@harness_uid}}'
hx_pane() {
  [ -p "$hx_root/panes/$1/alive" ] || return 1
  [ -e "$hx_root/panes/$1/pid" ] || return 0
  hx_shell=
  { read -r hx_shell <"$hx_root/panes/$1/pid"; } 2>/dev/null
  hx_lives "$hx_shell"
}
hx_readable() { [ -r "$1" ] || [ ! -e "$1" ] || chmod u+rw "$1"; }
hx_unwritten() {
  [ -e "$hx_jobs/$1.exit" ] || return 1
  [ -s "$hx_jobs/$1.exit" ] || hx_nap 0.3
  [ ! -s "$hx_jobs/$1.exit" ]
}
hx_gone() {
  hx_unwritten "$1" && return 0
  if [ -s "$hx_jobs/$1.pid" ]; then
    ! hx_going "$1"
  else
    [ -n "$3" ] && [ $((hx_left % 25)) = 1 ] || return 1
    hx_socket=$2
    hx_holders
    hx_conclude "" "$1"
    [ ! -s "$hx_jobs/$1.exit" ] || return 0
    ! hx_pane "$3" && ! tmux -L "$2" list-panes -a -F "$hx_living" </dev/null 2>/dev/null | grep -qxF -e "$3"
  fi
}
hx_wait() {
  hx_left=$(($2 * 5 + 1))
  while [ "$hx_left" -gt 0 ]; do
    [ -s "$hx_jobs/$1.exit" ] && return 0
    if hx_gone "$1" "$3" "$4"; then
      [ -s "$hx_jobs/$1.exit" ] && return 0
      return 9
    fi
    kill -0 $$ || return 8
    hx_nap 0.2
    hx_left=$((hx_left - 1))
  done
  return 8
}
"""

WATCH = SINCE + _PROCESS + SETTLE + _WATCH + END
"""The functions ``hx_wait`` and ``hx_end``, which need ``hx_jobs`` and ``hx_boot``."""

STILL_RUNNING, GONE, NOT_ENDED, ENDED_BEFORE = 8, 9, 7, 6
"""Exit codes of ``hx_wait`` and ``hx_end``."""

PROLOGUE = "".join(
    (
        "\nhx_jobs=$hx_root/jobs\n",
        f"hx_child={shlex.quote(_CHILD)}\n",
        f"hx_child_other={shlex.quote(_CHILD_OTHER)}\n",
        f"hx_child_warm={shlex.quote(_CHILD_WARM)}\n",
        f"hx_reset={shlex.quote(_PERL)}\n",
        _LAUNCHERS,
        _FRAME_LOCK,
        _REPLY,
        SPILL,
        _RUN,
        _WARM,
        _BACK,
        WATCH,
        LIMITER,
    )
)
"""For :meth:`PersistentShell.define`, after :data:`.state_directory.PROLOGUE`."""
