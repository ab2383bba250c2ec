"""The link to tmux on a target: prepared, attached, watched, and made anew when it breaks."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from itertools import chain, repeat

import anyio
from anyio.abc import TaskGroup

from harness.errors import ConnectError, ConnectionLost, HarnessError, TerminalError
from harness.transport import Transport

from ..posix.shell import HeldShell
from .control import ControlClient, Event
from .protocol import Block
from .setup import NewPane, Setup, control_argv, drainer_script, setup_script

__all__ = ["Link"]

BACKOFF = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 15.0)
ATTACH_TIMEOUT = 20.0


class Link:
    """Holds the control client. After a loss it attaches again, with backoff, and tells its owner."""

    def __init__(
        self,
        transport: Transport,
        shell: HeldShell,
        setup: Setup,
        tasks: TaskGroup,
        on_event: Callable[[Event], None],
    ) -> None:
        self.transport = transport
        self.shell = shell
        self.setup = setup
        self._tasks = tasks
        self._on_event = on_event
        self._client: ControlClient | None = None
        self._ready = anyio.Event()
        self.failed: HarnessError | None = None

    async def open(self, new_pane: Callable[[], NewPane]) -> bool:
        """Prepare the target and attach. Returns True when the session was made just now.

        Raises:
            TerminalError: tmux refused, or a session of that name is not ours.
        """
        pane = new_pane()
        created = await self._prepare(pane)
        await self._attach()
        return created

    async def _prepare(self, pane: NewPane) -> bool:
        reply = await self.shell.call(setup_script(self.setup, pane))
        fields = dict(line.partition("=")[::2] for line in reply.text.splitlines())
        target, session = self.transport.target, self.setup.session
        if "foreign" in fields:
            raise TerminalError(
                f"tmux session {session!r} was not made by harness",
                target=target,
                hint="use another name: --tmux NAME",
            )
        if "failed" in fields:
            why = fields["failed"] or reply.stderr.decode("utf-8", "replace").strip() or "no reason given"
            raise TerminalError(f"tmux could not start a session: {why}", target=target)
        return "created" in fields

    async def _attach(self) -> None:
        process = await self.transport.open_process(control_argv(self.setup))
        client = ControlClient(process, self._on_event, self.transport.target, legacy=self.setup.version.legacy_quoting)
        self._tasks.start_soon(self._hold, client, process.aclose)
        commands: list[tuple[str, ...]] = [("display-message", "-p", "#{pid}")]
        if not self.setup.version.window_size:
            size = f"{self.setup.config.width},{self.setup.config.height}"
            commands.append(("refresh-client", "-C", size))
        await client.request(*commands, timeout=ATTACH_TIMEOUT)
        self._client, self.failed = client, None
        self._ready.set()

    async def _hold(self, client: ControlClient, close: Callable[[], Awaitable[None]]) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.drain_errors)
                await client.pump()
        finally:
            await close()

    async def watch(self, new_pane: Callable[[], NewPane], on_back: Callable[[bool], Awaitable[None]]) -> None:
        """Attach again whenever the client ends; run by the owner in a task until it is cancelled."""
        while True:
            assert self._client is not None
            await self._client.closed.wait()
            self._ready = anyio.Event()
            await self._reopen(new_pane, on_back)

    async def _reopen(self, new_pane: Callable[[], NewPane], on_back: Callable[[bool], Awaitable[None]]) -> None:
        for delay in chain(BACKOFF, repeat(BACKOFF[-1])):
            try:
                created = await self.open(new_pane)
                await on_back(created)
            except (ConnectionLost, ConnectError, TerminalError) as error:
                self.failed = error
            else:
                return
            await anyio.sleep(delay)

    async def ready(self, timeout: float = 30.0) -> ControlClient:
        """The client, once it is attached.

        Raises:
            ConnectionLost: it was not within the time.
        """
        with anyio.move_on_after(timeout):
            await self._ready.wait()
        client = self._client
        if client is None or client.closed.is_set():
            why = f": {self.failed.message}" if self.failed else ""
            raise ConnectionLost(f"the link to tmux is down{why}", target=self.transport.target)
        return client

    async def request(self, *commands: tuple[str, ...], timeout: float = 20.0) -> list[Block]:
        """Run tmux commands; see :meth:`ControlClient.request`."""
        return await (await self.ready()).request(*commands, timeout=timeout)

    async def keep_drainer(self) -> None:
        """Start the always-attached reader again if it has died."""
        script = drainer_script(self.setup)
        if script:
            await self.shell.call(f"umask 077\n{script}")

    @staticmethod
    def token() -> str:
        """A name or nonce that nobody can guess."""
        return secrets.token_hex(10)
