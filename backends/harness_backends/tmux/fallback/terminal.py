"""``Terminal`` in fallback mode: the same session, panes and jobs, with plain tmux commands."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from harness.command import Capture, Command, Keys
from harness.errors import PaneGone, TerminalError, UnsupportedOperation
from harness.results import PaneInfo, SessionInfo, ShellResult, Status
from harness.system.background_tasks import BackgroundTasks
from harness.terminal import Terminal
from harness.transport import Transport

from ...posix.jobs.cancellation import JobCanceller
from ...posix.jobs.launch import signal_name
from ...posix.persistent_shell import PersistentShell
from ...posix.state_directory import JobStore
from ..channel.single_commands import SingleCommands
from ..jobs.pane_job import PaneJob, forget_jobs
from ..libtmux_access import open_libtmux
from ..naming import DEFAULT_PANE, check_name
from ..pane.capture import capture_command, captured_text, extract_running, extract_tagged
from ..pane.key_bytes import encode_keys
from ..pane.keyboard import type_keys, type_text, unlock
from ..sessions import SessionTable
from ..setup import Setup
from .job_output import DOUBT
from .pane_table import FallbackPane, FallbackPaneTable
from .runner import FallbackRunner

__all__ = ["FallbackTerminal", "control_refused", "open_plain"]

WITHOUT_CONTROL = "tmux control mode is unavailable ({why}); using slower plain tmux commands"
ATTACH_TIMEOUT = 10.0


class FallbackTerminal(Terminal):
    """One managed session in fallback mode: each operation queries tmux, and a watch on the target reports ends."""

    def __init__(
        self, tmux: SingleCommands, panes: FallbackPaneTable, runner: FallbackRunner, sessions: SessionTable
    ) -> None:
        self.session = tmux.setup.session
        self._tmux = tmux
        self._panes = panes
        self._runner = runner
        self._sessions = sessions
        self._jobs: dict[str, tuple[FallbackPane, PaneJob]] = {}

    # -- commands

    async def run(self, command: Command) -> ShellResult:
        known = await self._pane_for(command)
        try:
            result = await self._runner.run(known, command, self._remember)
        except PaneGone:  # nothing was typed yet
            known = await self._pane_for(command)
            result = await self._runner.run(known, command, self._remember)
        notices = self._panes.take_notices(known.pane.name)
        return replace(result, notices=(*notices, *result.notices)) if notices else result

    def _remember(self, known: FallbackPane, job: PaneJob) -> None:
        self._jobs[job.job_id] = (known, job)
        forget_jobs(self._jobs)

    async def _pane_for(self, command: Command) -> FallbackPane:
        if command.pane is not None or command.wait:
            return await self._panes.find(command.pane or DEFAULT_PANE)
        return await self._panes.background(command.cwd)

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult | None:
        known = self._jobs.get(job_id)
        if known is None:
            return None
        with anyio.move_on_after(timeout):
            await known[1].done.wait()
        return await (self._runner.result(known[1]) if known[1].done.is_set() else self._runner.output_so_far(*known))

    async def held(self, job_id: str, offset: int, wait: float) -> ShellResult | None:
        known = self._jobs.get(job_id)
        if known is None or known[1].command.tty is False or known[0].facts.logged is not None:
            return None  # its output is read from the log
        found = await self.wait(job_id, wait, known[1].command.max_output)
        return found if found is not None and not found.truncated else None

    def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes] | None:
        known = self._jobs.get(job_id)
        if known is not None and known[0].facts.logged is None and not known[1].done.is_set():
            raise UnsupportedOperation(
                "the output of a running command cannot be followed here: its pane has no log",
                target=self._tmux.transport.target,
                hint="wait for its end, or allow tmux's control mode or pipe-pane there",
            )
        return None

    async def kill(self, job_id: str, signal: str, grace: float) -> bool:
        known = self._jobs.get(job_id)
        if known is None or known[1].done.is_set():
            return False
        await self._runner.end(*known, Status.INTERRUPTED, signal=signal_name(signal), grace=grace)
        return True

    # -- screen and keyboard

    async def capture(self, request: Capture) -> str:
        if request.delay > 0:
            await anyio.sleep(request.delay)
        if request.job_id is not None:
            return await self._capture_job(request.job_id)
        known = await self._panes.find(request.pane or request.target or DEFAULT_PANE)
        text = await self._captured(known, request)
        return text if request.end is not None else text.rstrip("\n") + "\n"

    async def _captured(self, known: FallbackPane, request: Capture) -> str:
        version = self._tmux.setup.version
        blocks = await self._tmux.request(capture_command(known.row.pane_id, request, version))
        return captured_text(blocks[-1].text + "\n", request, version)

    async def _capture_job(self, job_id: str) -> str:
        if job_id not in self._jobs:
            raise UnsupportedOperation(
                f"job {job_id} was not started by this process, and cannot be searched in the scrollback here",
                target=self._tmux.transport.target,
                hint=f"harness jobs show {job_id} shows its output",
            )
        known, job = self._jobs[job_id]
        text = await self._captured(known, Capture(start="-", end="-"))
        found = extract_tagged(text, job_id, job.command.command, known.row.width)
        if found is None and not job.done.is_set():
            return extract_running(text, job.command.command)
        if found is None:
            raise TerminalError(
                f"job {job_id} is no longer in the scrollback of its pane",
                target=self._tmux.transport.target,
                hint=f"harness jobs show {job_id} shows its output",
            )
        return found.text if found.exact else f"[harness: {DOUBT}]\n{found.text}"

    async def send_keys(self, request: Keys) -> None:
        keys = encode_keys((*request.keys, *(("Enter",) if request.enter else ())), self._tmux.transport.target)
        known = await self._panes.find(request.pane or request.target or DEFAULT_PANE)
        pane, text = known.row.pane_id, request.literal_text
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        setup, folder = self._tmux.setup, self._tmux.setup.log_dir(known.row.uid)
        steps = type_text(setup.version, pane, text or "", folder) + type_keys(setup.version, pane, keys, folder)
        await self._tmux.request(unlock(pane), *steps)
        if request.delay > 0:
            await anyio.sleep(request.delay)

    # -- panes and sessions

    async def list_panes(self) -> list[PaneInfo]:
        return await self._panes.infos()

    async def create_pane(self, name: str, cwd: str | None = None) -> PaneInfo:
        await self._panes.create(check_name(name, "pane"), cwd)
        return next(info for info in await self.list_panes() if info.name == name)

    async def ensure_pane(self, name: str, *, create: bool = True) -> None:
        if create and not name.startswith("%"):
            self._panes.kept.add(check_name(name, "pane"))
        await self._panes.find(name)

    async def kill_pane(self, name: str, *, force: bool = False) -> None:
        known = await self._panes.find(name)
        if known.row.name == DEFAULT_PANE and not force:
            raise TerminalError(
                "the default pane is protected",
                target=self._tmux.transport.target,
                hint="kill it with --force or force=True; the next command creates a new one",
            )
        await self._panes.kill(known)

    async def list_sessions(self) -> list[SessionInfo]:
        return await self._sessions.list()

    async def create_session(self, name: str) -> SessionInfo:
        return await self._sessions.create(name)

    async def kill_session(self, name: str) -> None:
        if name in (self.session, self._panes.setup.name):
            raise TerminalError(
                "the session in use is protected",
                target=self._tmux.transport.target,
                hint="kill any session with: harness sessions kill NAME",
            )
        await self._sessions.kill(name)

    # -- about

    @asynccontextmanager
    async def libtmux(self, pane: str | None) -> AsyncIterator[Any]:
        found = await self._panes.find(pane) if pane is not None else None
        pane_id = found.row.pane_id if found is not None else ""
        async with open_libtmux(self._tmux.transport, self._panes.setup, pane_id) as opened:
            yield opened

    def attach_command(self, *, read_only: bool = False) -> list[str]:
        socket_name = self._tmux.setup.config.tmux_socket
        argv = ["tmux", "-u", "-L", socket_name, "attach-session", "-t", f"={self._panes.setup.name}"]
        return self._tmux.transport.interactive_argv([*argv, "-r"] if read_only else argv)

    def describe(self) -> str:
        return f"tmux {self._panes.setup.name!r} without control mode"


async def control_refused(shell: PersistentShell, setup: Setup) -> bool:
    """Return whether the target's tmux refuses a control client, and not only a connection was lost for a moment."""
    attach = f"printf 'display-message -p hx-taken\\n' | {setup.tmux} -C attach-session -t {shlex.quote(setup.exact)}"
    tmux = SingleCommands(shell.transport, shell, setup)
    reply = await tmux.beside(f"{attach} 2>&1 | grep -qx hx-taken", ATTACH_TIMEOUT)
    return reply is None or reply.exit_code != 0


