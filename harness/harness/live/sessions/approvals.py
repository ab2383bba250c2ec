"""Approval requests that a dashboard may answer, next to the approver of the session: the first answer counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from ...errors import HarnessError
from ...system.background_tasks import open_background_tasks
from ...toolkit.permissions.approver import Approver, EventApprover
from ...toolkit.permissions.changed_calls import changed_call, editable
from ...toolkit.permissions.deny_all import DenyAllApprover
from ...toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ...toolkit.values import ToolCall
from ...wording import escape_invisible
from .session import AnnouncedSessions
from .state import WaitingApproval, short_text

__all__ = ["MAX_EDIT_CHARS", "MAX_SHOWN_CHARS", "SharedApprover", "share_approver"]

MAX_SHOWN_CHARS = 40_000
"""Maximum characters of a call that a dashboard shows; a longer one can only be denied there."""
MAX_EDIT_CHARS = 20_000
"""Maximum characters of an argument that can be changed in a dashboard."""
MAX_REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pending request, since a Unix time."""

    question: ApprovalRequest
    since: float


class SharedApprover(Approver):
    """The approver of a session that dashboards share.

    Args:
        own: Decides without a dashboard.
        has_operators: Whether a dashboard is connected that may decide.
        changed: Called when a request starts or stops waiting.
    """

    def __init__(self, own: Approver, has_operators: Callable[[], bool], changed: Callable[[], None]) -> None:
        self._own = own
        self._has_operators = has_operators
        self._changed = changed
        self.on_changed_call: Callable[[ToolCall], None] | None = None
        """Called with each call that an operator changed before approving it."""
        self._outside = EventApprover()
        self._asked: dict[str, _Asked] = {}

    # -- the approver

    @property
    def by_sight(self) -> bool:
        """See :class:`Approver`."""
        return self._own.by_sight or self._asks_outside_only

    @property
    def _asks_outside_only(self) -> bool:
        """Whether only a dashboard can answer: the session's own approver has no operator to ask."""
        return not self._own.can_ask() and self._has_operators()

    def can_ask(self) -> bool:
        """See :class:`Approver`."""
        return self._own.can_ask() or self._has_operators()

    def expect(self, question: ApprovalRequest) -> None:
        """See :class:`Approver`."""
        self._own.expect(question)
        self._outside.expect(question)
        self._asked[question.request_id] = _Asked(question, time.time())
        self._changed()

    def forget(self, question: ApprovalRequest) -> None:
        """See :class:`Approver`."""
        self._own.forget(question)
        self._outside.forget(question)
        self._asked.pop(question.request_id, None)
        self._changed()

    async def ready(self) -> None:
        """See :class:`Approver`."""
        await self._own.ready()

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Ask the session's own approver and the dashboards, and return the first decision."""
        decision = await self._first_decision(question)
        if decision.call is not None and self.on_changed_call is not None:
            self.on_changed_call(decision.call)
        return decision

    async def _first_decision(self, question: ApprovalRequest) -> ApprovalDecision:
        if self._asks_outside_only:
            return await self._outside.ask(question)
        own: ApprovalDecision | None = None
        async with open_background_tasks() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(self._wait_outside, question, scope)
                own = await self._own.ask(question)
            outside = self._outside.answer_of(question)
            if outside is None:
                self._outside.forget(question)  # an answer that comes now is too late
        if outside is not None:
            self._own.answered_elsewhere(question, outside)
            return outside
        assert own is not None
        return own

    async def _wait_outside(self, question: ApprovalRequest, scope: anyio.CancelScope) -> None:
        await self._outside.ask(question)
        scope.cancel()

    # -- dashboards

    @property
    def reports_changes(self) -> bool:
        """Whether the session's own approver is shown, and reports, a call that a dashboard changed."""
        return self._own.can_ask()

    def states(self) -> tuple[WaitingApproval, ...]:
        """Return the requests that wait."""
        waiting = {question.request_id for question in self._outside.pending}
        return tuple(_state_of(asked) for name, asked in self._asked.items() if name in waiting)

    def decide(self, action: str, arguments: Mapping[str, Any], by: str) -> ApprovalDecision:
        """Decide a request.

        Args:
            action: ``approve``, ``deny`` or ``edit``.
            arguments: ``request_id``; ``scope`` for the first two, ``reason`` for ``deny``, ``text`` for ``edit``.
            by: who decides.

        Returns:
            The decision, which counts.

        Raises:
            HarnessError: it was decided before, or this decision is not possible.
        """
        asked = self._asked.get(str(arguments.get("request_id")))
        if asked is None:
            raise HarnessError("this approval request is over: it was answered, cancelled, or timed out")
        decision = _decision(asked.question, action, arguments, by)
        if not self._outside.answer(asked.question.request_id, decision):
            raise HarnessError("this approval request was answered already")
        self._changed()
        return decision


