"""The work of ``harness exec``: an agent for one turn, from the settings to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from ..context import ExecutionContext
from ..errors import ConfigError
from ..tasks import background_tasks
from ..toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from ..toolkit.catalogue import Catalogue
from ..toolkit.events import Event, JobExited, JobStarted, PermissionAsked, PermissionReplied, Subscription
from ..toolkit.values import ToolCall
from .exec_approval import AutoApproval, NobodyToAsk
from .exec_asking import ExecOperator, operator_of
from .exec_ending import Ended, exit_code, outcome_lines, result_json, spent_since
from .exec_events import VERSION, event_json
from .exec_progress import news_line, progress_line
from .exec_session import Chosen, session_to_resume
from .exec_stream import JsonStream
from .observing import observers_of
from .output import note, readable, warn
from .prompt.approvals import change_notice
from .prompt.conversing import Begun, open_conversation
from .resuming import stored_choices, stored_model
from .runtime import Session
from .servers import servers_of, with_servers
from .streams import Interruption, StreamWriter

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..agent.models import ModelProfile, ModelTable
    from ..agent.settings import AgentSettings
    from ..agent.storage import SessionSummary
    from ..agent.turn import TurnResult
    from ..agent.usage import Spent
    from ..toolkit.permissions.approver import Approver

__all__ = ["ExecRequest", "limited", "run_exec"]

CANCEL_LIMIT = 30.0
"""Seconds that a turn has to end in order when it is cancelled."""
UNATTENDED = ("nobody",)
UNANSWERED = ("timeout", "approver")
"""Who denied a call (``PermissionReplied.by``) where no operator decided: without one, and with one."""


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What the command line asks for. ``limit`` is in seconds, ``budget`` in US dollars; None is no limit."""

    prompt: str
    profile: ModelProfile | None
    """The model that is asked for; None is that of the conversation that goes on."""
    models: ModelTable
    settings: AgentSettings
    toolkit: ToolkitSettings
    catalogue: Catalogue
    chosen: Chosen = field(default_factory=Chosen)
    tool_profile: str | None = None
    budget: float | None = None
    limit: float | None = None
    auto_approve: bool = False


async def run_exec(session: Session, request: ExecRequest, target: ExecutionContext, interruption: Interruption) -> int:
    """Do it; returns the exit code.

    Raises:
        HarnessError: harness could not do its work.
    """
    operator = None if request.auto_approve else operator_of(session, request.settings.theme)
    async with _opened(session, request, target, operator) as (agent, toolkit):
        out = JsonStream(interruption) if session.json else None
        if out is not None:
            await out.put(_beginning(agent, target))
        redact = toolkit.redactor.text
        ended = await _Run(agent, request, interruption, out, operator, redact).to_its_end()
        text, failure = redact(ended.result.text), redact(ended.result.failure)
        if out is not None:
            out.last(result_json(ended, text, failure))
        elif ended.result.status == "completed":
            _print_answer(text, interruption)
        for line in outcome_lines(ended, failure):
            warn(line, as_json_document=session.json)
        return exit_code(ended)


def _beginning(agent: Agent, target: ExecutionContext) -> dict[str, object]:
    return {
        "type": "session",
        "version": VERSION,
        "session_id": agent.session_id,
        "target": str(target.target),
        "profile": agent.profile.name,
        "model": agent.profile.model,
    }


def _print_answer(text: str, interruption: Interruption) -> None:
    if os.isatty(1):  # what a model says moves no cursor and names no window
        text = "\n".join(readable(line) for line in text.split("\n"))
    ending = "" if text.endswith("\n") or not text else "\n"
    StreamWriter(1, interruption).write((text + ending).encode("utf-8", "surrogateescape"))


# -- the agent


@asynccontextmanager
async def _opened(
    session: Session, request: ExecRequest, target: ExecutionContext, operator: ExecOperator | None
) -> AsyncIterator[tuple[Agent, Toolkit]]:
    from ..agent.opening import People
    from ..agent.storage import SessionStore

    catalogue, variables = request.catalogue, dict(session.settings.config.env)
    store = SessionStore()
    taken = await session_to_resume(store, request.chosen, target)
    profile = request.profile or _profile_of(taken, request.models, as_json=session.json)
    if request.budget is not None:
        await to_thread.run_sync(_check_price, profile)
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(with_servers(session, servers_of(session), catalogue.registry))
        toolkit = await stack.enter_async_context(
            open_toolkit(request.toolkit, catalogue=catalogue, variables=variables)
        )
        settings = session.settings
        tmux = settings.tmux if isinstance(settings.tmux, str) else settings.config.session if settings.tmux else ""
        watching = observers_of(session, request.settings, toolkit.redactor, target)
        begun = Begun(
            profile=profile,
            settings=request.settings,
            people=operator.people if operator is not None else People(_approver(request)),
            session_id=taken.session_id if taken is not None else "",
            tool_profile=request.tool_profile,
            tmux=tmux,
            options=stored_choices(session.invocation.choices),
            models=request.models,
            config_file=session.invocation.choices.config_file,
            observers=await stack.enter_async_context(watching),
            servers=servers,
        )
        found = await stack.enter_async_context(open_conversation(begun, target, toolkit, store))
        for line in found.in_flight.splitlines():
            warn(line, as_json_document=session.json)
        found.agent.settings = limited(found.agent.settings, request.budget, found.agent.state.spent.cost)
        yield found.agent, toolkit


