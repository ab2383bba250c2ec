"""The interface for tmux commands: through a client in control mode, or by one tmux process for each request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from harness.errors import ConnectionLost, HarnessError
from harness.target import Target
from harness.transport import Transport

from ...posix.persistent_shell import PersistentShell
from ..setup import NewPane, Setup, session_refusal, setup_script
from .control_protocol import Block

__all__ = [
    "READY_TIMEOUT",
    "REPLY_TIMEOUT",
    "CommandChannel",
    "CommandClient",
    "OnAnswer",
    "ResponseLost",
    "prepare_session",
]

REPLY_TIMEOUT = 20.0
READY_TIMEOUT = 30.0
OnAnswer = Callable[[Sequence[Block]], None]
"""Called with the answer of a request before the output that follows it; it must not block or raise."""


class ResponseLost(ConnectionLost):
    """The connection was lost after the commands were sent, so they may have run."""


class CommandClient(Protocol):
    """Something that runs tmux commands."""

    async def request(
        self, *commands: tuple[str, ...], timeout: float = REPLY_TIMEOUT, on_answer: OnAnswer | None = None
    ) -> list[Block]:
        """Run commands in order; the first that fails ends the request.

        Args:
            commands: tmux commands.
            timeout: Seconds until the connection counts as lost.
            on_answer: Called with the answer before the output that follows it; it must not block or raise.

        Raises:
            ResponseLost: the connection was lost, or there was no answer in time; the commands may have run.
            ConnectionLost, ConnectError: nothing ran.
            TerminalError: tmux refused one of them.
        """


class CommandChannel(CommandClient, Protocol):
    """A connection to a tmux server that runs commands, also after it was lost and restored."""

    transport: Transport
    shell: PersistentShell
    """The persistent shell where tmux runs."""
    shells: PersistentShell
    """The persistent shell where the panes' shells run; it differs if tmux runs on this machine for a target."""
    setup: Setup
    """The settings, with the current name of the session."""
    failed: HarnessError | None
    """Why there is no connection, if known."""
    notifies: bool
    """True if it reports the output of panes and changes of windows, so that tmux need not be asked before each use."""

    @property
    def target(self) -> Target:
        """The target of the panes' shells, even if tmux runs on this machine for it."""

    @property
    def is_up(self) -> bool:
        """True if commands can be sent, as far as known."""

    @property
    def client(self) -> CommandClient:
        """The current client, even while missed output is still being read.

        Raises:
            ConnectionLost: there is none.
        """

    async def open(self, new_pane: Callable[[], NewPane]) -> bool:
        """Prepare the target and connect; return True if the session was created.

        Raises:
            TerminalError: tmux refused, or harness did not create the session of that name.
        """

    async def restore(self, new_pane: Callable[[], NewPane]) -> bool:
        """Create the session again if it has ended; return False if it still exists, as far as known.

        Raises:
            PaneGone: it has ended, and may not be created.
        """

    async def ready(self, timeout: float = READY_TIMEOUT) -> CommandClient:
        """Wait until commands can be sent, and return the current client, which serves this tmux server only.

        Raises:
            ConnectionLost: there is no connection in time.
        """

    async def ask(self, *commands: tuple[str, ...]) -> list[Block]:
        """Run idempotent commands like :meth:`request`; they may be sent again if the response was lost."""


async def prepare_session(shell: PersistentShell, setup: Setup, pane: NewPane, target: Target) -> tuple[str, bool]:
    """Create the session, with a first pane, unless it exists.

    Returns:
        The session as ``ID@CREATED:NAME``, and whether it was created.

    Raises:
        PaneGone, TerminalError: it is not available.
    """
    reply = await shell.call(setup_script(setup, pane))
    fields = dict(line.partition("=")[::2] for line in reply.text.splitlines())
    refused = session_refusal(fields, setup, target, reply.stderr)
    if refused is not None:
        raise refused
    return fields.get("session", ""), "created" in fields
