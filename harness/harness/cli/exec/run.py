"""The run of ``harness exec``: an agent for one turn, its conversation, and the approver of its calls."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
import click
from anyio import to_thread

from ...context import ExecutionContext
from ...errors import ConfigError, HarnessError
from ...login import LoginQuestion, TerminalPrompter
from ...settings import CommandLineChoices
from ...system.background_tasks import open_background_tasks
from ...toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from ...toolkit.catalog import Catalogue
from ...toolkit.events import Event, JobExited, JobStarted, PermissionAsked, PermissionReplied, Subscription, event_json
from ...toolkit.permissions.approver import Approver
from ...toolkit.permissions.deny_all import DenyAllApprover
from ...toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from ...toolkit.permissions.rules.rule import Action, Match, Rule
from ...toolkit.registry import Registry
from ...toolkit.values import ToolCall
from ..commands.servers import servers_of, with_servers
from ..conversation import ConversationStart, choices_for, has_target, open_conversation, stored_model
from ..named_commands import any_host_options, host_options
from ..output import note, readable, warn
from ..prompt.approvals import PromptApprover, PromptQuestioner, change_notice
from ..prompt.line_mode import asked_text
from ..prompt.surface import NONE, Line, QuestionSurface, SurfaceQuestion, Theme, line, painted, theme_for
from ..runtime import CliSession, announced, observers_of
from ..streams import Interruption, StreamWriter, run_async
from .report import (
    VERSION,
    ExecResult,
    JsonStream,
    RunningJob,
    exit_code,
    news_line,
    outcome_lines,
    progress_line,
    result_json,
    spent_since,
)

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from ...agent.models import ModelProfile, ModelTable
    from ...agent.opening import HumanHandlers
    from ...agent.settings import AgentSettings
    from ...agent.storage import ConversationStore, ConversationSummary
    from ...agent.turn import TurnResult
    from ...agent.usage import Usage
    from ...toolkit.values import JsonObject
    from ..options import Invocation

__all__ = [
    "AUTO_APPROVE",
    "AutoApproval",
    "ConversationChoice",
    "ExecOperator",
    "RunRequest",
    "TerminalSurface",
    "add_approval_rules",
    "approval_rule",
    "limited",
    "operator_of",
    "run_exec",
    "session_to_resume",
    "use_conversation_target",
]


# -- Approvers without a terminal: deny everything, or approve in advance from the command line.


AUTO_APPROVE = "--dangerously-auto-approve"
OPTION = "--approve"


class AutoApproval(Approver):
    """Approver that approves every request (``--dangerously-auto-approve``); it does not override denials by policy."""

    @property
    def by_sight(self) -> bool:
        """Return False: the operator approved in advance."""
        return False

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """Approve the call once."""
        return ApprovalDecision(ApprovalScope.ONCE, f"operator ({AUTO_APPROVE})")


def approval_rule(text: str, registry: Registry, target: str) -> Rule:
    """Return the rule of one ``--approve`` for one target: ``systemctl status *``, or ``write_file:/etc/app/*``. Pure.

    The text before the first colon is a tool's name if there is such a tool; else the whole text is a command.

    Raises:
        ValueError: The text is empty, or it allows every command.
    """
    name, colon, rest = text.partition(":")
    tool = registry.get(name.strip()) if colon else None
    argument = (rest if tool is not None else text).strip()
    if not argument:
        raise ValueError(f"{text!r} does not approve anything: write a command, or TOOL:ARGUMENT")
    if not argument.strip("*? "):
        raise ValueError(f"{text!r} would approve everything: use {AUTO_APPROVE} for that")
    own = tool.own.name if tool is not None else "run_shell"
    return Rule(Action.ALLOW, target, own, argument, Match.GLOB, origin=OPTION)


def add_approval_rules(settings: ToolkitSettings, rules: Iterable[Rule]) -> ToolkitSettings:
    """Return the settings with rules inserted before their own; rules that deny still apply. Pure."""
    permissions = settings.permissions
    return replace(settings, permissions=replace(permissions, rules=(*rules, *permissions.rules)))


# -- The operator at the controlling terminal: approval requests and questions as at the prompt, so that standard input
# and output stay free for pipes.


DUMB = frozenset({"", "dumb", "unknown"})
FOREGROUND_INTERVAL = 0.5
"""Seconds between checks whether the program is in the foreground again."""


class TerminalSurface(QuestionSurface):
    """The controlling terminal, one line for each answer; the lock ``asking`` is held while a question is shown."""

    def __init__(self, theme: Theme = NONE, prompter: TerminalPrompter | None = None) -> None:
        self._theme = theme
        self._prompter = prompter or TerminalPrompter()
        self.asking = anyio.Lock()

    @property
    def width(self) -> int:
        """Return the terminal's width in columns."""
        return shutil.get_terminal_size().columns

    def show(self, *lines: Line) -> None:
        """Print lines."""
        self._prompter.show(painted(lines, self._theme))

    async def ask(self, asking: SurfaceQuestion) -> str | None:
        """Ask until the answer is valid; return None at end of file (Ctrl-D)."""
        async with self.asking:
            text = asked_text(asking, self.width, self._theme)
            while True:
                await self._in_foreground()
                question = LoginQuestion("other", f"{text}{asking.label} ", asking.secret, "")
                answer = await self._prompter.answer(question)
                if answer is None:
                    return None
                answer = answer.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                complaint = asking.check(answer)
                if not complaint:
                    return answer
                text = painted([line(f"  {complaint}")], self._theme)

    async def _in_foreground(self) -> None:
        """Wait while a shell has this program in the background, where reading the terminal would stop it."""
        while not self._prompter.usable():  # noqa: ASYNC110  # no signal says that it is back in the foreground
            await anyio.sleep(FOREGROUND_INTERVAL)


class ExecOperator:
    """Who is asked during one run. ``surface`` is the terminal."""

    def __init__(self, surface: TerminalSurface) -> None:
        self.surface = surface
        self._catch_up: Callable[[], None] | None = None
        self._changed: Callable[[ToolCall], None] | None = None

    def serve(self, catch_up: Callable[[], None], changed: Callable[[ToolCall], None]) -> None:
        """Set the callbacks of a run, once it has its agent.

        Args:
            catch_up: Shows the events so far before a question.
            changed: Called with each call as the operator changed it.
        """
        self._catch_up, self._changed = catch_up, changed

    @property
    def handlers(self) -> HumanHandlers:
        """Return the prompt's approver and questioner for this terminal."""
        from ...agent.opening import HumanHandlers

        approver = PromptApprover(self.surface, self._report_change, self._show_events)
        return HumanHandlers(approver, PromptQuestioner(self.surface, self._show_events))

    def _report_change(self, call: ToolCall) -> None:
        if self._changed is not None:
            self._changed(call)

    def _show_events(self) -> None:
        if self._catch_up is not None:
            self._catch_up()


def operator_of(session: CliSession, theme: str) -> ExecOperator | None:
    """Return the operator at the terminal.

    Returns:
        None with ``--batch``, if neither standard input nor standard error is a terminal, and in the background.
    """
    if session.invocation.batch or not any(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return None
    prompter = TerminalPrompter()
    if not prompter.usable():
        return None
    plain = os.environ.get("TERM", "") in DUMB
    drawn = NONE if plain else theme_for(theme, color=session.invocation.color is not False)
    return ExecOperator(TerminalSurface(drawn, prompter))


# -- The conversation: a new one, or a stored one to resume.


@dataclass(frozen=True, slots=True)
class ConversationChoice:
    """The conversation chosen on the command line: an ID, the last one, or neither for a new one."""

    session: str = ""
    last: bool = False

    @property
    def is_new(self) -> bool:
        """Return whether to start a new conversation."""
        return not (self.session or self.last)


def use_conversation_target(invocation: Invocation, session_id: str) -> ConversationSummary | None:
    """Use the target of the conversation unless the command line gives one. Blocks.

    Returns:
        The conversation; None if the command line gives a target.

    Raises:
        HarnessError: The conversation does not exist, or its container was removed.
    """
    from ...agent.storage import ConversationStore

    if has_target(invocation.choices):
        return None
    found: list[ConversationSummary] = []

    async def find(interruption: Interruption) -> int:
        found.append(await ConversationStore().find(session_id))
        return 0

    if code := run_async(find):
        raise click.exceptions.Exit(code)  # interrupted
    invocation.choices = choices_for(found[0], invocation.choices, here=False)
    return found[0]


async def session_to_resume(
    store: ConversationStore, chosen: ConversationChoice, target: ExecutionContext
) -> ConversationSummary | None:
    """Return the conversation to resume; None for a new one.

    Raises:
        HarnessError: The conversation does not exist.
        ConfigError: It belongs to another target.
    """
    if chosen.session:
        summary = await store.find(chosen.session)
        if summary.identity != target.identity:
            raise ConfigError(
                f"conversation {summary.session_id} belongs to {summary.target}, not to {target.target}",
                hint="choose its target, or omit --conversation",
            )
        return summary
    if not chosen.last:
        return None
    last = await store.last(target.identity)
    if last is None:
        raise HarnessError(f"no conversation with {target.target} is stored", hint="omit --last")
    return last


# -- The run: an agent for one turn.


CANCEL_LIMIT = 30.0
"""Seconds that a cancelled turn has to end cleanly."""
UNATTENDED = ("nobody",)
UNANSWERED = ("timeout", "approver")
"""Values of ``PermissionReplied.by`` for denials that no operator decided: without an operator, and with one."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request of the command line; ``limit`` is in seconds, ``budget`` in US dollars, None means unlimited."""

    prompt: str
    profile: ModelProfile | None
    """The requested model; None is that of the resumed conversation."""
    models: ModelTable
    settings: AgentSettings
    toolkit: ToolkitSettings
    catalogue: Catalogue
    chosen: ConversationChoice = field(default_factory=ConversationChoice)
    tool_profile: str | None = None
    budget: float | None = None
    limit: float | None = None
    auto_approve: bool = False
    stored_options: JsonObject = field(default_factory=dict)
    """How the target was chosen; stored with a new conversation."""


async def run_exec(
    session: CliSession, request: RunRequest, target: ExecutionContext, interruption: Interruption
) -> int:
    """Run one turn, print its result and return the exit code.

    Raises:
        HarnessError: Harness failed before or after the turn.
    """
    operator = None if request.auto_approve else operator_of(session, request.settings.theme)
    async with _opened(session, request, target, operator) as (agent, toolkit):
        out = JsonStream(interruption) if session.json else None
        if out is not None:
            await out.put(_beginning(agent, target))
        redact = toolkit.redactor.text
        choices = session.invocation.choices
        ended = await _Run(agent, request, interruption, out, operator, redact, choices).run_to_completion()
        if interruption.tripped and session.notifier is not None:
            session.notifier.discard()
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
    if os.isatty(1):  # no escape sequence of a model may reach the terminal
        text = "\n".join(readable(line) for line in text.split("\n"))
    ending = "" if text.endswith("\n") or not text else "\n"
    StreamWriter(1, interruption).write((text + ending).encode("utf-8", "surrogateescape"))


# -- the agent


@asynccontextmanager
async def _opened(
    session: CliSession, request: RunRequest, target: ExecutionContext, operator: ExecOperator | None
) -> AsyncIterator[tuple[Agent, Toolkit]]:
    from ...agent.opening import HumanHandlers
    from ...agent.storage import ConversationStore

    catalogue, variables = request.catalogue, dict(session.settings.config.env)
    store = ConversationStore()
    resumed = await session_to_resume(store, request.chosen, target)
    profile = request.profile or _profile_of(resumed, request.models, as_json=session.json)
    if request.budget is not None:
        await to_thread.run_sync(_check_price, profile)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(session.notified("exec"))  # the last to be closed
        servers = await stack.enter_async_context(with_servers(session, servers_of(session), catalogue.registry))
        toolkit = await stack.enter_async_context(
            open_toolkit(request.toolkit, catalogue=catalogue, variables=variables)
        )
        settings = session.settings
        tmux = settings.tmux if isinstance(settings.tmux, str) else settings.config.session if settings.tmux else ""
        watching = observers_of(session, request.settings, toolkit.redactor, target)
        begun = ConversationStart(
            profile=profile,
            settings=request.settings,
            handlers=operator.handlers if operator is not None else HumanHandlers(_approver(request)),
            session_id=resumed.session_id if resumed is not None else "",
            tool_profile=request.tool_profile,
            tmux=tmux,
            options=request.stored_options,
            models=request.models,
            config_file=session.invocation.choices.config_file,
            observers=await stack.enter_async_context(watching),
            servers=servers,
            announcement=await stack.enter_async_context(announced(session, "exec")),
            notifier=session.notifier,
        )
        found = await stack.enter_async_context(open_conversation(begun, target, toolkit, store))
        for line in (*found.in_flight.splitlines(), *found.files.notices):
            warn(line, as_json_document=session.json)
        for name in found.files.names:
            logging.getLogger("harness").info("instructions: %s", readable(name))
        found.agent.settings = limited(found.agent.settings, request.budget, found.agent.state.spent.cost)
        yield found.agent, toolkit


def _approver(request: RunRequest) -> Approver:
    return AutoApproval() if request.auto_approve else DenyAllApprover()


def _profile_of(resumed: ConversationSummary | None, models: ModelTable, *, as_json: bool) -> ModelProfile:
    """Return the conversation's model profile, or the default if it is not configured any more.

    Raises:
        ConfigError: There is no default either.
    """
    stored, why = stored_model(models, resumed) if resumed is not None else (None, "")
    if stored is not None:
        return stored
    profile = models.profile()
    if why:
        warn(f"{why}: using {profile.name}", as_json_document=as_json)
    return profile


def _check_price(profile: ModelProfile) -> None:
    """Refuse a budget for a model without a known price.

    Raises:
        ConfigError: The model has no known price.
    """
    from pydantic_ai.usage import RequestUsage

    from ...agent.models import cost_of

    if cost_of(RequestUsage(), profile) is None:
        raise ConfigError(
            f"--budget: model {profile.name} has no known price",
            hint="set prices in its model profile, or use --max-steps",
        )


def limited(settings: AgentSettings, budget: float | None, spent: float) -> AgentSettings:
    """Return the settings with the budget of this run, which includes sub-agents. Pure.

    Args:
        settings: The agent's settings.
        budget: Maximum cost of this run in US dollars; None keeps the settings.
        spent: Cost of the conversation so far in US dollars.
    """
    if budget is None:
        return settings
    whole, known = spent + budget, settings.conversation_budget_usd
    return replace(
        settings, turn_budget_usd=budget, conversation_budget_usd=whole if known is None else min(known, whole)
    )


# -- the turn


class _Run:
    """One turn, its timeout and its output."""

    def __init__(
        self,
        agent: Agent,
        request: RunRequest,
        interruption: Interruption,
        out: JsonStream | None,
        operator: ExecOperator | None,
        redact: Callable[[str], str],
        choices: CommandLineChoices,
    ) -> None:
        self._agent = agent
        self._choices = choices
        self._request = request
        self._interruption = interruption
        self._out = out
        self._operator = operator
        self._redact = redact
        self._asked: dict[str, PermissionAsked] = {}
        self._refused: list[PermissionAsked] = []
        self._jobs: dict[tuple[str, str], None] = {}
        self._timed_out = False
        self._hard = anyio.CancelScope()
        self._shown = anyio.Event()
        self._watched = sys.stderr.isatty()

    async def run_to_completion(self) -> ExecResult:
        """Run the turn to its end; a signal or the timeout cancels it cleanly."""
        from ...agent.turn import TurnResult

        started, before = anyio.current_time(), self._agent.state.spent
        result = TurnResult("cancelled", failure="the turn was cancelled, but did not end in time")
        agent = self._agent
        with agent.events.subscribe() as events, agent.events.listening(self._heard):
            if self._operator is not None:
                self._operator.serve(lambda: self._catch_up(events), self._changed)
            async with open_background_tasks() as tasks:
                tasks.start_soon(self._show, events)
                tasks.start_soon(self._stop)
                with self._hard:
                    result = await agent.turn(self._request.prompt)
                await self._shown.wait()
        return self._ended(result, anyio.current_time() - started, spent_since(before, agent.state.spent))

    def _ended(self, result: TurnResult, seconds: float, spent: Usage) -> ExecResult:
        return ExecResult(
            result,
            self._agent.session_id,
            self._agent.settings.max_steps,
            seconds,
            spent,
            self._timed_out,
            tuple(self._refused),
            self._operator is not None,
            self._interruption.signal,
            tuple(self._running_job(host, job_id) for host, job_id in self._jobs),
            any_host_options(self._choices),
        )

    def _running_job(self, host: str, job_id: str) -> RunningJob:
        hosts = self._agent.executor.hosts
        url = hosts.target(host) if hosts is not None and host else ""
        return RunningJob(job_id, host, host_options(url, self._choices) if url else "")

    def _heard(self, event: Event) -> None:
        if isinstance(event, JobStarted) and not event.parent_call:
            self._jobs[event.host, event.job_id] = None
        elif isinstance(event, JobExited):
            self._jobs.pop((event.host, event.job_id), None)
        elif isinstance(event, PermissionAsked):
            self._asked[event.request_id] = event
        elif isinstance(event, PermissionReplied):
            asked = self._asked.pop(event.request_id, None)
            if asked is not None and event.by in (UNANSWERED if self._operator is not None else UNATTENDED):
                self._refused.append(asked)

    def _changed(self, call: ToolCall) -> None:
        """Notify the model of the call that runs instead of its own."""
        self._agent.notify_model(change_notice(call, self._redact))

    async def _stop(self) -> None:
        """Cancel the turn on an interruption or when the timeout expires."""
        with anyio.move_on_after(self._request.limit) as time, self._interruption.reaches():
            await anyio.sleep_forever()
        self._timed_out = time.cancelled_caught
        self._agent.cancel()
        await anyio.sleep(CANCEL_LIMIT)
        self._hard.cancel()

    async def _show(self, events: Subscription) -> None:
        from ...agent.events import TurnCompleted

        async for event in events:
            await self._tell(event)
            if isinstance(event, TurnCompleted) and not event.parent_call:
                self._shown.set()

    async def _tell(self, event: Event) -> None:
        if self._out is not None:
            await self._out.put(event_json(event))
        elif self._operator is not None:
            async with self._operator.surface.asking:  # a line within a question would look like part of it
                self._say(event)
        else:
            self._say(event)

    def _catch_up(self, events: Subscription) -> None:
        """Print pending events, so that the next question is below them."""
        if self._out is None:
            for event in events.drain():
                self._say(event)

    def _say(self, event: Event) -> None:
        line = news_line(event) or (progress_line(event) if self._watched else "")
        if line:
            note(line)
