"""Ending a pane's job: one script on the target does all of it, and harness waits for what it proves.

Nothing of it waits for an answer on the way: over a link that is full of output, answers come too late.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from harness.results import Status

from .jobprocesses import SIGNAL_PROCESSES, is_running
from .jobs.launch import Outcome, background_line, recorded
from .persistent_shell import PersistentShell

__all__ = ["KILL_GRACE", "PaneJobEnd", "PaneKill", "parse_end", "type_interrupt"]

INTERRUPT_GRACE = 1.0
AGAIN_AFTER = 0.3
YOUNG = 3.0
"""Seconds. A younger job may still be at its first program; a shell that is starting one loses a C-c now and then."""
KILL_GRACE = 3.0
ANSWER_TIMEOUT = 5.0
"""How long the answer may take beyond the graces."""

# Variables: exit, home, nested, status; age in hundredths of a second, first and again in tenths; is_running is 0 or 1.
# Arguments: SIGNAL TENTHS ... Prints "before 0 RECORD", "ended STOPPED RECORD", "left STOPPED" or "gone": STOPPED is 1
# when the shell was ended before its program. hx_alone: what runs is the program that the command names in $word; a
# function, an alias or a sourced file has another name than what it runs. hx_type types C-c and prints the pane's first
# process, where it can. hx_await_gone TENTHS SIGNAL: what a dying process still started is killed when it is seen.
_ENDED = r"""
hx_ended() { [ -s "$exit" ] && { [ -r "$exit" ] || chmod u+rw "$exit"; }; }
"""
_UNLESS_BEFORE = r"""
hx_conclude "" "$job"
if hx_ended; then read -r hx_code hx_rest <"$exit"; echo "before 0 $hx_code $hx_rest"; exit 0; fi
"""
_FUNCTIONS = (
    _ENDED
    + SIGNAL_PROCESSES
    + r"""
hx_clock() {
  { read -r hx_up hx_rest </proc/uptime; } 2>/dev/null || { hx_now=0; return; }
  hx_rest=${hx_up#*.}
  hx_now=$((${hx_up%.*} * 100 + ${hx_rest#0}))
}
hx_send() {
  hx_clock
  hx_out=$(hx_signal_processes "$1" "$session" $((hx_now - from + 20)) "$nested" "$2" "$home" "$known" "$own")
  own=${hx_out%% *}
  known=${hx_out#"$own"} known=${known# }
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
    for hx_word in $(tr '\0\n' '\n ' <"/proc/${hx_entry%%:*}/cmdline" 2>/dev/null | head -n 2); do
      hx_word=${hx_word#-}
      [ "${hx_word##*/}" != "$word" ] || return 0
    done
  done
  return 1
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
  if ! hx_ended; then
    case $1$goes_on in KILL* | *1) stop=1 stopped=1 ;; esac
  fi
  hx_send "$1" "$stop"
  if hx_await_gone "$2" "$1"; then
    read -r hx_code hx_rest <"$exit"
    case $hx_code in '' | *[!0-9]*) hx_code=128 ;; esac
    umask 077
    echo "$hx_code $status" >"$exit.new" && mv -f "$exit.new" "$exit"
    echo "ended $stopped $hx_code $status"
    exit 0
  fi
  shift 2
done
if [ -z "$known" ]; then # nothing of it is left, and its shell says nothing of it
  hx_conclude any "$job"
  if hx_ended; then
    read -r hx_code hx_rest <"$exit"
    echo "before $stopped $hx_code $hx_rest"
    exit 0
  fi
fi
echo "left $stopped"
exit 7
"""

# The pane is found by our mark on it: a new server gives the ids of the old one again.
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
    """What the target proved of an end.

    ``before``: the job had ended before. ``gone``: it has ended and nothing of it is left; ``outcome`` is its record.
    ``stopped``: its shell was ended before its program.
    """

    before: bool = False
    gone: bool = False
    stopped: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class PaneKill:
    """One job to end. ``exit_path`` is its record's; ``pane_dir`` its pane's directory, where its shell runs.

    ``tmux`` is the command line of a tmux that is asked to type C-c, on the same machine; empty: it is not there.
    ``age`` is the job's, in seconds; ``nested`` the process id of the shell inside the pane's own, or 0.
    """

    exit_path: str
    pane_dir: str
    uid: str
    command: str
    age: float
    tmux: str = ""
    nested: int = 0

    def script(self, status: Status, signal: str, grace: float, *, interrupt: bool = True, typed: bool = False) -> str:
        """The script that ends it and prints what :func:`parse_end` reads. ``typed``: the C-c was typed."""
        young = interrupt and self.age < YOUNG
        first = (AGAIN_AFTER if young else INTERRUPT_GRACE) if interrupt else 0.0
        fields = {
            "exit": self.exit_path,
            "job": self._job,
            "home": f"{self.pane_dir}/pid",
            "age": str(int(self.age * 100)),
            "nested": str(self.nested),
            "status": str(status),
            "word": next(iter(self.command.split()), "").rpartition("/")[2],
            "goes_on": str(int(is_running(self.command))),
            "first": str(round(first * 10)),
            "again": str(round(INTERRUPT_GRACE * 10) if young else 0),
        }
        typing = "hx_type() { :; }\n"
        if self.tmux:
            typing = _TYPE.replace("TMUX_", self.tmux).replace("UID_", shlex.quote(self.uid))
        steps = [signal, str(round(grace * 10)), "KILL", str(round(KILL_GRACE * 10))]
        before = "" if typed else _UNLESS_BEFORE
        return f"{_values(fields)}\nset -- {shlex.join(steps)}\n{typing}{_FUNCTIONS}{before}{_KILL}"

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
    ) -> PaneJobEnd:
        """Have the target end the job, whatever becomes of this call; wait for the proof, within bounds.

        ``type_there`` types C-c where tmux runs, when that is another machine than the job's. Whether the job had ended
        is asked before that: the end that the C-c brings about is not its own, and what it leaves behind is ended too.

        Raises:
            ConnectionLost: it may have been ended, and there is no proof.
        """
        typed = interrupt and type_there is not None
        if interrupt and type_there is not None:
            before = await self._ended_before(shell)
            if before.before:
                return before
            await type_there()
        line = background_line(self.script(status, signal, grace, interrupt=interrupt, typed=typed))
        ticket = await shell.submit(line)
        try:
            with anyio.move_on_after(2 * INTERRUPT_GRACE + grace + KILL_GRACE + ANSWER_TIMEOUT):
                return parse_end((await ticket.reply()).text)
            return PaneJobEnd()
        finally:
            ticket.forget()

    async def _ended_before(self, shell: PersistentShell) -> PaneJobEnd:
        values = _values({"exit": self.exit_path, "job": self._job})
        return parse_end((await shell.call(f"{values}\n{_ENDED}{_UNLESS_BEFORE}")).text)


def _values(fields: dict[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in fields.items())


def parse_end(text: str) -> PaneJobEnd:
    """Read what the script printed."""
    how, _, rest = text.strip().partition(" ")
    stopped, _, record = rest.partition(" ")
    return PaneJobEnd(
        before=how == "before", gone=how == "ended", stopped=stopped == "1", outcome=recorded(f"{record}\n")
    )


async def type_interrupt(shell: PersistentShell, tmux: str, uid: str) -> None:
    """Type C-c into a pane on the machine where its tmux runs, when that is another one than the job's."""
    await shell.call(f"{_TYPE.replace('TMUX_', tmux).replace('UID_', shlex.quote(uid))}\nhx_type")
