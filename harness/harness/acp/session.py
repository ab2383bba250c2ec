"""A session of an editor: its agent's events as updates, its turns, and the requests for permission."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from acp.exceptions import RequestError
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import PermissionOption, PromptResponse, ToolCallUpdate
from pydantic import ValidationError

from ..agent.events import AnswerDelta, BudgetNearlyUsed, ModelRetry, Notice, ReasoningDelta
from ..agent.storage.stored_items import stored_items
from ..toolkit.events import (
    Event,
    PermissionAsked,
    PermissionReplied,
    TodoChanged,
    ToolCallCompleted,
    ToolCallProgress,
    ToolCallRequested,
)
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ..toolkit.permissions.request_text import MEANINGS, message_of, offered
from ..toolkit.values import CallOutcome, CallStatus, ToolCall
from .tool_calls import (
    MAX_OUTPUT_CHARS,
    MAX_TITLE_CHARS,
    Place,
    ShownCall,
    clean,
    fenced,
    output_content,
    result_content,
    shown_call,
)

if TYPE_CHECKING:
    from acp.interfaces import Client

    from ..agent.agent import Agent
    from ..agent.turn import TurnResult

__all__ = ["EditorApprover", "EditorSession"]

INTERVAL = 0.1
"""Minimum seconds between two groups of updates."""
OPTION_KINDS: dict[ApprovalScope, Any] = {
    ApprovalScope.ONCE: "allow_once",
    ApprovalScope.DENY_ONCE: "reject_once",
    ApprovalScope.DENY_SESSION: "reject_always",
}
"""The kinds of options; all others allow more than one call."""
log = logging.getLogger("harness.acp")


# -- Updates, in the order of the events; text and output that wait to be sent are joined.


@dataclass(slots=True)
class _Chunk:
    """A piece of an answer, or of what is shown as a thought."""

    is_thought: bool
    text: str

    def update(self) -> Any:
        show = update_agent_thought_text if self.is_thought else update_agent_message_text
        return show(clean(self.text))


@dataclass(slots=True)
class _Call:
    """A call that runs, with the end of its output."""

    shown: ShownCall
    output: str = ""
    waits: bool = False
    """Whether its output waits to be sent."""


class EditorSession:
    """One session of an editor.

    Args:
        client: The editor.
        agent: The agent, which is open as long as the session.
        place: Where the agent's files are.
        notices: What the user is told; emptied by the next turn, as an editor may show nothing of a session before.
    """

    def __init__(self, client: Client, agent: Agent, place: Place, notices: deque[str]) -> None:
        self.agent = agent
        self._client = client
        self._place = place
        self._notices = notices
        self._calls: dict[str, _Call] = {}
        self._asked: dict[str, str] = {}
        self._updates: deque[Callable[[], Any] | _Chunk] = deque()
        self._more = anyio.Event()
        self._sending = anyio.Lock()
        self._turns: list[anyio.CancelScope] = []

    # -- turns

    def accept(self, text: str) -> Callable[[], Awaitable[PromptResponse]]:
        """Add a turn for a prompt, which the next message can already cancel, and return what runs it."""
        scope = anyio.CancelScope()
        self._turns.append(scope)
        return partial(self._run_turn, text, scope)

    async def _run_turn(self, text: str, scope: anyio.CancelScope) -> PromptResponse:
        """Work on a prompt and return how its turn ended; the updates of the turn were sent before.

        Raises:
            RequestError: The turn failed.
        """
        result: TurnResult | None = None
        self._show_notices()
        try:
            with scope:
                result = await self.agent.turn(text)
        finally:
            self._turns.remove(scope)
        await self.flush()
        return PromptResponse(stop_reason="cancelled") if result is None else _response(result)

    @property
    def turns(self) -> int:
        """The number of turns that run or wait."""
        return len(self._turns)

    def cancel(self) -> None:
        """Cancel the current turn, which interrupts its command, or the first one if none has started yet."""
        if not self.agent.cancel() and self._turns:
            self._turns[0].cancel()

    # -- updates

    async def show_past(self) -> None:
        """Send what was said in the conversation before it was resumed."""
        for item in await stored_items(self.agent.session_id, self.agent.executor.services.redactor.text):
            for update in _past_updates(item):
                self._put(partial(_same, update))
        await self.flush()

    async def send_updates(self) -> None:
        """Send updates as they come, until cancelled or the client has disconnected."""
        with self.agent.events.listening(self._heard):
            while True:
                await self._more.wait()
                await self.flush()
                await anyio.sleep(INTERVAL)

    async def flush(self) -> None:
        """Send all updates that wait; those of a client that has disconnected are dropped."""
        async with self._sending:
            self._more = anyio.Event()
            while self._updates:
                first = self._updates.popleft()
                update = first.update() if isinstance(first, _Chunk) else first()
                try:
                    await self._client.session_update(session_id=self.agent.session_id, update=update)
                except ConnectionError:
                    self._updates.clear()

    def _put(self, make: Callable[[], Any]) -> None:
        self._updates.append(make)
        self._more.set()

    def _say(self, text: str, *, is_thought: bool) -> None:
        last = self._updates[-1] if self._updates else None
        if isinstance(last, _Chunk) and last.is_thought == is_thought:
            last.text += text
        elif text:
            self._updates.append(_Chunk(is_thought, text))
        self._more.set()

    def _heard(self, event: Event) -> None:
        match event:
            case AnswerDelta() if not event.parent_call:
                self._say(event.text, is_thought=False)
            case ReasoningDelta() if not event.parent_call:
                self._say(event.text, is_thought=True)
            case ModelRetry() if not event.parent_call:
                self._say(f"\n\nThe model is asked again: {event.reason}\n\n", is_thought=True)
            case Notice() | BudgetNearlyUsed():
                self._say(f"\n\n{event.text}\n\n", is_thought=True)
            case TodoChanged() if not event.parent_call:
                self._show_plan(event)
            case _:
                self._heard_of_call(event)

    def _heard_of_call(self, event: Event) -> None:
        match event:
            case ToolCallRequested():
                self._start(event.call)
            case ToolCallProgress():
                self._progress(event)
            case PermissionAsked():
                self._asked[event.request_id] = event.call.call_id
            case PermissionReplied():
                call_id = self._asked.pop(event.request_id, "")
                if event.allowed and call_id in self._calls:
                    self._put(lambda: update_tool_call(call_id, status="in_progress"))
            case ToolCallCompleted():
                self._complete(event.outcome)

    def _show_notices(self) -> None:
        for text in self._notices:
            self._say(f"{text}\n\n", is_thought=True)
        self._notices.clear()

    def _show_plan(self, event: TodoChanged) -> None:
        todos = [todo for todo in event.todos if isinstance(todo, dict)] if isinstance(event.todos, list) else []
        known: dict[str, Any] = {"in_progress": "in_progress", "completed": "completed"}
        entries = [
            plan_entry(clean(str(todo.get("content", ""))), status=known.get(str(todo.get("status")), "pending"))
            for todo in todos
        ]
        self._put(lambda: update_plan(entries))

    def _start(self, call: ToolCall) -> _Call:
        shown = shown_call(call, self.agent.executor.registry, self._place)
        started = self._calls[call.call_id] = _Call(shown)
        self._put(
            lambda: start_tool_call(
                call.call_id,
                shown.title,
                kind=shown.kind,
                status="in_progress",
                content=shown.diffs,
                locations=shown.locations,
                raw_input=shown.arguments,
            )
        )
        return started

    def _progress(self, event: ToolCallProgress) -> None:
        call = self._calls.get(event.call_id)
        if call is None:
            return
        call.output = (call.output + event.text)[-MAX_OUTPUT_CHARS:]
        if not call.waits:
            call.waits = True
            self._put(lambda: self._output(event.call_id, call))

    def _output(self, call_id: str, call: _Call) -> Any:
        call.waits = False
        return update_tool_call(call_id, status="in_progress", content=output_content(call.output))

    def _complete(self, outcome: CallOutcome) -> None:
        call_id = outcome.call.call_id
        shown = (self._calls.get(call_id) or self._start(outcome.call)).shown
        del self._calls[call_id]
        is_error = outcome.result.is_error or outcome.status is not CallStatus.OK
        content = result_content(outcome, shown)
        self._put(lambda: update_tool_call(call_id, status="failed" if is_error else "completed", content=content))

    # -- permissions

    async def ask(self, question: ApprovalRequest, client: str) -> ApprovalDecision:
        """Ask the editor's user for permission; an unclear answer is a denial."""
        await self.flush()
        scopes = offered(question)
        options = [
            PermissionOption(option_id=str(scope), name=MEANINGS[scope], kind=OPTION_KINDS.get(scope, "allow_always"))
            for scope in scopes
        ]
        call = self._calls.get(question.call.call_id)
        shown = call.shown if call is not None else None
        asked = ToolCallUpdate(
            tool_call_id=question.call.call_id,
            status="pending",
            title=shown.title if shown is not None else clean(question.call.name),
            kind=shown.kind if shown is not None else "other",
            content=[
                tool_content(text_block(fenced(clean(message_of(question))))),
                *(shown.diffs if shown is not None else ()),
            ],
        )
        try:
            response = await self._client.request_permission(
                session_id=self.agent.session_id, tool_call=asked, options=options
            )
        except (RequestError, ValidationError) as error:
            log.info("the client could not ask for permission: %s", type(error).__name__)
            return ApprovalDecision(ApprovalScope.DENY_ONCE, "approver", "the editor could not ask its user")
        except ConnectionError:
            return ApprovalDecision(ApprovalScope.DENY_ONCE, "nobody", "the editor has disconnected")
        by = f"the user of {client}"
        chosen = getattr(response.outcome, "option_id", None)
        scope = next((scope for scope in scopes if str(scope) == chosen), None)
        if scope is None:
            return ApprovalDecision(ApprovalScope.DENY_ONCE, by, "dismissed without an answer")
        return ApprovalDecision(scope, by)


