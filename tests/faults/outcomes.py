"""How a command can end, done for real: each way of :data:`ENDINGS` gives an :class:`Outcome`.

A command appends a line to a file when it begins, so that one that ran twice, or that nobody knows of, is seen.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
from tests.faults.rig import Place, alive, feed, kill, lines, until
from tests.faults.test_late import Stopped
from tests.faults.test_limits import fill

from harness import ExecutionContext, ShellResult
from harness.errors import HarnessError, JobNotFound

__all__ = ["ENDINGS", "Outcome", "Trial"]

UNSTEADY = (
    (r"(?<=\bjob )\d+|(?<=\bwait )\d+|(?<=\bshow )\d+", "N"),
    (r"127\.0\.0\.1\S*|local:|(?:ssh|docker):\S+", "TARGET"),
    (r"(?:connect to host|kex_exchange_identification|Connection (?:closed|reset)).*", "SSH SAYS WHY"),
    (r"(?<=still running: ).* is ", "COMMAND is "),
)
"""What differs from one run to the next, and what is written for it."""
FIRST = 60.0
AFTER = 45.0
KEEP_ALIVES = 200
"""Bytes: the keep-alives of a connection until it is given up are fewer, and every command is more."""


@dataclass
class Outcome:
    """What a caller is told, and what is left on the target."""

    status: str = ""
    """Of the result; ``raised NAME`` when the call raised, ``context ended by NAME`` when the whole context did."""
    exit_code: int | None = None
    stdout: str = ""
    notices: list[str] = field(default_factory=list)
    runs: int = 0
    """How often the command began."""
    files: list[str] = field(default_factory=list)
    """The endings of the names of the job's files, once nothing of it runs any more; ``N.cmd`` is ``cmd``."""
    later: str = ""
    """The status and the exit code that another harness sees in the end."""


@dataclass
class Trial:
    """One command in one place.

    ``carrier`` is what runs it: ``plain``, ``pane``, ``pane without control mode``, or ``engine``.
    """

    place: Place
    carrier: str
    stop: Callable[[], None] = lambda: None
    """Ends the whole target."""
    word: str = field(default_factory=lambda: f"w{secrets.token_hex(6)}")
    outcome: Outcome = field(default_factory=Outcome)

    def connect(self) -> Any:
        """A harness of this carrier."""
        mode = {"control_mode": "never"} if self.carrier == "pane without control mode" else {}
        return self.place.connect(tmux=self.carrier.startswith("pane"), **mode)

    def run(self, ctx: ExecutionContext, command: str, **options: Any) -> Awaitable[ShellResult]:
        """Run it. Commands of another user are what an engine keeps."""
        user = {"user": "nobody"} if self.carrier == "engine" else {}
        return ctx.run_shell(command, **user, **options)

    @property
    def runs(self) -> Path:
        """Gets a line when the command begins."""
        return self.place.path(self.word)

    @property
    def printed(self) -> Path:
        """Is there when the command has printed its output."""
        return self.place.path(f"{self.word}.printed")

    @property
    def gate(self) -> Path:
        """A named pipe that a command may wait at."""
        path = self.place.path(f"{self.word}.gate")
        if not path.exists():
            os.mkfifo(path)
        return path

    def command(self, rest: str) -> str:
        """The command: it says that it has begun, writes a line, says that too, and does the rest."""
        return f"echo begun >>{self.runs}; echo out; : >{self.printed}; {rest}"

    async def begun(self) -> None:
        """Wait until it has begun and printed its output."""
        await until(self.printed.exists, "the command runs", FIRST)

    async def take(self, call: Awaitable[ShellResult]) -> ShellResult | None:
        """What a call gives, or raises, is the outcome."""
        try:
            with anyio.fail_after(FIRST):
                result = await call
        except (HarnessError, _RefusedError) as error:
            self.outcome.status = f"raised {type(error).__name__.strip('_')}"
            self.outcome.notices = [self._told(str(error).partition("\n")[0])]
            return None
        self._take(result)
        return result

    def _take(self, result: ShellResult) -> None:
        self.outcome.status, self.outcome.exit_code = str(result.status), result.exit_code
        self.outcome.stdout = result.stdout
        self.outcome.notices = [self._told(notice) for notice in result.notices]

    def _told(self, text: str) -> str:
        """The first line of a message, without what differs from one run to the next."""
        text = text.partition("\n")[0].replace(str(self.runs), "RUNS").replace(self.word, "WORD")
        for pattern, name in UNSTEADY:
            text = re.sub(pattern, name, text)
        return text

    @contextmanager
    def outlived(self) -> Iterator[None]:
        """Where what the callback raises does not come to the caller, but ends the whole context."""
        try:
            yield
        except _RefusedError:
            self.outcome.status = "context ended by RefusedError"

    # -- what is left

    def records(self) -> list[Path]:
        """The records of the command on the target."""
        found = []
        for path in (self.place.state / "jobs").glob("*.cmd"):
            with suppress(OSError):
                if self.word.encode() in path.read_bytes():
                    found.append(path)
        return found

    async def look_later(self) -> None:
        """What another harness is told once the command is over, and which files there are."""
        async with self.place.connect(tmux=False) as other:
            for path in self.records():
                with suppress(JobNotFound, HarnessError):
                    seconds = 5 if self.outcome.status.startswith("context") else AFTER
                    result = await other.wait(path.stem, timeout=seconds)
                    code = "" if result.exit_code is None else f" {result.exit_code}"
                    self.outcome.later = f"{result.status}{code}"
        names = [name for path in self.records() for name in path.parent.glob(f"{path.stem}.*")]
        self.outcome.files = sorted(path.suffix.removeprefix(".") for path in names)

    def count_runs(self) -> None:
        """How often it began."""
        self.outcome.runs = len(lines(self.runs))


