"""A session without an agent of its own, such as that of an MCP client: its calls, approvals and jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...errors import HarnessError
from ...results import OutputPart
from ...toolkit.executor import Executor
from .action_records import recorded_action
from .activity import Activity
from .approvals import SharedApprover
from .event_streams import event_items, progress_items
from .session import LiveSession, StreamItems, work_to_cancel
from .state import MAX_LISTED, SessionKind, SessionState
from .target_access import TargetAccess

if TYPE_CHECKING:
    from ..announcement import Announcement

__all__ = ["CallSession", "show_calls"]


class CallSession(LiveSession):
    """The calls of one executor.

    Args:
        executor: Runs the calls.
        approver: Its approver, which dashboards share.
        changed: Called when the state may have changed.
        kind: The kind of the session.
    """

    def __init__(
        self, executor: Executor, approver: SharedApprover, changed: Callable[[], None], kind: SessionKind
    ) -> None:
        self.session_id = executor.session_id
        self._executor = executor
        self._approver = approver
        self._kind = kind
        redactor = executor.services.redactor
        self._access = TargetAccess(executor.execution, redactor, changed)
        self.activity = Activity(redactor, changed)
        approver.on_changed_call = self.activity.call_changed
        self._started = self._since = time.time()
        self._doing = "idle"

    def state(self) -> SessionState:
        """See :class:`LiveSession`."""
        activity, access, approvals = self.activity, self._access, self._approver.states()
        doing = "waiting" if approvals else "running" if activity.calls else "idle"
        if doing != self._doing:
            self._doing, self._since = doing, time.time()
        return SessionState(
            session=self.session_id,
            kind=self._kind,
            target=access.target,
            title=activity.prompt,
            doing=doing,
            since=self._since,
            started=self._started,
            running=activity.calls,
            work=self._executor.running[-MAX_LISTED:],
            approvals=approvals,
            jobs=activity.jobs,
            agents=activity.agents,
            panes=access.panes,
            taken_by=access.taken_by,
            attach=access.attach_command,
            actions=("approve", "deny", "edit", "cancel", *access.actions),
        )

    async def act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        """See :class:`LiveSession`."""
        if action in ("approve", "deny", "edit"):
            return {"scope": str(self._approver.decide(action, arguments, by).scope)}
        if action == "type":
            return await self._access.act(action, arguments, by)
        async with recorded_action(self._executor, action, arguments, by):
            return await self._act(action, arguments, by)

    async def _act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        if action in ("pause", "resume"):
            raise HarnessError("a session without an agent cannot be paused", hint="cancel its calls instead")
        if action == "cancel":
            self._cancel(work_to_cancel(arguments))
            return {}
        return await self._access.act(action, arguments, by)

    def _cancel(self, work: Collection[str]) -> None:
        running = [call_id for call_id in self._executor.running if call_id in work]
        if not running:
            raise HarnessError("those calls have ended; nothing was cancelled")
        for call_id in running:
            self._executor.cancel(call_id)

    async def query(self, query: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See :class:`LiveSession`."""
        return await self._access.query(query, arguments)

    async def read_end(self, job_id: str, max_bytes: int) -> OutputPart:
        """See :meth:`TargetAccess.read_end`."""
        return await self._access.read_end(job_id, max_bytes)

    def open_stream(self, stream: str, arguments: Mapping[str, Any]) -> StreamItems:
        """See :class:`LiveSession`."""
        if stream == "events":
            return event_items(self._executor.events)
        if stream == "tail" and isinstance(call_id := arguments.get("call_id"), str):
            return progress_items(self._executor.events, call_id)
        return self._access.open_stream(stream, arguments)


@contextmanager
def show_calls(
    announcement: Announcement, executor: Executor, approver: SharedApprover, kind: SessionKind = "python"
) -> Iterator[CallSession]:
    """Show the calls of an executor in dashboards while the context is open."""
    session = CallSession(executor, approver, announcement.changed, kind)
    with executor.events.listening(session.activity.heard), announcement.session(session):
        yield session
