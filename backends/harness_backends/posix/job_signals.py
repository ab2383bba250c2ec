"""Shell code that finds and signals the processes of a pane's job. Pure.

It reads ``/proc``; without it (BSD, macOS) only the foreground process group of the terminal is signalled.
"""

from __future__ import annotations

from .process_scripts import LIST

__all__ = ["SIGNAL_PROCESSES", "is_running"]

# The job's processes are those that started in the terminal after the job, except those of a later shell, and all
# descendants of the job's shell, on any terminal (sudo, script). $session is the pane's first process, whose children
# are the shells. A known process is identified by its id and start time.
SIGNAL_PROCESSES = (
    LIST
    + r"""
hx_signal_processes() (
signal=$1 session=$2 age=$3 nested=$4 stop=$5 home=$6 known=$7 own=$8
[ "$own" != 0 ] || { read -r own <"$home"; } 2>/dev/null
own=${own:-0}
above() {
  branch= at=$1
  while [ "${at:-0}" -gt 1 ]; do
    eval "up=\${p$at-}"
    [ "$up" != "$session" ] || { branch=$at; return; }
    at=$up
  done
}
list() {
  read -r up rest </proc/uptime || return 1
  whole=${up%.*}; part=${up#*.}
  since=$((whole * 100 + ${part#0} - age))
  found= young=
  set -- $(hx_list)
  while [ $# -ge 6 ]; do
    pid=$1; state=$2; parent=$3; member=$5; began=$6; shift 6
    eval "p$pid=\$parent"
    [ "$state" != Z ] || continue
    case " $known " in *" $pid:$began "*) found="$found $pid:$began"; continue ;; esac
    [ "$began" -ge "$since" ] && [ "$pid" != "$session" ] && [ "$parent" != "$session" ] || continue
    young="$young $pid:$began:$member"
  done
  for entry in $young; do
    above "${entry%%:*}"
    case $branch in
      "$own") ;;
      '') [ "${entry##*:}" = "$session" ] || continue ;;
      *) [ "$own" = 0 ] || continue ;;
    esac
    found="$found ${entry%:*}"
  done
}
end_shell() {
  above "$nested"
  [ "$nested" != 0 ] && [ "$branch" = "$own" ] || nested=$own
  above "$nested"
  [ -z "$branch" ] || kill -KILL "$nested"
}
list || {
  group=$(ps -o tpgid= -p "$session" | tr -d ' ')
  [ "$stop" = 0 ] || [ "$own" = 0 ] || kill -KILL "$own"
  [ "$group" = "$own" ] || kill -"$signal" "-$group" && echo "$own $group"
  exit 0
} 2>/dev/null
[ "$stop" = 0 ] || [ "$own" = 0 ] || end_shell
if [ "$signal" != 0 ]; then
  for entry in $found; do kill -"$signal" "${entry%:*}"; done 2>/dev/null
fi
echo $own $found
)
"""
)
"""The function ``hx_signal_processes SIGNAL SESSION AGE NESTED STOP HOME KNOWN OWN``; AGE in hundredths of a second."""

_FOLLOWED = frozenset(";&|\n(){}`")


def is_running(command: str) -> bool:
    """Return whether the shell may continue with another command when its current one is killed.

    False only for one simple command.
    """
    return any(char in _FOLLOWED for char in command.strip())
