"""The session of an agent for dashboards: its turns, calls, approvals, jobs and panes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...errors import HarnessError, UnsupportedOperation
from ...results import OutputPart
from ...toolkit.values import subject_of
from .action_records import recorded_action
from .activity import Activity
from .approvals import SharedApprover
from .event_streams import event_items, progress_items
from .session import LiveSession, StreamItems, work_to_cancel
from .state import SessionState
from .target_access import TargetAccess

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from ..announcement import Announcement

__all__ = ["AgentSession", "show_agent"]

DOING: Final = {
    "idle": "idle",
    "thinking": "thinking",
    "calling": "running",
    "waiting": "waiting",
    "paused": "paused",
    "closed": "idle",
}
APPROVALS = ("approve", "deny", "edit")


class AgentSession(LiveSession):
    """One conversation of an agent.

    Args:
        agent: The agent.
        approver: Its approver, which dashboards share; None if nothing can be approved.
        changed: Called when the state may have changed.
        target: The target as shown; empty for that of the agent.
    """

    def __init__(
        self, agent: Agent, approver: SharedApprover | None, changed: Callable[[], None], target: str = ""
    ) -> None:
        self.session_id = agent.session_id
        self._agent = agent
        self._approver = approver
        redactor = agent.executor.services.redactor
        self._access = TargetAccess(agent.execution, redactor, changed)
        self.activity = Activity(redactor, self._heard_change(changed))
        if approver is not None:
            approver.on_changed_call = self.activity.call_changed
        self._target = target
        self._started = time.time()
        self._doing, self._since = "idle", self._started

    def _heard_change(self, changed: Callable[[], None]) -> Callable[[], None]:
        def heard() -> None:
            self._note_doing()
            changed()

        return heard

    def _note_doing(self) -> str:
        doing = DOING[self._agent.state.doing]
        if doing != self._doing:
            self._doing, self._since = doing, time.time()
        return doing

    def state(self) -> SessionState:
        """See :class:`LiveSession`."""
        agent, activity, access = self._agent.state, self.activity, self._access
        doing = self._note_doing()
        return SessionState(
            session=self.session_id,
            kind="agent",
            target=self._target or access.target,
            title=activity.prompt,
            doing=doing,
            since=self._since,
            started=self._started,
            model=agent.profile,
            cost=agent.spent.known_cost,
            input_tokens=agent.spent.input_tokens,
            output_tokens=agent.spent.output_tokens,
            context=agent.context,
            context_limit=agent.limit,
            queued=len(agent.queue),
            paused_by=agent.paused_by,
            work=agent.work,
            running=activity.calls,
            approvals=self._approver.states() if self._approver is not None else (),
            jobs=activity.jobs,
            agents=activity.agents,
            panes=access.panes,
            taken_by=access.taken_by,
            attach=access.attach_command,
            actions=(*(APPROVALS if self._approver is not None else ()), "pause", "resume", "cancel", *access.actions),
        )

    async def act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        """See :class:`LiveSession`."""
        if action in APPROVALS:
            return self._decide(action, arguments, by)
        if action == "type":
            return await self._access.act(action, arguments, by)
        async with recorded_action(self._agent.executor, action, arguments, by):
            return await self._act(action, arguments, by)

    async def _act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        if action == "pause":
            self._agent.pause(by, "from a dashboard")
        elif action == "resume":
            self._resume(arguments, by)
        elif action == "cancel":
            if not self._agent.cancel(work_to_cancel(arguments)):
                raise HarnessError("that turn has ended; nothing was cancelled")
        else:
            result = await self._access.act(action, arguments, by)
            if action == "take_pane":
                self._agent.pause(by, f"{by} took pane {result['pane']} over")
            return result
        return {"doing": DOING[self._agent.state.doing]}

    def _resume(self, arguments: Mapping[str, Any], by: str) -> None:
        """End the pause that the client has seen, and no later one of somebody else."""
        meant, paused_by = arguments.get("paused_by"), self._agent.state.paused_by
        if not isinstance(meant, str):
            raise HarnessError("the argument paused_by is missing")
        if paused_by not in ("", meant):
            raise HarnessError(f"{paused_by} has paused the agent again; nothing was resumed")
        self._agent.resume(by)

    def _decide(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        if self._approver is None:
            raise UnsupportedOperation("nothing can be approved in this session")
        decision = self._approver.decide(action, arguments, by)
        if decision.call is not None and not self._approver.reports_changes:
            redact = self._agent.executor.services.redactor.text
            self._agent.notify_model(
                f"[harness: {by} changed the call of {decision.call.name} before approving it. "
                f"What was approved instead: {redact(subject_of(decision.call))}]"
            )
        return {"scope": str(decision.scope)}

    async def query(self, query: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :class:`LiveSession`."""
        return await self._access.query(query, arguments)

    async def read_end(self, job_id: str, max_bytes: int) -> OutputPart:
        """See :meth:`TargetAccess.read_end`."""
        return await self._access.read_end(job_id, max_bytes)

    def open_stream(self, stream: str, arguments: Mapping[str, Any]) -> StreamItems:
        """See :class:`LiveSession`."""
        if stream == "events":
            return event_items(self._agent.events)
        if stream == "tail" and isinstance(call_id := arguments.get("call_id"), str):
            return progress_items(self._agent.events, call_id)
        return self._access.open_stream(stream, arguments)


@contextmanager
def show_agent(
    announcement: Announcement, agent: Agent, approver: SharedApprover | None, target: str = ""
) -> Iterator[AgentSession]:
    """Show an agent in dashboards while the context is open."""
    session = AgentSession(agent, approver, announcement.changed, target)
    with agent.events.listening(session.activity.heard), announcement.session(session):
        yield session
