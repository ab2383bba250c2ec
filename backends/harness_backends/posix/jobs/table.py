"""The jobs that the target keeps: listing, looking up, removing."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.config import Config
from harness.errors import JobNotFound
from harness.results import Job, Status
from harness.transport import Transport

from .jobclean import IF_DUE, clean_script
from .jobscript import background_line, recorded
from .shell import HeldShell
from .state import JobRecord, JobStore, pane_uid, parse_record

__all__ = ["JobTable", "KeptJob", "list_script", "parse_table"]

LISTED_LINES = 50
LISTED_COLUMNS = 2000
LISTED_HEADER = 32_000
"""Columns of a record's first line, which means nothing unless it is whole: a directory may be three times as long."""
SHOWN_BYTES = 1 << 20
LIST_TIMEOUT = 120.0
NOT_BEGUN = (
    "a command that was lost on its way there under this number has not run, and will not, "
    "unless it was for a shell that somebody started inside a pane, and the harness that sent it has ended"
)

# For each record: "job N STATE CODE STATUS", STATE being ended, unwritten, alive, gone or pane; then "pane UID" for
# each that is there; then times; then the records.
_LIST = r"""
hx_ended() { hx_readable "$1.exit"; [ -s "$1.exit" ] && read -r hx_c hx_w <"$1.exit"; }
hx_state_of() {
  hx_c= hx_w= hx_s=gone
  if hx_ended "$1"; then
    hx_s=ended
  elif hx_unwritten "$1"; then
    hx_s=unwritten
  elif hx_ended "$1"; then
    hx_s=ended
  elif [ ! -e "$1.pid" ] && [ ! -e "$1.out" ]; then
    hx_s=pane
  elif hx_going "$1"; then
    hx_s=alive
  elif hx_ended "$1"; then
    hx_s=ended
  fi 2>/dev/null
  printf 'job %s %s %s %s\n' "$1" "$hx_s" "$hx_c" "$hx_w"
}
hx_each() {
  for hx_f in $hx_names; do
    [ -s "$hx_f" ] || continue
    hx_state_of "${hx_f%.cmd}"
  done
}
hx_panes() {
  for hx_f in "$hx_root"/panes/*/alive; do
    hx_f=${hx_f%/alive}
    hx_pane "${hx_f##*/}" && printf 'pane %s\n' "${hx_f##*/}"
  done
  command -v tmux >/dev/null 2>&1 || return 0
  tmux -L "$hx_socket" list-panes -a -F "pane $hx_living" </dev/null 2>/dev/null
}
hx_times() {
  xargs stat -c 'time %n %Y' 2>/dev/null || xargs stat -f 'time %N %m' 2>/dev/null
}
cd "$hx_jobs" || exit 0
"""

# An id that was claimed and has no record: its command was not sent yet, or is lost on the way, perhaps to come later.
# From here on it does not run under this number: see hx_run, and hxoff in the shells of panes.
VOID = """\
if [ ! -s {0}.cmd ]; then
  [ -e {0}.cmd ] || exit 0
  ( umask 077; command : >{0}.void ) 2>/dev/null || exit 0
  [ -s {0}.cmd ] || {{ echo void; exit 0; }}
fi
"""

