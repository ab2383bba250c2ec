"""``Terminal`` over tmux control mode."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from harness.account import account_name
from harness.backend import Capabilities
from harness.command import Capture, Command, Keys
from harness.config import Config
from harness.errors import (
    ConnectError,
    ConnectionLost,
    PaneBusy,
    PaneGone,
    TerminalError,
    UnsupportedOperation,
)
from harness.pane_events import PaneEvent, PaneWatches
from harness.results import PaneInfo, SessionInfo, ShellResult, Status
from harness.system.background_tasks import BackgroundTasks, open_background_tasks
from harness.terminal import Listener, Operators, Terminal
from harness.transport import Transport

from ..posix.jobs.cancellation import JobCanceller
from ..posix.jobs.launch import signal_name
from ..posix.persistent_shell import PersistentShell
from ..posix.state_directory import JobStore
from .channel.command_channel import READY_TIMEOUT
from .channel.control_client import Event
from .channel.control_connection import ControlConnection
from .channel.control_protocol import Notification, Output
from .jobs.job_killing import END_TIMEOUT
from .jobs.pane_job import PaneJob, forget_jobs, read_buffered_output
from .jobs.runner import PaneRunner
from .libtmux_access import open_libtmux
from .naming import DEFAULT_PANE, check_name
from .operator_watch import OperatorWatch, watch_operators
from .pane.capture import capture_command, captured_text, extract_running, extract_tagged
from .pane.key_bytes import encode_keys
from .pane.keyboard import type_keys, type_text, unlock
from .pane.pane_state import Pane
from .pane.pane_table import PaneTable
from .pane_watch import PaneWatching
from .sessions import SessionTable, open_tmux_location
from .setup import pane_shell, replaced_login_shell

if TYPE_CHECKING:
    from .fallback.terminal import FallbackTerminal

__all__ = ["TmuxTerminal", "open_terminal"]

_WINDOW_NEWS = frozenset({"window-close", "unlinked-window-close", "layout-change"})
CLOSE_TIMEOUT = 1.0
INEXACT = "[harness: other text may stand in this, or its beginning may be missing]"


class TmuxTerminal(Terminal):
    """One managed session, opened by :func:`open_terminal`."""

    def __init__(self, link: ControlConnection, table: PaneTable, runner: PaneRunner, tasks: BackgroundTasks) -> None:
        self.session = link.setup.session
        self._link = link
        self._table = table
        self._runner = runner
        self._tasks = tasks
        self._sessions = SessionTable(link.setup, link.shell, link.shells, table.login_shell, link.target)
        self._jobs: dict[str, tuple[Pane, PaneJob]] = {}
        self._people: OperatorWatch | None = None
        self._watching = PaneWatching(link, table, tasks)

    # -- events

    def on_event(self, event: Event) -> None:
        """Handle an output or a notification; called for each, in order."""
        if isinstance(event, Output):
            pane = self._table.by_id.get(event.pane)
            if pane is not None:
                pane.receive(event.data)
                if self._people is not None:
                    self._people.on_pane_output(pane)
        elif isinstance(event, Notification):
            self._on_notification(event)

    def _on_notification(self, event: Notification) -> None:
        if event.name in _WINDOW_NEWS:
            self._table.windows_changed(event.args[0] if event.name.endswith("close") and event.args else "")
            if event.name == "layout-change":
                self._watching.window_resized(event.args[0] if event.args else "")
        elif event.name == "session-renamed" and event.args[:1] == (self._link.setup.session_id,):
            self._link.setup = replace(self._link.setup, shown=" ".join(event.args[1:]))
            self._table.tell_name()
        elif event.name == "session-changed" and event.args[:1] != (self._link.setup.session_id,):
            self._tasks.start_soon(self._link.client.aclose)  # an operator switched its session: a new client attaches
        elif event.name == "pause" and event.args:
            pane = self._table.by_id.get(event.args[0])
            if pane is not None:
                pane.pause()
                self._tasks.start_soon(self._table.resume, pane)
        elif event.name == "client-detached":
            self._tasks.start_soon(self._link.keep_drainer)
        elif self._people is not None:
            self._people.told(event)

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
        job = known[1]
        with anyio.move_on_after(timeout):
            await self._runner.until_over(*known)
        return await (self._runner.result(job) if job.done.is_set() else self._runner.output_so_far(job))

    async def held(self, job_id: str, offset: int, wait: float) -> ShellResult | None:
        known = self._jobs.get(job_id)
        return None if known is None else await read_buffered_output(known[1], offset, wait)

    def follow(self, job_id: str, offset: int) -> AsyncIterator[bytes] | None:
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
        panes = [known[0]] if known else [pane for pane in self._table.by_id.values() if pane.pane_id == record.pane]
        if not panes:
            raise PaneGone(f"the pane of job {job_id} no longer exists", target=self._link.target)
        await self._runner.settle(panes[0])
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
        await self._runner.settle(pane)
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

    # -- watching

    @asynccontextmanager
    async def watch_pane(self, name: str | None, max_bytes: int) -> AsyncIterator[AsyncIterator[PaneEvent]]:
        with self._watching.watch(await self._target_pane(name), max_bytes) as events:
            yield events

    def watch_panes(self, max_bytes: int) -> AbstractAsyncContextManager[PaneWatches]:
        return self._watching.watch_all(max_bytes)

    # -- about

    def attach_command(self, *, read_only: bool = False) -> list[str]:
        socket_name = self._link.setup.config.tmux_socket
        argv = ["tmux", "-u", "-L", socket_name, "attach-session", "-t", f"={self._link.setup.name}"]
        return self._link.transport.interactive_argv([*argv, "-r"] if read_only else argv)

    @asynccontextmanager
    async def libtmux(self, pane: str | None) -> AsyncIterator[Any]:
        found = await self._table.find(pane) if pane is not None else None
        pane_id = found.pane_id if found is not None else ""
        async with open_libtmux(self._link.transport, self._link.setup, pane_id) as opened:
            yield opened

    @asynccontextmanager
    async def operators(self, listener: Listener) -> AsyncIterator[Operators]:
        async with watch_operators(self._link, self._table, self._tasks, listener, self._watch) as people:
            yield people

    def _watch(self, people: OperatorWatch | None) -> None:
        self._people = people

    async def back(self, created: bool) -> None:
        """Handle a reconnect."""
        await self._table.reattached(created)
        if self._people is not None:
            self._tasks.start_soon(self._people.back)

    def describe(self) -> str:
        pane = self._table.by_name(DEFAULT_PANE)
        if pane is None:
            return f"tmux {self._link.setup.name!r}"
        state = {"prompt": "idle", "running": f"job {pane.running}" if pane.running else "operator"}
        return f"tmux {self._link.setup.name!r} pane {pane.pane_id} {state.get(pane.phase, pane.phase)}"


def owner_name() -> str:
    """Return this process's owner for job records: ``user@host:pid``."""
    return f"{account_name()}@{socket.gethostname()}:{os.getpid()}"


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
) -> AsyncIterator[Terminal]:
    """Attach to the managed session of that name; with ``create``, create it and its default pane if missing.

    Raises:
        UnsupportedOperation: tmux is unusable on the target.
        PaneGone: the session does not exist, and ``create`` is False.
        TerminalError: harness did not create the session of that name, the limit is reached, or tmux refused.
    """
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
        holder: list[TmuxTerminal] = []

        def deliver(event: Event) -> None:
            holder[0].on_event(event)

        setup = replace(place.setup, create=create)
        link = ControlConnection(place.transport, place.shell, setup, tasks, deliver, shell)
        table = PaneTable(link, shell, store, login_shell, tasks)
        if not create:
            table.kept.clear()
        runner = PaneRunner(link, shell, store, tasks, owner_name(), cancelling)
        holder.append(TmuxTerminal(link, table, runner, tasks))
        if place.notice:
            table.add_notice(DEFAULT_PANE, place.notice)
        stranger = replaced_login_shell(config.shell, capabilities)
        told = f"panes run {login_shell}: {stranger}, the account's shell, cannot have markers" if stranger else ""
        plain = await _open_link(link, table, store, tasks, cancelling, told)
        if plain is not None:
            yield plain
            return
        await table.refresh()
        tasks.start_soon(link.watch, lambda: table.new_pane(DEFAULT_PANE, config.cwd), holder[0].back)
        try:
            yield holder[0]
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
                await runner.release_idle(table.by_id.values())


