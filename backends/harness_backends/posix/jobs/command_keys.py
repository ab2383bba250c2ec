"""Keys of commands: the job of each key, decided by one atomic step on the target.

``keys/DIGEST/0``, ``keys/DIGEST/1``, ... are symbolic links whose text is a job ID; the last one counts. ``ln -s``
creates a link with its text or fails if it exists, so that of two callers one adds the next link. That is allowed only
if the last job did not run and never will: its record is of another key (its ID was given back), or it is missing or
not complete and ``N.void`` exists, which the shells of jobs look for after they have written the record. The cleanup
removes a key after its last job (see :mod:`.table`).
"""

from __future__ import annotations

import hashlib
import shlex

from harness.backend import Reservation
from harness.errors import HarnessError, NoSpace, UnsupportedOperation

from ..persistent_shell import PersistentShell
from ..state_directory import JobStore, field_text

__all__ = ["find_key", "reserve_key"]

MAX_ATTEMPTS = 1000
"""Jobs of one key that did not start."""

# hx_last: set hx_n to the number of links of the key, hx_job to the job of the last one.
# hx_has JOB: its record has the key. hx_whole is empty if the record's first line is not complete.
# hx_check_lost JOB: exit if its record was in memory and is lost, see :mod:`.memory_records`: it may have run.
_LAST = r"""
cd "$hx_root" || exit 3
hx_last() {
  hx_n=0 hx_job=
  while [ -L "keys/__DIGEST__/$hx_n" ]; do
    hx_job=$(readlink "keys/__DIGEST__/$hx_n") || exit 5
    hx_n=$((hx_n + 1))
    [ "$hx_n" -le __MAX__ ] || exit 6
  done
}
hx_check_lost() { [ ! -L "jobs/$1.cmd" ] || [ -e "jobs/$1.cmd" ] || exit 7; }
hx_has() {
  hx_check_lost "$1"
  hx_head= hx_whole=
  { IFS= read -r hx_head <"jobs/$1.cmd"; } 2>/dev/null && hx_whole=1
  [ -n "$hx_whole" ] || return 1
  case "${hx_head%%' #| '*} " in *" "__FIELD__" "*) return 0 ;; esac
  return 1
}
"""
_FIND = r"""
hx_last
[ -n "$hx_job" ] && hx_has "$hx_job" && echo "$hx_job"
exit 0
"""
_RESERVE = r"""
umask 077
while :; do
  mkdir -p keys/__DIGEST__ || exit 4
  hx_last
  if [ -n "$hx_job" ]; then
    if hx_has "$hx_job"; then echo "started $hx_job"; exit 0; fi
    if [ -z "$hx_whole" ]; then
      if [ -e "jobs/$hx_job.cmd" ] && [ ! -e "jobs/$hx_job.void" ] && [ "$hx_job" != "__WITHDRAW__" ]; then
        echo "pending $hx_job"
        exit 0
      fi
      : >"jobs/$hx_job.void" || exit 4
      if hx_has "$hx_job"; then echo "started $hx_job"; exit 0; fi
    fi
  fi
  ln -s __JOB__ "keys/__DIGEST__/$hx_n" 2>/dev/null && { echo ours __JOB__; exit 0; }
  [ -L "keys/__DIGEST__/$hx_n" ] || [ ! -d keys/__DIGEST__ ] || exit 4
done
"""


def _script(body: str, key: str, job_id: str = "", withdraw: str = "") -> str:
    digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    fields = {
        "__DIGEST__": digest,
        "__FIELD__": shlex.quote(field_text("key", key)),
        "__JOB__": job_id,
        "__WITHDRAW__": withdraw,
        "__MAX__": str(MAX_ATTEMPTS),
    }
    text = _LAST + body
    for name, value in fields.items():
        text = text.replace(name, value)
    return text


async def find_key(shell: PersistentShell, key: str) -> str | None:
    """Return the job that was started with a key, or None."""
    reply = await shell.call(_script(_FIND, key))
    if reply.exit_code != 0:
        raise _error(reply.exit_code, shell)
    return reply.text.strip() or None


async def reserve_key(shell: PersistentShell, store: JobStore, key: str, withdraw: str | None = None) -> Reservation:
    """Return the job that was started with a key, or reserve a new job ID for it.

    Args:
        shell: The target's shell.
        store: Where new job IDs come from.
        key: The key.
        withdraw: The job of a pending reservation that must not start any more.

    Raises:
        NoSpace: The state directory does not accept another file.
        UnsupportedOperation: The target lacks ``readlink`` or symbolic links, or the key's jobs never started.
    """
    job_id = await store.claim()
    reply = await shell.call(_script(_RESERVE, key, job_id, withdraw or ""))
    how, _, found = reply.text.strip().partition(" ")
    if reply.exit_code == 0 and how == "ours":
        return Reservation(found, "ours")
    store.give_back(job_id)
    if reply.exit_code != 0:
        raise _error(reply.exit_code, shell)
    return Reservation(found, "started" if how == "started" else "pending")


def _error(code: int, shell: PersistentShell) -> HarnessError:
    target = shell.transport.target
    if code == 5:
        hint = "install coreutils or busybox on the target, or run the command without a key"
        return UnsupportedOperation("a key needs readlink on the target", target=target, hint=hint)
    if code == 7:
        what = "the record of the command with this key was in the target's memory, and is lost: it may have run"
        return HarnessError(what, target=target, hint="check the target, then run the command with another key")
    if code == 6:
        hint = "use another key"
        return UnsupportedOperation(f"{MAX_ATTEMPTS} commands with this key did not start", target=target, hint=hint)
    return NoSpace(
        "the key cannot be stored, so nothing ran",
        target=target,
        hint="free disk space; the state directory needs a file system with symbolic links",
    )
