"""The backend of a container: the POSIX backend, with the engine's functions where the image lacks tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from harness.backend import Backend, Capabilities, Files, Jobs, Reservation
from harness.command import Command
from harness.config import Config
from harness.errors import UnsupportedOperation
from harness.results import Job, JobOutput, ShellResult
from harness.system.background_tasks import open_background_tasks
from harness.terminal import Sessions, Terminal

from ..composition import local_transport, open_posix_backend
from ..posix.state_directory import StateDirectoryUnavailable
from .exec_jobs import ExecJobs
from .transport import ContainerTransport

__all__ = ["open_container_backend"]


class ContainerJobs(Jobs):
    """Jobs that the container stores, and execs for users that only the engine can switch to."""

    def __init__(self, kept: Jobs, direct: ExecJobs) -> None:
        self._kept = kept
        self._direct = direct

    async def run(self, command: Command) -> ShellResult:
        try:
            return await self._kept.run(command)
        except (
            UnsupportedOperation
        ):  # nothing ran: the image cannot change the user or start a process group, but the engine can
            if command.key is not None:  # the engine stores no keys
                raise
            return await self._direct.run(command)

    async def reserve(self, key: str, withdraw: str | None = None) -> Reservation:
        return await self._kept.reserve(key, withdraw)

    async def find_key(self, key: str) -> str | None:
        return await self._kept.find_key(key)

    def _of(self, job_id: str) -> Jobs:
        return self._direct if self._direct.knows(job_id) else self._kept

    async def list(self) -> list[Job]:
        return [*await self._kept.list(), *await self._direct.list()]

    async def get(self, job_id: str) -> Job:
        return await self._of(job_id).get(job_id)

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult:
        return await self._of(job_id).wait(job_id, timeout, max_output)

    async def read(self, job_id: str, stdout: int, stderr: int, limit: int, wait: float) -> JobOutput:
        return await self._of(job_id).read(job_id, stdout, stderr, limit, wait)

    def follow(self, job_id: str, offset: int = 0) -> AsyncIterator[bytes]:
        return self._of(job_id).follow(job_id, offset)

    async def kill(self, job_id: str, signal: str = "TERM", grace: float = 2.0) -> Job:
        return await self._of(job_id).kill(job_id, signal, grace)

    async def clean(self) -> int:
        return await self._kept.clean() + await self._direct.clean()


class ExecBackend(Backend):
    """A container that cannot store jobs: commands with one exec each, and read-only files."""

    def __init__(self, transport: ContainerTransport, direct: ExecJobs, files: Files) -> None:
        self.target = transport.target
        self.transport = transport
        self.capabilities = Capabilities(user=transport.target.last.user or "", shell="sh", home="/")
        self.files = files
        self.jobs = direct

    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        raise self._no_terminal()

    def open_sessions(self, session: str) -> AbstractAsyncContextManager[Sessions]:
        raise self._no_terminal()

    def _no_terminal(self) -> UnsupportedOperation:
        return UnsupportedOperation(
            "a terminal needs a writable directory in the container, and a few tools",
            target=self.target,
            hint="add a directory (--tmpfs /tmp), or run without tmux (--no-tmux)",
        )


@asynccontextmanager
async def open_container_backend(transport: ContainerTransport, config: Config) -> AsyncIterator[Backend]:
    """Connect to a container; without stored jobs if it has no writable directory or lacks the tools."""
    async with open_background_tasks() as tasks, AsyncExitStack() as stack:
        direct = ExecJobs(transport, tasks)
        try:
            backend = await stack.enter_async_context(open_posix_backend(transport, config))
        except StateDirectoryUnavailable:
            from .archive_files import open_archive_files  # rarely needed

            files = await stack.enter_async_context(open_archive_files(transport, local_transport))
            yield ExecBackend(transport, direct, files)
            return
        backend.jobs = ContainerJobs(backend.jobs, direct)
        yield backend
