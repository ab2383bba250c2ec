"""One turn: requests to the model, the transcript they make, and the gate at which it pauses."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.tools import ToolDefinition

from ..errors import HarnessError
from ..toolkit.contract import ToolContext
from ..toolkit.events import EventBus
from ..toolkit.executor import Executor
from ..toolkit.hooks.dispatch import ask_hooks
from ..toolkit.interfaces import Next, Redactor
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.questions import ApprovalDecision, ApprovalRequest
from ..toolkit.redaction.stream import StreamRedactor
from ..toolkit.values import CallOutcome, CallStatus, ToolCall, ToolResult
from .events import AnswerCompleted, AnswerDelta, ModelRetry, ReasoningDelta, RequestStarted, TurnStatus
from .messages import cleaning, history, instructions, situation
from .messages.cleaning import without_secrets
from .messages.history import checked, dumped, estimate, overhead
from .models import ModelFailure, OpenModel, backoff, model_failure, unfinished
from .models.request import Request, UsageRecorder
from .settings import AgentSettings
from .storage import ConversationLog
from .usage import Usage, spent_on

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Gate",
    "GatedApprover",
    "ModelRequestOptions",
    "ModelRequester",
    "Transcript",
    "Turn",
    "TurnContext",
    "TurnResult",
    "text_of",
    "with_words",
]


# -- Where every call of an agent passes: nothing begins while it is paused, or once its turn is cancelled.


class Gate:
    """A middleware around the calls of an agent and of its sub-agents."""

    def __init__(self) -> None:
        self._open = anyio.Event()
        self._open.set()
        self._cancelled = False

    @property
    def paused(self) -> bool:
        """Nothing begins."""
        return not self._open.is_set()

    def pause(self) -> None:
        """Let nothing begin until :meth:`resume`; what runs goes on."""
        if self._open.is_set():
            self._open = anyio.Event()

    def resume(self) -> None:
        """Let what waits begin."""
        self._open.set()

    def refuse(self, *, cancelled: bool) -> None:
        """Refuse whatever would begin, until it is told otherwise: the turn that asked for it is cancelled."""
        self._cancelled = cancelled

    async def wait_until_open(self) -> None:
        """Wait until it is open."""
        await self._open.wait()

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        """Take a call through."""
        if not self._cancelled and self.paused:
            began = anyio.current_time()
            await self.wait_until_open()
            ctx.notes.waited += anyio.current_time() - began
        if self._cancelled:
            nothing = ToolResult.failure("cancelled", "not run: the operator cancelled the turn before it began")
            return CallOutcome(call, nothing, CallStatus.CANCELLED)
        return await following(call)


class GatedApprover(Approver):
    """Asks somebody else; what was allowed while the agent is paused begins when it goes on."""

    def __init__(self, approver: Approver, gate: Gate) -> None:
        self._approver = approver
        self._gate = gate

    @property
    def by_sight(self) -> bool:
        """See :class:`Approver`."""
        return self._approver.by_sight

    def expect(self, question: ApprovalRequest) -> None:
        """See :class:`Approver`."""
        self._approver.expect(question)

    def forget(self, question: ApprovalRequest) -> None:
        """See :class:`Approver`."""
        self._approver.forget(question)

    async def ready(self) -> None:
        """Wait while the agent is paused."""
        await self._approver.ready()
        await self._gate.wait_until_open()

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        """See :class:`Approver`."""
        return await self._approver.ask(question)


# -- One answer of the model: streamed, asked for again where that can help, and kept as far as it came.


GUESS = r"The provider sent a `function_call_arguments\.done`"
"""How the library begins to say that the arguments of a call came in two versions, and that it took one of them."""


@dataclass(frozen=True, slots=True)
class ModelRequestOptions:
    """What is asked of a model."""

    messages: Sequence[ModelMessage]
    instructions: str
    tools: Sequence[ToolDefinition]

    @property
    def parameters(self) -> ModelRequestParameters:
        """The same, less the messages, in the library's words."""
        parts = [InstructionPart(content=self.instructions)] if self.instructions else []
        return ModelRequestParameters(function_tools=list(self.tools), instruction_parts=parts)

    @property
    def size(self) -> int:
        """Tokens, estimated."""
        return overhead(self.instructions, self.tools) + estimate(self.messages)


