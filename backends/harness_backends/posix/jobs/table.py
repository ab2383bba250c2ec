"""The stored jobs of a target: list, find, and clean up beyond the limits."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.config import Config
from harness.errors import JobNotFound, UnsupportedOperation
from harness.results import Job, Status
from harness.transport import Transport

from ..persistent_shell import PersistentShell
from ..state_directory import JobRecord, JobStore, pane_uid, parse_record
from .launch import recorded, run_in_background
from .memory_records import FORGET

__all__ = [
    "JobTable",
    "StoredJob",
    "parse_table",
]


# -- Cleanup beyond the limits: ended jobs, and logs of panes that no stored job refers to.


MAX_JOBS = 10_000
"""Ended jobs beyond this number are removed by clean(), whatever their size."""
DAY = 86400

IF_DUE = r"""
cd "$hx_jobs" || exit 0
[ -z "$(find . ! -name . -prune -name cleaned -mmin -10 2>/dev/null)" ] || exit 0
(umask 077; : >cleaned)
"""
"""Prefix of the script: exit if any process ran it in the last ten minutes; without ``-mmin`` it always runs."""

# Input of _JUDGE, one fact per line: "A uid" a live pane; "N uid" a pane's directory that may be new; "O path" too old;
# "E n" ended; "G n" has a process; "S blocks n.suffix"; "L blocks path"; "D uid"; "R n log".
_FACTS = r"""
hx_panes=$hx_root/panes
hx_live() {
  { printf '%s\n' __SOCKET__; find "$hx_panes" -name socket -exec cat {} + 2>/dev/null; } | sort -u |
  while read -r s; do tmux -L "$s" list-panes -a -F "A $hx_living" </dev/null 2>/dev/null; done
  for d in "$hx_panes"/*/alive; do
    d=${d%/alive} p=
    [ -e "$d/alive" ] || continue
    { read -r p <"$d/pid"; } 2>/dev/null
    case $p in
      '' | *[!0-9]*) [ -n "$(find "$d" -prune -mtime +__DAYS__)" ] || echo "A ${d##*/}" ;;
      *) ! kill -0 "$p" 2>/dev/null || echo "A ${d##*/}" ;;
    esac
  done
}
hx_unended() {
  find . -name '[0-9]*.cmd' -size +0 -mtime +__DAYS__ | while read -r f; do
    n=${f#./}; n=${n%.cmd}
    [ -s "$n.exit" ] && continue
    if [ -e "$n.pid" ] || [ -e "$n.out" ]; then ! hx_going "$n" || echo "G $n"; fi
  done
}
hx_facts() {
  hx_live
  hx_unended
  find . -name '[0-9]*.exit' -size +0 | sed 's/^\.\//E /; s/\.exit$//'
  find . -name '[0-9]*.cmd' -mtime +__DAYS__ | sed 's/^\.\//C /; s/\.cmd$//'
  find . -name '[0-9]*.exit' -mtime +__DAYS__ | sed 's/^\.\//O /; s/\.exit$//'
  ls -s -k 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\) \([0-9][0-9]*\)\.[a-z]*$/S \1 \2/p'
  (
    cd "$hx_panes" || exit 0
    find . ! -name . -prune -type d | sed 's/^\.\//D /'
    { find . ! -name . -prune -type d ! -mmin +10 2>/dev/null || find . ! -name . -prune -type d ! -mtime +0; } |
    sed 's/^\.\//N /'
    find . -name 'log.[0-9]*' -mtime +__DAYS__ | sed 's/^\.\//P /'
    find . -name 'log.[0-9]*' -exec ls -s -k {} + | sed -n 's/^ *\([0-9][0-9]*\) \.\//L \1 /p'
  )
  ls | sed -n '/^[0-9][0-9]*\.cmd$/p' | hx_present | xargs awk '
    FNR == 1 {
      n = FILENAME; sub(/\.cmd$/, "", n); sub(/ #[|] .*/, ""); log_ = "-"
      if (match($0, / #% log: panes\/[A-Za-z0-9]+\/log\.[0-9]+ /)) log_ = substr($0, RSTART + 15, RLENGTH - 16)
      print "R", n, log_, ($0 ~ /^hxc /) ? "pane" : "plain", ($0 ~ / #% key: /) ? "key" : "-"
    }' /dev/null | sort -k2,2rn
}
"""

# Prints what to remove: "job n", "output n", "log path", "dir uid". A job with a key keeps its record and its exit code
# until it is old, as a further call with the key must find it. Logs of stored jobs and the newest log of a live pane
# are kept.
_JUDGE = r"""
function uid_of(path) { sub(/\/.*/, "", path); return path }
function number_of(path) { sub(/.*log\./, "", path); return path + 0 }
$1 == "A" && $2 != "" { alive[$2] = 1 }
$1 == "N" { recent[$2] = 1 }
$1 == "D" && $2 ~ /^[A-Za-z0-9]+$/ { folder[$2] = 1 }
$1 == "E" { ended[$2] = 1 }
$1 == "C" { oldcmd[$2] = 1 }
$1 == "G" { going[$2] = 1 }
$1 == "O" { old[$2] = 1 }
$1 == "P" { oldlog[$2] = 1 }
$1 == "S" { size[$3] += $2 }
$1 == "L" && $3 ~ /^[A-Za-z0-9]+\/log\.[0-9]+$/ {
  log_[$3] = $2; u = uid_of($3)
  if (!(u in newest) || number_of($3) > newest[u]) newest[u] = number_of($3)
}
$1 == "R" {
  n = $2; path = $3; lost = 0; total += size[n]; count++
  if (path != "-" && !(path in counted)) { counted[path] = 1; total += log_[path] }
  if (!(n in ended) && (n in oldcmd))
    lost = ($4 == "pane") ? (path != "-" && !(uid_of(path) in alive)) : !(n in going)
  if (lost || ((n in ended) && ((n in old) || count > most))) print "job", n
  else if ((n in ended) && total > limit) print (($5 == "key") ? "output" : "job"), n
  else if (path != "-") { wanted[path] = 1; wantdir[uid_of(path)] = 1 }
}
END {
  for (path in log_) if (!(path in counted)) total += log_[path]
  for (path in log_) {
    u = uid_of(path)
    if (path in wanted) continue
    if ((u in alive) && number_of(path) == newest[u]) continue
    if ((u in recent) && !(path in oldlog)) { wantdir[u] = 1; continue }
    if ((path in oldlog) || (path in counted) || total > limit) print "log", path
    else wantdir[u] = 1
  }
  for (u in folder) if (!(u in alive) && !(u in recent) && !(u in wantdir)) print "dir", u
}
"""

_CLEAN = r"""
hx_drop_output() {
  rm -f "$1.sh" "$1.run" "$1.out" "$1.err" "$1.in" "$1.pid" "$1.why" "$1.cap" "$1.seen" "$1.outgap" "$1.errgap" \
    "$1.size"
}
# Set hx_n to the number of links in a key's directory, and hx_job to the job of the last one; true if it is stored.
hx_key_job() {
  hx_n=0 hx_job=
  while [ -L "$1/$hx_n" ]; do hx_job=$(readlink "$1/$hx_n"); hx_n=$((hx_n + 1)); done
  [ -n "$hx_job" ] && [ -e "$hx_jobs/$hx_job.cmd" ]
}
hx_forget_key() {
  hx_key_job "$1" && return
  hx_before=$hx_n hx_aside=${1%/*}/old.$$.${1##*/}
  mv "$1" "$hx_aside" || return  # from here on no caller can add a link
  hx_key_job "$hx_aside"
  if [ "$hx_n" = "$hx_before" ]; then rm -rf "$hx_aside"; elif [ ! -e "$1" ]; then mv "$hx_aside" "$1"; fi
}
cd "$hx_jobs" || exit 0
hx_socket=__SOCKET__
hx_top=$(ls | sed -n 's/^\([0-9][0-9]*\)\.cmd$/\1/p' | sort -n | tail -n 1)
hx_last=0
{ read -r hx_last <last; } 2>/dev/null
case $hx_last in ''|*[!0-9]*) hx_last=0 ;; esac
[ "${hx_top:-0}" -le "$hx_last" ] || (umask 077; printf '%s\n' "$hx_top" >last)
find . -name '[0-9]*.cmd' -size 0 -mtime +1 -exec rm -f {} +
hx_remove_lost __DAYS__
find . -name '[0-9]*.void' -mtime +__DAYS__ -exec rm -f {} +
hx_conclude_all
hx_facts | awk -v limit=__KILOBYTES__ -v most=__JOBS__ '__JUDGE__' | while read -r kind name; do
  case $kind in
    job)
      hx_forget_memory "$name"
      hx_drop_output "$name" && rm -f "$name.cmd" "$name.trimmed" "$name.exit" && printf 'x' ;;
    output) (umask 077; : >"$name.trimmed") && hx_drop_output "$name" ;;
    log) rm -f "$hx_panes/$name" ;;
    dir) rm -rf "$hx_panes/$name" ;;
  esac
