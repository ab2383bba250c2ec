"""Termination of a pane's job by one script on the target, whose result proves the exit.

The script needs no answers from harness on the way: over a connection full of output they would arrive too late.
It reads ``/proc``; without it (BSD, macOS) ``ps``, which shows ages in seconds: a process that the pane's shell started
less than a second before the job may count as one of its processes, and process ids alone identify them.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from harness.results import Status

from ...posix.jobs.launch import INTERRUPTING, Outcome, background_line, recorded
from ...posix.jobs.termination import run_kill_script, signal_words
from ...posix.persistent_shell import PersistentShell
from ...posix.process_scripts import LIST
from ...posix.state_directory import JobRecord, JobStore, pane_uid

__all__ = ["KILL_GRACE", "PaneJobEnd", "PaneKill", "kill_stored_job", "parse_end"]

# -- The processes of a job: found and signalled.

# The job's processes are those that started in the terminal after the job, except those of a later shell, and all
# descendants of the job's shell, on any terminal (sudo, script). $session is the pane's first process, whose children
# are the shells. A known process is identified by its id and start time, by its id alone where only ps shows it.
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
by_proc() {
  whole=${up%.*}; part=${up#*.}
  since=$((whole * 100 + ${part#0} - age))
  set -- $(hx_list)
  while [ $# -ge 6 ]; do
    pid=$1; state=$2; parent=$3; member=$5; began=$6; shift 6
    eval "p$pid=\$parent"
    [ "$state" != Z ] || continue
    case " $known " in *" $pid:$began "*) found="$found $pid:$began"; continue ;; esac
    [ "$began" -ge "$since" ] && [ "$pid" != "$session" ] && [ "$parent" != "$session" ] || continue
    young="$young $pid:$began:$member"
  done
}
lasts() {
  days=0
  case $1 in *-*) days=${1%%-*}; days=${days#0} ;; esac
  IFS=:
  set -- ${1##*-}
  unset IFS
  [ $# -ge 3 ] || set -- 00 "$@"
  seconds=$((days * 86400 + ${1#0} * 3600 + ${2#0} * 60 + ${3#0}))
}
by_ps() {
  set -- $(ps -A -o pid= -o ppid= -o stat= -o etime=)
  while [ $# -ge 4 ]; do
    pid=$1; parent=$2; state=$3; lasted=$4; shift 4
    eval "p$pid=\$parent"
    case $state in Z*) continue ;; esac
    case " $known " in *" $pid:0 "*) found="$found $pid:0"; continue ;; esac
    [ "$pid" != "$session" ] && [ "$parent" != "$session" ] || continue
    case $lasted in *[0-9]:[0-9][0-9]) lasts "$lasted" ;; *) continue ;; esac
    [ $((seconds * 100)) -gt "$age" ] || young="$young $pid:0:none"
  done
}
list() {
  found= young=
  if read -r up rest </proc/uptime; then by_proc; else by_ps; fi 2>/dev/null
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
list
[ "$stop" = 0 ] || [ "$own" = 0 ] || end_shell
if [ "$signal" != 0 ]; then
  for entry in $found; do hx_kill "-$signal" "${entry%:*}"; done 2>/dev/null
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


# -- The script.

INTERRUPT_GRACE = 1.0
AGAIN_AFTER = 0.3
YOUNG = 3.0
"""Seconds: a younger job may still be starting its first program, when a shell sometimes drops a C-c."""
KILL_GRACE = 3.0
ANSWER_TIMEOUT = 5.0
"""Seconds that the answer may take in addition to the grace periods."""

# Variables: exit, home, nested, status; age in hundredths of a second, first and again in tenths; goes_on is 0 or 1,
# and so is spared: the shell of a job that cannot be killed.
# earlier: tenths that an earlier kill may still need until it records its proof; 0 without an earlier one.
# Arguments: SIGNAL TENTHS ... Prints "before 0 RECORD", "ended STOPPED RECORD", "left STOPPED" or "gone": STOPPED is 1
# when the shell was killed before its program. hx_alone: only the program that the command names in $word is running; a
# function, an alias or a sourced file has another name than the program. hx_type types C-c and prints the pane's first
# process, where possible. hx_await_gone TENTHS SIGNAL: processes that a dying one still started are killed when seen.
_ENDED = r"""
hx_ended() { [ -s "$exit" ] && { [ -r "$exit" ] || chmod u+rw "$exit"; }; }
"""
_UNLESS_BEFORE = r"""
hx_conclude "" "$job"
if hx_ended; then
  read -r hx_code hx_rest <"$exit"
  while [ "$earlier" -gt 0 ]; do
    case $hx_rest in timed_out | interrupted) break ;; esac
    earlier=$((earlier - 1))
    hx_nap 0.1
    read -r hx_code hx_rest <"$exit"
  done
  echo "before 0 $hx_code $hx_rest"
  exit 0
