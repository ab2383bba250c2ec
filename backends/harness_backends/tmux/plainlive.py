"""Live output of a running job from the pane's log, for callers with output callbacks."""

from __future__ import annotations

from harness.errors import HarnessError

from ..posix.markers import PromptMarker, PromptMarkerScanner
from .channel.fallback_client import FallbackClient
from .job import PaneJob

__all__ = ["follow_log"]

# $1: the log, from byte $2 on. Ends with its input, and so with the connection.
_FOLLOW = 'tail -c "+$2" -f -- "$1" & tail=$!; cat >/dev/null; kill $tail'


async def follow_log(tmux: FallbackClient, job: PaneJob) -> None:
    """Feed a job with its part of the growing log until its end.

    Without a second channel nothing is fed, and all output is read after the end of the job.
    """
    path, start = f"{tmux.setup.root}/{job.log}", job.offset + 1
    scanner = PromptMarkerScanner(job.nonce)
    try:
        async with await tmux.transport.open_process(["sh", "-c", _FOLLOW, "sh", path, str(start)]) as process:
            while not job.done.is_set() and (data := await process.receive()):
                if _feed(job, scanner.feed(data)):
                    return
    except HarnessError:
        return


def _feed(job: PaneJob, pieces: list[bytes | PromptMarker]) -> bool:
    """Feed pieces to the job, and return True after its end marker."""
    for piece in pieces:
        if isinstance(piece, bytes):
            if job.started:
                job.feed(piece)
        elif job.is_output(piece):
            job.feed(piece.raw)
        elif piece.job == job.number and piece.kind == "start":
            job.start(soon=piece.soon)
        elif piece.job == job.number and piece.kind == "end":
            return True
    return False