done
find "$hx_root/keys" ! -name keys -prune -type d -mtime +__DAYS__ 2>/dev/null |
while read -r f; do hx_forget_key "$f" 2>/dev/null; done
for f in "$hx_root/run/"*.*; do
  case ${f##*.} in *[!0-9]*) ;; *) kill -0 "${f##*.}" 2>/dev/null || rm -f "$f" ;; esac
done
"""


def clean_script(max_age: float, max_bytes: int, socket: str) -> str:
    """Return the cleanup script for the limits (seconds, bytes); it prints one letter for each removed job.

    ``socket`` is a shell-quoted tmux socket to query for live panes; the panes' directories name further sockets.
    """
    days = max(0, int(max_age // DAY) - 1)
    fields = {
        "__JUDGE__": _JUDGE,
        "__SOCKET__": socket,
        "__DAYS__": str(days),
        "__KILOBYTES__": str(max_bytes // 1024),
        "__JOBS__": str(MAX_JOBS),
    }
    text = FORGET + _FACTS + _CLEAN
    for name, value in fields.items():
        text = text.replace(name, value)
    return text


# -- The stored jobs of a target: list, find, clean up.


LISTED_LINES = 50
LISTED_COLUMNS = 2000
LISTED_HEADER = 32_000
"""Columns of a record's first line, which is only valid in full: an encoded directory may be three times as long."""
SHOWN_BYTES = 1 << 20
LIST_TIMEOUT = 120.0
_UNLISTABLE = 69
"""Exit code of the listing if its programs are not installed."""
NOT_STARTED_NOTICE = (
    "a command sent with this id before the connection was lost did not run and will not run "
    "(except in a nested shell of a pane whose harness process has exited)"
)

# Prints for each record "job N STATE CODE STATUS" (STATE: ended, unwritten, alive, gone or pane), then "pane UID" for
# each existing pane, then times, then the records.
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
    [ ! -e "${hx_f%.cmd}.trimmed" ] || printf 'trimmed %s\n' "${hx_f%.cmd}"
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
  if stat -c %Y / >/dev/null 2>&1; then xargs stat -c 'time %n %Y'; else xargs stat -f 'time %N %m'; fi 2>/dev/null
}
cd "$hx_jobs" || exit 0
"""

# A claimed id without a record: its command was not sent yet, or is still in transit. From now on it never runs under
# this id: see hx_run, and hxoff in the shells of panes.
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
class StoredJob:
    """A job and its record; ``exit_code_lost``: it has ended, but the disk was too full for its exit code.

    ``trimmed``: a cleanup has removed its output.
    """

    job: Job
    record: JobRecord
    exit_code_lost: bool = False
    trimmed: bool = False


def list_script(socket: str, job_id: str | None = None) -> str:
    """Return the script that lists all jobs, or one with its whole record, for :func:`parse_table`."""
    head = f"{FORGET}{_LIST}\nhx_socket={shlex.quote(socket)}\n"
    if job_id is not None:
        names = f"hx_names={job_id}.cmd\n"
        show = f"printf 'record %s\\n' {job_id}.cmd; head -c {SHOWN_BYTES} {job_id}.cmd | sed 's/^/ /'"
        settle = f"hx_holders\nhx_conclude '' {job_id}\n"
        times = f"ls {job_id}.cmd {job_id}.exit 2>/dev/null | hx_times"
        return f"{head}{VOID.format(job_id)}{names}{settle}hx_each\nhx_panes\n{times}\n{show}\n"
    head += f"command -v awk >/dev/null 2>&1 && command -v xargs >/dev/null 2>&1 || exit {_UNLISTABLE}\n"
    names = 'hx_names=$(ls | sed -n "s/^[0-9][0-9]*\\.cmd\\$/&/p" | hx_present)\n'
    times = "ls | sed -n '/^[0-9]*\\.\\(cmd\\|exit\\)$/p' | hx_times"
    return f'{head}{names}hx_conclude_all\nhx_each\nhx_panes\n{times}\nprintf "%s\\n" $hx_names | xargs {_RECORDS}\n'


def parse_table(text: str) -> list[StoredJob]:
    """Parse the output of :func:`list_script`, oldest job first; empty or incomplete records are skipped."""
    table = _JobListing()
    for line in text.split("\n"):
        table.line(line)
    return sorted(table.jobs(), key=lambda kept: int(kept.job.job_id))


class _JobListing:
    """The lines of a listing, sorted by their kind."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.times: dict[str, float] = {}
        self.panes: set[str] = set()
        self.records: dict[str, list[str]] = {}
        self.trimmed: set[str] = set()
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
            case "trimmed":
                self.trimmed.add(rest)
            case "pane":
                self.panes.update(rest.split()[:1])  # an unmanaged pane has no uid

    def jobs(self) -> list[StoredJob]:
        found = []
        for job_id, words in self.states.items():
            record = parse_record("\n".join(self.records.get(job_id, [])))
            if record is not None:
                job = self._job(job_id, words, record)
                found.append(StoredJob(job, record, words[:1] == ["unwritten"], job_id in self.trimmed))
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
            key=record.key or None,
        )

    def _unended(self, state: list[str], record: JobRecord) -> Status:
        if record.kind == "pane" and state != ["unwritten"]:
            return Status.RUNNING if pane_uid(record) in self.panes else Status.UNKNOWN
        return Status.RUNNING if state in (["alive"], ["pane"]) else Status.UNKNOWN


