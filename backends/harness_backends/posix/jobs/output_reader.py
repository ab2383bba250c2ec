"""Reading a part of a job's output, from a byte of each stream on, in one round trip."""

from __future__ import annotations

import shlex
from contextlib import aclosing
from dataclasses import dataclass

import anyio

from harness.results import JobOutput, OutputPart, Status

from ..persistent_shell import PersistentShell
from ..state_directory import JobStore, pane_uid
from .follow import JobFollower, log_of
from .launch import run_in_background
from .log_limit import GAP
from .output import (
    INLINE,
    split_gap,
)
from .table import JobTable, StoredJob

__all__ = ["JobReader", "OutputReadRequest", "parse_parts", "parts_script", "until_more_script"]

# hx_piece FILE BYTE LIMIT EXIT: prints the size, the first byte of the part, the count of dropped bytes before it, a
# newline, the part, and the gap afterwards; or "gone" if the job has ended and the file does not exist. A part that
# starts before a gap ends there.
_PIECE = (
    GAP
    + r"""
hx_piece() {
  if [ -s "$4" ] && [ ! -e "$1" ]; then
    echo gone
    return
  fi
  hx_gap "$1"
  hx_s=$(($({ wc -c <"$1"; } 2>/dev/null || echo 0))) hx_o=$2 hx_l=$3
  if [ "$hx_lost" -gt 0 ]; then
    if [ "$hx_o" -ge $((hx_hole + hx_lost)) ]; then :
    elif [ "$hx_o" -ge "$hx_hole" ]; then hx_o=$((hx_hole + hx_lost))
    elif [ $((hx_hole - hx_o)) -lt "$hx_l" ]; then hx_l=$((hx_hole - hx_o))
    fi
    [ "$hx_o" -le "$hx_s" ] || hx_o=$hx_s
    [ "$hx_o" -ge "$2" ] || hx_o=$2
  fi
  printf '%s %s %s\n' "$hx_s" "$hx_o" $((hx_o - $2))
  [ "$hx_s" -le "$hx_o" ] || tail -c "+$((hx_o + 1))" -- "$1" | head -c "$hx_l"
  hx_gap "$1"
  printf '\n%s %s\n' "$hx_hole" "$hx_lost"
}
"""
)

_UNTIL_MORE = r"""
hx_more() { [ $(($({ wc -c <"$1"; } 2>/dev/null || echo 0))) -gt "$2" ]; }
hx_left=$((SECONDS_ * 5 + 1))
while [ "$hx_left" -gt 0 ] && kill -0 $$; do
  [ -s "$hx_jobs/JOB_.exit" ] && break
  hx_more "$hx_jobs/JOB_.out" OUT_ && break
  hx_more "$hx_jobs/JOB_.err" ERR_ && break
  hx_gone JOB_ SOCKET_ UID_ && break
  hx_nap 0.2
  hx_left=$((hx_left - 1))
done
"""


@dataclass(frozen=True, slots=True)
class OutputReadRequest:
    """The first byte to read of each stream, and the maximum number of bytes."""

    stdout: int
    stderr: int
    limit: int


def parts_script(job_id: str, wanted: OutputReadRequest) -> str:
    """Return a script that prints a part of each stream of a job on its own streams."""
    return (
        f"{_PIECE}\n"
        f'hx_piece "$hx_jobs/{job_id}.out" {wanted.stdout} {wanted.limit} "$hx_jobs/{job_id}.exit"\n'
        f'hx_piece "$hx_jobs/{job_id}.err" {wanted.stderr} {wanted.limit} "$hx_jobs/{job_id}.exit" >&2\n'
    )


def parse_parts(stdout: bytes, stderr: bytes) -> tuple[OutputPart, OutputPart]:
    """Parse the output of :func:`parts_script`."""
    return _part(stdout), _part(stderr)


def _part(text: bytes) -> OutputPart:
    head, _, rest = text.partition(b"\n")
    words = head.split()
    if words == [b"gone"]:
        return OutputPart(gone=True)
    data, gap = split_gap(rest)
    if len(words) != 3 or gap is None:
        return OutputPart()
    size, start, lost = (int(word) for word in words)
    if gap.start <= start < gap.end:  # the gap was created during the read
        data, passed = gap.after(data, start), min(gap.end, size) - start
        start, lost = start + passed, lost + passed
    else:
        data = gap.before(data, start)
    if not data:
        return OutputPart(b"", min(start, size), size, lost)
    return OutputPart(data, start, max(size, start + len(data)), lost)  # the file may have grown meanwhile


def until_more_script(job_id: str, wanted: OutputReadRequest, seconds: float, socket: str, uid: str) -> str:
    """Return a script that waits until a stream has new bytes, the job ends, or the timeout."""
    words = {
        "SECONDS_": str(int(seconds) + 1),
        "JOB_": job_id,
        "OUT_": str(wanted.stdout),
        "ERR_": str(wanted.stderr),
        "SOCKET_": shlex.quote(socket),
        "UID_": shlex.quote(uid),
    }
    script = _UNTIL_MORE
    for name, word in words.items():
        script = script.replace(name, word)
    return script


class JobReader:
    """A reader of parts of jobs' stored output."""

    def __init__(
        self, shell: PersistentShell, store: JobStore, table: JobTable, follower: JobFollower, socket: str
    ) -> None:
        self._shell = shell
        self._store = store
        self._table = table
        self._follower = follower
        self._socket = socket

    async def read(self, job_id: str, wanted: OutputReadRequest, wait: float) -> JobOutput:
        """Read the output beyond some bytes, waiting at most ``wait`` seconds for new data of a running job."""
        kept = await self._table.find(job_id)
        streams = kept.record.kind != "pane" or await self._follower.has_streams(kept.job.job_id)
        read = self._streams if streams else self._pane
        found = await read(kept, wanted)
        if wait <= 0 or found.stdout.data or found.stderr.data or kept.job.status is not Status.RUNNING:
            return found
        await (self._more(kept, wanted, wait) if streams else self._more_of_pane(kept, wanted, wait))
        return await read(await self._table.find(job_id), wanted)

    async def _streams(self, kept: StoredJob, wanted: OutputReadRequest) -> JobOutput:
        wanted = OutputReadRequest(wanted.stdout, wanted.stderr, min(wanted.limit, INLINE))
        reply = await self._shell.call(parts_script(kept.job.job_id, wanted))
        return JobOutput(kept.job, *parse_parts(reply.stdout, reply.stderr))

    async def _more(self, kept: StoredJob, wanted: OutputReadRequest, seconds: float) -> None:
        """Wait on the target, without polling over the connection."""
        script = until_more_script(kept.job.job_id, wanted, seconds, self._socket, pane_uid(kept.record))
        await run_in_background(self._shell, script, seconds)

    async def _pane(self, kept: StoredJob, wanted: OutputReadRequest) -> JobOutput:
        """Read the output of a pane's job from the pane's log, from the job's start on."""
        data, size = bytearray(), wanted.stdout
        log = log_of(kept)
        async for chunk in self._follower.pane_part(kept, log, wanted.stdout, live=False):
            size += len(chunk)
            data += chunk[: wanted.limit - len(data)]
        gone = kept.job.ended is not None and not log.ended
        return JobOutput(kept.job, OutputPart(bytes(data), wanted.stdout, size, gone=gone))

    async def _more_of_pane(self, kept: StoredJob, wanted: OutputReadRequest, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            async with aclosing(self._follower.pane_part(kept, log_of(kept), wanted.stdout, live=True)) as chunks:
                async for _ in chunks:
                    return
