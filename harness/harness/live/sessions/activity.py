"""What a session's calls do now, from its events: what runs, which jobs are left running, which sub-agents work."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ...agent.events import AnswerDelta, ReasoningDelta, TurnStarted
from ...toolkit.events import (
    Event,
    JobExited,
    JobStarted,
    SubagentCompleted,
    SubagentStarted,
    ToolCallCompleted,
    ToolCallProgress,
    ToolCallRequested,
)
from ...toolkit.redaction.redactor import Redactor
from ...toolkit.values import ToolCall, subject_of
from .state import MAX_LISTED, JobState, RunningCall, SubAgentState, short_text

__all__ = ["Activity"]

SILENT = (AnswerDelta, ReasoningDelta, ToolCallProgress)
"""Events that change nothing that is shown."""


class Activity:
    """The activity of one session.

    Args:
        redactor: Replaces secrets in commands.
        changed: Called after each event that changes something.
    """

    def __init__(self, redactor: Redactor, changed: Callable[[], None]) -> None:
        self._redactor = redactor
        self._changed = changed
        self._calls: dict[str, RunningCall] = {}
        self._jobs: dict[tuple[str, str], JobState] = {}
        self._agents: dict[str, SubAgentState] = {}
        self._prompt = ""

    def heard(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, SILENT):
            return
        match event:
            case ToolCallRequested():
                self._call_started(event)
            case ToolCallCompleted():
                self._calls.pop(event.outcome.call.call_id, None)
            case JobStarted():
                self._job_started(event)
            case JobExited():
                self._job_exited(event)
            case SubagentStarted():
                title = short_text(event.title or event.prompt)
                self._agents[event.agent_id] = SubAgentState(event.agent_id, title, time.time())
            case SubagentCompleted():
                self._agents.pop(event.agent_id, None)
            case TurnStarted() if not event.parent_call:
                self._prompt = short_text(event.prompt)
        self._changed()

    def _call_started(self, event: ToolCallRequested) -> None:
        call = event.call
        agent = "" if call.agent_id in ("agent", "mcp") else call.agent_id
        self._calls[call.call_id] = RunningCall(
            call.call_id, call.name, short_text(subject_of(call)), time.time(), agent
        )

    def call_changed(self, call: ToolCall) -> None:
        """Show a running call as an operator changed it before approving it."""
        if (running := self._calls.get(call.call_id)) is not None:
            text = short_text(self._redactor.text(subject_of(call)))
            self._calls[call.call_id] = replace(running, text=text)
            self._changed()

    def _job_started(self, event: JobStarted) -> None:
        command = short_text(self._redactor.text(event.command))
        self._jobs[event.host, event.job_id] = JobState(event.job_id, command, time.time(), host=event.host)
        ended = [name for name, job in self._jobs.items() if not job.is_running]
        for name in ended[: max(0, len(self._jobs) - MAX_LISTED)]:
            del self._jobs[name]

    def _job_exited(self, event: JobExited) -> None:
        key = (event.host, event.job_id)
        if (job := self._jobs.get(key)) is not None:
            self._jobs[key] = replace(job, is_running=False, exit_code=event.exit_code)

    @property
    def prompt(self) -> str:
        """The prompt of the current or the last turn."""
        return self._prompt

    @property
    def calls(self) -> tuple[RunningCall, ...]:
        """The calls that run or wait for approval, the newest ones."""
        return tuple(self._calls.values())[-MAX_LISTED:]

    @property
    def jobs(self) -> tuple[JobState, ...]:
        """The jobs that calls left running, also those that have exited since."""
        return tuple(self._jobs.values())[-MAX_LISTED:]

    @property
    def agents(self) -> tuple[SubAgentState, ...]:
        """The sub-agents that work."""
        return tuple(self._agents.values())[-MAX_LISTED:]