Ending = Callable[[Trial, ExecutionContext], Awaitable[None]]


async def ends(trial: Trial, ctx: ExecutionContext) -> None:
    await trial.take(trial.run(ctx, trial.command("(exit 3)"), timeout=30))


async def keep(trial: Trial, ctx: ExecutionContext) -> None:
    command = trial.command(f"read x <{trial.gate}; (exit 3)")
    result = await trial.take(trial.run(ctx, command, timeout=3, on_timeout="keep"))
    await feed(trial.gate, b"on\n")
    if result is not None:
        await ctx.wait(result.job_id or "", timeout=AFTER)


async def no_wait(trial: Trial, ctx: ExecutionContext) -> None:
    result = await trial.take(trial.run(ctx, trial.command(f"read x <{trial.gate}; (exit 3)"), wait=False))
    await feed(trial.gate, b"on\n")
    assert result is not None
    await ctx.wait(result.job_id or "", timeout=AFTER)
    trial.outcome.stdout = ""  # as much as was there, which differs


async def kill_at_deadline(trial: Trial, ctx: ExecutionContext) -> None:
    await trial.take(trial.run(ctx, trial.command("sleep 300"), timeout=3, on_timeout="kill"))


async def kill_by_id(trial: Trial, ctx: ExecutionContext) -> None:
    job = await trial.run(ctx, trial.command("sleep 300"), wait=False)
    await trial.begun()
    await ctx.kill(job.job_id or "")
    await trial.take(ctx.wait(job.job_id or "", timeout=AFTER))


async def cancel(trial: Trial, ctx: ExecutionContext) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.run, ctx, trial.command("sleep 300"))
        await trial.begun()
        tasks.cancel_scope.cancel()
    trial.outcome.status = "cancelled"


class _RefusedError(TimeoutError):
    """What the callback raises: an error that harness, too, raises inside, so that only a sure way tells them apart."""


async def callback_fails(trial: Trial, ctx: ExecutionContext) -> None:
    def refuse(_: bytes) -> None:
        raise _RefusedError

    await trial.take(trial.run(ctx, trial.command("sleep 300"), timeout=30, on_output=refuse))


async def lost_before_it_is_sent(trial: Trial, ctx: ExecutionContext) -> None:
    assert trial.place.proxy is not None
    trial.place.proxy.cut()
    await anyio.sleep(1)  # the harness sees it meanwhile; nothing tells of it
    await trial.take(trial.run(ctx, trial.command("(exit 3)"), timeout=4))
    trial.place.proxy.resume()


