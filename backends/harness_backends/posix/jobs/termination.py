"""Termination of commands: of those whose callers leave, with the rights of another user, with a confirmed exit."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from harness.errors import HarnessError, PaneGone, TargetGone
from harness.system.background_tasks import BackgroundTasks
from harness.system.waiting import wait_within

from ..persistent_shell import PersistentShell, ShellReply
from ..state_directory import JobStore
from .launch import background_line

if TYPE_CHECKING:
    from ..sudo.user_change import UserChanges

__all__ = ["CallbackError", "JobCanceller", "ended_on_error", "open_kill_rights", "run_kill_script", "signal_words"]

log = logging.getLogger(__name__)

UNRESPONSIVE_AFTER = 2.0
"""Seconds within which a target must answer, otherwise the caller does not wait for the proof of the end."""
RETRY = 1.0
SHUTDOWN_GRACE = 5.0
"""Seconds that pending terminations get when harness exits, as nothing would continue them."""


class CallbackError(Exception):
    """A callback for a command's output raised ``error``."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@asynccontextmanager
async def ended_on_error(end: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Terminate a command with ``end`` if its caller is cancelled or its callback fails, then raise that error."""
    try:
        yield
    except (anyio.get_cancelled_exc_class(), CallbackError) as reason:
        with anyio.CancelScope(shield=True):
            await end()
        if isinstance(reason, CallbackError):
            raise reason.error from None
        raise


def open_kill_rights(
    user_changes: Callable[[], UserChanges], user: str | None, *, may_ask: bool
) -> AbstractAsyncContextManager[str | None]:
    """As :meth:`.UserChanges.open_kill_rights`, for the user that a command was started as; None for the login's."""
    return user_changes().open_kill_rights(user, may_ask=may_ask) if user else nullcontext("")


def signal_words(ladder: Iterable[tuple[str, float]], rights: str | None) -> list[str]:
    """Return the signals, each followed by the tenths of a second until the next one.

    Without rights a KILL is left out: it would end sudo alone, and leave the command running.
    """
    steps = [(signal, grace) for signal, grace in ladder if rights is not None or signal != "KILL"]
    return [word for signal, grace in steps for word in (signal, str(max(0, round(grace * 10))))]


async def run_kill_script(
    shell: PersistentShell, script: str, seconds: float, on_sent: Callable[[], None] = lambda: None
) -> ShellReply | None:
    """Run a script that kills a job and proves its exit; call ``on_sent`` once the target will receive it.

    Returns:
        The reply, or None if there is none in some seconds, as counted by :func:`.wait_within`.
    """
    ticket = await shell.submit(background_line(script))
    on_sent()
    try:
        return await ticket.reply() if await wait_within(seconds, ticket.reply) else None
    finally:
        ticket.forget()


@dataclass(frozen=True, slots=True)
class JobCanceller:
    """A canceller of commands, which retries the termination if the connection is lost meanwhile."""

    shell: PersistentShell
    store: JobStore
    tasks: BackgroundTasks
    bound: float
    """Maximum seconds for a termination on a responsive target."""
    _endings: dict[anyio.Event, str] = field(default_factory=dict)
    """The pending terminations, and their jobs."""

    async def cancel(self, job_id: str, end: Callable[[], Awaitable[object]]) -> None:
        """Terminate a command with ``end``; wait for its exit only if the target is responsive."""
        ended, answered = anyio.Event(), anyio.Event()
        asking = anyio.CancelScope()
        self.tasks.start_soon(self._end_when_back, job_id, end, ended, answered)
        self.tasks.start_soon(self._ask, asking, answered)
        if await wait_within(UNRESPONSIVE_AFTER, answered.wait):
            await wait_within(self.bound, ended.wait)
        asking.cancel()
        if not ended.is_set():
            self.store.add_notice(f"job {job_id} may still be running: its exit could not be confirmed in time")

    async def _ask(self, asking: anyio.CancelScope, answered: anyio.Event) -> None:
        with asking, suppress(HarnessError):  # a new connection may already be available for the termination
            await self.shell.call(":")
            answered.set()

    async def finish(self) -> None:
        """Wait briefly for pending terminations."""
        with anyio.move_on_after(SHUTDOWN_GRACE, shield=True):
            for ended in list(self._endings):
                await ended.wait()
        target = self.shell.transport.target
        for job_id in self._endings.values():
            text = "%s: job %s was signalled, but its exit is not confirmed: harness --target %s jobs show %s"
            log.warning(text, str(target).removesuffix(":"), job_id, target, job_id)

    async def _end_when_back(
        self, job_id: str, end: Callable[[], Awaitable[object]], ended: anyio.Event, answered: anyio.Event
    ) -> None:
        self._endings[ended] = job_id
        while not ended.is_set():
            try:
                await end()
                ended.set()
            except (TargetGone, PaneGone):
                ended.set()
            except HarnessError:
                await anyio.sleep(RETRY)
        answered.set()
        del self._endings[ended]
