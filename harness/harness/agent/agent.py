"""The agent: one conversation of a model with tools on a target, with its prompt queue and its turns.

UIs listen to ``agent.events`` and call the methods of :class:`Agent`; nothing here depends on a terminal.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import anyio

from ..context import ExecutionContext
from ..errors import HarnessError
from ..toolkit.events import (
    Event,
    EventBus,
    JobExited,
    PermissionAsked,
    PermissionReplied,
    QuestionAnswered,
    QuestionAsked,
)
from ..toolkit.executor import Executor
from ..toolkit.hooks.dispatch import ask_hooks, tell_hooks
from ..toolkit.interfaces import Compaction, Compactor
from .events import (
    AgentPaused,
    AgentResumed,
    BudgetNearlyUsed,
    CompactionEnded,
    CompactionStarted,
    ConversationCompacted,
    ModelChanged,
    Notice,
    Origin,
    PromptQueued,
    PromptWithdrawn,
    TurnCompleted,
    TurnStarted,
    UsageChanged,
)
from .messages.compaction import ConversationCompactor, admit_compaction, needed
from .messages.history import estimate
from .messages.job_exits import job_exit_notice
from .messages.situation import RunningJobs, situation
from .models import ModelProfile, OpenModel
from .settings import AgentSettings
from .storage import ConversationLog
from .stored_usage import SPENT, note_of
from .turn import Gate, Transcript, Turn, TurnContext, TurnResult
from .usage import Usage, budgets_nearly_used, over_limit, spent_on

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse

__all__ = ["Agent", "AgentCompactor", "AgentState", "Doing", "QueuedPrompt"]

Doing = Literal["idle", "thinking", "calling", "waiting", "paused", "closed"]
STOP_LIMIT = 30.0
"""Maximum seconds for which the ``stop`` hooks of a turn delay the next turn."""
NEWS_KEPT = 50
"""Notices that wait for the next request; the oldest are dropped when there are more."""


@dataclass(frozen=True, slots=True)
class QueuedPrompt:
    """A prompt in the queue, identified by ``place``."""

    place: int
    prompt: str
    origin: Origin = "operator"
    exited: tuple[JobExited, ...] = ()
    """The jobs that it is about."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """The current state of an agent. ``context`` and ``limit`` are tokens; a ``limit`` of 0 is unknown.

    ``work`` are the ids of what :meth:`Agent.cancel` cancels: the turn, and compactions between turns.
    """

    doing: Doing
    turn_id: str
    profile: str
    model: str
    context: int
    limit: int
    spent: Usage
    queue: tuple[QueuedPrompt, ...] = ()
    paused_by: str = ""
    work: tuple[str, ...] = ()


class AgentCompactor(Compactor):
    """The compactor that the tool ``compact`` uses; ``agent`` is set once the agent is open."""

    def __init__(self) -> None:
        self.agent: Agent | None = None

    async def compact(self, session_id: str) -> Compaction | None:
        """See :class:`Compactor`."""
        return None if self.agent is None else await self.agent.compact()


class Agent:
    """One conversation; :func:`.opening.open_agent` creates it.

    Args:
        open_model: opens the model of a profile, or returns the open one.
        spent: usage of the conversation before it was resumed.
    """

    def __init__(
        self,
        executor: Executor,
        transcript: Transcript,
        log: ConversationLog,
        gate: Gate,
        *,
        settings: AgentSettings,
        instructions: str,
        profile: ModelProfile,
        open_model: Callable[[ModelProfile], Awaitable[OpenModel]],
        spent: Usage | None = None,
    ) -> None:
        self.executor = executor
        self.transcript = transcript
        self.settings = settings
        self.jobs = RunningJobs()
        """Commands that its calls left running."""
        self._log = log
        self._gate = gate
        self._instructions = instructions
        self._profile = profile
        self._open_model = open_model
        self._spent = spent or Usage()
        self._of_turn = Usage()
        self._reported_budgets: set[str] = set()
        self._context = 0
        self._limit = profile.context_window
        self._news: deque[str] = deque(maxlen=NEWS_KEPT)
        self._exited: list[JobExited] = []
        self._queue: deque[QueuedPrompt] = deque()
        self._places = 0
        self._more = anyio.Event()
        self._one = anyio.Lock()
        self._turn: Turn | None = None
        self._shortening: dict[str, anyio.CancelScope] = {}
        self._asked: set[str] = set()
        self._paused_by = ""
        self._closed = False
        self.hand_back: Callable[[str], None] | None = None
        """Reads what operators did while the agent was paused, then calls :meth:`resume_now`."""
        self.before_turn: Callable[[], Awaitable[None]] | None = None
        """Reads what operators did between two turns, and notifies the model."""

    # -- state

    @property
    def session_id(self) -> str:
        """The conversation's id."""
        return self.executor.session_id

    @property
    def execution(self) -> ExecutionContext:
        """The execution context of its target."""
        return self.executor.execution

    @property
    def events(self) -> EventBus:
        """The bus of all events of the agent and its calls."""
        return self.executor.events

    @property
    def profile(self) -> ModelProfile:
        """The profile of the model that sends the next response."""
        return self._profile

    @property
    def state(self) -> AgentState:
        """The current state."""
        turn_id = self._turn.turn_id if self._turn is not None else ""
        return AgentState(
            self._doing(),
            turn_id,
            self._profile.name,
            self._profile.model,
            self._context,
            self._limit,
            self._spent,
            tuple(self._queue),
            self._paused_by,
            tuple(self._cancellable()),
        )

    def _cancellable(self) -> dict[str, Turn | anyio.CancelScope]:
        turn = {} if self._turn is None else {self._turn.turn_id: self._turn}
        return {**self._shortening, **turn}

    def _doing(self) -> Doing:
        if self._closed:
            return "closed"
        if self._gate.paused:
            return "paused"
        if self._turn is None:
            return "thinking" if self._shortening else "idle"
        if self._asked:
            return "waiting"
        return "calling" if self._turn.calling else "thinking"

    # -- prompts

    def submit(self, prompt: str, *, origin: Origin = "operator") -> int:
        """Append a prompt to the queue that :meth:`serve` works on.

        Returns:
            The prompt's ``place``, which identifies it in events and for :meth:`withdraw`.
        """
        self._places += 1
        self._queue.append(QueuedPrompt(self._places, prompt, origin))
        self.events.publish(PromptQueued(place=self._places, prompt=self.executor.services.redactor.text(prompt)))
        self._more.set()
        return self._places

    def withdraw(self, place: int) -> bool:
        """Remove a prompt from the queue.

        Returns:
            False if the prompt is no longer in the queue.
        """
        for waiting in self._queue:
            if waiting.place == place:
                self._queue.remove(waiting)
                self.events.publish(PromptWithdrawn(place=place))
                return True
        return False

    async def turn(self, prompt: str, *, origin: Origin = "operator") -> TurnResult:
        """Work on a prompt once the current turn has ended, ahead of the prompts in the queue."""
        self._places += 1
        return await self._worked(QueuedPrompt(self._places, prompt, origin))

    async def serve(self) -> None:
        """Work on submitted prompts, one after the other, until cancelled."""
        while True:
            await self._more.wait()
            while self._queue:
                if self._gate.paused:
                    await self._gate.wait_until_open()
                    continue  # the prompt may have been withdrawn
                if self._shortening:
                    async with self._one:
                        continue
                await self._worked(self._queue.popleft())
            self._more = anyio.Event()

    async def _worked(self, queued: QueuedPrompt) -> TurnResult:
        async with self._one:
            if self.before_turn is not None:
                await self.before_turn()
            turn = self._turn = Turn(uuid.uuid4().hex, self._surroundings())
            self._of_turn = Usage()
            self._reported_budgets.discard("turn_budget_usd")
            result = TurnResult("cancelled", failure="harness exited")
            started = anyio.current_time()
            try:
                result = self._told(await self._logged(turn, queued))
                return result
            finally:
                self._turn = None
                self._ended(turn, result, anyio.current_time() - started)
                words, facts = result.text or result.failure, {"status": result.status, "steps": result.steps}
                await tell_hooks(self.executor, "stop", STOP_LIMIT, words, turn=turn.turn_id, **facts)

    async def _logged(self, turn: Turn, queued: QueuedPrompt) -> TurnResult:
        """Run the turn, recording its start and end in the log."""
        redacted = self.executor.services.redactor.text(queued.prompt)
        self.events.publish(
            TurnStarted(turn_id=turn.turn_id, prompt=redacted, origin=queued.origin, place=queued.place)
        )
        try:
            prompt = await self._admitted(queued)
            await self._log.turn_started(turn.turn_id, self.executor.services.redactor.text(prompt), queued.origin)
        except HarnessError as error:  # a prompt that cannot be stored is not worked on
            return TurnResult("failed", failure=str(error), error=error)
        result = TurnResult("cancelled", failure="harness exited")
        try:
            result = await turn.run(prompt)
        finally:
            with anyio.CancelScope(shield=True):
                await self._keep_end(turn, result)
        return result

    async def _admitted(self, queued: QueuedPrompt) -> str:
        """Return the prompt as the operator's ``pre_message`` hooks leave it.

        Raises:
            HarnessError: a hook denied it.
        """
        answer = await ask_hooks(self.executor, "pre_message", queued.prompt, origin=queued.origin)
        if answer.decision == "deny":
            raise HarnessError(f"a hook denied the message: {answer.reason or 'no reason given'}")
        return queued.prompt if answer.message is None else answer.message

    async def _keep_end(self, turn: Turn, result: TurnResult) -> None:
        try:
            await self._log.turn_ended(turn.turn_id, result.status, turn.spent.json())
        except HarnessError as error:
            self._notice(f"cannot store the end of the turn: {error}")

    def _told(self, result: TurnResult) -> TurnResult:
        redact = self.executor.services.redactor.text
        return replace(result, text=redact(result.text), failure=redact(result.failure))

    def _ended(self, turn: Turn, result: TurnResult, seconds: float) -> None:
        self.events.publish(
            TurnCompleted(
                turn_id=turn.turn_id,
                status=result.status,
                text=result.text,
                failure=result.failure,
                steps=result.steps,
                seconds=seconds,
            )
        )

    def _notice(self, text: str) -> None:
        self.events.publish(Notice(text=self.executor.services.redactor.text(text)))

    def _surroundings(self) -> TurnContext:
        return TurnContext(
            executor=self.executor,
            transcript=self.transcript,
            gate=self._gate,
            settings=self.settings,
            instructions=self._instructions,
            model=self._opened,
            news=self._take_news,
            situation=self._situation,
            shorten=self._shorten,
            charge=self._count,
            over=lambda steps: self.over(self.settings, steps),
        )

    # -- control

    def cancel(self, work: Collection[str] | None = None) -> bool:
        """Cancel the current turn, interrupting its command, and any :meth:`compact_between`; the queue is kept.

        Args:
            work: cancel only what has one of these ids of :class:`AgentState`; None: everything.

        Returns:
            False if there was nothing to cancel.
        """
        chosen = [found for name, found in self._cancellable().items() if work is None or name in work]
        for found in chosen:
            found.cancel()
        return bool(chosen)

    def pause(self, by: str, reason: str = "") -> None:
        """Start no calls and send no model requests; a response being received and running commands continue."""
        if not self._gate.paused:
            self._gate.pause()
            self._paused_by = by
            self.events.publish(AgentPaused(by=by, reason=reason))

    def resume(self, by: str) -> None:
        """Resume once :attr:`hand_back`, where it is set, has read what operators did during the pause."""
        if self._gate.paused and self.hand_back is not None:
            self.hand_back(by)
        else:
            self.resume_now(by)

    def resume_now(self, by: str, meanwhile: str = "") -> None:
        """Resume at once.

        Args:
            by: the name of the operator or UI that resumes it.
            meanwhile: what was done while the agent was paused; the model is notified of it.
        """
        if not self._gate.paused:
            return
        if meanwhile:
            self.notify_model(meanwhile)
        self._paused_by = ""
        self.events.publish(AgentResumed(by=by, meanwhile=meanwhile))
        self._gate.resume()

    def notify_model(self, text: str) -> None:
        """Add a text to the model's next request, such as what the operator ran. Starts no turn."""
        self._news.append(text)

    async def switch_model(self, profile: ModelProfile) -> None:
        """Use another model from the next response on.

        Raises:
            HarnessError: the model cannot be opened; the current one is kept.
        """
        await self._open_model(profile)
        self._profile = profile
        await self._log.noted("model", profile.name)
        self.events.publish(ModelChanged(name=profile.name, model=profile.model))

    async def compact(self) -> Compaction | None:
        """Compact the older messages now.

        Returns:
            The sizes and the summary, or None if there was nothing to compact.

        Raises:
            HarnessError: compaction failed; the conversation is unchanged.
        """
        return await self._compacted(await self._opened(), "request")

    @property
    def is_compacting(self) -> bool:
        """Whether :meth:`compact_between` is waiting or running."""
        return bool(self._shortening)

    async def compact_between(self) -> Compaction | None:
        """Compact like :meth:`compact`, after the current turn and before the next; :meth:`cancel` stops it.

        Raises:
            HarnessError: compaction failed, as for :meth:`compact`, or was cancelled.
        """
        done: Compaction | None = None
        with anyio.CancelScope() as scope:
            work = uuid.uuid4().hex
            self._shortening[work] = scope
            self.events.publish(CompactionStarted())
            try:
                async with self._one:
                    if self._closed:
                        raise HarnessError("the conversation was closed")
                    done = await self.compact()
            finally:
                del self._shortening[work]
                self.events.publish(CompactionEnded())
        if scope.cancelled_caught:
            raise HarnessError("cancelled; the conversation is unchanged")
        return done

    def close(self) -> None:
        """Mark the agent as closed; called by the code that opened it."""
        self._closed = True

    # -- callbacks of its turns

    async def _opened(self) -> OpenModel:
        opened = await self._open_model(self._profile)
        self._limit = opened.context_window
        return opened

    def _take_news(self) -> Sequence[str]:
        exited = (job_exit_notice(self._exited),) if self._exited else ()
        news = (*self._news, *exited)
        self._news.clear()
        self._exited.clear()
        return news

    async def _situation(self) -> str:
        return await situation(self.executor, self.jobs)

    def _count(self, spent: Usage, turn_id: str) -> None:
        self._context = spent.tokens
        self.charge(spent, turn_id)

    def charge(self, spent: Usage, turn_id: str = "") -> None:
        """Count usage, also that of a sub-agent, and store it with the next write to the log.

        Args:
            spent: the usage to add.
            turn_id: the turn, of this conversation or of a sub-agent, whose stored total will include it; empty: none.
        """
        self._spent += spent
        self._of_turn += spent
        self._log.note(SPENT, note_of(spent, turn_id))
        self.events.publish(
            UsageChanged(
                input_tokens=self._spent.input_tokens,
                output_tokens=self._spent.output_tokens,
                context=self._context,
                limit=self._limit,
                cost=self._spent.known_cost,
            )
        )
        self._report_budgets()

    def _report_budgets(self) -> None:
        """Report once that most of a budget is used; of several budgets at once, the one that ends first."""
        uses = budgets_nearly_used(self.settings, self._of_turn, self._spent)
        new = [use for use in uses if use.setting not in self._reported_budgets]
        self._reported_budgets.update(use.setting for use in uses)
        if new:
            self.events.publish(BudgetNearlyUsed(setting=new[0].setting, used=new[0].used, limit=new[0].limit))

    def over(self, settings: AgentSettings, steps: int) -> str:
        """Return why the current turn, or a sub-agent in it, may send no further model request.

        Args:
            settings: the limits that apply to the requester.
            steps: model responses that the requester has had.

        Returns:
            The reason, or an empty string if a request may be sent.
        """
        return over_limit(settings, steps, self._of_turn, self._spent)

    async def _shorten(self, opened: OpenModel, used: int) -> bool:
        if used and not needed(
            self.transcript.messages, used, opened.context_window, self.settings.compaction_threshold
        ):
            return False
        try:
            return await self._compacted(opened, "auto") is not None
        except HarnessError as error:
            self._notice(f"cannot compact the conversation: {error}")
            return False

    async def _compacted(self, opened: OpenModel, trigger: str) -> Compaction | None:
        await admit_compaction(self.executor, trigger, len(self.transcript.messages))

        def as_it_is() -> AbstractAsyncContextManager[OpenModel]:
            return nullcontext(opened)

        compacting = ConversationCompactor(as_it_is, self._count_notes, self.executor.services.redactor.text)
        done = await compacting.compact(self.transcript.messages, opened.context_window)
        if done is None:
            return None
        await self.transcript.replace(done.messages, done.summary)
        self._context = estimate(done.messages)
        if done.failure:
            self._notice(f"older messages were compacted without a summary from the model: {done.failure}")
        summary = self.executor.services.redactor.text(done.summary)
        self.events.publish(ConversationCompacted(before=done.before, after=done.after, summary=summary))
        return Compaction(done.before, done.after, summary)

    def _count_notes(self, response: ModelResponse | None, opened: OpenModel, asked: int) -> None:
        spent, turn = spent_on(response, opened, asked), self._turn
        if turn is not None:
            turn.spent += spent
        self.charge(spent, turn.turn_id if turn is not None else "")

    # -- events

    def heard(self, event: Event) -> None:
        """Keep track of open questions to the operator and of running jobs."""
        self.jobs.heard(event)
        if isinstance(event, PermissionAsked | QuestionAsked):
            self._asked.add(event.request_id)
        elif isinstance(event, PermissionReplied | QuestionAnswered):
            self._asked.discard(event.request_id)
        elif isinstance(event, JobExited) and not event.parent_call:
            self._job_ended(event)

    def _job_ended(self, event: JobExited) -> None:
        if self.settings.on_job_exit == "start_turn" and self._turn is None and not self._closed:
            self._submit_job_exit(event)
        else:
            self._exited.append(event)

    def _submit_job_exit(self, event: JobExited) -> None:
        """Start a turn about a job that has ended; one that waits in the queue is about this job, too."""
        waiting = next((number for number, one in enumerate(self._queue) if one.exited), None)
        if waiting is None:
            self.submit(job_exit_notice([event]), origin="jobs")
            self._queue[-1] = replace(self._queue[-1], exited=(event,))
        else:
            exited = (*self._queue[waiting].exited, event)
            self._queue[waiting] = replace(self._queue[waiting], prompt=job_exit_notice(exited), exited=exited)