class JobTable:
    """Every job on the target, of this and of other harness processes, with or without a terminal."""

    def __init__(self, transport: Transport, shell: PersistentShell, store: JobStore, config: Config) -> None:
        self._transport = transport
        self._shell = shell
        self._store = store
        self._config = config

    async def list(self) -> list[Job]:
        """Return every job with a record, oldest first; long commands are truncated.

        Raises:
            UnsupportedOperation: the target lacks the programs that read the records.
        """
        reply = await self._shell.call(list_script(self._config.tmux_socket), timeout=LIST_TIMEOUT)
        if reply.exit_code == _UNLISTABLE:
            raise UnsupportedOperation(
                "cannot list jobs: awk or xargs is not installed on the target",
                target=self._transport.target,
                hint="install awk and findutils there",
            )
        return [kept.job for kept in parse_table(reply.text)]

    async def find(self, job_id: str) -> StoredJob:
        """Return one job with its record.

        Raises:
            JobNotFound: no job has this id.
        """
        if job_id.isdecimal():
            reply = await self._shell.call(list_script(self._config.tmux_socket, str(int(job_id))))
            for kept in parse_table(reply.text):
                return kept
            if reply.text == "void\n":
                raise JobNotFound(f"no job {job_id!r}", target=self._transport.target, hint=NOT_STARTED_NOTICE)
        raise JobNotFound(
            f"no job {job_id!r}", target=self._transport.target, hint="list the stored jobs with: harness jobs"
        )

    async def get(self, job_id: str) -> Job:
        """Return one job."""
        return (await self.find(job_id)).job

    async def clean(self) -> int:
        """Remove ended jobs beyond the limits, and logs of panes that no stored job refers to.

        It runs in the background of the persistent shell, so that it does not delay other calls.

        Returns:
            The number of removed jobs.
        """
        return await self._clean("")

    async def clean_if_due(self) -> int:
        """Clean up, unless any harness process has done so in the last ten minutes."""
        return await self._clean(IF_DUE)

    async def _clean(self, condition: str) -> int:
        config = self._config
        script = clean_script(config.jobs_max_age, config.jobs_max_bytes, shlex.quote(config.tmux_socket))
        reply = await run_in_background(self._shell, condition + script)
        return reply.stdout.count(b"x") if reply else 0