_RECORDS = (
    'awk \'FNR == 1 { print "record " FILENAME }'
    f' FNR <= {LISTED_LINES} {{ print " " substr($0, 1, FNR == 1 ? {LISTED_HEADER} : {LISTED_COLUMNS}) }}\''
)


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job and its record. ``unwritten``: it has ended, and the disk was too full for its exit code."""

    job: Job
    record: JobRecord
    unwritten: bool = False


def list_script(socket: str, job_id: str | None = None) -> str:
    """The script whose output :func:`parse_table` reads: all jobs, or one with its whole record."""
    head = f"{_LIST}\nhx_socket={shlex.quote(socket)}\n"
    if job_id is not None:
        names = f"hx_names={job_id}.cmd\n"
        show = f"printf 'record %s\\n' {job_id}.cmd; head -c {SHOWN_BYTES} {job_id}.cmd | sed 's/^/ /'"
        settle = f"hx_holders\nhx_conclude '' {job_id}\n"
        times = f"ls {job_id}.cmd {job_id}.exit 2>/dev/null | hx_times"
        return f"{head}{VOID.format(job_id)}{names}{settle}hx_each\nhx_panes\n{times}\n{show}\n"
    names = 'hx_names=$(ls | sed -n "s/^[0-9][0-9]*\\.cmd\\$/&/p")\n'
    times = "ls | sed -n '/^[0-9]*\\.\\(cmd\\|exit\\)$/p' | hx_times"
    return f'{head}{names}hx_conclude_all\nhx_each\nhx_panes\n{times}\nprintf "%s\\n" $hx_names | xargs {_RECORDS}\n'


def parse_table(text: str) -> list[KeptJob]:
    """Read what :func:`list_script` wrote, oldest job first. Records that are empty or torn are left out."""
    table = _Table()
    for line in text.split("\n"):
        table.line(line)
    return sorted(table.jobs(), key=lambda kept: int(kept.job.job_id))


class _Table:
    """The lines of a listing, sorted into what they say."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.times: dict[str, float] = {}
        self.panes: set[str] = set()
        self.records: dict[str, list[str]] = {}
        self._record: list[str] = []

    def line(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        match kind:
            case "":
                if line:
                    self._record.append(rest)
            case "record":
                self._record = self.records.setdefault(rest.removesuffix(".cmd"), [])
            case "job":
                name, *words = rest.split()
                self.states[name] = words
            case "time":
                name, _, seconds = rest.rpartition(" ")
                self.times[name] = float(seconds) if seconds.isdecimal() else 0.0
            case "pane":
                self.panes.update(rest.split()[:1])  # an operator's own pane has no name of ours

    def jobs(self) -> list[KeptJob]:
        found = []
        for job_id, words in self.states.items():
            record = parse_record("\n".join(self.records.get(job_id, [])))
            if record is not None:
                job = self._job(job_id, words, record)
                found.append(KeptJob(job, record, words[:1] == ["unwritten"]))
        return found

    def _job(self, job_id: str, words: list[str], record: JobRecord) -> Job:
        outcome = recorded(" ".join(words[1:]) + "\n", record.proof) if words[:1] == ["ended"] else None
        started = record.started if record.started is not None else self.times.get(f"{job_id}.cmd")
        known = outcome is not None and outcome.status is not Status.UNKNOWN
        ended = self.times.get(f"{job_id}.exit") if known else None
        return Job(
            job_id=job_id,
            command=record.command,
            status=outcome.status if outcome else self._unended(words[:1], record),
            exit_code=outcome.exit_code if outcome else None,
            started=started,
            ended=max(ended, started or 0.0) if ended is not None else None,
            pane=record.pane or None,
            owner=record.owner or None,
            cwd=record.cwd or None,
            helper=record.helper,
        )

    def _unended(self, state: list[str], record: JobRecord) -> Status:
        if record.kind == "pane" and state != ["unwritten"]:
            return Status.RUNNING if pane_uid(record) in self.panes else Status.UNKNOWN
        return Status.RUNNING if state in (["alive"], ["pane"]) else Status.UNKNOWN


class JobTable:
    """Every job on the target, of this and of other harness processes, with or without a terminal."""

    def __init__(self, transport: Transport, shell: HeldShell, store: JobStore, config: Config) -> None:
        self._transport = transport
        self._shell = shell
        self._store = store
        self._config = config

    async def list(self) -> list[Job]:
        """Every job with a record, oldest first; commands are cut after some lines."""
        reply = await self._shell.call(list_script(self._config.tmux_socket), timeout=LIST_TIMEOUT)
        return [kept.job for kept in parse_table(reply.text)]

    async def find(self, job_id: str) -> KeptJob:
        """One job with its record.

        Raises:
            JobNotFound: there is none of that id.
        """
        if job_id.isdecimal():
            reply = await self._shell.call(list_script(self._config.tmux_socket, str(int(job_id))))
            for kept in parse_table(reply.text):
                return kept
            if reply.text == "void\n":
                raise JobNotFound(f"no job {job_id!r}", target=self._transport.target, hint=NOT_BEGUN)
        raise JobNotFound(
            f"no job {job_id!r}", target=self._transport.target, hint="'harness jobs' lists those that are kept"
        )

    async def get(self, job_id: str) -> Job:
        """One job."""
        return (await self.find(job_id)).job

    async def clean(self) -> int:
        """Remove ended jobs beyond the limits, and logs of panes that no kept job refers to; returns how many jobs.

        It runs beside everything else: on a slow disk with many jobs it takes long, and nobody waits for it meanwhile.
        """
        return await self._clean("")

    async def clean_if_due(self) -> int:
        """The same, unless some harness has done it in the last ten minutes."""
        return await self._clean(IF_DUE)

    async def _clean(self, condition: str) -> int:
        config = self._config
        script = clean_script(config.jobs_max_age, config.jobs_max_bytes, shlex.quote(config.tmux_socket))
        ticket = await self._shell.submit(background_line(condition + script))
        try:
            return (await ticket.reply()).stdout.count(b"x")
        finally:
            ticket.forget()
