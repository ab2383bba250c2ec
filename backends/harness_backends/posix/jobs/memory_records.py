"""Shell code that keeps a job's record and output in memory when the disk of the state directory is full.

Each file ``N.SUFFIX`` becomes a symbolic link to a file in a private directory of a tmpfs, ``N.PID.COUNT/SUFFIX``:
a link needs no block of the disk, and everything that reads or writes the job finds it as usual, also later and from
other processes. The files are lost when the target restarts, and may be when its user logs out. The links stay: a
command with a key, which must never run twice, is refused from then on, and its directory is named ``N.PID.COUNT.key``.
"""

from __future__ import annotations

__all__ = ["FORGET", "IN_MEMORY", "SPILL", "forget_script", "pane_record_script"]

_LINKED = ("out", "err", "pid", "outgap", "errgap")
IN_MEMORY = 10_000
"""Added to the codes of reply frames about such a job."""

# hx_pad is what must fit on the disk in place of a record, as the output needs room, too: before the first command, and
# after a record that did not fit (hx_doubt).
# hx_spill JOB RECORD FEED: set hx_m, the directory of the job's files; fails if they cannot be in memory either.
# hx_spill_why JOB WHY: replace the empty N.why by a link, in one step: the keeper waits for its content.
_SPILL = r"""
hx_spilled=0 hx_doubt=1 hx_pad=................................................................
for hx_f in 2 4 8 16 32 64 128; do hx_pad=$hx_pad$hx_pad; done
hx_find_memory() {
  for hx_d in "/dev/shm/harness-$hx_uid" "${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/harness}"; do
    case $hx_d in /*) [ -d "${hx_d%/*}" ] && hx_private "$hx_d" && return 0 ;; esac
  done
  return 1
}
hx_spill() {
  hx_find_memory || return 1
  hx_left=0 hx_key=
  case "${2%%"$hx_nl"*} " in *' #% key: '*) hx_key=.key ;; esac
  until hx_m=$hx_d/$1.$$.$hx_left$hx_key; mkdir "$hx_m"; do
    hx_left=$((hx_left + 1))
    [ "$hx_left" -lt 100 ] || return 1
  done
  if hx_put "$2" >"$hx_m/cmd" && hx_put "${2#*"$hx_nl"}" >"$hx_m/sh" && hx_link "$1" && eval "$3"; then
    hx_spilled=__IN_MEMORY__
  else
    rm -rf "$hx_m"
    return 1
  fi
} </dev/null
hx_link() {
  for hx_f in sh in out err pid outgap errgap; do ln -sf "$hx_m/$hx_f" "$hx_jobs/$1.$hx_f" || return 1; done
  ln -sf "$hx_m/cmd" "$hx_jobs/$1.new" && mv -f "$hx_jobs/$1.new" "$hx_jobs/$1.cmd"
}
hx_spill_why() {
  hx_m=$(readlink "$hx_jobs/$1.cmd") && hx_m=${hx_m%/cmd} && printf '%s\n' "$2" >"$hx_m/why" &&
    ln -sf "$hx_m/why" "$hx_jobs/$1.new" && mv -f "$hx_jobs/$1.new" "$hx_jobs/$1.why"
} </dev/null 2>/dev/null
"""
SPILL = _SPILL.replace("__IN_MEMORY__", str(IN_MEMORY))

# hx_forget_memory JOB: remove its files from the memory.
# hx_remove_lost DAYS: remove the links of jobs whose files are lost, those with a key only after so many days.
# hx_present: of the names of files on standard input, those that exist: the memory may have been lost.
FORGET = r"""
hx_forget_memory() {
  [ -L "$1.cmd" ] || return 0
  hx_m=$(readlink "$1.cmd")
  case $hx_m in
    "/dev/shm/harness-$hx_uid/$1."*/cmd | */harness/"$1."*/cmd) rm -rf "${hx_m%/cmd}" ;;
  esac
}
hx_remove_lost() {
  find . -type l -name '[0-9]*.cmd' | while IFS= read -r hx_f; do
    [ ! -e "$hx_f" ] || continue
    case $(readlink "$hx_f") in *.key/cmd) [ -n "$(find "$hx_f" -prune -mtime +"$1")" ] || continue ;; esac
    rm -f "${hx_f%.cmd}".*
  done
}
hx_present() { while IFS= read -r hx_f; do [ ! -e "$hx_f" ] || printf '%s\n' "$hx_f"; done; }
"""


def pane_record_script(job_id: str) -> str:
    """Return a script for the persistent shell that moves the files of a job in a pane to memory, before it is typed.

    The pane's shell and tmux write through the links. The script fails, and moves nothing, if the memory is full, too.
    """
    return (
        f"umask 077\nhx_spill {job_id} '' : 2>/dev/null || exit 1\n"
        f'for hx_f in exit run; do ln -sf "$hx_m/$hx_f" "$hx_jobs/{job_id}.$hx_f" || exit 1; done\n'
    )


def forget_script(job_id: str) -> str:
    """Return a script for the persistent shell that removes a job that never ran, also what it has in memory."""
    files = " ".join(f"{job_id}.{suffix}" for suffix in ("cmd", "sh", "run", "in", "exit", *_LINKED))
    return f'{FORGET}cd "$hx_jobs" || exit\nhx_forget_memory {job_id}\nrm -f {files}\n'