@dataclass(slots=True)
class ModelRequester:
    """Asks a model for the answers of one turn.

    Args:
        count: is called once for each request that was answered, cut off or cancelled.
        may_ask: whether there is a budget left to ask again.
    """

    events: EventBus
    redactor: Redactor
    turn_id: str
    count: UsageRecorder = lambda response, opened, asked: None
    may_ask: Callable[[], bool] = lambda: True
    partial: ModelResponse | None = None
    """What had come of an answer that was cancelled."""
    _random: random.Random = field(default_factory=random.Random)

    async def ask(self, opened: OpenModel, wanted: ModelRequestOptions) -> ModelResponse:
        """The whole answer; its pieces are published as they come.

        Raises:
            ModelFailure: there is none, and to ask again does not help.
        """
        attempt = 0
        while True:
            try:
                return await self._once(opened, wanted)
            except Exception as error:  # every provider has errors of its own
                self.partial = None
                failure = error if isinstance(error, ModelFailure) else model_failure(error, opened.profile)
                attempt += 1
                seconds = backoff(failure, attempt, opened.profile.retries, jitter=self._random.random())
                if seconds is None or not self.may_ask():
                    raise failure from None  # a provider's error may hold the key that it refuses
            reason = self.redactor.text(failure.message)
            self.events.publish(ModelRetry(turn_id=self.turn_id, attempt=attempt, seconds=seconds, reason=reason))
            await anyio.sleep(seconds)

    async def _once(self, opened: OpenModel, wanted: ModelRequestOptions) -> ModelResponse:
        """One request; an answer that is not whole is a failure."""
        self.partial = None
        _reject_guessed_calls()
        request = Request(wanted.messages, wanted.parameters, wanted.size)
        response = await request.answer(opened, self._counted, self._publish)
        checked(response)
        if failure := unfinished(response, opened.profile):
            raise failure
        return response

    def _counted(self, response: ModelResponse | None, opened: OpenModel, asked: int) -> None:
        self.partial = response
        self.count(response, opened, asked)

    async def _publish(self, stream: StreamedResponse) -> None:
        """Show what comes, redacted: a model may say a secret that its user told it."""
        text, reasoning = StreamRedactor(self.redactor), StreamRedactor(self.redactor)
        async for event in stream:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart | ThinkingPart):
                self._said(text, reasoning, isinstance(event.part, TextPart), event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta | ThinkingPartDelta):
                piece = event.delta.content_delta or ""
                self._said(text, reasoning, isinstance(event.delta, TextPartDelta), piece)
        self._show(text.flush(), answer=True)
        self._show(reasoning.flush(), answer=False)

    def _said(self, text: StreamRedactor, reasoning: StreamRedactor, answer: bool, piece: str) -> None:
        if answer and (thought := reasoning.flush()):
            self._show(thought, answer=False)
        self._show((text if answer else reasoning).feed(piece), answer=answer)

    def _show(self, piece: str, *, answer: bool) -> None:
        if piece:
            made = AnswerDelta if answer else ReasoningDelta
            self.events.publish(made(turn_id=self.turn_id, text=piece))


def _reject_guessed_calls() -> None:
    """Make an error of it when the library takes one of two versions of a call: the other one may be what was meant."""
    warnings.filterwarnings("error", message=GUESS, category=UserWarning)  # the same filter again takes its own place


# -- The messages of a conversation, in memory and on the disk. The disk comes first, and holds no secrets.


class Transcript:
    """All messages so far. Not for several tasks at once."""

    def __init__(self, log: ConversationLog, redactor: Redactor, messages: Sequence[ModelMessage] = ()) -> None:
        self._log = log
        self._redactor = redactor
        self.messages: list[ModelMessage] = list(messages)

    async def append(self, *messages: ModelMessage) -> None:
        """Keep messages; when this returns they are on the disk. A cancel does not come between.

        Raises:
            HarnessError: they could not be kept; they are in memory all the same.
        """
        self.messages.extend(messages)
        with anyio.CancelScope(shield=True):
            await self._log.append([self._kept(message) for message in messages])

    async def replace(self, messages: Sequence[ModelMessage], summary: str) -> None:
        """Put shorter ones in the place of all.

        Raises:
            HarnessError: they could not be kept; nothing is changed.
        """
        with anyio.CancelScope(shield=True):
            await self._log.replaced([self._kept(message) for message in messages], self._redactor.text(summary))
        self.messages = list(messages)

    def _kept(self, message: ModelMessage) -> str:
        return dumped(without_secrets(message, self._redactor.text))


