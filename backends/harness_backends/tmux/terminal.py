"""``Terminal`` over tmux: one managed session, with or without control mode."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from harness.backend import Capabilities
from harness.command import Capture, Command, Keys
from harness.config import Config
from harness.errors import (
    ConnectError,
    ConnectionLost,
    HarnessError,
    PaneBusy,
    PaneGone,
    TerminalError,
    UnsupportedOperation,
)
from harness.login import current_sudo_approver
from harness.pane_events import PaneEvent, PaneWatches
from harness.results import PaneInfo, SessionInfo, ShellResult, Status
from harness.system.account import owner_name
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.terminal import CLIENT_STATUS, CURRENT_TMUX, Listener, Operators, Terminal
from harness.transport import Transport

from ..posix.jobs.launch import signal_name
from ..posix.jobs.termination import JobCanceller
from ..posix.persistent_shell import PersistentShell
from ..posix.state_directory import JobStore
from .channel.command_channel import READY_TIMEOUT, CommandChannel
from .channel.control_connection import ControlConnection
from .channel.control_protocol import quote
from .jobs.job_killing import END_TIMEOUT
from .jobs.pane_job import PaneJob, forget_jobs
from .jobs.runner import PaneRunner
from .jobs.sudo_answers import SudoAnswers
from .libtmux_access import open_libtmux
from .naming import DEFAULT_PANE, check_name
from .operator_panes import open_operator_terminal
from .pane.capture import capture_command, captured_text, extract_running, extract_tagged
from .pane.foreground import PaneInspector
from .pane.key_bytes import encode_keys
from .pane.keyboard import type_keys, type_text, unlock
from .pane.nested_shells import until_settled
from .pane.pane_state import Pane
from .pane.pane_table import PaneTable
from .sessions import SessionTable, TmuxLocation, open_tmux_location
from .setup import SESSION_IDENTITY, pane_shell, replaced_login_shell
from .sources.control_stream import ControlStream
from .sources.live_panes import LivePanes
from .sources.pane_source import PaneSource
from .sources.stream_gaps import StreamGaps

if TYPE_CHECKING:
    from ..posix.sudo.user_change import UserChanges

__all__ = ["TmuxTerminal", "open_terminal"]
CLOSE_TIMEOUT = 1.0
WITHOUT_CONTROL = "tmux control mode is unavailable ({why}); using slower plain tmux commands"
_SUPERVISED = f'"$@"; exit $(({CLIENT_STATUS} + $?))'
_TMUX_WORDS = 4
"""Words of a client's command before those for the tmux server: ``tmux -u -L SOCKET``."""
_OTHER_SESSION = 9
"""Exit status of a client that was not attached, because another session has the name; tmux has no such status."""
INEXACT = "[harness: other text may stand in this, or its beginning may be missing]"


