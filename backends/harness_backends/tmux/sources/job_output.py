"""A job's output and end without a live stream: from its exit file, the pane's log, and the visible prompt tags."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from harness.command import Capture
from harness.errors import HarnessError

from ...posix.jobs.output import read_range
from ...posix.pane_jobs.pane_log_output import other_mark
from ...posix.pane_jobs.prompt_markers import PromptMarker, PromptMarkerScanner
from ..channel.single_commands import SingleCommands, until_script
from ..jobs.output_collector import OutputCollector
from ..jobs.pane_job import PaneJob
from ..pane.capture import TaggedOutput, capture_command, captured_text, extract_running, extract_tagged
from ..pane.pane_log import NEWEST_LOG
from ..pane.pane_state import Pane

__all__ = [
    "DOUBT",
    "PaneFacts",
    "WaitResult",
    "facts_script",
    "follow_log",
    "parse_ended",
    "parse_facts",
    "read_output",
    "read_partial_output",
    "read_unended",
    "watch_script",
]

RENDERED = (
    "the output was read from the scrollback, as the pane has no log: colors, tabs and trailing blanks are missing"
)
DOUBT = "the output may contain unrelated text or miss its beginning"
LEFT = "the output is no longer in the scrollback: the screen was cleared, or there were too many lines"
NO_TAG = "the output is not available: no pane log and no prompt tag; set prompt_tag = true"
NO_LOG_END = "the log of this command is incomplete"
NEAR = 2000
"""Lines above the screen that are searched first."""
LAG = 2.0
"""Maximum seconds by which the terminal may lag behind the exit file."""


@dataclass(frozen=True, slots=True)
class PaneFacts:
    """The content of a pane's files; ``pid`` is its shell's, 0 while that starts; ``logged`` is None without a log."""

    nonce: str = ""
    pid: int = 0
    log_number: int = 0
    logged: int | None = None


@dataclass(frozen=True, slots=True)
class WaitResult:
    """The end of a wait.

    ``how``: ``exit``, ``mark``, ``tag``, or ``gone``; ``words`` is the content that the exit file has or would have.
    """

    how: str
    words: str = ""

    @property
    def secret(self) -> str:
        """The secret that proves it; empty without one."""
        words = self.words.split()
        return words[2] if len(words) > 2 else ""


def facts_script(folder: str, tmux: str, pane: str) -> str:
    """Return a script that prints the facts for :func:`parse_facts`."""
    return (
        f"cd {shlex.quote(folder)} || exit 1\n"
        "n= p=; read -r n <nonce; [ -e starting ] || read -r p <pid\n"
        f"{NEWEST_LOG}\n"
        f's=-; [ "$({tmux} display-message -p -t {pane} "#{{pane_pipe}}")" != 1 ] || s=$(wc -c <log.$k)\n'
        'echo "${n:--} ${p:-0} $k" $s\n'
    )


def parse_facts(text: str) -> PaneFacts | None:
    """Parse a pane's facts; return None if its files were deleted."""
    words = text.split()
    if len(words) < 3 or words[0] == "-":
        return None
    logged = int(words[3]) if len(words) > 3 and words[3].isdecimal() else None
    return PaneFacts(words[0], int(words[1]), int(words[2]), logged)


def watch_script(job: PaneJob, pane: Pane, tmux: str, files: str, log: str, seconds: float) -> str:
    """Return a script that waits until a job ends.

    It prints ``exit WORDS``, ``mark CODE``, ``tag`` or ``gone``, or nothing after ``seconds``. After a syntax error or
    an interrupt the shell may not write an exit file: then the end marker in the log, or the job's tag in the prompt,
    shows the end.
    """
    tag = f"[harness {job.job_id}: "
    code, secret, broken = r"\(-\{0,1\}[0-9]*\)", r"\([0-9a-z]*\)", r";\{0,1\}\([bn]\{0,1\}\)"
    mark = rf"s/.*\]133;D;{code};{job.nonce};{job.job_id};{secret}{broken}$/\1 completed \2 \3/p"
    marks = f"sed -n {shlex.quote(mark)} | tail -n 1"
    return f"""
exit={shlex.quote(files)}.exit t=0 due=20
readable() {{ [ -s "$exit" ] && {{ [ -r "$exit" ] || chmod u+rw "$exit"; }}; }}
ended() {{ readable && read -r line <"$exit" && echo "exit $line"; }}
while [ "$t" -lt {int(seconds * 100)} ]; do
  ended && exit
  kill -0 $$ || exit
  if [ "$t" -ge "$due" ]; then
    if [ "$t" -lt 3000 ]; then due=$((t + 50)); else due=$((t + 200)); fi
    code=$(tail -c 65536 {shlex.quote(log)} | tr '\\007' '\\n' | {marks})
    if [ -n "$code" ]; then ended || echo "mark $code"; exit; fi
    {tmux} capture-pane -p -t {pane.pane_id} | grep -qF {shlex.quote(tag)} && {{ ended || echo tag; exit; }}
    shown=$({tmux} display-message -p -t {pane.pane_id} '#{{@harness_uid}}:#{{pane_pid}}')
    [ "$shown" = {pane.uid}:{pane.wrapper.partition(":")[0]} ] || {{ ended || echo gone; exit; }}
  fi 2>/dev/null
  if [ "$t" -lt 100 ]; then nap=2; elif [ "$t" -lt 1000 ]; then nap=10; else nap=30; fi
  sleep "0.$((nap / 10))$((nap % 10))" 2>/dev/null || {{ sleep 1; nap=100; }}
  t=$((t + nap))
done
"""


def parse_ended(text: str) -> WaitResult | None:
    """Parse the output of :func:`watch_script`; return None after a timeout."""
    how, _, words = text.strip().partition(" ")
    return WaitResult(how, words) if how else None