def with_words(response: ModelResponse, text: str) -> ModelResponse:
    """The answer with other words, in the place of its first ones. Pure."""
    parts: list[ModelResponsePart] = []
    said = False
    for part in response.parts:
        if not isinstance(part, TextPart):
            parts.append(part)
        elif not said:
            said = True
            parts.append(replace(part, content=text))
    return replace(response, parts=parts)


def text_of(response: ModelResponse) -> str:
    """The words of an answer, without its reasoning. Pure."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


# -- One turn: answers of the model and calls, until it has nothing more to do, is cancelled, or reaches a limit.


log = logging.getLogger(__name__)

CANCELLED = (
    "[The operator cancelled this turn. What was running then was interrupted, and may have done part of its work.]"
)
CUT = "[The answer was cut off: it reached the longest answer that this model gives here.]"
NOTHING = "(the model said nothing)"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended. ``text`` is the last words of the model; ``failure`` says why it is not ``completed``."""

    status: TurnStatus
    text: str = ""
    failure: str = ""
    steps: int = 0
    spent: Usage = field(default_factory=Usage)
    error: HarnessError | None = None


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a turn needs of the agent that it belongs to."""

    executor: Executor
    transcript: Transcript
    gate: Gate
    settings: AgentSettings
    instructions: str
    model: Callable[[], Awaitable[OpenModel]]
    """The model that answers next: it may be another one with each answer."""
    news: Callable[[], Sequence[str]]
    """What has happened since this was asked last, and the model should know."""
    situation: Callable[[], Awaitable[str]]
    shorten: Callable[[OpenModel, int], Awaitable[bool]]
    """Make the conversation shorter when a request of so many tokens is too long; 0 makes it so in any case."""
    charge: Callable[[Usage, str], None]
    """Count what a request of the turn of that id has used."""
    over: Callable[[int], str]
    """Why, after so many answers of the turn, no further one may be asked for; empty when one may."""


class Turn:
    """The work on one prompt. :meth:`cancel` ends it from another task."""

    def __init__(self, turn_id: str, around: TurnContext) -> None:
        self.turn_id = turn_id
        self._around = around
        self._requester = ModelRequester(
            around.executor.events, around.executor.services.redactor, turn_id, self._count, lambda: not self._over()
        )
        self._asking: anyio.CancelScope | None = None
        self._steps = 0
        self.spent = Usage()
        """What its answers and its compactions have used so far."""
        self._context = 0
        self.calling = False
        """Calls are running."""
        self.cancelled = False

    def cancel(self) -> None:
        """End it: the answer that comes is stopped, calls that run are interrupted, and no other begins."""
        self.cancelled = True
        self._around.gate.refuse(cancelled=True)
        if self._asking is not None:
            self._asking.cancel()
        self._around.executor.cancel()

    async def run(self, prompt: str) -> TurnResult:
        """Work on the prompt. Whatever fails is in the result; only a cancel of the caller is raised."""
        self._around.gate.refuse(cancelled=self.cancelled)
        try:
            await self._say([*self._news(), UserPromptPart(prompt)])
            return await self._answers()
        except HarnessError as error:
            return self._result("failed", failure=str(error), error=error)
        except Exception as error:  # a conversation is worth more than one turn of it
            log.exception("the turn failed")
            known = HarnessError(f"internal error: {type(error).__name__}: {error}", hint="please report it")
            return self._result("failed", failure=str(known), error=known)
        finally:
            self._around.gate.refuse(cancelled=False)

    async def _answers(self) -> TurnResult:
        text = ""
        while True:
            await self._pause()
            if self.cancelled:
                return await self._stopped(text)
            if reason := self._over():
                return self._result("limit", text, failure=reason)
            try:
                response = await self._answer()
            except ModelFailure:  # what is lost is spent, too
                if reason := self._over():
                    return self._result("limit", text, failure=reason)
                raise
            if response is None:
                return await self._stopped(text)
            text = text_of(response) or text
            calls = instructions.calls_of(response, self.turn_id)
            if not calls:
                return self._result("completed", text or NOTHING)
            outcomes = instructions.refuse_incomplete_calls(response, calls) or await self._called(calls)
            await self._say([*instructions.returns_of(outcomes, self._around.executor.registry), *self._news()])

    def _over(self) -> str:
        return self._around.over(self._steps)

    def _count(self, response: ModelResponse | None, opened: OpenModel, asked: int) -> None:
        spent = spent_on(response, opened, asked)
        self.spent += spent
        self._context = spent.tokens
        self._around.charge(spent, self.turn_id)

    async def _pause(self) -> None:
        """Wait until the agent is not paused; a cancel gets through."""
        if self._around.gate.paused and not self.cancelled:
            with anyio.CancelScope() as self._asking:
                await self._around.gate.wait_until_open()
            self._asking = None

    async def _answer(self) -> ModelResponse | None:
        """The next answer, kept and counted; None when the turn was cancelled meanwhile."""
        opened = await self._around.model()
        response: ModelResponse | None = None
        started = anyio.current_time()
        with anyio.CancelScope() as self._asking:
            if self.cancelled:
                self._asking.cancel()
            await self._around.shorten(opened, self._context or self._size())
            started = anyio.current_time()
            response = await self._asked(opened)
        self._asking = None
        if response is None:
            await self._keep_partial()
            return None
        executor = self._around.executor
        known = [tool.name for tool in executor.registry.list()]
        response = cleaning.without_secret_names(response, executor.services.redactor.text, known)
        response = await self._heard_by_hooks(response)
        await self._answered(opened, response, anyio.current_time() - started)
        return response

    async def _heard_by_hooks(self, response: ModelResponse) -> ModelResponse:
        """The answer with the words that the operator's hooks leave of it; its calls are not theirs to change here."""
        said = text_of(response)
        if not said:
            return response
        calls = len(instructions.calls_of(response, self.turn_id))
        answer = await ask_hooks(self._around.executor, "post_message", said, turn=self.turn_id, calls=calls)
        words = answer.message
        if answer.decision == "deny":
            words = f"[withheld by a hook: {answer.reason or 'it gave no reason'}]"
        return response if words is None else with_words(response, words)

    async def _asked(self, opened: OpenModel) -> ModelResponse:
        """Ask; a conversation that turns out too long for the model is made shorter, once."""
        try:
            return await self._request(opened)
        except ModelFailure as failure:
            if failure.kind != "context_length" or not await self._around.shorten(opened, 0):
                raise
        return await self._request(opened)

    async def _request(self, opened: OpenModel) -> ModelResponse:
        around = self._around
        messages = history.suited(history.repaired(around.transcript.messages), opened.model)
        messages = situation.with_situation(messages, await around.situation(), opened.model)
        wanted = ModelRequestOptions(messages, around.instructions, instructions.definitions(around.executor.registry))
        started = RequestStarted(turn_id=self.turn_id, step=self._steps + 1, tokens=estimate(messages))
        around.executor.events.publish(started)
        return await self._requester.ask(opened, wanted)

    async def _answered(self, opened: OpenModel, response: ModelResponse, seconds: float) -> None:
        self._steps += 1
        response = history.answered_by(response, opened.model)
        if response.finish_reason == "length":
            response = replace(response, parts=[*response.parts, TextPart(f"\n{CUT}")])
        await self._around.transcript.append(response)
        redact = self._around.executor.services.redactor.text
        text, calls = redact(text_of(response)), len(instructions.calls_of(response, self.turn_id))
        self._around.executor.events.publish(
            AnswerCompleted(turn_id=self.turn_id, text=text, calls=calls, seconds=seconds)
        )

    async def _called(self, calls: Sequence[ToolCall]) -> list[CallOutcome]:
        self.calling = True
        try:
            return await self._around.executor.batch(calls)
        finally:
            self.calling = False

    async def _keep_partial(self) -> None:
        """What had been said of a cancelled answer; calls that were not whole never existed."""
        partial = self._requester.partial
        said = [part for part in partial.parts if isinstance(part, TextPart) and part.content] if partial else []
        if partial is not None and said:
            await self._around.transcript.append(replace(partial, parts=said))

    async def _stopped(self, text: str) -> TurnResult:
        await self._say([UserPromptPart(CANCELLED)])
        return self._result("cancelled", text, failure="cancelled by the operator")

    async def _say(self, parts: Iterable[ModelRequestPart]) -> None:
        await self._around.transcript.append(ModelRequest(parts=list(parts)))

    def _news(self) -> list[ModelRequestPart]:
        return [UserPromptPart(text) for text in self._around.news()]

    def _size(self) -> int:
        around = self._around
        fixed = overhead(around.instructions, instructions.definitions(around.executor.registry))
        return fixed + estimate(around.transcript.messages)

    def _result(
        self, status: TurnStatus, text: str = "", *, failure: str = "", error: HarnessError | None = None
    ) -> TurnResult:
        return TurnResult(status, text, failure, self._steps, self.spent, error)