class TmuxTerminal(Terminal):
    """One managed session, opened by :func:`open_terminal`."""

    def __init__(
        self,
        link: CommandChannel,
        table: PaneTable,
        runner: PaneRunner,
        source: PaneSource,
        stream: ControlStream | None = None,
    ) -> None:
        self.session = link.setup.session
        self._link = link
        self._table = table
        self._runner = runner
        self._source = source
        self._stream = stream
        self._sessions = SessionTable(link.setup, link.shell, link.shells, table.login_shell, link.target)
        self._jobs: dict[str, tuple[Pane, PaneJob]] = {}

    # -- commands

    async def run(self, command: Command) -> ShellResult:
        try:
            return await self._run_once(command)
        except PaneGone:  # nothing was typed yet
            return await self._run_once(command)

    async def _run_once(self, command: Command) -> ShellResult:
        await self._link.ready(min(command.timeout, READY_TIMEOUT))
        if command.pane is None and not command.wait:
            return await self._run_without_tty(command)
        return await self._run_in(await self._table.find(command.pane or DEFAULT_PANE), command)

    async def _run_without_tty(self, command: Command) -> ShellResult:
        """Run a command in a free background pane."""
        tried: set[str] = set()
        while True:
            async with self._table.background(command.cwd, tried) as pane:
                tried.add(pane.name)
                with suppress(PaneBusy):  # another harness chose it in the same moment; nothing was typed
                    return await self._run_in(pane, command)

    async def _run_in(self, pane: Pane, command: Command) -> ShellResult:
        result = await self._runner.run(pane, command, self._remember)
        notices = self._table.take_notices(pane)
        return replace(result, notices=(*notices, *result.notices)) if notices else result

    def _remember(self, pane: Pane, job: PaneJob) -> None:
        job.on_change = pane.report_job
        self._jobs[job.job_id] = (pane, job)
        forget_jobs(self._jobs)

    async def wait(self, job_id: str, timeout: float, max_output: int) -> ShellResult | None:
        known = self._jobs.get(job_id)
        if known is None:
            return None
        with anyio.move_on_after(timeout) as waiting:
            await self._runner.until_over(*known, waiting)
        return await (self._runner.result(*known) if known[1].done.is_set() else self._source.output_so_far(*known))

    async def held(self, job_id: str, offset: int, wait: float) -> ShellResult | None:
        known = self._jobs.get(job_id)
        if known is None:
            return None
        if wait > 0 and current_sudo_approver() is not None:
            await self._runner.answer_sudo(*known)
        return await self._source.buffered_output(*known, offset, wait)

    def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes] | None:
        known = self._jobs.get(job_id)
        if known is not None:
            self._source.check_followable(*known)
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
        pane = await self._target_pane(request.pane or request.target)
        text = await self._captured(pane, request)
        return text if request.end is not None else text.rstrip("\n") + "\n"

    async def _captured(self, pane: Pane, request: Capture) -> str:
        version = self._link.setup.version
        blocks = await self._link.ask(capture_command(pane.pane_id, request, version))
        return captured_text(blocks[-1].text, request, version)

    async def _capture_job(self, job_id: str) -> str:
        known = self._jobs.get(job_id)
        record = await self._table.record(job_id)
        if record.kind != "pane":
            why, hint = "ran without a terminal, so no screen shows it", f"harness jobs show {job_id} has its output"
            raise TerminalError(f"job {job_id} {why}", target=self._link.target, hint=hint)
        await self._table.update()
        panes = [known[0]] if known else [pane for pane in self._table.by_id.values() if pane.pane_id == record.pane]
        if not panes:
            raise PaneGone(f"the pane of job {job_id} no longer exists", target=self._link.target)
        await until_settled(panes[0])
        request = Capture(start="-", end="-")
        text, width = await self._captured(panes[0], request), self._link.setup.config.width
        found = extract_tagged(text, job_id, record.command, width)
        if found is None and not await self._table.has_ended(job_id):
            return extract_running(text, record.command)
        if found is None:
            untagged = "" if self._link.setup.config.prompt_tag else "; prompt_tag = true makes jobs findable there"
            raise TerminalError(
                f"job {job_id} is no longer in the scrollback of its pane",
                target=self._link.target,
                hint=f"harness jobs show {job_id} shows its output{untagged}",
            )
        return found.text if found.exact else f"{INEXACT}\n{found.text}"

    async def send_keys(self, request: Keys) -> None:
        keys = encode_keys((*request.keys, *(("Enter",) if request.enter else ())), self._link.target)
        pane = await self._target_pane(request.pane or request.target)
        await until_settled(pane)
        pane.typed = anyio.current_time()
        text = request.literal_text
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        setup, folder = self._link.setup, self._link.setup.log_dir(pane.uid)
        steps = type_text(setup.version, pane.pane_id, text or "", folder)
        steps += type_keys(setup.version, pane.pane_id, keys, folder)
        await self._link.request(unlock(pane.pane_id), *steps)
        if pane.watchers is not None:
            typed = (text or "") + "".join(key.normal for key in keys)
            pane.watchers.add_typed(typed.encode("utf-8", "surrogateescape"))
        if request.delay > 0:
            await anyio.sleep(request.delay)

    async def _target_pane(self, name: str | None) -> Pane:
        return await self._table.find(name or DEFAULT_PANE)

    # -- panes and sessions

    async def list_panes(self) -> list[PaneInfo]:
        return [self._table.info(row) for row in await self._table.rows()]

    async def create_pane(self, name: str, cwd: str | None = None) -> PaneInfo:
        await self._table.create(check_name(name, "pane"), cwd)
        made = next((info for info in await self.list_panes() if info.name == name), None)
        if made is None:
            raise PaneGone(f"pane {name!r} was closed right after its creation", target=self._link.target)
        return made

    async def ensure_pane(self, name: str, *, create: bool = True) -> None:
        if create and not name.startswith("%"):
            self._table.kept.add(check_name(name, "pane"))
        await self._table.find(name)

    async def kill_pane(self, name: str, *, force: bool = False) -> None:
        pane = await self._table.find(name)
        if pane.name == DEFAULT_PANE and not force:
            raise TerminalError(
                "the default pane is protected",
                target=self._link.target,
                hint="kill it with --force or force=True; the next command creates a new one",
            )
        await self._table.end(pane)

    async def list_sessions(self) -> list[SessionInfo]:
        return await self._sessions.list()

    async def create_session(self, name: str) -> SessionInfo:
        return await self._sessions.create(name)

    async def kill_session(self, name: str) -> None:
        if name in (self.session, self._link.setup.name):
            raise TerminalError(
                "the session in use is protected",
                target=self._link.target,
                hint="kill any session with: harness sessions kill NAME",
            )
        await self._sessions.kill(name)

    # -- about

    @property
    def session_identity(self) -> str:
        return self._link.setup.identity

    def attach_command(self, *, read_only: bool = False) -> list[str]:
        return self._link.transport.interactive_argv(self._client_argv(read_only=read_only))

    def supervised_attach_command(self, *, read_only: bool = False) -> list[str]:
        client = self._client_argv(read_only=read_only)
        if identity := self._link.setup.identity:  # one step of tmux: no other session of the name is attached to
            is_same = f"#{{==:{SESSION_IDENTITY},{identity}}}"
            attach = " ".join(map(quote, client[_TMUX_WORDS:]))
            other = f"run-shell 'exit {_OTHER_SESSION}'"
            name = f"={self._link.setup.name}:"
            client = [*client[:_TMUX_WORDS], "if-shell", "-F", "-t", name, is_same, attach, other]
        return self._link.transport.supervised_argv(["sh", "-c", _SUPERVISED, "sh", *client])

    def _client_argv(self, *, read_only: bool) -> list[str]:
        socket_name = self._link.setup.config.tmux_socket
        argv = ["tmux", "-u", "-L", socket_name, "attach-session", "-t", f"={self._link.setup.name}"]
        return [*argv, "-r"] if read_only else argv

    @asynccontextmanager
    async def libtmux(self, pane: str | None) -> AsyncIterator[Any]:
        found = await self._table.find(pane) if pane is not None else None
        pane_id = found.pane_id if found is not None else ""
        async with open_libtmux(self._link.transport, self._link.setup, pane_id) as opened:
            yield opened

    def operators(self, listener: Listener) -> AbstractAsyncContextManager[Operators]:
        return super().operators(listener) if self._stream is None else self._stream.operators(listener)

    def watch_pane(self, name: str | None, max_bytes: int) -> AbstractAsyncContextManager[AsyncIterator[PaneEvent]]:
        if self._stream is None:
            return super().watch_pane(name, max_bytes)
        return self._stream.watch_pane(name or DEFAULT_PANE, max_bytes)

    def watch_panes(self, max_bytes: int) -> AbstractAsyncContextManager[PaneWatches]:
        return super().watch_panes(max_bytes) if self._stream is None else self._stream.watch_panes(max_bytes)

    async def release_idle(self) -> None:
        """Release the panes that this process holds without a job."""
        await self._source.release_idle(self._table.by_id.values())

    def describe(self) -> str:
        return f"tmux {self._link.setup.name!r}{self._source.describe(self._table.by_name(DEFAULT_PANE))}"