def unread_bytes(place: Place) -> int:
    """Return how much the stopped server has been sent and has not read."""
    assert place.sshd is not None
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(row[4].partition(":")[2], 16) for row in rows if int(row[1].partition(":")[2], 16) == place.sshd.port
    )


async def until_sent(place: Place) -> None:
    """Wait until a stopped server has been sent more than keep-alives, and all of it."""
    before = -1
    with anyio.fail_after(FIRST):
        while (unread := unread_bytes(place)) != before or unread <= KEEP_ALIVES:
            before = unread
            await anyio.sleep(0.2)


async def lost_while_it_is_sent(trial: Trial, ctx: ExecutionContext) -> None:
    """The server's ends of the link are stopped, take what is sent, and die with it."""
    stopped = Stopped(trial.place)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.take, trial.run(ctx, trial.command("(exit 3)"), timeout=8))
        await until_sent(trial.place)
        for pid in stopped._pids:
            kill(pid)
        await until(lambda: not any(map(alive, stopped._pids)), "the old sessions have ended")


async def lost_while_it_runs(trial: Trial, ctx: ExecutionContext) -> None:
    """And back only when the caller has gone."""
    assert trial.place.proxy is not None
    command = trial.command(f"read x <{trial.gate}; (exit 3)")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.take, trial.run(ctx, command, timeout=8))
        await trial.begun()
        trial.place.proxy.cut()
    trial.place.proxy.resume()
    await feed(trial.gate, b"on\n", AFTER)


async def back_while_it_runs(trial: Trial, ctx: ExecutionContext) -> None:
    assert trial.place.proxy is not None
    command = trial.command(f"read x <{trial.gate}; (exit 3)")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.take, trial.run(ctx, command, timeout=40))
        await trial.begun()
        trial.place.proxy.cut()
        trial.place.proxy.resume()
        await feed(trial.gate, b"on\n", AFTER)


async def reply_lost(trial: Trial, ctx: ExecutionContext) -> None:
    """It ends while nothing comes back, and then the link is lost."""
    assert trial.place.proxy is not None
    command = trial.command(f"read x <{trial.gate}; echo begun >{trial.runs}.over; (exit 3)")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.take, trial.run(ctx, command, timeout=40))
        await trial.begun()
        trial.place.proxy.stall()
        await feed(trial.gate, b"on\n", AFTER)
        await until(lambda: bool(lines(Path(f"{trial.runs}.over"))), "it has ended")
        trial.place.proxy.cut()
        trial.place.proxy.resume()


async def full_disk(trial: Trial, ctx: ExecutionContext) -> None:
    filler = fill(trial.place.state)
    await trial.take(trial.run(ctx, trial.command("(exit 3)"), timeout=10))
    filler.unlink()


async def disk_full_at_the_end(trial: Trial, ctx: ExecutionContext) -> None:
    """The command is stored, and its exit code finds no space."""
    command = trial.command(f"read x <{trial.gate}; (exit 3)")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.take, trial.run(ctx, command, timeout=15))
        await trial.begun()
        filler = fill(trial.place.state)
        await feed(trial.gate, b"on\n", AFTER)
    filler.unlink()


async def target_gone(trial: Trial, ctx: ExecutionContext) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trial.take, trial.run(ctx, trial.command("sleep 300"), timeout=20))
        await trial.begun()
        trial.stop()


ENDINGS: dict[str, Ending] = {
    "ends": ends,
    "kept at its deadline": keep,
    "not waited for": no_wait,
    "killed at its deadline": kill_at_deadline,
    "killed by its id": kill_by_id,
    "cancelled": cancel,
    "callback fails": callback_fails,
    "link lost before it is sent": lost_before_it_is_sent,
    "link lost while it is sent": lost_while_it_is_sent,
    "link lost while it runs": lost_while_it_runs,
    "link lost and back while it runs": back_while_it_runs,
    "reply lost": reply_lost,
    "target stopped while it runs": target_gone,
    "disk full": full_disk,
    "disk full at its end": disk_full_at_the_end,
}


def row(carrier: str, where: str, ending: str, outcome: Outcome) -> str:
    """A line of the table."""
    found = asdict(outcome)
    order = ("status", "exit_code", "stdout", "later", "runs", "files", "notices")
    return "\t".join([carrier, where, ending, *(json.dumps(found[name]) for name in order)])
