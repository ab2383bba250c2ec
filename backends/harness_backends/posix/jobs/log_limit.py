"""Shell code that limits the stored output of a job, on the target itself.

A command writes to the files ``N.out`` and ``N.err`` directly, without a process in between. Each persistent shell has
a limiter, a background subshell that learns of every started job by one line through a pipe. It sleeps while no job
runs, outlives the persistent shell while a job runs, and removes the middle of a file that exceeds the limit: by
punching a hole, or by truncating all that was written so far where the file system cannot punch holes. Which bytes of
``N.out`` are missing is first written to ``N.outgap`` (first byte, count).

A reader of such a file registers while the job may run: ``run/reader.FILE.PID``. Unread bytes are kept until the file
reaches READER_SHARE times the limit; then the readers are killed before the bytes are removed, so that none of them
ever reads a hole. A reader that exited may have a successor, which reads the rest: for ten checks it counts as at the
start.
"""

from __future__ import annotations

__all__ = ["GAP", "LIMITER", "MIN_LOG_LIMIT", "READER"]

MIN_LOG_LIMIT = 1 << 20
"""Bytes: the minimum effective limit; output that fits into a frame is never truncated."""
READER_SHARE = 4

# hx_gap FILE: sets hx_hole and hx_lost, the first missing byte and their count; 0 0 if none is. While the end of the
# gap is unknown, all bytes count as missing.
GAP = r"""
hx_unknown=4611686018427387904
hx_gap_file() {
  hx_hole=0 hx_lost=0
  [ -e "$1gap" ] || return 0
  { read -r hx_hole hx_lost <"$1gap"; } 2>/dev/null || hx_hole=0 hx_lost=0
}
hx_gap() {
  hx_gap_file "$1"
  [ "$hx_lost" != "$hx_unknown" ] || hx_lost=$(($({ wc -c <"$1"; } 2>/dev/null || echo 0)))
}
"""

# hx_reads FILE PID: register. hx_read FILE PID ...: these readers have finished. hx_read_on FILE PID: another one
# follows, unless the file is too short to be truncated. hx_all_from FILE OFFSET: no byte from there on is missing. A
# program that is started with a descriptor of the file counts as at its start until it has opened the file itself.
READER = (
    GAP
    + r"""
hx_reads() { command : >"$hx_root/run/reader.${1##*/}.$2"; } 2>/dev/null
hx_read_on() { [ $(($({ wc -c <"$1"; } 2>/dev/null || echo 0))) -gt MIN_ ] || hx_read "$@"; }
hx_read() {
  hx_pairs=$#
  while [ "$hx_pairs" -ge 2 ]; do
    set -- "$@" "$hx_root/run/reader.${1##*/}.$2"
    shift 2
    hx_pairs=$((hx_pairs - 2))
  done
  rm -f "$@"
} </dev/null >/dev/null 2>&1
hx_all_from() {
  hx_gap "$1"
  [ $((hx_hole + hx_lost)) -le "$2" ]
}
"""
).replace("MIN_", str(MIN_LOG_LIMIT))