async def _open_link(
    link: ControlConnection,
    table: PaneTable,
    store: JobStore,
    tasks: BackgroundTasks,
    cancelling: JobCanceller,
    told: str,
) -> FallbackTerminal | None:
    """Attach the control client, or open the terminal in fallback mode.

    Args:
        told: a notice for the first caller of a newly created session.
    """
    setup = link.setup
    parts = (link.transport, link.shell, store, setup, table.login_shell, tasks, owner_name(), cancelling, told)
    if setup.config.control_mode == "never":
        from .fallback.terminal import open_plain  # rarely needed

        return await open_plain(*parts, 'control_mode = "never"')
    try:
        if await link.open(lambda: table.new_pane(DEFAULT_PANE, setup.config.cwd)) and told:
            table.add_notice(DEFAULT_PANE, told)
        table.tell_name()
    except PaneGone:
        raise
    except (ConnectError, ConnectionLost, TerminalError, UnsupportedOperation) as error:
        from .fallback.terminal import control_refused, open_plain

        if setup.here or (isinstance(error, ConnectionLost) and not await control_refused(link.shell, setup)):
            raise
        if isinstance(error, ConnectError) and not link.shell.is_open:
            raise
        try:
            return await open_plain(*parts, error.message)
        except (ConnectError, TerminalError):
            raise error from None
    return None


def _refuse_inside(transport: Transport, config: Config) -> None:
    inside = os.environ.get("TMUX", "").split(",")[0]
    if transport.describe() == "local" and os.path.basename(inside) == config.tmux_socket:
        raise PaneBusy(
            "this process runs inside the tmux server that it would manage",
            target=transport.target,
            hint="run it from another terminal, or set tmux_socket",
        )
