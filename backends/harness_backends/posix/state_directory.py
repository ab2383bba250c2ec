"""The state directory on the target, job ids, and the record that is kept of every job.

Layout below the root (0700, ours)::

    jobs/N.cmd    the record and the command's text; created empty to claim the id N
    jobs/N.sh     the command's text alone, which the shell reads
    jobs/N.exit   "CODE [STATUS [SECRET]]", once the job has ended
    jobs/N.void   somebody asked for the job before it was recorded, and was told that it will not run
    jobs/N.*      streams and process group of jobs without a terminal
    panes/        the logs of panes
    run/          what lives as long as a held shell
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal
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
    "keep_job_store",
    "open_job_store",
    "pane_uid",
    "parse_record",
    "parse_report",
    "render_record",
]

MAX_CLAIMED_IDS = 64
RELEASE_TIMEOUT = 1.0

# Runs in every life of the held shell. hx_root stays empty, with the reason in hx_why, when there is no safe place.
PROLOGUE = r"""
hx_umask=$(umask)
# COUNT: so many lines of a program, which may be another one: a flood ends with them.
hx_lines() {
  hx_left=$1
  while [ "$hx_left" -gt 0 ] && IFS= read -r hx_line; do printf '%s\n' "$hx_line"; hx_left=$((hx_left - 1)); done
}
hx_uid=$(id -u </dev/null | hx_lines 1)
hx_boot=
{ read -r hx_boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
hx_root=
hx_why=
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
  hx_dir=
  [ -d "$HOME" ] && hx_dir=$HOME/.local/state/harness
  for hx_dir in "${XDG_STATE_HOME:+$XDG_STATE_HOME/harness}" "$hx_dir" \
    "/tmp/harness-$hx_uid" "/var/tmp/harness-$hx_uid" "/dev/shm/harness-$hx_uid"; do
    case $hx_dir in
      */"harness-$hx_uid") [ -d "${hx_dir%/*}" ] || continue ;;
      /*) ;;
      *) continue ;;
    esac
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
      printf '%s ' "$n"
      k=$((k - 1))
      hx_missed=0
    elif [ ! -e "$n.cmd" ]; then
      n=$((n - 1))
      hx_missed=$((hx_missed + 1))
    fi
  done 2>/dev/null
  set +C
  [ "$k" = 0 ] || return 4
  printf '%s\n' "$n" >last
}
"""

REPORT = r"""
printf 'state=%s\nrefused=%s\n' "$hx_root" "$hx_why"
printf 'claimed='
hx_claim 2
printf '\n'
"""

# The highest ids go back to where they came from, so that people see numbers without gaps.
RELEASE = r"""
cd {jobs} || exit 1
n=; {{ read -r n <last; }} 2>/dev/null
set --
for k in {ids}; do [ -s "$k.cmd" ] || set -- "$@" "$k.cmd" "$k.void"; done
rm -f "$@"
for k in {ids}; do if [ "$k" = "$n" ] && [ ! -e "$k.cmd" ]; then n=$((n - 1)); fi; done
[ -z "$n" ] || printf '%s\n' "$n" >last
"""

# Make the directories again when they have been removed, in the same place; ids up to {last} are not given again.
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
    "harness's directory on the target had been removed, and was made anew: earlier jobs and their output are gone"
)

Kind = Literal["plain", "pane"]

PANE_SHOWN = "#| "
_SAFE = " /:=,@+~._-"
_REFUSALS = {
    "link": ("is a symbolic link", "remove it, or set XDG_STATE_HOME on the target"),
    "file": ("is not a directory", "remove it, or set XDG_STATE_HOME on the target"),
    "owner": ("belongs to another user", "set XDG_STATE_HOME on the target, or have it removed"),
    "open": ("can be written by other users", "check what is in it, then chmod 700 it"),
}


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is kept of a job from its start on. ``started`` is in seconds since the epoch, on the target's clock.

    ``log`` (relative to the state directory), ``offset`` (bytes) and ``nonce`` say where a pane's log holds its output.
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
    """Where the log is, when tmux does not run on the target: see :attr:`RemoteLogStore.name`."""
    helper: bool = False
    proof: str = ""
    """What the secret in the end mark, and in the record of the exit code, is known by."""


def render_record(record: JobRecord, shown: str = "") -> str:
    """The text of the ``.cmd`` file: a header that a shell skips, then the command verbatim.

    ``shown`` is what a pane shows in place of a command's text; it holds no newline.
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
    )
    lines = [f"#% {key}: {_encode(value)}" for key, value in fields if value]
    header = " ".join(lines)  # a shell reads this file: one line of ours, so that its messages count lines well
    if record.kind == "pane":
        return f"hxc {header} {PANE_SHOWN}{shown} #%%\n{record.command}"
    return f"{header} #%%\n{record.command}"


def parse_record(text: str) -> JobRecord | None:
    """Read a ``.cmd`` file; None when it holds no whole header: an id that was claimed and not used (yet).

    Keys that this version does not know are ignored.
    """
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
    )


def pane_uid(record: JobRecord) -> str:
    """The lasting id of the pane that a job runs in; it is the name of the log's folder."""
    parts = record.log.split("/")
    return parts[1] if record.kind == "pane" and len(parts) > 1 else ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class RemoteLogStore:
    """A machine that is not the target and keeps logs of panes whose shells are there: where tmux runs for it.

    ``root`` is its state directory, ``name`` what records call it.
    """

    transport: Transport
    shell: PersistentShell
    root: str
    name: str


class StateDirectoryUnavailable(ConnectError):
    """Nothing on the target can be written, or the tools to do so are missing."""


@dataclass(frozen=True, slots=True)
class StateReport:
    """What :data:`REPORT` said: the root, and the ids that it claimed on the way."""

    root: str
    claimed: tuple[str, ...]


def parse_report(text: str, target: Target) -> StateReport:
    """Read the output of :data:`REPORT`.

    Raises:
        ConnectError: the target has no safe place for the state directory.
    """
    fields = dict(line.partition("=")[::2] for line in text.splitlines())
    root = fields.get("state", "")
    if not root:
        raise _refusal(fields.get("refused", ""), target)
    return StateReport(root, tuple(fields.get("claimed", "").split()))


def _refusal(why: str, target: Target) -> ConnectError:
    kind, _, path = why.partition(" ")
    if kind not in _REFUSALS:
        return StateDirectoryUnavailable(
            "no writable directory for job records",
            target=target,
            hint="set XDG_STATE_HOME on the target to a directory of yours",
        )
    fault, hint = _REFUSALS[kind]
    return ConnectError(f"{path} {fault}, so job records are not safe there", target=target, hint=hint)


class JobStore:
    """Gives out job ids and paths below the state directory ``root``.

    Ids are claimed ahead in the background, 2, 4, 8, up to 64 at a time, so that a busy caller never waits for one, and
    one who runs a single command claims no more.
    """

    def __init__(self, shell: PersistentShell, tasks: BackgroundTasks, report: StateReport) -> None:
        self.root = report.root
        self.log_places: dict[str, RemoteLogStore] = {}
        """Where else logs of this target's jobs are, as far as they can be read now; by name."""
        self._shell = shell
        self._tasks = tasks
        self._ready = deque(report.claimed)
        self._batch = max(1, len(report.claimed))
        self._claiming = anyio.Lock()
        self._refilling = False
        self._highest = max(map(int, report.claimed), default=0)
        self._notices: list[str] = []
        self.remade = 0
        """How often the directories were made anew."""

    async def remake(self) -> bool:
        """Make the directories again if they have been removed; True when that was so, and they are there now."""
        reply = await self._shell.call(REMAKE.format(last=self._highest))
        if reply.exit_code != 0:
            return False
        self.remade += 1
        self._ready.clear()
        self.add_notice(STATE_RECREATED_NOTICE)
        return True

    def add_notice(self, notice: str) -> None:
        """Something that the next result is to say; once."""
        if notice not in self._notices:
            self._notices.append(notice)

    def take_notices(self) -> tuple[str, ...]:
        """What the next result is to say."""
        notices, self._notices = tuple(self._notices), []
        return notices

    def path(self, job_id: str, suffix: str) -> str:
        """The path of a job's file on the target; ``suffix`` is ``cmd``, ``exit``, ``out``, ``err``, ...."""
        return f"{self.root}/jobs/{job_id}.{suffix}"

    def reading(self, job_id: str, suffix: str) -> str:
        """Shell text that prints a job's file, also one made under a umask that took it from its owner; or nothing."""
        path = shlex.quote(self.path(job_id, suffix))
        return f"{{ [ -r {path} ] || chmod u+rw {path}; cat {path}; }} 2>/dev/null"

    def is_cancelled(self, job_id: str) -> str:
        """Shell text that is true of a job that somebody asked for too early, so that it did not run, and will not."""
        record, void = (shlex.quote(self.path(job_id, suffix)) for suffix in ("cmd", "void"))
        return f"[ -e {void} ] && [ ! -s {record} ]"

    def ended(self, job_id: str) -> str:
        """Shell text that is true of a job that has ended, or was called off."""
        return f"[ -s {shlex.quote(self.path(job_id, 'exit'))} ] || {{ {self.is_cancelled(job_id)}; }}"

    async def settle(self, job_id: str, prompt: str = "") -> bool:
        """Whether a job has ended, or is over without an exit code, which is recorded now; see :mod:`.panejobs`.

        Args:
            prompt: which shell of its pane is at its prompt: ``own`` or ``inside``; ``any``: nothing of it is left.
        """
        script = f"hx_conclude {shlex.quote(prompt)} {job_id}; {{ {self.ended(job_id)}; }} && echo over"
        return bool((await self._shell.call(script)).stdout)

    async def claim(self) -> str:
        """A new job id, never used before and never used again.

        Raises:
            NoSpace: the state directory cannot take another file.
            ConnectionLost: the link is lost.
        """
        while not self._ready:
            async with self._claiming:
                if not self._ready:
                    await self._fetch()
        return self._take()

    def claim_ready(self) -> str | None:
        """A new job id if one is at hand, else None."""
        return self._take() if self._ready else None

    def _take(self) -> str:
        job_id = self._ready.popleft()
        if len(self._ready) < self._batch // 2 and not self._refilling:
            self._refilling = True
            self._tasks.start_soon(self._refill)
        return job_id

    def give_back(self, job_id: str) -> None:
        """An id that was claimed and never used is the next one to be given."""
        self._ready.appendleft(job_id)

    async def _refill(self) -> None:
        try:
            async with self._claiming:
                await self._fetch()
        except (ConnectionLost, ConnectError, NoSpace):
            return  # the next claim() meets the same fault and reports it
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
                f"{self.root}/jobs takes no new file",
                target=self._shell.transport.target,
                hint="free some space there, or set XDG_STATE_HOME on the target",
            )

    async def release(self) -> None:
        """Give back the ids that were not used, also those that are just being claimed; not over a new connection."""
        with anyio.move_on_after(RELEASE_TIMEOUT):
            await self._claiming.acquire()
        unused = sorted(map(int, self._ready), reverse=True)
        self._ready.clear()
        if unused and self._shell.is_open:
            script = RELEASE.format(jobs=shlex.quote(f"{self.root}/jobs"), ids=" ".join(map(str, unused)))
            (await self._shell.submit(call_line(script))).forget()  # the shell does it before it ends


@asynccontextmanager
async def keep_job_store(shell: PersistentShell, report: StateReport) -> AsyncIterator[JobStore]:
    """A store from a report that was had already; unused ids are given back at the end."""
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
    """Make or check the state directory, in one round trip. Must be the held shell's first use.

    Raises:
        ConnectError: there is no safe place for it; the message names what is in the way.
    """
    shell.define(PROLOGUE)
    reply = await shell.call(REPORT)
    async with keep_job_store(shell, parse_report(reply.text, shell.transport.target)) as store:
        yield store
