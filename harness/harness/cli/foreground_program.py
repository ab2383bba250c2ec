"""A program that has this terminal until it exits, such as a client of tmux."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import anyio

from ..errors import HarnessError

__all__ = ["exec_in_terminal", "run_in_terminal"]

RESTORE_TIMEOUT = 2.0
"""Seconds for a program that had the terminal to restore it."""
_WATCH = 'read -r pid && { read -r _; kill -HUP "$pid"; }'
"""Waits until its input is closed, and then does to a process what a closed terminal does."""


async def run_in_terminal(words: Sequence[str]) -> int:
    """Run a program in this terminal until it exits, and return its exit code, which is negative for a signal.

    If it is cancelled, the program gets the time to restore the terminal. If this process is killed, the program ends.

    Raises:
        HarnessError: It cannot be started.
    """
    async with _watch() as watch:
        try:
            with _terminal_for(words) as tty:
                process = await anyio.open_process(words, stdin=tty, stdout=tty, stderr=tty, env=_environment())
        except OSError as error:
            raise _not_started(words, error) from error
        async with process:
            await watch(process.pid)
            try:
                return await process.wait()
            except anyio.get_cancelled_exc_class():
                with suppress(ProcessLookupError):
                    process.terminate()
                with anyio.move_on_after(RESTORE_TIMEOUT, shield=True):
                    await process.wait()
                raise


@asynccontextmanager
async def _watch() -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Start a process that ends another one when this one is killed: the program has the terminal, so it gets no EOF.

    Yields:
        Tells it the ID of the process to end.

    Raises:
        HarnessError: It cannot be started.
    """
    words, nothing = ["sh", "-c", _WATCH], subprocess.DEVNULL
    try:  # a session of its own: keys of the terminal do not end it
        process = await anyio.open_process(words, stdout=nothing, stderr=nothing, start_new_session=True)
    except OSError as error:
        raise _not_started(words, error) from error
    async with process:

        async def tell(pid: int) -> None:
            assert process.stdin is not None
            with suppress(anyio.BrokenResourceError):  # it was killed
                await process.stdin.send(b"%d\n" % pid)

        try:
            yield tell
        finally:
            with suppress(ProcessLookupError):
                process.kill()  # first: its input is closed below
            with anyio.CancelScope(shield=True):
                await process.wait()


def exec_in_terminal(words: Sequence[str]) -> None:
    """Replace this process by a program.

    Raises:
        HarnessError: It cannot be started.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    try:
        with _terminal_for(words) as tty:
            if tty is not None:
                for descriptor in (0, 1, 2):
                    os.dup2(tty, descriptor)
            os.execvpe(words[0], list(words), _environment())  # noqa: S606  # the command needs no shell
    except OSError as error:
        raise _not_started(words, error) from error


@contextmanager
def _terminal_for(words: Sequence[str]) -> Iterator[int | None]:
    """Open this terminal again for an ``ssh`` client, without blocking; yields None for others, or if it cannot.

    The client gives the terminal to the master of its connection, which writes to it. A terminal that takes nothing,
    such as one behind a network that hangs, would stop the master, and with it every other command on that host.
    OpenSSH leaves a terminal in the mode in which it gets it (``channel_register_fds``).
    """
    tty = None
    if os.path.basename(words[0]) == "ssh" and all(os.isatty(number) for number in (0, 1, 2)):
        with suppress(OSError):  # it belongs to another user, as after su
            tty = os.open(os.ttyname(0), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield tty
    finally:
        if tty is not None:
            os.close(tty)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TMUX"}  # with it tmux refuses to nest


def _not_started(words: Sequence[str], error: OSError) -> HarnessError:
    return HarnessError(f"{words[0]}: {(error.strerror or 'cannot start').lower()}")
