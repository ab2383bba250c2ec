"""``harness demo``: a small real task on a real SSH server and a real tmux session, with nothing set up beforehand.

The server is embedded: this machine, loopback only, throw-away keys, gone at the end. Everything else is what an
operator would use: OpenSSH with its master connection, tmux, the shell, files and jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..context import ExecutionContext
from ..errors import HarnessError, StaleFileError
from ..results import ShellResult
from .demo_place import Say, open_place, say_how_to_attach, wait_for_a_signal

__all__ = ["PACK", "run_demo"]

STEP_TIMEOUT = 30.0
PACK = 'for log in *.log; do gzip -9 "$log" && echo "packed $log"; sleep 0.4; done'


async def run_demo(*, keep: bool = False, say: Say = print) -> None:
    """Run the demo and clean up after it, also when it is cancelled.

    Args:
        keep: leave the server and the session, so that the reader can attach, until a SIGINT, SIGTERM or SIGHUP.
        say: is given each line of the story.

    Raises:
        UnsupportedOperation: a program or the ``asyncssh`` extra is missing; the hint says how to get it.
        HarnessError: a step did not do what it must.
    """
    async with open_place() as place:
        say(f"Connected: {place.ctx.describe()}\n")
        await _tell(_Story(place.ctx, say))
        say_how_to_attach(place.ctx, say, keep=keep)
        if keep:
            await wait_for_a_signal()
    say("Cleaned up: the session, the server and its files are gone.")


@dataclass(frozen=True, slots=True)
class _Story:
    ctx: ExecutionContext
    say: Say

    async def run(self, command: str, *, exit_code: int = 0) -> ShellResult:
        """Run a command, show it with its outcome, and insist on the exit code."""
        result = await self.ctx.run_shell(command, timeout=STEP_TIMEOUT)
        self.say(f"    $ {command}")
        self.show(result.stdout)
        self.say(f"      [{result.status}, exit code {result.exit_code}, {result.duration * 1000:.1f} ms]")
        if result.exit_code != exit_code:
            raise HarnessError(f"{command!r} ended with {result.exit_code}, not {exit_code}", target=self.ctx.target)
        return result

    def show(self, text: str) -> None:
        """Show what came back, indented."""
        for line in text.rstrip("\n").splitlines():
            self.say(f"      {line}")


async def _tell(story: _Story) -> None:
    story.say("1. Which logs are big? The shell in the pane keeps its state, as it would for a person.")
    await story.run("cd ~/var/log")
    await story.run("du -k *.log | sort -rn | head -3")
    await story.run("grep -c 'status=500' access.log")
    story.say("   A command that fails is a result:")
    await story.run("grep -q PANIC app.log", exit_code=1)
    await _tell_job(story)
    await _tell_files(story)


async def _tell_job(story: _Story) -> None:
    story.say("\n2. Pack them, in the background, and look at the pane while it works.")
    job = await story.ctx.run_shell(PACK, wait=False)
    story.say(f"    $ {PACK}")
    story.say(f"      [{job.status}, job {job.job_id}, pane {job.pane}]")
    screen = await story.ctx.capture_pane(pane=job.pane, delay=1.0)
    story.say("   After a second the screen shows:")
    story.show("\n".join(screen.rstrip().splitlines()[-4:]))
    if job.job_id is None:
        raise HarnessError("a background command has no job id", target=story.ctx.target)
    done = await story.ctx.wait(job.job_id, timeout=STEP_TIMEOUT)
    story.say(f"   And then job {job.job_id} ended: {done.status}, exit code {done.exit_code}.")
    if not done.ok:
        raise HarnessError(f"job {job.job_id} did not complete", target=story.ctx.target)


async def _tell_files(story: _Story) -> None:
    story.say("\n3. Change a file, and refuse to overwrite somebody else's change.")
    path = "~/logrotate.conf"
    before = await story.ctx.read_file(path)
    await story.ctx.write_file(path, before.text.replace("weekly", "daily"), expect=before.version)
    await story.run(f"cat {path}")
    try:
        await story.ctx.write_file(path, "rotate never\n", expect=before.version)
    except StaleFileError as error:
        story.say(f"   A second write that knows only the old version: {error.message}.")
    else:
        raise HarnessError("a write over a newer version was not refused", target=story.ctx.target)