async def read_unended(tmux: SingleCommands, job: PaneJob) -> None:
    """Read the output of a job without an end marker from the log; without a log it cannot be recognized."""
    job.read_again()
    await _feed_log(tmux, job, f"{tmux.setup.root}/{job.log}", without_end=True)


async def read_output(tmux: SingleCommands, job: PaneJob, pane: Pane, logged: bool) -> TaggedOutput | None:
    """Read an ended job's output from the log, else from the text between the tags, with a notice.

    Returns:
        The text from the scrollback, or None if it was not needed or contains nothing of the job.
    """
    job.read_again()
    if logged and await _from_log(tmux, job):
        return None
    if logged:
        job.notices.append(NO_LOG_END)
    return await _from_scrollback(tmux, job, pane)


async def _from_log(tmux: SingleCommands, job: PaneJob) -> bool:
    path = f"{tmux.setup.root}/{job.log}"
    mark = f"]133;D;.*;{job.nonce};{job.job_id};"
    # The end marker may arrive through the terminal after the exit file exists.
    written = f"tail -c 65536 {shlex.quote(path)} | tr '\\007' '\\n' | grep -q '{mark}'"
    await tmux.beside(until_script(written, LAG), 2 * LAG)
    return await _feed_log(tmux, job, path)


async def _feed_log(tmux: SingleCommands, job: PaneJob, path: str, *, without_end: bool = False) -> bool:
    """Feed a job with its part of the log, and return whether that contains its end."""
    scanner = PromptMarkerScanner(job.nonce)
    async for chunk in read_range(tmux.transport, tmux.shell, path, job.offset):
        for piece in scanner.feed(chunk):
            if without_end and job.started and (found := other_mark(piece, job.number)) is not None:
                job.feed(found)
                return False
            if _is_end(job, piece):
                return True
    return False


def _is_end(job: PaneJob, piece: bytes | PromptMarker) -> bool:
    """Feed a job with one piece of its log, and return whether that is its end."""
    if isinstance(piece, bytes):
        if job.started:
            job.feed(piece)
    elif job.is_output(piece):
        job.feed(piece.raw)
    elif piece.kind == "start" and piece.job == job.number:
        job.start(soon=piece.soon)
    elif piece.kind == "cwd" and piece.text.startswith("/"):
        job.cwd = piece.text
    else:
        return (piece.kind == "end" and piece.job == job.number) or (piece.kind == "exit" and job.started)
    return False


async def _from_scrollback(tmux: SingleCommands, job: PaneJob, pane: Pane) -> TaggedOutput | None:
    job.start()
    if not tmux.setup.config.prompt_tag:
        job.notices.append(NO_TAG)
        return None
    tag = shlex.quote(f"[harness {job.job_id}: ")
    shown = f"{tmux.setup.tmux} capture-pane -p -t {pane.pane_id} | grep -qF {tag}"
    await tmux.beside(until_script(shown, LAG), 2 * LAG)
    width = await _width(tmux, pane)
    found = extract_tagged(await _scrollback(tmux, pane, -NEAR), job.job_id, job.command.command, width)
    if found is None or not found.exact:
        found = extract_tagged(await _scrollback(tmux, pane, "-"), job.job_id, job.command.command, width)
    if found is None:
        job.notices.append(LEFT)
        return None
    job.notices.append(RENDERED)
    if not found.exact:
        job.notices.append(DOUBT)
    job.feed(found.text.encode("utf-8", "surrogateescape"))
    return found


async def _width(tmux: SingleCommands, pane: Pane) -> int:
    """Return the columns of a pane, as operators' clients change them in versions without a manual size."""
    shown = (await tmux.request(("display-message", "-p", "-t", pane.pane_id, "#{pane_width}")))[-1].text
    return int(shown) if shown.isdecimal() else 0


async def read_partial_output(tmux: SingleCommands, job: PaneJob, pane: Pane, logged: bool) -> bytes:
    """Return the output so far of a running job, without changing the job."""
    if not logged:
        text = extract_running(await _scrollback(tmux, pane, -NEAR), job.command.command)
        return text.encode("utf-8", "surrogateescape")
    collector = OutputCollector(job.command.max_output)
    probe = PaneJob(job.job_id, job.command, job.pane, job.log, job.offset, job.nonce, collector, job.secret)
    await _feed_log(tmux, probe, f"{tmux.setup.root}/{job.log}")
    collector.finish()
    return collector.data


async def _scrollback(tmux: SingleCommands, pane: Pane, start: int | str) -> str:
    """Return the joined lines of a pane from ``start`` to the end of its screen."""
    request = Capture(start="-" if isinstance(start, str) else start, end="-")
    version = tmux.setup.version
    blocks = await tmux.request(capture_command(pane.pane_id, request, version))
    return captured_text(blocks[-1].text, request, version)


# $1: the log, from byte $2 on. Ends with its input, and so with the connection.
_FOLLOW = 'tail -c "+$2" -f -- "$1" & tail=$!; cat >/dev/null; kill $tail'


async def follow_log(tmux: SingleCommands, job: PaneJob) -> None:
    """Feed a job with its part of the growing log until its end.

    Without a second channel nothing is fed, and all output is read after the end of the job.
    """
    path, start = f"{tmux.setup.root}/{job.log}", job.offset + 1
    scanner = PromptMarkerScanner(job.nonce)
    try:
        async with await tmux.transport.open_process(["sh", "-c", _FOLLOW, "sh", path, str(start)]) as process:
            while not job.done.is_set() and (data := await process.receive()):
                if any(_is_end(job, piece) for piece in scanner.feed(data)):
                    return
    except HarnessError:
        return
