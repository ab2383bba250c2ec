"""The processes that a job in a pane has started: found, signalled, proved gone. One script on the held shell each.

Read from ``/proc``; where there is none (BSD, macOS) only the foreground process group of the terminal is reached.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from .jobend import LIST
from .shell import HeldShell

__all__ = ["PaneProcesses", "goes_on", "signal_job"]

# Ours is what began in the terminal since the job did, unless it belongs to a shell that came after the job's own; and
# what descends from the job's shell, in whatever terminal (sudo, script). $session is the pane's first process, whose
# children are the shells. A known process is recognised by its id and the time when it began.
_SCRIPT = (
    LIST
    + r"""
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
"""
)

_FOLLOWED = frozenset(";&|\n(){}`")


@dataclass(frozen=True, slots=True)
class PaneProcesses:
    """Where a job runs. ``session`` is the pane's first process, ``age`` the job's in seconds.

    ``home`` is the file with the process id of the pane's own shell, ``nested`` that of a shell inside it, or 0;
    ``known`` are processes of the job as they were found before, and ``own`` is the shell that was the pane's own then:
    when it has been killed, a fresh one with processes of its own is in its place.
    """

    session: int
    home: str
    age: float
    nested: int = 0
    known: tuple[str, ...] = ()
    own: int = 0


def goes_on(command: str) -> bool:
    """Whether a shell may go on with something else when what it runs now is killed; sure only of one plain command."""
    return any(char in _FOLLOWED for char in command.strip())


async def signal_job(shell: HeldShell, where: PaneProcesses, signal: str, *, end_shell: bool = False) -> PaneProcesses:
    """Signal every process of a job, ``"0"`` to look only; its shell is killed before them with ``end_shell``.

    Returns ``where`` with the processes that were there as ``known``.
    """
    words = (signal, str(where.session), str(int(where.age * 100) + 20), str(where.nested), str(int(end_shell)))
    arguments = shlex.join((*words, where.home, " ".join(where.known), str(where.own)))
    reply = await shell.call(f"set -- {arguments}\n{_SCRIPT}", timeout=10)
    own, *known = reply.text.split() or ("0",)
    return replace(where, known=tuple(known), own=int(own) if own.isdecimal() else 0)
