"""The state directory on the target, job ids, and job records.

Layout below the root (mode 0700, owned by the target's user)::

    jobs/N.cmd    the record and the command's text; created empty to claim the id N
    jobs/N.sh     the command's text alone, which the shell reads
    jobs/N.exit   "CODE [STATUS [SECRET]]", once the job has ended
    jobs/N.void   the job was queried before it was recorded, and reported as never started
    jobs/N.*      streams and process group of jobs without a terminal
    keys/         the job of each key; see :mod:`.jobs.command_keys`
    panes/        the logs of panes
    run/          files of running persistent shells
    facts         what the probe found out; see :mod:`.probe`
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

import anyio

from harness.errors import ConnectError, ConnectionLost, NoSpace
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.target import Target
from harness.transport import Transport

from .persistent_shell import PersistentShell, call_line

__all__ = [
    "PROLOGUE",
    "REPORT",
    "JobRecord",
    "JobStore",
    "RemoteLogStore",
    "StateDirectoryUnavailable",
    "field_text",
    "keep_job_store",
    "open_job_store",
    "pane_uid",
    "parse_record",
    "parse_report",
    "render_record",
]

MAX_CLAIMED_IDS = 64
RELEASE_TIMEOUT = 1.0

# Runs at every start of the persistent shell. hx_root stays empty, with the reason in hx_why, without a safe directory.
# Starting programs takes most of the time: on Linux, a directory that exists costs one ls, which also tells the time
# and whether facts is still valid (see hx_know and probe.py).
PROLOGUE = r"""
hx_nl="
"
# TEXT: print it. In the shells of the Korn family, printf may be a program.
if [ -n "${KSH_VERSION-}" ]; then
  hx_put() { print -rn -- "$1"; }
else
  hx_put() { printf '%s' "$1"; }
fi
# COUNT: so many lines of a program, which may be another one: a flood ends with them.
hx_lines() {
  hx_left=$1
  while [ "$hx_left" -gt 0 ] && IFS= read -r hx_line; do hx_put "$hx_line$hx_nl"; hx_left=$((hx_left - 1)); done
}
hx_uid= hx_umask=
{
  while read -r hx_line hx_left hx_why hx_dir; do
    case $hx_line in
      Umask:) hx_umask=$hx_left ;;
      Uid:) hx_uid=$hx_why; break ;;
    esac
  done </proc/self/status
} 2>/dev/null
case $hx_umask in '' | *[!0-7]*) hx_umask=$(umask) ;; esac
case $hx_uid in '' | *[!0-9]*) hx_uid=$(id -u </dev/null | hx_lines 1) ;; esac
hx_boot=
{ read -r hx_boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
# NAME: sets hx_path to the program as command -v finds it, which would take a process; empty if there is none.
hx_which() {
  hx_path=
  for hx_dir in $hx_dirs; do
    if [ -x "$hx_dir/$1" ] && [ -f "$hx_dir/$1" ]; then hx_path=$hx_dir/$1; return; fi
  done
  ! command -v "$1" >/dev/null 2>&1 || hx_path=$(command -v "$1")
}
# SCRIPT ARGUMENT ...: run it with hx_dirs split into the directories of PATH, unless one is relative.
hx_in_path() {
  hx_line=$1
  shift
  case :$PATH: in *::* | *:[!/]*:*) hx_dirs= ;; *) hx_dirs=$PATH ;; esac
  hx_ifs=$IFS
  IFS=:
  set -f
  eval "$hx_line"
  set +f
  IFS=$hx_ifs
}
hx_in_path '
  hx_which sh; hx_sh=$hx_path
  hx_which setsid; hx_setsid=$hx_path
  hx_which env; hx_env=$hx_path
  hx_which perl; hx_perl=$hx_path
  hx_which tmux; hx_tmux=$hx_path
  hx_missing=
  for hx_line; do hx_which "$hx_line"; [ -n "$hx_path" ] || hx_missing="$hx_missing $hx_line"; done