@asynccontextmanager
async def open_terminal(
    transport: Transport,
    shell: PersistentShell,
    store: JobStore,
    capabilities: Capabilities,
    config: Config,
    session: str,
    *,
    create: bool = True,
    local: Callable[[], Transport],
    user_changes: Callable[[], UserChanges],
) -> AsyncIterator[Terminal]:
    """Attach to the managed session of that name; with ``create``, create it and its default pane if missing.

    The name ``current`` opens the operator's own tmux instead: see :mod:`.operator_panes`.

    Raises:
        UnsupportedOperation: tmux is unusable on the target.
        PaneGone: the session does not exist, and ``create`` is False.
        TerminalError: harness did not create the session of that name, the limit is reached, or tmux refused.
    """
    if session == CURRENT_TMUX:
        async with open_operator_terminal(transport, config) as current:
            yield current
        return
    check_name(session, "session")
    _refuse_inside(transport, config)
    login_shell = pane_shell(config.shell, capabilities)
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(
            open_tmux_location(transport, shell, store, capabilities, config, session, local)
        )
        tasks = await stack.enter_async_context(open_background_tasks())
        cancelling = JobCanceller(shell, store, tasks, END_TIMEOUT)
        stack.push_async_callback(cancelling.finish)
        place = replace(place, setup=replace(place.setup, create=create))
        stranger = replaced_login_shell(config.shell, capabilities)
        told = f"panes run {login_shell}: {stranger}, the account's shell, cannot have markers" if stranger else ""
        components = _Components(place, shell, store, login_shell, tasks, cancelling, told, user_changes)
        terminal = await components.open()
        try:
            yield terminal
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
                await terminal.release_idle()