def _approver(request: ExecRequest) -> Approver:
    return AutoApproval() if request.auto_approve else NobodyToAsk()


def _profile_of(taken: SessionSummary | None, models: ModelTable, *, as_json: bool) -> ModelProfile:
    """The model that a conversation was with, or the default when that is gone.

    Raises:
        ConfigError: there is no default either.
    """
    stored, why = stored_model(models, taken) if taken is not None else (None, "")
    if stored is not None:
        return stored
    profile = models.profile()
    if why:
        warn(f"{why}: {profile.name} goes on", as_json_document=as_json)
    return profile


def _check_price(profile: ModelProfile) -> None:
    """Refuse a budget that nobody could keep, before anything is spent.

    Raises:
        ConfigError: the model has no known price.
    """
    from pydantic_ai.usage import RequestUsage

    from ..agent.models import cost_of

    if cost_of(RequestUsage(), profile) is None:
        raise ConfigError(
            f"--budget: the model {profile.name} has no known price",
            hint="set prices in its profile, or use --max-steps",
        )


def limited(settings: AgentSettings, budget: float | None, spent: float) -> AgentSettings:
    """The settings with the budget of this run, sub-agents included. Pure.

    Args:
        spent: what the conversation has cost before, in US dollars.
    """
    if budget is None:
        return settings
    whole, known = spent + budget, settings.session_budget
    return replace(settings, turn_budget=budget, session_budget=whole if known is None else min(known, whole))


# -- the turn


class _Run:
    """One turn, and who watches it."""

    def __init__(
        self,
        agent: Agent,
        request: ExecRequest,
        interruption: Interruption,
        out: JsonStream | None,
        operator: ExecOperator | None,
        redact: Callable[[str], str],
    ) -> None:
        self._agent = agent
        self._request = request
        self._interruption = interruption
        self._out = out
        self._operator = operator
        self._redact = redact
        self._asked: dict[str, PermissionAsked] = {}
        self._refused: list[PermissionAsked] = []
        self._jobs: dict[str, None] = {}
        self._timed_out = False
        self._hard = anyio.CancelScope()
        self._shown = anyio.Event()
        self._watched = sys.stderr.isatty()

    async def to_its_end(self) -> Ended:
        """Work on the prompt; a signal and the time limit cancel it in order."""
        from ..agent.turn import TurnResult

        started, before = anyio.current_time(), self._agent.state.spent
        result = TurnResult("cancelled", failure="the turn did not end in time after it was cancelled")
        agent = self._agent
        with agent.events.subscribe() as events, agent.events.listening(self._heard):
            if self._operator is not None:
                self._operator.serve(lambda: self._catch_up(events), self._changed)
            async with background_tasks() as tasks:
                tasks.start_soon(self._show, events)
                tasks.start_soon(self._stop)
                with self._hard:
                    result = await agent.turn(self._request.prompt)
                await self._shown.wait()
        return self._ended(result, anyio.current_time() - started, spent_since(before, agent.state.spent))

    def _ended(self, result: TurnResult, seconds: float, spent: Spent) -> Ended:
        return Ended(
            result,
            self._agent.session_id,
            self._agent.settings.max_steps,
            seconds,
            spent,
            self._timed_out,
            tuple(self._refused),
            self._operator is not None,
            self._interruption.signal,
            tuple(self._jobs),
        )

    def _heard(self, event: Event) -> None:
        if isinstance(event, JobStarted) and not event.parent_call:
            self._jobs[event.job_id] = None
        elif isinstance(event, JobExited):
            self._jobs.pop(event.job_id, None)
        elif isinstance(event, PermissionAsked):
            self._asked[event.request_id] = event
        elif isinstance(event, PermissionReplied):
            asked = self._asked.pop(event.request_id, None)
            if asked is not None and event.by in (UNANSWERED if self._operator is not None else UNATTENDED):
                self._refused.append(asked)

    def _changed(self, call: ToolCall) -> None:
        """Let the model know what runs instead of what it asked for."""
        self._agent.tell(change_notice(call, self._redact))

    async def _stop(self) -> None:
        """Cancel the turn when there is a reason to."""
        with anyio.move_on_after(self._request.limit) as time, self._interruption.reaches():
            await anyio.sleep_forever()
        self._timed_out = time.cancelled_caught
        self._agent.cancel()
        await anyio.sleep(CANCEL_LIMIT)
        self._hard.cancel()

    async def _show(self, events: Subscription) -> None:
        from ..agent.events import TurnCompleted

        async for event in events:
            await self._tell(event)
            if isinstance(event, TurnCompleted) and not event.parent_call:
                self._shown.set()

    async def _tell(self, event: Event) -> None:
        if self._out is not None:
            await self._out.put(event_json(event))
        elif self._operator is not None:
            async with self._operator.surface.asking:  # a line amid a question would look like a part of it
                self._say(event)
        else:
            self._say(event)

    def _catch_up(self, events: Subscription) -> None:
        """Show now what has happened: what is asked next is below it."""
        if self._out is None:
            for event in events.drain():
                self._say(event)

    def _say(self, event: Event) -> None:
        line = news_line(event) or (progress_line(event) if self._watched else "")
        if line:
            note(line)
