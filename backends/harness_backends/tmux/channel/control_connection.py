"""The connection to tmux on a target: prepare, attach, watch and reconnect."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain, repeat

import anyio

from harness.errors import ConnectionLost, HarnessError, PaneGone, TargetGone
from harness.system.background_tasks import BackgroundTasks
from harness.target import Target
from harness.transport import Transport

from ...posix.persistent_shell import PersistentShell
from ..setup import TURNS, NewPane, Setup, control_argv, drainer_script, shells_script
from .command_channel import READY_TIMEOUT, REPLY_TIMEOUT, OnAnswer, ResponseLost, prepare_session
from .control_client import ControlClient, Event
from .control_protocol import Block

__all__ = ["MY_PID", "MY_SESSION", "ControlConnection"]

news = logging.getLogger("harness_backends.links")
"""The logger of reconnects; the trace and the prompt read the two arguments of its records."""
BACKOFF = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 15.0)
ATTACH_TIMEOUT = 20.0
MY_PID = "#{client_pid}"
"""tmux may name another client here while this one has not attached yet."""
MY_SESSION = "%session%"
CLOSED_GRACE = 1.0
ATTEMPTS = 3


class ControlConnection:
    """The owner of the control client, which reattaches with backoff after a loss."""

    def __init__(
        self,
        transport: Transport,
        shell: PersistentShell,
        setup: Setup,
        tasks: BackgroundTasks,
        shells: PersistentShell | None = None,
    ) -> None:
        self.transport = transport
        self.shell = shell
        self.shells = shells or shell
        """The persistent shell where the panes' shells run; it differs if tmux runs on this machine for a target."""
        self.setup = setup
        self._tasks = tasks
        self.on_event: Callable[[Event], None] = lambda _: None
        """Called for each output and notification, in their order."""
        self._client: ControlClient | None = None
        self._changed = anyio.Event()
        self._wanted = anyio.Event()
        self._settled = False
        self.notifies = True
        self.greeting: list[tuple[str, ...]] = []
        """Further commands that each control client starts with; see :meth:`greet`."""
        self.failed: HarnessError | None = None
        self.on_lost: Callable[[], None] = lambda: None
        """Called when the client has exited, before another one attaches: the stream then has a gap."""
        self.on_gone: Callable[[TargetGone], None] = lambda _: None
        """Called when the target itself has ended, with all its processes."""

    @property
    def target(self) -> Target:
        """The target of the panes' shells, even if tmux runs on this machine for it."""
        return self.shells.transport.target

    async def open(self, new_pane: Callable[[], NewPane]) -> bool:
        """Prepare the target and attach; return True if the session was created.

        Raises:
            TerminalError: tmux refused, or harness did not create the session of that name.
        """
        pane = new_pane()
        created = await self._prepare(pane)
        await self._attach()
        self._settle()
        return created

    async def _prepare(self, pane: NewPane) -> bool:
        if self.setup.here:
            await self._prepare_shells(pane)
        session, created = await prepare_session(self.shell, self.setup, pane, self.transport.target)
        self.setup = self.setup.found(session)
        return created

    async def _prepare_shells(self, pane: NewPane) -> None:
        """Write the files of the first pane on the other machine, unless the session exists."""
        has = await self.shell.call(f"{self.setup.tmux} has-session -t ={self.setup.session} 2>/dev/null")
        if has.exit_code != 0:
            await self.shells.call(shells_script(self.setup, pane))

    async def _attach(self) -> None:
        process = await self.transport.open_process(control_argv(self.setup))
        client = ControlClient(process, self.on_event, self.transport.target, legacy=self.setup.version.legacy_quoting)
        self._tasks.start_soon(self._hold, client)
        # Commands contain secrets of jobs, so the server must not log them: any client may read its log.
        commands: list[tuple[str, ...]] = [("display-message", "-p", ""), ("set-option", "-s", "message-limit", "0")]
        if not self.setup.version.window_size:
            size = f"{self.setup.config.width},{self.setup.config.height}"
            commands.append(("refresh-client", "-C", size))
        try:
            await client.request(*commands, timeout=ATTACH_TIMEOUT)
            if self.greeting:
                await client.request(*_said_by(client, self.greeting, self.setup.exact), timeout=ATTACH_TIMEOUT)
        except BaseException:
            await client.aclose()
            raise
        await self._end_old_client()
        self._client, self.failed = client, None

    async def _end_old_client(self) -> None:
        """Kill the lost client if it still exists, so that it executes no pending commands."""
        pid = self._client.pid if self._client is not None else ""
        if pid.isdecimal():
            listed = f"{self.setup.tmux} list-clients -F '#{{client_pid}} #{{client_control_mode}}'"
            turn = f"{TURNS}turn {shlex.quote(self.setup.root)}\n"
            await self.shell.call(f"{turn}! {listed} | grep -qx '{pid} 1' || {{ kill -9 {pid}; nap; }}")

    async def _hold(self, client: ControlClient) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.drain_errors)
                await client.pump()
                tasks.cancel_scope.cancel()
        finally:
            await client.aclose()

    def _settle(self) -> None:
        self._settled = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def watch(self, new_pane: Callable[[], NewPane], on_back: Callable[[bool], Awaitable[None]]) -> None:
        """Reattach whenever the client exits; the owner runs this in a task until it is cancelled.

        ``on_back`` receives whether the session is a new one; requests of other tasks wait until it has returned.
        """
        while True:
            assert self._client is not None
            await self._client.closed.wait()
            self._settled = False
            lost, renewals = anyio.current_time(), self.transport.renewals
            self.on_lost()
            await self._reopen(new_pane, on_back)
            if self.transport.renewals == renewals:  # else the transport has logged it
                target, seconds = str(self.transport.target), anyio.current_time() - lost
                news.info("%s: reconnected after %.1f s", target, seconds)

    async def _reopen(self, new_pane: Callable[[], NewPane], on_back: Callable[[bool], Awaitable[None]]) -> None:
        for delay in chain(BACKOFF, repeat(BACKOFF[-1])):
            try:
                created = await self._prepare(new_pane())
                await self._attach()
                await on_back(created)
            except HarnessError as error:
                self.failed = error
                if isinstance(error, TargetGone):
                    self.on_gone(error)
                self._wake()
                if self._client is not None:
                    await self._client.aclose()
            else:
                self._settle()
                return
            with anyio.move_on_after(delay):
                await self._wanted.wait()
            self._wanted = anyio.Event()

    @property
    def client(self) -> ControlClient:
        """The current client, even while missed output is still being read.

        Raises:
            ConnectionLost: the client has exited.
        """
        if self._client is None or self._client.closed.is_set():
            raise ConnectionLost("no connection to tmux", target=self.transport.target)
        return self._client

    @property
    def is_up(self) -> bool:
        """True if the client is attached, as far as known."""
        return self._settled and self._client is not None and not self._client.closed.is_set()

    async def restore(self, new_pane: Callable[[], NewPane]) -> bool:
        """Wait until the session is created again if the client is exiting, as its session has ended."""
        client = self._client
        with anyio.move_on_after(CLOSED_GRACE):
            while client is not None and not client.closed.is_set():
                await client.closed.wait()
        if client is not None and not client.closed.is_set():
            return False
        await self.ready()
        return True

    async def ready(self, timeout: float = READY_TIMEOUT) -> ControlClient:
        """Wait until the client is attached and missed output is being read.

        A target that has ended is checked once more, without waiting for it.

        Raises:
            ConnectionLost: the timeout expired, or the target has ended.
            PaneGone: the session has ended, and may not be created.
        """
        asked = False
        with anyio.move_on_after(timeout):
            while not self.is_up:
                if isinstance(self.failed, PaneGone):
                    raise self.failed  # the session has ended, and may not be created
                if isinstance(self.failed, TargetGone):
                    if asked:
                        raise self._down()
                    asked = True
                    self._wanted.set()
                await self._changed.wait()
            return self.client
        raise self._down()

    def _down(self) -> ConnectionLost:
        why, hint = (f": {self.failed.message}", self.failed.hint) if self.failed else ("", "")
        return ConnectionLost(f"no connection to tmux{why}", target=self.transport.target, hint=hint)

    async def request(
        self, *commands: tuple[str, ...], timeout: float = REPLY_TIMEOUT, on_answer: OnAnswer | None = None
    ) -> list[Block]:
        """Run tmux commands like :meth:`ControlClient.request`; unsent ones wait for the next client."""
        while True:
            client = await self.ready()
            try:
                return await client.request(*commands, timeout=timeout, on_answer=on_answer)
            except ResponseLost:
                raise
            except ConnectionLost as error:
                self.failed = error

    async def ask(self, *commands: tuple[str, ...]) -> list[Block]:
        """Run idempotent commands like :meth:`request`, again if the response was lost."""
        for _ in range(ATTEMPTS - 1):
            with suppress(ResponseLost):
                return await self.request(*commands)
        return await self.request(*commands)

    async def greet(self, *commands: tuple[str, ...]) -> None:
        """Run these commands in this client and in each later one.

        The argument :data:`MY_PID` becomes its process id, and :data:`MY_SESSION` within arguments the session.
        """
        self.greeting += commands
        client = await self.ready()
        with suppress(ConnectionLost):  # the next client sends them
            await client.request(*_said_by(client, commands, self.setup.exact))

    async def keep_drainer(self) -> None:
        """Restart the always-attached reader if it has exited."""
        script = drainer_script(self.setup, shlex.quote(self.setup.exact))
        if script:
            with suppress(HarnessError):  # without a connection, the reconnect starts it
                await self.shell.call(f"umask 077\n{TURNS}turn {shlex.quote(self.setup.root)}\n{script}")


def _said_by(client: ControlClient, commands: Sequence[tuple[str, ...]], session: str) -> list[tuple[str, ...]]:
    def said(word: str) -> str:
        return (client.pid or word) if word == MY_PID else word.replace(MY_SESSION, session)

    return [tuple(map(said, command)) for command in commands]