' cat head ls sed tail wc # without one of these, output and records would be empty
hx_root=
hx_why=
# DIR: its directories exist and are private. Sets hx_now, the time as the inode of a new process in /proc tells it, and
# hx_key, which changes when the programs or the accounts change, and after 28 hours at most.
hx_see() {
  hx_now= hx_key=
  for hx_line in "$1" "$1/jobs" "$1/panes" "$1/run"; do
    [ -d "$hx_line" ] && [ ! -L "$hx_line" ] && [ -w "$hx_line" ] || return 1
  done
  [ -r /proc/self/status ] || return 1
  set -- $(
    cd "$1" && IFS=$hx_nl && set -f && LC_ALL=C ls -UldinL --time-style=+%s.%N -- . jobs panes run /proc/self \
      /etc/passwd $hx_env $hx_tmux </dev/null 2>/dev/null | hx_lines 8
  )
  [ "$#" -ge 40 ] && [ "$8 ${16} ${24} ${32} ${40}" = ". jobs panes run /proc/self" ] || return 1
  [ "$4 ${12} ${20} ${28}" = "$hx_uid $hx_uid $hx_uid $hx_uid" ] || return 1
  case "$2 ${10} ${18} ${26}" in
    "drwx------"*" drwx------"*" drwx------"*" drwx------"*) hx_now=${39} ;;
    *) return 1 ;;
  esac
  shift 40
  case $hx_now in *[!0-9.]* | *.*.* | .*) hx_now=; return 0 ;; esac
  hx_line=${hx_now%.*}
  [ -z "$hx_boot" ] || hx_key="$hx_boot ${hx_line%?????} $* $PATH"
}
hx_private() {
  if [ -L "$1" ]; then hx_why="link $1"; return 1; fi
  if [ ! -e "$1" ]; then (umask 077; mkdir -p -- "$1") </dev/null 2>/dev/null || return 2; fi
  if [ ! -d "$1" ]; then hx_why="file $1"; return 1; fi
  set -- "$1" $(LC_ALL=C ls -ldn -- "$1" </dev/null 2>/dev/null | hx_lines 1)
  if [ "$4" != "$hx_uid" ]; then hx_why="owner $1"; return 1; fi
  case $2 in
    drwx------*) ;;
    d????-??-*) chmod 700 -- "$1" </dev/null 2>/dev/null || return 2 ;;
    *) hx_why="open $1"; return 1 ;;
  esac
  [ -w "$1" ] || return 2
}
# One program instead of three, where all is as it should be.
hx_kept() {
  set -- $(cd "$hx_root" && LC_ALL=C ls -ldn -- jobs panes run </dev/null 2>/dev/null | hx_lines 3)
  [ "$#" = 27 ] && [ "$3 ${12} ${21}" = "$hx_uid $hx_uid $hx_uid" ] || return 1
  case "$1 ${10} ${19}" in "drwx------"*" drwx------"*" drwx------"*) ;; *) return 1 ;; esac
  [ -w "$hx_root/jobs" ] && [ -w "$hx_root/panes" ] && [ -w "$hx_root/run" ]
}
hx_state() {
  [ -z "$hx_missing" ] || { hx_why="missing$hx_missing"; return 1; }
  hx_dir=
  [ -d "$HOME" ] && hx_dir=$HOME/.local/state/harness
  for hx_dir in "${XDG_STATE_HOME:+$XDG_STATE_HOME/harness}" "$hx_dir" \
    "/tmp/harness-$hx_uid" "/var/tmp/harness-$hx_uid" "/dev/shm/harness-$hx_uid"; do
    case $hx_dir in
      */"harness-$hx_uid") [ -d "${hx_dir%/*}" ] || continue ;;
      /*)
        [ -e "$hx_dir" ] || [ -L "$hx_dir" ] || (
          umask 077
          mkdir -p -- "$hx_dir/jobs" "$hx_dir/panes" "$hx_dir/run"
        ) </dev/null 2>/dev/null
        ;;
      *) continue ;;
    esac
    if hx_see "$hx_dir"; then hx_root=$hx_dir; return 0; fi
    hx_private "$hx_dir"
    case $? in
      0) hx_root=$hx_dir; break ;;
      1) return 1 ;;
    esac
  done
  [ -n "$hx_root" ] || { hx_why=none; return 1; }
  hx_kept && return 0
  for hx_dir in jobs panes run; do
    hx_private "$hx_root/$hx_dir" || { hx_root=; hx_why=${hx_why:-none}; return 1; }
  done
}
hx_state
# What the probe has found out before, if hx_key is the same: hx_machine is empty if it is not known.
hx_launcher= hx_entry= hx_version= hx_machine=
hx_know() {
  IFS= read -r hx_line && [ "$hx_line" = "$hx_key" ] && read -r hx_launcher && IFS= read -r hx_entry &&
    IFS= read -r hx_version && read -r hx_machine && read -r hx_line && [ "$hx_line" = end ]
}
[ -n "$hx_root" ] && [ -n "$hx_key" ] && { hx_know <"$hx_root/facts"; } 2>/dev/null ||
  hx_launcher= hx_entry= hx_version= hx_machine=
# COUNT: print new ids. Special builtins would end the shell when a redirection fails. A file that is in the way and is
# gone a moment later was given back by another harness in between: that number is tried again.
hx_claim() {
  [ -n "$hx_root" ] && cd "$hx_root/jobs" || return 3
  umask 077
  n=0
  { read -r n <last; } 2>/dev/null
  case $n in ''|0*|*[!0-9]*|??????????????*) n=0 ;; esac
  k=$1
  hx_missed=0
  set -C
  while [ "$k" -gt 0 ] && [ "$hx_missed" -lt 20 ]; do
    n=$((n + 1))
    if command : >"$n.cmd"; then
      hx_put "$n "
      k=$((k - 1))
      hx_missed=0
    elif [ ! -e "$n.cmd" ]; then
      n=$((n - 1))
      hx_missed=$((hx_missed + 1))
    fi
  done 2>/dev/null
  set +C
  [ "$k" = 0 ] || return 4
  echo "$n" >last
}
"""

REPORT = r"""
hx_put "state=$hx_root${hx_nl}refused=$hx_why${hx_nl}claimed="
hx_claim 2
echo
"""

# The highest ids are released, so that job numbers have no gaps.
RELEASE = r"""
cd {jobs} || exit 1
n=; {{ read -r n <last; }} 2>/dev/null
set --
for k in {ids}; do [ -s "$k.cmd" ] || set -- "$@" "$k.cmd" "$k.void"; done
rm -f "$@"
for k in {ids}; do if [ "$k" = "$n" ] && [ ! -e "$k.cmd" ]; then n=$((n - 1)); fi; done
[ -z "$n" ] || printf '%s\n' "$n" >last
"""

# Recreate removed directories in the same location; ids up to {last} are not reused.
REMAKE = r"""
for hx_dir in jobs panes run; do [ -d "$hx_root/$hx_dir" ] || hx_dir=; [ -n "$hx_dir" ] || break; done
[ -z "$hx_dir" ] || exit 1
hx_before=$hx_root hx_root= hx_why=
hx_state
[ "$hx_root" = "$hx_before" ] || exit 2
cd "$hx_root/jobs" || exit 2
umask 077
n=0
{{ read -r n <last; }} 2>/dev/null
case $n in ''|*[!0-9]*) n=0 ;; esac
[ "$n" -ge {last} ] || echo {last} >last
"""
STATE_RECREATED_NOTICE = (
    "the state directory on the target was missing and has been recreated; earlier jobs and their output are lost"
)

Kind = Literal["plain", "pane"]

PANE_SHOWN = "#| "
_SAFE = " /:=,@+~._-"
_REFUSALS = {
    "link": ("is a symbolic link", "remove it, or set XDG_STATE_HOME on the target"),
    "file": ("is not a directory", "remove it, or set XDG_STATE_HOME on the target"),
    "owner": ("belongs to another user", "set XDG_STATE_HOME on the target, or have it removed"),
    "open": ("can be written by other users", "check its content, then chmod 700 it"),
}


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record of a job, written at its start.

    ``started`` is in seconds since the epoch, on the target's clock. ``log`` (relative to the state directory),
    ``offset`` (bytes) and ``nonce`` locate its output in a pane's log.
    """

    job_id: str
    command: str
    kind: Kind = "plain"
    started: float | None = None
    owner: str = ""
    pane: str = ""
    cwd: str = ""
    log: str = ""
    offset: int | None = None
    nonce: str = ""
    user: str = ""
    host: str = ""
    """The machine of the log, if tmux does not run on the target: see :attr:`RemoteLogStore.name`."""
    helper: bool = False
    proof: str = ""
    """The digest of the secret in the end marker and in the exit record; see :mod:`.pane_jobs.end_proof`."""
    key: str = ""


def render_record(record: JobRecord, shown: str = "") -> str:
    """Return the text of the ``.cmd`` file: a header that a shell skips, then the command verbatim.

    ``shown`` is what a pane displays instead of the command; it contains no newline.
    """
    fields = (
        ("job", record.job_id),
        ("started", "" if record.started is None else f"{record.started:.6f}"),
        ("owner", record.owner),
        ("kind", record.kind),
        ("pane", record.pane),
        ("cwd", record.cwd),
        ("log", record.log),
        ("offset", "" if record.offset is None else str(record.offset)),
        ("nonce", record.nonce),
        ("proof", record.proof),
        ("user", record.user),
        ("host", record.host),
        ("helper", "yes" if record.helper else ""),
        ("key", record.key),
    )
    lines = [field_text(key, value) for key, value in fields if value]
    header = " ".join(lines)  # a shell reads this file: a one-line header keeps its line numbers meaningful
    if record.kind == "pane":
        return f"hxc {header} {PANE_SHOWN}{shown} #%%\n{record.command}"
    return f"{header} #%%\n{record.command}"


def parse_record(text: str) -> JobRecord | None:
    """Parse a ``.cmd`` file, ignoring unknown keys; None without a complete header, i.e. for an unused id."""
    header, newline, command = text.partition("\n")
    if not newline or not header.endswith(" #%%"):
        return None
    return _record(_fields(header.removesuffix(" #%%").partition(f" {PANE_SHOWN}")[0]), command)


def _fields(line: str) -> dict[str, str]:
    pairs = (part.partition(": ") for part in line.removeprefix("hxc ").removeprefix("#% ").split(" #% "))
    return {key: unquote(value, errors="surrogateescape") for key, colon, value in pairs if colon}


def _encode(value: str) -> str:
    return quote(value, safe=_SAFE, errors="surrogateescape")


def _record(fields: dict[str, str], command: str) -> JobRecord:
    return JobRecord(
        job_id=fields.get("job", ""),
        command=command,
        kind="pane" if fields.get("kind") == "pane" else "plain",
        started=_number(fields.get("started", "")),
        owner=fields.get("owner", ""),
        pane=fields.get("pane", ""),
        cwd=fields.get("cwd", ""),
        log=fields.get("log", ""),
        offset=int(fields["offset"]) if fields.get("offset", "").isdecimal() else None,
        nonce=fields.get("nonce", ""),
        proof=fields.get("proof", ""),
        user=fields.get("user", ""),
        host=fields.get("host", ""),
        helper=fields.get("helper") == "yes",
        key=fields.get("key", ""),
    )


def field_text(name: str, value: str) -> str:
    """Return a field as written in the header of a record, between spaces."""
    return f"#% {name}: {_encode(value)}"


def pane_uid(record: JobRecord) -> str:
    """Return the persistent id of a job's pane, which is the name of its log's folder."""
    parts = record.log.split("/")
    return parts[1] if record.kind == "pane" and len(parts) > 1 else ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class RemoteLogStore(NamedTuple):
    """A machine other than the target that runs tmux for it, and keeps the logs of the panes.

    ``root`` is its state directory, ``name`` its name in job records.
    """

    transport: Transport
    shell: PersistentShell
    root: str
    name: str


class StateDirectoryUnavailable(ConnectError):
    """No directory on the target is writable, or the necessary tools are missing."""


class StateReport(NamedTuple):
    """The parsed output of :data:`REPORT`: the root, and the claimed ids."""

    root: str
    claimed: tuple[str, ...]


def parse_report(text: str, target: Target) -> StateReport:
    """Parse the output of :data:`REPORT`.

    Raises:
        ConnectError: the target has no safe location for the state directory.
    """
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    root = fields.get("state", "")
    if not root:
        raise _refusal(fields.get("refused", ""), target)
    return StateReport(root, tuple(fields.get("claimed", "").split()))


def _refusal(why: str, target: Target) -> ConnectError:
    kind, _, path = why.partition(" ")
    if kind == "missing":
        return StateDirectoryUnavailable(  # a container engine can keep the jobs
            f"not installed on the target, or not in its PATH: {path.replace(' ', ', ')}",
            target=target,
            hint="install them: harness reads output and job records with them",
        )
    if kind not in _REFUSALS:
        return StateDirectoryUnavailable(
            "no writable directory for job records",
            target=target,
            hint="set XDG_STATE_HOME on the target to a writable directory",
        )
    fault, hint = _REFUSALS[kind]
    return ConnectError(f"{path} {fault}, so job records are not safe there", target=target, hint=hint)


class JobStore:
    """The allocator of job ids and paths below the state directory ``root``.

    Ids are claimed ahead in the background, 2, 4, 8, up to 64 at a time, so that a busy caller never waits, and a
    caller that runs a single command claims only two.
    """

    def __init__(self, shell: PersistentShell, tasks: BackgroundTasks, report: StateReport) -> None:
        self.root = report.root
        self.log_places: dict[str, RemoteLogStore] = {}
        """Other machines with logs of this target's jobs that can be read now, by name."""
        self._shell = shell
        self._tasks = tasks
        self._ready = deque(report.claimed)
        self._batch = max(1, len(report.claimed))
        self._claiming = anyio.Lock()
        self._refilling = False
        self._highest = max(map(int, report.claimed), default=0)
        self._notices: list[str] = []
        self.remade = 0
        """How often the directories were recreated."""

    async def remake(self) -> bool:
        """Recreate removed directories; return True if that was necessary and succeeded."""
        reply = await self._shell.call(REMAKE.format(last=self._highest))
        if reply.exit_code != 0:
            return False
        self.remade += 1
        self._ready.clear()
        self.add_notice(STATE_RECREATED_NOTICE)
        return True

    def add_notice(self, notice: str) -> None:
        """Add a notice for the next result; duplicates are dropped."""
        if notice not in self._notices:
            self._notices.append(notice)

    def take_notices(self) -> tuple[str, ...]:
        """Return the notices for the next result, and clear them."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def path(self, job_id: str, suffix: str) -> str:
        """Return the path of a job's file on the target; ``suffix`` is ``cmd``, ``exit``, ``out``, ``err``, ..."""
        return f"{self.root}/jobs/{job_id}.{suffix}"

    def reading(self, job_id: str, suffix: str) -> str:
        """Return shell code that prints a job's file if it exists, even if the command's umask made it unreadable."""
        path = shlex.quote(self.path(job_id, suffix))
        return f"{{ [ -r {path} ] || chmod u+rw {path}; cat {path}; }} 2>/dev/null"

    def is_cancelled(self, job_id: str) -> str:
        """Return a shell condition: the job was queried before it was recorded, so it never runs."""
        record, void = (shlex.quote(self.path(job_id, suffix)) for suffix in ("cmd", "void"))
        return f"[ -e {void} ] && [ ! -s {record} ]"

    def ended(self, job_id: str) -> str:
        """Return a shell condition: the job has ended or was cancelled before its start."""
        return f"[ -s {shlex.quote(self.path(job_id, 'exit'))} ] || {{ {self.is_cancelled(job_id)}; }}"

    async def settle(self, job_id: str, prompt: str = "") -> bool:
        """Return whether a job has ended, and record an end without an exit code; see :mod:`.pane_jobs.vanished_jobs`.

        Args:
            prompt: the shell of its pane that is at its prompt: ``own`` or ``inside``; ``any``: no process is left.
        """
        script = f"hx_conclude {shlex.quote(prompt)} {job_id}; {{ {self.ended(job_id)}; }} && echo over"
        return bool((await self._shell.call(script)).stdout)

    async def claim(self) -> str:
        """Return a new, unique job id.

        Raises:
            NoSpace: the state directory does not accept another file.
            ConnectionLost: the connection is lost.
        """
        while not self._ready:
            async with self._claiming:
                if not self._ready:
                    await self._fetch()
        return self._take()

    def claim_ready(self) -> str | None:
        """Return a claimed job id if one is available, else None."""
        return self._take() if self._ready else None

    def _take(self) -> str:
        job_id = self._ready.popleft()
        if len(self._ready) < self._batch // 2 and not self._refilling:
            self._refilling = True
            self._tasks.start_soon(self._refill)
        return job_id

    def give_back(self, job_id: str) -> None:
        """Return an unused id, which is allocated next."""
        self._ready.appendleft(job_id)

    async def _refill(self) -> None:
        try:
            async with self._claiming:
                await self._fetch()
        except (ConnectionLost, ConnectError, NoSpace):
            return  # the next claim() reports the same fault
        finally:
            self._refilling = False

    async def _fetch(self) -> None:
        self._batch = min(MAX_CLAIMED_IDS, self._batch * 2)
        claim = f"hx_claim {self._batch}"
        ids = (await self._shell.call(claim)).text.split()
        if not ids and await self.remake():
            ids = (await self._shell.call(claim)).text.split()
        self._ready.extend(ids)
        self._highest = max(self._highest, *map(int, ids), 0)
        if not ids:
            raise NoSpace(
                f"no new file can be created in {self.root}/jobs",
                target=self._shell.transport.target,
                hint="free some disk space, or set XDG_STATE_HOME on the target",
            )

    async def release(self) -> None:
        """Release unused ids, also those being claimed, unless that would require a new connection."""
        with anyio.move_on_after(RELEASE_TIMEOUT):
            await self._claiming.acquire()
        unused = sorted(map(int, self._ready), reverse=True)
        self._ready.clear()
        if unused and self._shell.is_open:
            script = RELEASE.format(jobs=shlex.quote(f"{self.root}/jobs"), ids=" ".join(map(str, unused)))
            (await self._shell.submit(call_line(script))).forget()  # the shell executes it before it exits


@asynccontextmanager
async def keep_job_store(shell: PersistentShell, report: StateReport) -> AsyncIterator[JobStore]:
    """Provide a store for an existing report; unused ids are released when the context exits."""
    async with open_background_tasks() as tasks:
        store = JobStore(shell, tasks, report)
        try:
            yield store
        finally:
            with anyio.CancelScope(shield=True):
                await _release(store)
            tasks.cancel()


async def _release(store: JobStore) -> None:
    try:
        await store.release()
    except (ConnectionLost, ConnectError):
        return  # empty records are removed by clean() later


@asynccontextmanager
async def open_job_store(shell: PersistentShell) -> AsyncIterator[JobStore]:
    """Create or check the state directory in one round trip; must be the persistent shell's first use.

    Raises:
        ConnectError: no location is safe; the message names the obstacle.
    """
    shell.define(PROLOGUE)
    reply = await shell.call(REPORT)
    async with keep_job_store(shell, parse_report(reply.text, shell.transport.target)) as store:
        yield store
