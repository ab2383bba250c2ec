"""Which components a POSIX target is built from: files, jobs and terminals over any transport."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from harness.backend import Backend, Capabilities, Files, Jobs
from harness.config import Config
from harness.target import Target
from harness.terminal import Sessions, Terminal
from harness.transport import Transport

from .posix import probe, state_directory
from .posix.jobs import shell_library
from .posix.persistent_shell import PersistentShell, call_line, open_held_shell
from .posix.state_directory import JobRecord, JobStore

if TYPE_CHECKING:
    from .posix.sudo.user_change import UserChanges

__all__ = ["PosixBackend", "local_transport", "open_posix_backend", "user_changes_of"]


def local_transport() -> Transport:
    """Return a transport to this machine, where the panes and the logs of another target may be."""
    from .local.transport import LocalTransport

    return LocalTransport(Target.parse("local:"))


async def kill_pane_job(
    shell: PersistentShell,
    store: JobStore,
    socket: str,
    record: JobRecord,
    age: float,
    signal: str,
    grace: float,
    rights: str | None,
) -> None:
    """Kill a job that runs in a pane; only then the modules of tmux are loaded."""
    from .tmux.jobs.kill_script import kill_stored_job

    await kill_stored_job(shell, store, socket, record, age, signal, grace, rights)


def user_changes_of(
    transport: Transport, shell: PersistentShell, capabilities: Capabilities, config: Config
) -> Callable[[], UserChanges]:
    """Return a function that returns the target's changes of user, which keep its passwords; loaded on first use."""

    @cache
    def user_changes() -> UserChanges:
        from .posix.sudo.user_change import UserChanges

        return UserChanges(transport, shell, capabilities, config)

    return user_changes


class PosixBackend(Backend):
    """One connected POSIX target."""

    def __init__(
        self,
        transport: Transport,
        config: Config,
        shell: PersistentShell,
        store: JobStore,
        capabilities: Capabilities,
        job_runner: Jobs,
        user_changes: Callable[[], UserChanges],
    ) -> None:
        self.target = transport.target
        self.transport = transport
        self.capabilities = capabilities
        self.jobs = job_runner
        self._config = config
        self._shell = shell
        self._store = store
        self._user_changes = user_changes
        self._close: Callable[[], Awaitable[None]] | None = None

    @cached_property
    def files(self) -> Files:  # type: ignore[override]  # read-only and created on first use: its modules load slowly
        from .posix.files.files import PosixFiles

        files = PosixFiles(self._shell, self.transport, self.capabilities, local_transport)
        self._close = files.aclose
        return files

    async def aclose(self) -> None:
        """End what was started on this machine."""
        if self._close is not None:
            await self._close()

    def open_terminal(self, session: str, *, create: bool = True) -> AbstractAsyncContextManager[Terminal]:
        from .tmux import open_terminal

        return open_terminal(
            self.transport,
            self._shell,
            self._store,
            self.capabilities,
            self._config,
            session,
            create=create,
            local=local_transport,
            user_changes=self._user_changes,
        )

    def open_sessions(self, session: str) -> AbstractAsyncContextManager[Sessions]:
        from .tmux import open_sessions

        return open_sessions(
            self.transport, self._shell, self._store, self.capabilities, self._config, session, local=local_transport
        )


@asynccontextmanager
async def open_posix_backend(transport: Transport, config: Config) -> AsyncIterator[Backend]:
    """Connect to the target: one channel, one round trip that probes it and prepares the state directory.

    Raises:
        ConnectError: the target cannot be connected, or has no safe directory for job records.
        ConnectionLost: the connection was lost.
    """
    config = replace(config, tmux_socket=transport.tmux_socket(config.tmux_socket))
    async with AsyncExitStack() as stack:
        shell = await stack.enter_async_context(open_held_shell(transport))
        shell.define(state_directory.PROLOGUE)
        shell.define(shell_library.PROLOGUE)
        shell.define(f"hx_probe() {{\n{state_directory.REPORT}{probe.SCRIPT}}}\n")  # read at once, unlike a call
        began = time.monotonic()
        asked = await shell.submit(call_line("hx_probe"))
        from .posix.jobs.shell_jobs import open_jobs  # loaded here while the target answers

        text = (await shell.reply_to(asked)).text
        report = state_directory.parse_report(text, transport.target)
        probed = probe.parse_probe(text, report.root)._replace(duration=time.monotonic() - began)
        store = await stack.enter_async_context(state_directory.keep_job_store(shell, report))
        kill = partial(kill_pane_job, shell, store, config.tmux_socket)
        changes = user_changes_of(transport, shell, probed.capabilities, config)
        jobs = open_jobs(transport, config, shell, store, probed, local_transport, kill, changes)
        runner = await stack.enter_async_context(jobs)
        backend = PosixBackend(transport, config, shell, store, probed.capabilities, runner, changes)
        stack.push_async_callback(backend.aclose)
        yield backend