def _same(update: Any) -> Any:
    return update


def _past_updates(item: Mapping[str, Any]) -> list[Any]:
    """Return the updates for a stored item. Pure."""
    match item["type"]:
        case "turn_started":
            return [update_user_message_text(clean(item["prompt"]))]
        case "answer_completed":
            return [update_agent_message_text(clean(item["text"]))]
        case "tool_call_requested":
            call = item["call"]
            title = clean(f"{call['name']} {call['arguments']}")[:MAX_TITLE_CHARS]
            return [start_tool_call(call["call_id"], title, kind="other", status="in_progress")]
        case "tool_call_completed":
            outcome = item["outcome"]
            content = [tool_content(text_block(fenced(clean(outcome["text"]))))]
            status: Any = "failed" if outcome["is_error"] else "completed"
            return [update_tool_call(outcome["call"]["call_id"], status=status, content=content)]
    return [update_agent_thought_text(clean(str(item.get("text", ""))))]


def _response(result: TurnResult) -> PromptResponse:
    if result.status == "failed":
        raise RequestError(-32603, clean(result.failure) or "the turn failed")
    reasons: dict[str, Any] = {"cancelled": "cancelled", "limit": "max_turn_requests"}
    return PromptResponse(stop_reason=reasons.get(result.status, "end_turn"))


@dataclass(slots=True)
class EditorApprover(Approver):
    """Asks the user of the editor whose session needs approval."""

    client: str
    """The name of the editor."""
    session: EditorSession | None = field(default=None)

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Return the user's decision; a denial before the session is open."""
        if self.session is None:
            return ApprovalDecision(ApprovalScope.DENY_ONCE, "nobody", "the session is not open yet")
        return await self.session.ask(question, self.client)
