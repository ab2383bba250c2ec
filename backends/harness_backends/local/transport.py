"""Processes of this machine, each in its own process group."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import ConnectError
from harness.system.child_process import ChildProcess, start_child
from harness.target import Target
from harness.transport import Process, Transport
from harness.withheld_environment import child_env

__all__ = ["LocalProcess", "LocalTransport"]

TERM_GRACE = 1.0
KILL_GRACE = 2.0


class LocalProcess(Process):
    """A child process in its own session."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._child.stdout.read(max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        return await self._child.stderr.read(max_bytes)

    async def send(self, data: bytes) -> None:
        await self._child.stdin.write(data)

    async def send_eof(self) -> None:
        self._child.stdin.close()

    async def wait(self) -> int:
        return exit_status(await self._child.wait())

    async def aclose(self) -> None:
        await self._child.end(term_grace=TERM_GRACE, kill_grace=KILL_GRACE)


class LocalTransport(Transport):
    """A transport that starts processes on this machine."""

    shares_sockets = False

    def __init__(self, target: Target) -> None:
        self.target = target

    async def open_process(self, argv: Sequence[str]) -> Process:
        try:
            return LocalProcess(await start_child(argv, env=child_env()))
        except OSError as error:
            reason = error.strerror or "could not be started"
            raise ConnectError(f"{argv[0]}: {reason.lower()}", target=self.target) from error

    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def describe(self) -> str:
        return "local"


def exit_status(returncode: int) -> int:
    """Return a shell's exit status for a return code: death by signal N is 128 + N."""
    return 128 - returncode if returncode < 0 else returncode
