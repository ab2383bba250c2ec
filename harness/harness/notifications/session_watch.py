"""Which events of a session an operator is notified of, and which later event makes that superfluous."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from ..agent.events import BudgetNearlyUsed, TurnCompleted, TurnStarted
from ..live.sessions.state import SessionState
from ..results import OutputPart
from ..toolkit.events import (
    Event,
    JobExited,
    JobStarted,
    PermissionAsked,
    PermissionReplied,
    QuestionAnswered,
    QuestionAsked,
)
from ..toolkit.redaction.redactor import redact_head
from .notification import MAX_READ_BYTES, NotificationItem, last_lines
from .settings import EventKind, NotificationSettings

__all__ = ["ANSWER_DELAY", "SessionWatch", "attach_hint"]

STATUSES = {
    "completed": "the agent has answered",
    "failed": "the agent failed",
    "limit": "the agent has reached a limit",
    "cancelled": "the agent's turn was cancelled",
}
MAX_COMMAND_CHARS = 2_000
"""Characters of the command of a running job that are kept."""
MAX_JOBS = 10_000
"""Running jobs whose start is kept; the duration of further ones is not known."""
ANSWER_DELAY = 2.0
"""Seconds in which an answer, or the next turn, makes a notification superfluous."""
MERGE_DELAY = 1.0
"""Seconds in which jobs that end together are put into one notification."""


ReadEnd = Callable[[str, int], Awaitable[OutputPart]]
"""Returns at most so many bytes of the end of the output of a job.

Raises:
    HarnessError: They cannot be read.
"""


class ItemReceiver(Protocol):
    """Takes the events that an operator is notified of."""

    settings: NotificationSettings
    is_attended: bool

    def add(
        self, key: Hashable, item: NotificationItem, *, delay: float = 0.0, is_withdrawn_at_end: bool = False
    ) -> None:
        """See :meth:`.notifier.Notifier.add`."""

    def withdraw(self, key: Hashable) -> None:
        """See :meth:`.notifier.Notifier.withdraw`."""


@dataclass(frozen=True, slots=True)
class _RunningJob:
    command: str
    started: float


class SessionWatch:
    """The notifications of one session.

    Args:
        notifier: Sends them.
        state: Returns the session's state, redacted.
        redact: Replaces its secrets.
        read_end: Returns the end of the output of a job.
    """

    def __init__(
        self,
        notifier: ItemReceiver,
        state: Callable[[], SessionState],
        redact: Callable[[str], str],
        read_end: ReadEnd | None = None,
    ) -> None:
        self._notifier = notifier
        self._settings = notifier.settings
        self._state = state
        self._redact = redact
        self._read_end = read_end
        self._jobs: dict[tuple[str, str], _RunningJob] = {}

    def heard(self, event: Event) -> None:
        """Take note of an event."""
        match event:
            case PermissionAsked():
                self._asked(event)
            case QuestionAsked():
                self._question_asked(event)
            case PermissionReplied() | QuestionAnswered():
                self._notifier.withdraw(self._key("asked", event.request_id))
            case TurnStarted() if not event.parent_call:
                self._notifier.withdraw(self._key("turn"))
            case TurnCompleted() if not event.parent_call:
                self._turn_completed(event)
            case BudgetNearlyUsed():
                self._budget_nearly_used(event)
            case JobStarted():
                self._job_started(event)
            case JobExited():
                self._job_exited(event)

    # -- what waits for an operator

    def _asked(self, event: PermissionAsked) -> None:
        agent = event.call.agent_id
        who = f", requested by agent {agent}" if agent not in ("", "agent", "mcp") else ""
        command = event.what if self._settings.include_command else ""
        self._wait(event.request_id, "approval_waiting", f"{event.call.name} waits for approval{who}", command)

    def _question_asked(self, event: QuestionAsked) -> None:
        text = (event.notification() or ("", ""))[1]
        shown = text if self._settings.include_command else ""
        self._wait(event.request_id, "question_waiting", "the agent asks a question", shown)

    def _wait(self, request_id: str, kind: EventKind, summary: str, detail: str) -> None:
        hint = "answer it where the session runs, or with: harness top"
        item = self._item(kind, summary, detail, hint=hint)
        self._notifier.add(self._key("asked", request_id), item, delay=ANSWER_DELAY, is_withdrawn_at_end=True)

    # -- the agent

    def _turn_completed(self, event: TurnCompleted) -> None:
        if event.seconds < self._settings.min_duration:
            return
        if event.status == "cancelled" and self._notifier.is_attended:
            return
        state = self._state()
        includes = self._settings.include_output
        detail = event.failure if includes or event.status == "limit" else ""  # a limit is named in harness's words
        item = self._item("agent_stopped", STATUSES[event.status], detail, seconds=event.seconds, state=state)
        if includes and event.text:
            item = replace(item, output=last_lines(event.text.encode("utf-8", "replace"), self._redact))
        self._notifier.add(self._key("turn"), item, delay=ANSWER_DELAY)

    def _budget_nearly_used(self, event: BudgetNearlyUsed) -> None:
        item = self._item("budget_nearly_used", event.text)
        self._notifier.add(self._key("budget", event.setting), item)

    # -- jobs

    def _job_started(self, event: JobStarted) -> None:
        if len(self._jobs) < MAX_JOBS:
            includes = self._settings.include_command
            command = redact_head(self._redact, event.command, MAX_COMMAND_CHARS) if includes else ""
            self._jobs[event.host, event.job_id] = _RunningJob(command, time.monotonic())

    def _job_exited(self, event: JobExited) -> None:
        job = self._jobs.pop((event.host, event.job_id), None)
        seconds = None if job is None else time.monotonic() - job.started
        if seconds is not None and seconds < self._settings.min_duration:
            return
        where = f" on {event.host}" if event.host else ""
        ending = "its exit code is unknown" if event.exit_code is None else f"exit code {event.exit_code}"
        item = self._item(
            "job_ended",
            f"job {event.job_id}{where} has ended: {ending}",
            "" if job is None else job.command,
            exit_code=event.exit_code,
            seconds=seconds,
        )
        if self._settings.include_output and self._read_end is not None and not event.host:
            item = replace(item, read_output=partial(self._read_output, self._read_end, event.job_id))
        self._notifier.add(self._key("job", event.host, event.job_id), item, delay=MERGE_DELAY)

    async def _read_output(self, read_end: ReadEnd, job_id: str) -> str:
        part = await read_end(job_id, MAX_READ_BYTES)
        return last_lines(part.data, self._redact, is_cut=part.start > 0)

    # -- items

    def _key(self, *parts: Hashable) -> Hashable:
        return id(self), *parts

    def _item(
        self,
        kind: EventKind,
        summary: str,
        detail: str = "",
        *,
        hint: str = "",
        exit_code: int | None = None,
        seconds: float | None = None,
        state: SessionState | None = None,
    ) -> NotificationItem:
        state = state or self._state()
        return NotificationItem(
            event=kind,
            summary=self._redact(summary),
            target=state.target,
            session=state.session,
            detail=self._redact(detail),
            hint=hint or attach_hint(state),
            exit_code=exit_code,
            seconds=seconds,
        )


def attach_hint(state: SessionState) -> str:
    """Return how to see a session without a dashboard. Pure."""
    return f"attach: {shlex.join(state.attach)}" if state.attach else ""