@dataclass(frozen=True, slots=True)
class _Components:
    """What a terminal is built from, with and without control mode."""

    place: TmuxLocation
    shell: PersistentShell
    """The persistent shell where the panes' shells run."""
    store: JobStore
    login_shell: str
    tasks: BackgroundTasks
    cancelling: JobCanceller
    told: str
    """A notice for the first caller of a newly created session; may be empty."""
    user_changes: Callable[[], UserChanges]

    async def open(self) -> TmuxTerminal:
        """Attach the control client; without control mode, use single commands."""
        setup = self.place.setup
        if setup.config.control_mode == "never":
            return await self._without_control('control_mode = "never"')
        link = ControlConnection(self.place.transport, self.place.shell, setup, self.tasks, self.shell)
        gaps = StreamGaps(link, self.store, self.tasks)
        source = LivePanes(link, self.store, self.tasks, PaneInspector(link), gaps)
        table = PaneTable(link, self.store, self.login_shell, source)
        stream = ControlStream(link, table, gaps, self.tasks)
        try:
            created = await link.open(table.default)
        except PaneGone:
            raise
        except (ConnectError, ConnectionLost, TerminalError, UnsupportedOperation) as error:
            return await self._after_refusal(error)
        terminal = self._terminal(link, table, source, stream, created=created)
        await table.refresh()
        self.tasks.start_soon(link.watch, table.default, stream.back)
        return terminal

    async def _after_refusal(self, error: HarnessError) -> TmuxTerminal:
        """Open the terminal without control mode if that is what failed; else raise the error."""
        from .channel.single_commands import control_refused  # rarely needed

        shell, setup = self.place.shell, self.place.setup
        if setup.here or (isinstance(error, ConnectionLost) and not await control_refused(shell, setup)):
            raise error
        if isinstance(error, ConnectError) and not shell.is_open:
            raise error
        try:
            return await self._without_control(error.message)
        except (ConnectError, TerminalError):
            raise error from None

    async def _without_control(self, why: str) -> TmuxTerminal:
        """Open the session without control mode, and without logs if ``pipe-pane`` is refused too.

        Raises:
            UnsupportedOperation: tmux runs on this machine for another target.
            PaneGone, TerminalError: the session is not available.
        """
        from .channel.single_commands import SingleCommands  # rarely needed
        from .sources.target_watch import TargetWatch

        transport, shell = self.place.transport, self.place.shell
        if self.place.setup.here:
            raise UnsupportedOperation(
                "tmux on this machine, for a target, needs its control mode", target=transport.target, hint=why
            )
        link = SingleCommands(transport, shell, replace(self.place.setup, control=False))
        source = TargetWatch(link, self.store, self.tasks, PaneInspector(link))
        table = PaneTable(link, self.store, self.login_shell, source)
        try:
            created = await link.open(table.default)
        except PaneGone:
            raise
        except TerminalError:
            link.setup = replace(link.setup, logs=False)
            created = await link.open(table.default)
        terminal = self._terminal(link, table, source, created=created)
        table.add_notice(DEFAULT_PANE, WITHOUT_CONTROL.format(why=why))
        return terminal

    def _terminal(
        self,
        link: CommandChannel,
        table: PaneTable,
        source: PaneSource,
        stream: ControlStream | None = None,
        *,
        created: bool,
    ) -> TmuxTerminal:
        if not link.setup.create:
            table.kept.clear()
        for notice in (self.place.notice, self.told if created else ""):
            if notice:
                table.add_notice(DEFAULT_PANE, notice)
        table.tell_name()
        sudo = SudoAnswers(link, self.user_changes)
        runner = PaneRunner(
            link, self.store, self.tasks, owner_name(), self.cancelling, source, self.user_changes, sudo
        )
        return TmuxTerminal(link, table, runner, source, stream)


def _refuse_inside(transport: Transport, config: Config) -> None:
    inside = os.environ.get("TMUX", "").split(",")[0]
    if transport.describe() == "local" and os.path.basename(inside) == config.tmux_socket:
        raise PaneBusy(
            "this process runs inside the tmux server that it would manage",
            target=transport.target,
            hint="run it from another terminal, or set tmux_socket",
        )
