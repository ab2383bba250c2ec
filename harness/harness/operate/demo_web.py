"""``harness demo --web``: the demo's agent with its dashboard, in which the reader answers its calls.

A program that a harness process started may not act on that process. So the dashboard and the agent are two programs,
started side by side, with a state directory of their own that the last of the three programs removes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import Thread

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from ..errors import HarnessError
from .demo import Say, wait_for_a_signal

__all__ = ["SESSION_OPTION", "part_of_demo", "run_web_demo"]

SESSION_OPTION = "--web-session"
"""The hidden option of ``harness demo`` that runs the agent of this demo."""
START = """\
import sys
from pathlib import Path
from harness.operate.demo_web import part_of_demo
with part_of_demo(Path(sys.argv.pop(1))):
    from harness.cli.start import main
    main()
"""
START_TIMEOUT = 60.0
"""Seconds for the dashboard to print its link."""
CLOSE_TIMEOUT = 20.0
"""Seconds for a program to clean up; then it is killed."""


async def run_web_demo(*, say: Say = print) -> None:
    """Run the demo until a SIGINT, SIGTERM or SIGHUP, and clean up after it, even if it is cancelled.

    Args:
        say: Receives each line; the agent prints its own to standard output.

    Raises:
        HarnessError: The dashboard does not start, or one of the two programs ends.
    """
    state = Path(mkdtemp(prefix="harness-demo-"))
    with _shared_directory(state):
        web = ("web", "serve", "--port", "0")
        async with _program(web, state, stdout=subprocess.PIPE) as dashboard:
            say(await _read_link(dashboard))
            say("\nThe agent waits for you there: it asks before it changes something. C-c ends everything.\n")
            async with _program(("demo", SESSION_OPTION), state) as agent:
                await _wait_for_the_end(dashboard, agent)


async def _wait_for_the_end(dashboard: Process, agent: Process) -> None:
    """Wait for a signal.

    Raises:
        HarnessError: A program ended before.
    """
    ended: list[str] = []

    async def watch(name: str, process: Process) -> None:
        code = await process.wait()
        ended.append(f"{name} ended with exit code {code}")
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, "the dashboard", dashboard)
        tasks.start_soon(watch, "the agent", agent)
        await wait_for_a_signal()
        tasks.cancel_scope.cancel()
    if ended:
        raise HarnessError(ended[0], hint="its message is above")


async def _read_link(dashboard: Process) -> str:
    """Return what the dashboard prints, up to its link.

    Raises:
        HarnessError: It ended, or printed none in time.
    """
    assert dashboard.stdout is not None
    text = ""
    with anyio.move_on_after(START_TIMEOUT):
        async for part in TextReceiveStream(dashboard.stdout):
            text += part
            if "#token=" in text and text.endswith("\n"):
                return text.rstrip("\n")
    raise HarnessError("the dashboard did not start", hint="its message is above")


@contextmanager
def part_of_demo(state: Path) -> Iterator[None]:
    """Let this process end with the demo, even if that is killed; the last process removes the state directory."""
    _end_with_input()
    with _shared_directory(state):
        yield


def _end_with_input() -> None:
    """End this process, as by a SIGTERM, at the end of its standard input, which is empty from now on."""
    parent = os.dup(0)  # which no process started from here inherits
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(CLOSE_TIMEOUT)
    os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def _program(words: Sequence[str], state: Path, *, stdout: int | None = None) -> AsyncIterator[Process]:
    """Run this program with other arguments, and end it with the context.

    It has a session of its own: a key pressed in this terminal reaches this process alone, which then ends it once.
    Its standard input is a pipe from this process, so that it also ends if this process is killed.
    """
    argv = [sys.executable, "-c", START, str(state), *words]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    process = await anyio.open_process(
        argv, env=environment, stdin=subprocess.PIPE, stdout=stdout, stderr=None, start_new_session=True
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.terminate()
            with anyio.move_on_after(CLOSE_TIMEOUT):
                await process.wait()
            if process.returncode is None:
                process.kill()
            await process.aclose()


@contextmanager
def _shared_directory(folder: Path) -> Iterator[None]:
    """Use a directory that the last program that leaves this context removes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