async def open_plain(
    transport: Transport,
    shell: PersistentShell,
    store: JobStore,
    setup: Setup,
    login_shell: str,
    tasks: BackgroundTasks,
    owner: str,
    cancelling: JobCanceller,
    told: str,
    why: str,
) -> FallbackTerminal:
    """Open the session without control mode, and without logs if ``pipe-pane`` is refused too.

    Args:
        told: a notice for the first caller of a newly created session.
        why: the reason why control mode is unavailable.

    Raises:
        UnsupportedOperation: tmux runs on this machine for another target.
        PaneGone, TerminalError: the session is not available.
    """
    if setup.here:
        raise UnsupportedOperation(
            "tmux on this machine, for a target, needs its control mode", target=transport.target, hint=why
        )
    tmux = SingleCommands(transport, shell, replace(setup, control=False))
    panes = FallbackPaneTable(tmux, login_shell)
    try:
        created = await panes.open()
    except PaneGone:
        raise
    except TerminalError:
        tmux = SingleCommands(transport, shell, replace(setup, control=False, logs=False))
        panes = FallbackPaneTable(tmux, login_shell)
        created = await panes.open()
    if created and told:
        panes.add_notice(DEFAULT_PANE, told)
    panes.kept &= {DEFAULT_PANE} if setup.create else set()
    panes.add_notice(DEFAULT_PANE, WITHOUT_CONTROL.format(why=why))
    runner = FallbackRunner(tmux, shell, store, panes, tasks, owner, cancelling)
    return FallbackTerminal(tmux, panes, runner, SessionTable(tmux.setup, shell, shell, login_shell, transport.target))