# hx_limit JOB BYTES: keep its files within the limit. A limiter that was killed is replaced, as the pipe would fill up.
# So is one whose directory was removed with the state directory. The pipe has no name where that is possible; the
# limiter's timers open it through the limiter's own descriptor, which they inherit.
# hx_check: measure, truncate, and remove from hx_watched what has ended and is within the limit.
# hx_in_pane JOB: the script that runs it in a pane, with separate streams, is running (hooks/separate_streams.sh).
# hx_position PID FILE: sets hx_pos, the process's offset in the file; fails if it does not have the file open.
# hx_settle FILE: after a truncation: everything before the command's current offset is missing.
_LIMITER = r"""
hx_limits= hx_limiter= hx_limiters=0
hx_limit() {
  hx_limiter_runs || hx_start_limiter
  [ -z "$hx_limits" ] || echo "$1 $2" >&6
}
hx_limiter_runs() {
  kill -0 "$hx_limiter" 2>/dev/null || return 1
  if [ "$hx_limits" = /proc/self/fd/9 ]; then
    [ "/proc/$hx_limiter/cwd" -ef "$hx_jobs" ]
  else
    [ -p "$hx_limits" ]
  fi
}
hx_start_limiter() {
  if {
    command exec 6<<X

X
    [ -p /proc/self/fd/6 ] && read -r hx_line <&6 && command exec 6<>/proc/self/fd/6
  } 2>/dev/null; then
    hx_limits=/proc/self/fd/9
  else
    hx_since $$
    hx_limiters=$((hx_limiters + 1)) # one that is replaced removes its own FIFO when it notices, and no other
    hx_limits=$hx_root/run/limits-$hx_limiters-$hx_began.$$
    (umask 077; rm -f "$hx_limits"; mkfifo "$hx_limits") </dev/null 2>/dev/null && command exec 6<>"$hx_limits" ||
      hx_limits=
  fi
  if [ -n "$hx_limits" ]; then
    hx_keep_limits &
    hx_limiter=$!
  fi
}
# Not by redirections of the call: a shell keeps copies of what those replace, and with them the pipe open.
hx_keep_limits() {
  if [ "$hx_limits" = /proc/self/fd/9 ]; then
    exec </proc/self/fd/6 9</proc/self/fd/6
  else
    exec <"$hx_limits" 9<&-
  fi
  exec >/dev/null 2>&1 3<&- 4>&- 5<&- 6>&- 7>&- 8>&-
  trap '' HUP INT QUIT TERM PIPE
  cd "$hx_jobs" || return
  umask 077
  LC_ALL=C; export LC_ALL
  hx_watched= hx_alone= hx_tick=0 hx_timer= hx_pause=0.5 hx_calm=0 hx_total=0 hx_punch= hx_grace=10
  hx_due=1
  hx_nap "$hx_pause" # for the first job, as a timer would be another process
  while :; do
    if [ -n "$hx_alone" ]; then
      hx_check
      [ -n "$hx_watched" ] || break
      hx_nap "$hx_pause"
    elif ! read -r hx_word hx_bytes; then
      hx_alone=1
    elif [ "$hx_word" = tick ]; then
      if [ "$hx_bytes" = "$hx_tick" ]; then hx_timer=; hx_check; fi
    else
      hx_log_limit=$hx_bytes hx_watched="$hx_watched $hx_word"
      [ "$hx_pause" = 0.5 ] || hx_timer=
      hx_pause=0.5 hx_calm=0
      if [ -n "$hx_due" ]; then hx_due=; hx_check; fi
    fi
    [ -n "$hx_alone$hx_timer" ] || [ -z "$hx_watched" ] || hx_start_timer
  done
  [ "$hx_limits" = /proc/self/fd/9 ] || rm -f "$hx_limits"
}
hx_start_timer() {
  jobs >/dev/null 2>&1
  hx_tick=$((hx_tick + 1)) hx_timer=1
  { hx_nap "$hx_pause"; [ -p "$hx_limits" ] && echo "tick $hx_tick" 1<>"$hx_limits"; } </dev/null &
}
hx_check() {
  hx_files= hx_ended= hx_sum=0
  for hx_n in $hx_watched; do
    if [ -s "$hx_n.exit" ] || [ ! -e "$hx_n.cmd" ]; then
      hx_ended="$hx_ended $hx_n "
    elif [ "$hx_calm" -ge 10 ] && ! hx_in_pane "$hx_n" && ! hx_going "$hx_n"; then
      hx_ended="$hx_ended $hx_n "
    fi
    for hx_f in "$hx_n.out" "$hx_n.err"; do [ ! -s "$hx_f" ] || hx_files="$hx_files $hx_f"; done
    for hx_f in "$hx_n.outgap" "$hx_n.errgap"; do
      [ ! -e "$hx_f" ] || [ -s "${hx_f%gap}" ] || hx_files="$hx_files ${hx_f%gap}"
    done
  done
  hx_kept=
  if [ -n "$hx_files" ]; then
    hx_lines=$(ls -lnL $hx_files 2>/dev/null </dev/null)
    hx_ifs=$IFS
    IFS='
'
    set -- $hx_lines
    IFS=$hx_ifs
    for hx_line; do hx_measure $hx_line; done
  fi
  hx_left=
  for hx_n in $hx_watched; do
    if hx_is_done "$hx_n"; then
      hx_grace=0
      hx_readers "$hx_n.out"; hx_readers "$hx_n.err"
      hx_grace=10
    else
      hx_left="$hx_left $hx_n"
    fi
  done
  hx_watched=$hx_left
  if [ $((hx_sum - hx_total)) -gt $((hx_log_limit / 64)) ] || [ -n "$hx_kept" ]; then
    hx_calm=0 hx_pause=0.5
  else
    hx_calm=$((hx_calm + 1))
  fi
  [ "$hx_calm" -lt 10 ] || hx_pause=2
  hx_total=$hx_sum
}
hx_in_pane() {
  hx_w= hx_o= hx_pos=
  { read -r hx_w hx_o hx_pos <"$1.seen"; } 2>/dev/null
  [ -n "$hx_pos" ] && kill -0 "$hx_pos"
}
hx_is_done() {
  case $hx_ended in *" $1 "*) ;; *) return 1 ;; esac
  case $hx_kept in *" $1 "*) return 1 ;; esac
}
hx_measure() {
  hx_size=${5:-0}
  eval "hx_file=\${$#}"
  hx_n=${hx_file%%.*}
  case $hx_size in *[!0-9]*) return ;; esac
  hx_sum=$((hx_sum + hx_size))
  if [ -e "${hx_file}gap" ] || [ "$hx_size" -gt "$hx_log_limit" ]; then hx_cut "$hx_file" "$hx_size"; fi
}
hx_cut() {
  hx_gap_file "$1"
  if [ "$hx_lost" = "$hx_unknown" ]; then
    hx_settle "$1" "$2"
    hx_gap_file "$1"
  fi
  [ $(($2 - hx_lost)) -gt "$hx_log_limit" ] || return 0
  [ -n "$hx_punch" ] || hx_try_punch
  if [ "$hx_punch" = yes ]; then
    [ "$hx_lost" -gt 0 ] || hx_hole=$((hx_log_limit / 2))
    hx_end=$(($2 - hx_log_limit / 2))
  else
    case $hx_ended in *" $hx_n "*) [ $(($2 - hx_lost)) -gt $((2 * hx_log_limit)) ] || return 0 ;; esac
    hx_end=$2
  fi
  hx_readers "$1"
  if [ -n "$hx_at" ] && { [ "$hx_at" -lt "$hx_end" ] || [ "$hx_punch" = no ]; }; then
    hx_unread=$(($2 - hx_at))
    [ "$hx_punch" = yes ] || hx_unread=$(($2 - hx_lost))
    if [ "$hx_unread" -gt $((hx_log_limit * hx_share)) ] && [ -e /proc/self/fdinfo ]; then
      hx_stop_readers "$hx_n"
    else
      hx_kept="$hx_kept $hx_n "
      [ "$hx_punch" = yes ] || return 0
      hx_end=$hx_at
    fi
  fi
  if [ "$hx_punch" = yes ]; then
    [ "$hx_end" -gt $((hx_hole + hx_lost)) ] || return 0
    hx_lacks "$1" "$hx_hole" $((hx_end - hx_hole)) || return 0
    fallocate -p -o "$hx_hole" -l $((hx_end - hx_hole)) "$1" </dev/null
  else
    hx_lacks "$1" 0 "$hx_unknown" || return 0
    command : >"$1"
    hx_settle "$1" 0
  fi
}
hx_lacks() {
  hx_d=$1gap
  [ ! -L "$hx_d" ] || hx_d=$(readlink "$hx_d") # the file is in memory
  printf '%s %s\n' "$2" "$3" >"$hx_d.new" && mv -f "$hx_d.new" "$hx_d" </dev/null
}
hx_try_punch() {
  hx_punch=no
  command -v fallocate >/dev/null && echo x >"$hx_root/run/try.$$" &&
    fallocate -p -o 0 -l 1 "$hx_root/run/try.$$" </dev/null && hx_punch=yes
  rm -f "$hx_root/run/try.$$"
}
hx_settle() {
  hx_writer= hx_pos=
  { read -r hx_writer hx_rest <"${1%%.*}.pid"; } 2>/dev/null
  if [ -n "$hx_writer" ] && [ -e "/proc/$hx_writer/fdinfo" ] && hx_position "$hx_writer" "$1"; then
    hx_lacks "$1" 0 "$hx_pos"
  elif [ "$2" -gt 0 ]; then
    hx_lacks "$1" 0 "$2"
  fi
}
hx_readers() {
  hx_at=
  for hx_r in "$hx_root/run/reader.$1."*; do
    [ -e "$hx_r" ] || continue
    if ! hx_position "${hx_r##*.}" "$1"; then
      hx_w=
      { read -r hx_w <"$hx_r"; } 2>/dev/null
      if [ "${hx_w:-0}" -ge "$hx_grace" ]; then rm -f "$hx_r"; continue; fi
      echo $((hx_w + 1)) >"$hx_r"
      hx_pos=0
    fi
    [ -n "$hx_at" ] && [ "$hx_at" -le "$hx_pos" ] || hx_at=$hx_pos
  done
}
hx_position() {
  kill -0 "$1" || return 1
  hx_pos=0
  [ -e /proc/self/fdinfo ] || return 0
  hx_pos=
  for hx_d in "/proc/$1/fd/"*; do
    [ "$hx_d" -ef "$2" ] || continue
    hx_w= hx_o=
    read -r hx_w hx_o <"/proc/$1/fdinfo/${hx_d##*/}"
    [ "$hx_w" = pos: ] || continue
    [ -n "$hx_pos" ] && [ "$hx_pos" -ge "$hx_o" ] || hx_pos=$hx_o
  done
  [ -n "$hx_pos" ]
}
hx_stop_readers() {
  for hx_r in "$hx_root/run/reader.$1."*.*; do
    [ -e "$hx_r" ] || continue
    hx_f=${hx_r##*/reader.}
    ! hx_position "${hx_r##*.}" "${hx_f%.*}" || kill -KILL "${hx_r##*.}"
    rm -f "$hx_r"
  done
}
"""

LIMITER = f"{GAP}\nhx_share={READER_SHARE}\n{_LIMITER}"
"""The function ``hx_limit``; it needs ``hx_root``, ``hx_jobs``, and those of :mod:`.shell_library`."""
