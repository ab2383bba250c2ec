"""Answers to a ``sudo`` that a job in a pane started, and that waits for a password there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import anyio

from harness.errors import ConnectError, ConnectionLost, HarnessError
from harness.login import WaitingSudo, current_prompter, current_sudo_approver
from harness.system.background_tasks import open_task_group

from ..channel.command_channel import CommandChannel
from ..pane.foreground import terminal_of
from ..pane.pane_state import Pane
from ..pane.sudo_prompt import SudoPrompt, find_sudo_prompt, sudo_user, type_password
from .pane_job import PaneJob

if TYPE_CHECKING:
    from ...posix.sudo.user_change import UserChanges

__all__ = ["SudoAnswers", "may_be_approved"]

NO_APPROVER = "nobody can approve that harness types it"
REMEDY = "type it there (harness attach), or run the command with user="


def may_be_approved() -> bool:
    """Return whether an operator may be asked."""
    return current_sudo_approver() is not None or current_prompter() is not None


@dataclass(slots=True)
class _History:
    """What was done about the ``sudo`` processes of one job, by process id and start time."""

    asking: bool = False
    """True while a prompt is looked for or the operator is asked."""
    denied: dict[str, str] = field(default_factory=dict)
    """Why those are not asked about again."""
    typed: dict[str, str] = field(default_factory=dict)
    """The account whose password was typed."""
    notice: str = ""
    """Why the last one was not answered."""


@dataclass(frozen=True, slots=True)
class SudoAnswers:
    """Types the operator's password into the ``sudo`` of a job, each time after an approval that names it."""

    link: CommandChannel
    user_changes: Callable[[], UserChanges]
    _histories: WeakKeyDictionary[PaneJob, _History] = field(default_factory=WeakKeyDictionary)

    async def answer_or_note(self, pane: Pane, job: PaneJob, waiting: anyio.CancelScope) -> None:
        """Answer like :meth:`answer`, with the notice among those of the job instead of an earlier one."""
        notice = await self.answer(pane, job, waiting) or ""
        history = self._history(job)
        job.notices[:] = [one for one in job.notices if one != history.notice]
        job.notices += [notice] if notice else []
        history.notice = notice

    async def answer(self, pane: Pane, job: PaneJob, waiting: anyio.CancelScope) -> str | None:
        """Answer a ``sudo`` that waits in a pane for a password.

        Args:
            pane: the pane.
            job: the job that runs in it.
            waiting: the wait for the job, which is extended by the time that the operator takes.

        Returns:
            None if no ``sudo`` waits; an empty text if it has the password, or no longer waits; else a notice.

        Raises:
            ConnectError, ConnectionLost: there is no connection.
        """
        history = self._history(job)
        if history.asking:  # for another caller that waits for this job
            return ""
        history.asking = True
        try:
            tty, pid = await terminal_of(pane, self.link.ask, here=self.link.setup.here)
            prompt = await find_sudo_prompt(self.link.shells, tty, pid)
            if prompt is None:
                return None
            answering = _Answering(self, history, pane, tty, pid, prompt)
            with _extended(waiting):
                failure = await _unless_done(job, answering.failure)
        finally:
            history.asking = False
        return failure and f"sudo waits for a password: {answering.request}; {failure}; {REMEDY}"

    def _history(self, job: PaneJob) -> _History:
        return self._histories.setdefault(job, _History())


@dataclass(frozen=True, slots=True)
class _Answering:
    """The answer to one prompt."""

    answers: SudoAnswers
    history: _History
    pane: Pane
    tty: str
    pid: int
    prompt: SudoPrompt

    @property
    def request(self) -> WaitingSudo:
        """What the operator is asked about."""
        prompt = self.prompt
        process, user = int(prompt.process.partition(":")[0]), sudo_user(prompt.argv)
        return WaitingSudo(str(self.answers.link.target), self.pane.name, process, prompt.account, user, prompt.argv)

    async def failure(self) -> str:
        """Return why the password was not typed; empty if it was, or if nothing waits for it any more."""
        if obstacle := self._obstacle():
            return obstacle
        if account := self.history.typed.get(self.prompt.process):
            self.answers.user_changes().refuse(account)
        approver = current_sudo_approver()
        try:
            await self.answers.user_changes().check_password_source(self.request)
            if approver is not None and (denial := await approver(self.request)):
                return self._denied(f"it was denied ({denial})")
            return await self._type(approved=approver is not None)
        except (ConnectError, ConnectionLost):
            raise
        except HarnessError as error:
            return error.message if approver is not None else self._denied(error.message)

    def _denied(self, reason: str) -> str:
        self.history.denied[self.prompt.process] = reason
        return reason

    def _obstacle(self) -> str:
        """Return why the operator is not asked."""
        if self.answers.link.setup.here:
            return "tmux runs on another machine, and cannot check what would read the password"
        if reason := self.history.denied.get(self.prompt.process):
            return reason
        if not may_be_approved():
            return NO_APPROVER
        return self.prompt.obstacle or ("" if self.prompt.program else "sudo is not in a system directory")

    async def _type(self, *, approved: bool) -> str:
        link, changes = self.answers.link, self.answers.user_changes()
        account, password = await changes.password_for(self.request, self.prompt.program, approved=approved)
        if await type_password(link, self.pane, self.tty, self.pid, self.prompt, password):
            self.history.typed[self.prompt.process] = account
            return ""
        now = await find_sudo_prompt(link.shells, self.tty, self.pid)
        if now is None or now.process != self.prompt.process:
            return ""
        return now.obstacle or "tmux could not check that it still waits"


@contextmanager
def _extended(waiting: anyio.CancelScope) -> Iterator[None]:
    """Stop the clock of a wait."""
    left = waiting.deadline - anyio.current_time()
    waiting.deadline = inf
    try:
        yield
    finally:
        waiting.deadline = anyio.current_time() + left


async def _unless_done(job: PaneJob, work: Callable[[], Awaitable[str]]) -> str:
    """Return the result of the work, which is cancelled when the job ends; empty in that case."""
    result = ""
    async with open_task_group() as tasks:

        async def cancel_at_end() -> None:
            await job.done.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(cancel_at_end)
        result = await work()
        tasks.cancel_scope.cancel()
    return result