fi
"""
# The same just before the first signal, as the search for processes takes a while.
_UNLESS_RECORDED = r"""
if [ "$earlier" = 0 ] && hx_ended; then read -r hx_code hx_rest <"$exit"; echo "before 0 $hx_code $hx_rest"; exit 0; fi
"""
_FUNCTIONS = (
    _ENDED
    + SIGNAL_PROCESSES
    + r"""
hx_clock() {
  { read -r hx_up hx_rest </proc/uptime; } 2>/dev/null || { hx_now=$(($(date +%s) * 100)); return; }
  hx_rest=${hx_up#*.}
  hx_now=$((${hx_up%.*} * 100 + ${hx_rest#0}))
}
hx_send() {
  hx_clock
  hx_out=$(hx_signal_processes "$1" "$session" $((hx_now - from + 20)) "$nested" "$2" "$home" "$known" "$own")
  own=${hx_out%% *}
  known=${hx_out#"$own"}; known=${known# }
}
hx_await_end() {
  hx_left=$1
  while [ "$hx_left" -gt 0 ] && ! hx_ended; do hx_left=$((hx_left - 1)); hx_nap 0.1; done
}
hx_await_gone() {
  hx_left=$1 hx_again=0
  [ "$2" != KILL ] || hx_again=KILL
  while :; do
    if hx_ended; then hx_send "$hx_again" 0; [ -n "$known" ] || return 0; fi
    [ "$hx_left" -gt 0 ] || return 1
    hx_left=$((hx_left - 1))
    hx_nap 0.1
  done
}
hx_alone() {
  hx_left=5
  while [ -z "$known" ] && [ "$hx_left" -gt 0 ] && ! hx_ended; do
    hx_left=$((hx_left - 1))
    hx_nap 0.1
    hx_send 0 0
  done
  for hx_entry in $known; do
    for hx_word in $(hx_words "${hx_entry%%:*}" | head -n 2); do
      hx_word=${hx_word#-}
      [ "${hx_word##*/}" != "$word" ] || return 0
    done
  done
  return 1
}
hx_words() {
  { tr '\0\n' '\n ' <"/proc/$1/cmdline" || ps -o args= -p "$1" | tr ' ' '\n'; } 2>/dev/null
}
hx_record() {
  umask 077
  echo "$hx_code $1" >"$exit.new" && mv -f "$exit.new" "$exit"
}
hx_prove() {
  read -r hx_code hx_rest <"$exit"
  case $hx_code in '' | *[!0-9]*) hx_code=128 ;; esac
  hx_record "$status"
  echo "ended $stopped $hx_code $status"
  exit 0
}
hx_first_process() {
  hx_shell=
  { read -r hx_shell <"$home"; } 2>/dev/null
  [ -n "$hx_shell" ] || return 0
  { read -r hx_line <"/proc/$hx_shell/stat" || hx_line=") - $(ps -o ppid= -p "$hx_shell")"; } 2>/dev/null
  set -- ${hx_line##*) }
  echo "$2"
}
"""
)
_KILL = r"""
own=0 known= stopped=0
hx_clock
from=$((hx_now - age))
session=$(hx_first_process)
[ -z "$session" ] || hx_send 0 0
UNLESS_RECORDED
if [ "$first" != 0 ]; then
  hx_found=$(hx_type)
  session=${hx_found:-$session}
  hx_await_end "$first"
  if [ "$again" != 0 ] && ! hx_ended; then hx_type >/dev/null; hx_await_end "$again"; fi
fi
[ -n "$session" ] || { echo gone; exit 7; }
[ "$first" != 0 ] || [ "$goes_on" = 1 ] || hx_alone || goes_on=1
while [ "$#" -ge 2 ]; do
  stop=0
  if [ "$spared" = 0 ] && ! hx_ended; then
    case $1$goes_on in KILL* | *1) stop=1 stopped=1 ;; esac
  fi
  hx_send "$1" "$stop"
  if hx_await_gone "$2" "$1"; then hx_prove; fi
  shift 2
done
if [ -z "$known" ]; then # nothing of it is left, and its shell says nothing of it
  hx_conclude any "$job"
  if hx_ended; then
    read -r hx_code hx_rest <"$exit"
    [ "$hx_rest" = unknown ] || hx_prove
    echo "before $stopped $hx_code $hx_rest"
    exit 0
  fi
fi
if hx_ended; then # its shell has recorded an end of its own, but processes of it are left
  read -r hx_code hx_rest <"$exit"
  case $hx_rest in '' | completed* | shell_exited*) hx_record unknown ;; esac
fi
echo "left $stopped"
exit 7
"""

# The pane is found by harness's id in its options: a new server reuses the pane ids of the old one.
_TYPE = r"""
hx_type() {
  TMUX_ list-panes -a -F '#{@harness_uid} #{pane_id} #{pane_pid}' 2>/dev/null |
  while read -r uid pane pid; do
    [ "$uid" = UID_ ] || continue
    TMUX_ select-pane -t "$pane" -e \; set-buffer -b "hxi$pid" "$(printf '\003')"
    for raw in -rS -r; do TMUX_ paste-buffer -d $raw -b "hxi$pid" -t "$pane" 2>/dev/null && break; done
    echo "$pid"
    break
  done
}
"""


@dataclass(frozen=True, slots=True)
class PaneJobEnd:
    """The result of a termination, as proved by the target.

    ``before``: the job had already ended. ``gone``: it has ended and no process of it is left; ``outcome`` is its
    record. ``stopped``: its shell was killed before its program.
    """

    before: bool = False
    gone: bool = False
    stopped: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class PaneKill:
    """One job to terminate.

    ``exit_path`` is its record; ``pane_dir`` its pane's state directory on the machine of its shell. ``tmux`` is the
    command line of tmux for typing C-c on the same machine, or empty. ``age`` is the job's, in seconds; ``nested`` is
    the process id of a shell nested in the pane's own, or 0. ``again``: an earlier kill may have reached the target.
    ``rights`` is shell code that lets it signal processes of another user; None if it cannot.
    """

    exit_path: str
    pane_dir: str
    uid: str
    command: str
    age: float
    tmux: str = ""
    nested: int = 0
    again: bool = False
    rights: str | None = ""

    def script(self, status: Status, signal: str, grace: float, *, interrupt: bool = True, typed: bool = False) -> str:
        """Return the script that terminates the job and prints input for :func:`parse_end`.

        ``typed``: C-c was already typed.
        """
        young = interrupt and self.age < YOUNG
        first = (AGAIN_AFTER if young else INTERRUPT_GRACE) if interrupt else 0.0
        fields = {
            "exit": self.exit_path,
            "job": self._job,
            "home": f"{self.pane_dir}/pid",
            "age": str(int(self.age * 100)),
            "nested": str(self.nested),
            "status": str(status),
            "earlier": self._earlier(grace),
            "word": next(iter(self.command.split()), "").rpartition("/")[2],
            "goes_on": str(int(is_running(self.command))),
            "first": str(round(first * 10)),
            "spared": str(int(self.rights is None)),
            "again": str(round(INTERRUPT_GRACE * 10) if young else 0),
        }
        typing = "hx_type() { :; }\n"
        if self.tmux:
            typing = _TYPE.replace("TMUX_", self.tmux).replace("UID_", shlex.quote(self.uid))
        steps = signal_words(((signal, grace), ("KILL", KILL_GRACE)), self.rights)
        before = "" if typed else _UNLESS_BEFORE
        kill = _KILL.replace("UNLESS_RECORDED", "" if typed else _UNLESS_RECORDED)
        return f"{self.rights or ''}\n{_values(fields)}\nset -- {shlex.join(steps)}\n{typing}{_FUNCTIONS}{before}{kill}"

    def _earlier(self, grace: float) -> str:
        return str(round(_duration(grace) * 10) if self.again else 0)

    @property
    def _job(self) -> str:
        return self.exit_path.rpartition("/")[2].removesuffix(".exit")

    async def run(
        self,
        shell: PersistentShell,
        status: Status,
        signal: str,
        grace: float,
        *,
        interrupt: bool = True,
        type_there: Callable[[], Awaitable[None]] | None = None,
        on_sent: Callable[[], None] = lambda: None,
    ) -> PaneJobEnd:
        """Terminate the job on the target, even if this call is cancelled, and wait for the proof within bounds.

        ``type_there`` types C-c where tmux runs, if that is not the job's machine. ``on_sent`` is called once something
        that may end the job has been or will be sent. Whether the job has already ended is checked first: an end caused
        by the C-c is not the job's own, and its remaining processes are killed too.

        Raises:
            ConnectionLost: the job may have been terminated, but there is no proof.
        """
        typed = interrupt and type_there is not None
        if interrupt and type_there is not None:
            before = await self.ended_before(shell, grace)
            if before.before:
                return before
            on_sent()
            await type_there()
        script = self.script(status, signal, grace, interrupt=interrupt, typed=typed)
        reply = await run_kill_script(shell, script, _duration(grace) + ANSWER_TIMEOUT, on_sent)
        return PaneJobEnd() if reply is None else parse_end(reply.text)

    async def ended_before(self, shell: PersistentShell, grace: float) -> PaneJobEnd:
        """Check the job's record without signalling; after an earlier kill, wait until that has recorded its proof.

        Raises:
            ConnectionLost: there is no answer.
        """
        values = _values({"exit": self.exit_path, "job": self._job, "earlier": self._earlier(grace)})
        line = background_line(f"{values}\n{_ENDED}{_UNLESS_BEFORE}")
        return parse_end((await shell.request(line, timeout=_duration(grace) + ANSWER_TIMEOUT)).text)


def _duration(grace: float) -> float:
    """Return the maximum seconds that a kill takes on the target."""
    return 2 * INTERRUPT_GRACE + grace + KILL_GRACE


def _values(fields: dict[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in fields.items())


def parse_end(text: str) -> PaneJobEnd:
    """Parse the script's output."""
    how, _, rest = text.strip().partition(" ")
    stopped, _, record = rest.partition(" ")
    return PaneJobEnd(
        before=how == "before", gone=how == "ended", stopped=stopped == "1", outcome=recorded(f"{record}\n")
    )


async def type_interrupt(shell: PersistentShell, tmux: str, uid: str) -> None:
    """Type C-c into a pane on the machine of its tmux, if that is not the job's machine."""
    await shell.call(f"{_TYPE.replace('TMUX_', tmux).replace('UID_', shlex.quote(uid))}\nhx_type")


# -- Without a terminal.


async def kill_stored_job(
    shell: PersistentShell,
    store: JobStore,
    socket: str,
    record: JobRecord,
    age: float,
    signal: str,
    grace: float,
    rights: str | None,
) -> None:
    """Kill a job that runs in a pane, from a connection that has no terminal.

    Args:
        socket: the tmux socket of the target.
        age: the job's age in seconds.
        rights: as for :class:`PaneKill`.

    Raises:
        ConnectionLost: the job may have been terminated, but there is no proof.
    """
    uid = pane_uid(record)
    tmux = f"tmux -L {shlex.quote(socket)}"
    kill = PaneKill(
        exit_path=store.path(record.job_id, "exit"),
        pane_dir=f"{store.root}/panes/{uid}",
        uid=uid,
        command=record.command,
        age=age,
        tmux="" if record.host else tmux,
        rights=rights,
    )
    there = store.log_places.get(record.host)
    typing = None if there is None else partial(type_interrupt, there.shell, tmux, uid)
    await kill.run(shell, Status.INTERRUPTED, signal, grace, interrupt=signal in INTERRUPTING, type_there=typing)