def share_approver(shown: AnnouncedSessions, own: Approver | None = None) -> SharedApprover:
    """Return the approver of a session whose requests dashboards may answer, too.

    Args:
        shown: The announcement of this process.
        own: Decides without a dashboard; None denies what asks while no dashboard is connected.
    """
    return SharedApprover(own or DenyAllApprover(), lambda: shown.has_operators, shown.changed)


def _decision(question: ApprovalRequest, action: str, arguments: Mapping[str, Any], by: str) -> ApprovalDecision:
    """Return the decision that a client sent.

    Raises:
        HarnessError: it is not possible for this request.
    """
    if action == "deny":
        scope = _scope(question, arguments.get("scope", ApprovalScope.DENY_ONCE), allows=False)
        return ApprovalDecision(scope, by, str(arguments.get("reason") or "")[:MAX_REASON_CHARS].strip())
    if not _is_complete(question):
        raise HarnessError(
            "the call is too long to be shown completely, so it can only be denied here",
            hint="approve it where the session runs",
        )
    if action == "approve":
        return ApprovalDecision(_scope(question, arguments.get("scope", ApprovalScope.ONCE), allows=True), by)
    found, text = editable(question), str(arguments.get("text") or "")
    if found is None:
        raise HarnessError("this call cannot be changed")
    if not text.strip() or text == found[1]:
        raise HarnessError(f"the {found[0].replace('_', ' ')} was not changed")
    return ApprovalDecision(ApprovalScope.ONCE, by, f"changed by {by}", call=changed_call(question, text))


def _scope(question: ApprovalRequest, name: object, *, allows: bool) -> ApprovalScope:
    scope = next((scope for scope in question.scopes if scope == name and scope.allows is allows), None)
    if scope is None:
        raise HarnessError(f"this answer is not available for this call: {name}")
    return scope


def _is_complete(question: ApprovalRequest) -> bool:
    return len(_visible(question.what)) + len(_visible(question.preview)) <= MAX_SHOWN_CHARS


def _visible(text: str) -> str:
    """Return a text with what cannot be seen escaped: a character that changes the direction could show another call.

    Line feeds and tabs stay.
    """
    return escape_invisible(text, keep="\n\t")


def _state_of(asked: _Asked) -> WaitingApproval:
    question = asked.question
    name, value = editable(question) or ("", "")
    if len(value) > MAX_EDIT_CHARS or _visible(value) != value:
        name, value = "", ""
    return WaitingApproval(
        request_id=question.request_id,
        call_id=question.call.call_id,
        tool=question.call.name,
        text=short_text(_visible(question.what), MAX_SHOWN_CHARS),
        target=short_text(_visible(question.target)),
        reason=short_text(_visible(question.reason)),
        preview=short_text(_visible(question.preview), MAX_SHOWN_CHARS // 4),
        why=short_text(_visible(str(question.details.get("why") or ""))),
        is_complete=_is_complete(question),
        scopes=tuple(str(scope) for scope in question.scopes),
        editable=name,
        edit_text=value,
        since=asked.since,
        until=asked.since + question.timeout if question.timeout else 0.0,
        agent=question.call.agent_id,
    )
