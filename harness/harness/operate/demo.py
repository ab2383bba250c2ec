"""``harness demo``: a small real task on an embedded SSH server and a real tmux session, without any setup."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

import anyio

from ..config import Config
from ..context import ExecutionContext, connect
from ..errors import HarnessError, StaleFileError, UnsupportedOperation
from ..results import ShellResult
from ..testing.ssh_server import embedded_ssh_server

__all__ = [
    "PACK",
    "DemoEnvironment",
    "Say",
    "open_place",
    "run_demo",
    "say_how_to_attach",
    "wait_for_a_signal",
]


# -- The environment of demos: an embedded SSH server with some logs, and settings separate from the user's own.


Say = Callable[[str], None]

CLOSE_TIMEOUT = 5.0
LOGS = {"access.log": 30_000, "app.log": 4_000, "cron.log": 200, "worker.log": 12_000}


@dataclass(frozen=True, slots=True)
class DemoEnvironment:
    """An open demo environment; ``home`` is the host's home directory on this machine, and ``state`` harness's."""

    ctx: ExecutionContext
    home: Path
    state: Path


@asynccontextmanager
async def open_place() -> AsyncIterator[DemoEnvironment]:
    """Open a host behind SSH with a tmux session, and remove both at the end.

    Raises:
        UnsupportedOperation: a program or the ``asyncssh`` extra is missing; the hint shows how to install it.
    """
    _check_programs()
    with _folder() as folder:
        _make_logs(folder / "var" / "log")
        (folder / "logrotate.conf").write_text("rotate weekly\nkeep 4\n")
        async with _server(folder) as (target, config), connect(target, tmux="demo", config=config) as ctx:
            yield DemoEnvironment(ctx, folder, folder / "state")


def say_how_to_attach(ctx: ExecutionContext, say: Say, *, keep: bool) -> None:
    """Print the command with which an operator can watch."""
    command = shlex.join(ctx.attach_command)
    if keep:
        say("\nAttach from another terminal (leave with C-b d):\n")
        say(f"    {command}\n")
        say("The server and the session stay until you press C-c here.")
    else:
        say("\nAn operator would have watched with `harness attach`, which runs:\n")
        say(f"    {command}\n")
        say("(Try it: start the demo with --keep-running.)")


async def wait_for_a_signal() -> None:
    """Wait for SIGINT, SIGTERM or SIGHUP."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            return


@asynccontextmanager
async def _server(home: Path) -> AsyncIterator[tuple[str, Config]]:
    """Start an embedded SSH server, with settings that keep it separate from the user's own sessions."""
    socket = f"harness-demo-{os.getpid()}"
    state = {"XDG_STATE_HOME": str(home / "state")}
    async with embedded_ssh_server(shell="/bin/bash", home=home, env=state) as server:
        config = replace(server.config(), tmux_socket=socket, tmux_host="target", dedicated_connection=True)
        try:
            yield server.target, config
        finally:
            await _kill_tmux(socket)


async def _kill_tmux(socket: str) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
        await anyio.run_process(["tmux", "-L", socket, "kill-server"], check=False)
    _remove_socket(socket)


def _remove_socket(name: str) -> None:
    """Remove tmux's socket, which remains after its server exits."""
    folder = Path(os.environ.get("TMUX_TMPDIR") or "/tmp", f"tmux-{os.getuid()}")  # noqa: S108  # tmux's own place
    (folder / name).unlink(missing_ok=True)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(mkdtemp(prefix="harness-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_logs(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, lines in LOGS.items():
        statuses = ("500" if number % 97 == 0 else "200" for number in range(lines))
        text = "".join(f"web1 request={n} status={status} path=/item/{n * 7919}\n" for n, status in enumerate(statuses))
        (folder / name).write_text(text)


def _check_programs() -> None:
    missing = [program for program in ("tmux", "ssh") if shutil.which(program) is None]
    if missing:
        raise UnsupportedOperation(
            f"the demo needs {' and '.join(missing)}", hint="on Debian or Ubuntu: apt-get install tmux openssh-client"
        )


# -- The steps of the demo.
#
# The server is embedded: this machine, loopback only, temporary keys, removed at the end. Everything else is what an
# operator would use: OpenSSH with its control master, tmux, the shell, files and jobs.


STEP_TIMEOUT = 30.0
PACK = 'for log in *.log; do gzip -9 "$log" && echo "packed $log"; sleep 0.4; done'


async def run_demo(*, keep: bool = False, say: Say = print) -> None:
    """Run the demo and clean up after it, even if it is cancelled.

    Args:
        keep: leave the server and the session, so that the reader can attach, until a SIGINT, SIGTERM or SIGHUP.
        say: receives each line of the story.

    Raises:
        UnsupportedOperation: a program or the ``asyncssh`` extra is missing; the hint shows how to install it.
        HarnessError: a step had an unexpected result.
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
        """Run a command, show it with its outcome, and check the exit code."""
        result = await self.ctx.run_shell(command, timeout=STEP_TIMEOUT)
        self.say(f"    $ {command}")
        self.show(result.stdout)
        self.say(f"      [{result.status}, exit code {result.exit_code}, {result.duration * 1000:.1f} ms]")
        if result.exit_code != exit_code:
            raise HarnessError(f"{command!r} ended with {result.exit_code}, not {exit_code}", target=self.ctx.target)
        return result

    def show(self, text: str) -> None:
        """Show output, indented."""
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
    story.say("\n3. Change a file, and refuse to overwrite another user's change.")
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
