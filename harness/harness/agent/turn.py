"""One turn: model requests, the message history, and the gate that pauses and cancels calls."""

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
from ..toolkit.contract import Next, ToolContext
from ..toolkit.events import EventBus
from ..toolkit.executor import Executor
from ..toolkit.hooks.dispatch import ask_hooks
from ..toolkit.permissions.approver import Approver
from ..toolkit.permissions.questions import ApprovalDecision, ApprovalRequest
from ..toolkit.redaction.redactor import Redactor
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


# -- The gate that every tool call passes: closed while the agent is paused, refusing once its turn is cancelled.


class Gate:
    """Middleware that holds or refuses the calls of an agent and of its sub-agents."""

    def __init__(self) -> None:
        self._open = anyio.Event()
        self._open.set()
        self._cancelled = False

    @property
    def paused(self) -> bool:
        """Whether calls are held."""
        return not self._open.is_set()

    def pause(self) -> None:
        """Hold new calls until :meth:`resume`; running calls continue."""
        if self._open.is_set():
            self._open = anyio.Event()

    def resume(self) -> None:
        """Let held calls start."""
        self._open.set()

    def refuse(self, *, cancelled: bool) -> None:
        """Set whether calls are refused because their turn was cancelled."""
        self._cancelled = cancelled

    async def wait_until_open(self) -> None:
        """Wait until the gate is not paused."""
        await self._open.wait()

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        """Run a call, waiting while paused; refuse it if its turn was cancelled."""
        if not self._cancelled and self.paused:
            began = anyio.current_time()
            await self.wait_until_open()
            ctx.notes.waited += anyio.current_time() - began
        if self._cancelled:
            nothing = ToolResult.failure(
                "cancelled", "not run: the operator cancelled the turn before this call started"
            )
            return CallOutcome(call, nothing, CallStatus.CANCELLED)
        return await following(call)


class GatedApprover(Approver):
    """Passes approval requests on; a call approved while the agent is paused starts when it resumes."""

    def __init__(self, approver: Approver, gate: Gate) -> None:
        self._approver = approver
        self._gate = gate

    @property
    def by_sight(self) -> bool:
        """See :class:`Approver`."""
        return self._approver.by_sight

    def can_ask(self) -> bool:
        """See :class:`Approver`."""
        return self._approver.can_ask()

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


# -- One model response: streamed, requested again where that can help, and kept as far as it was received.


GUESS = r"The provider sent a `function_call_arguments\.done`"
"""The start of the library's warning that a call's arguments came in two versions, of which it chose one."""


@dataclass(frozen=True, slots=True)
class ModelRequestOptions:
    """The content of a model request."""

    messages: Sequence[ModelMessage]
    instructions: str
    tools: Sequence[ToolDefinition]

    @property
    def parameters(self) -> ModelRequestParameters:
        """Instructions and tools as pydantic-ai's request parameters."""
        parts = [InstructionPart(content=self.instructions)] if self.instructions else []
        return ModelRequestParameters(function_tools=list(self.tools), instruction_parts=parts)

    @property
    def size(self) -> int:
        """Estimated tokens of the whole request."""
        return overhead(self.instructions, self.tools) + estimate(self.messages)


@dataclass(slots=True)
class ModelRequester:
    """Sends the model requests of one turn.

    Args:
        count: called once for each request that was answered, cut off or cancelled.
        may_ask: whether the budget allows a retry.
    """

    events: EventBus
    redactor: Redactor
    turn_id: str
    count: UsageRecorder = lambda response, opened, asked: None
    may_ask: Callable[[], bool] = lambda: True
    partial: ModelResponse | None = None
    """The received part of a cancelled response."""
    _random: random.Random = field(default_factory=random.Random)

    async def ask(self, opened: OpenModel, wanted: ModelRequestOptions) -> ModelResponse:
        """Return the complete response, publishing its parts as they are received.

        Raises:
            ModelFailure: the request failed, and a retry would not help or is not allowed.
        """
        attempt = 0
        while True:
            try:
                return await self._once(opened, wanted)
            except Exception as error:  # every provider has its own errors
                self.partial = None
                failure = error if isinstance(error, ModelFailure) else model_failure(error, opened.profile)
                attempt += 1
                seconds = backoff(failure, attempt, opened.profile.retries, jitter=self._random.random())
                if seconds is None or not self.may_ask():
                    raise failure from None  # a provider's error may contain the rejected key
            reason = self.redactor.text(failure.message)
            self.events.publish(ModelRetry(turn_id=self.turn_id, attempt=attempt, seconds=seconds, reason=reason))
            await anyio.sleep(seconds)

    async def _once(self, opened: OpenModel, wanted: ModelRequestOptions) -> ModelResponse:
        """Send one request; an incomplete response is a failure."""
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
        """Publish received text, redacted: a model may repeat a secret from its prompt."""
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
    """Turn the library's warning about a guessed call into an error: the other version may have been meant."""
    warnings.filterwarnings("error", message=GUESS, category=UserWarning)  # repeated calls add no second filter


# -- The message history, in memory and on disk; messages are redacted before they are written.


class Transcript:
    """The messages of a conversation. Not for concurrent use by several tasks."""

    def __init__(self, log: ConversationLog, redactor: Redactor, messages: Sequence[ModelMessage] = ()) -> None:
        self._log = log
        self._redactor = redactor
        self.messages: list[ModelMessage] = list(messages)

    async def append(self, *messages: ModelMessage) -> None:
        """Add messages, and store them on disk before returning; cancellation waits for that.

        Raises:
            HarnessError: they could not be stored; they are in memory nevertheless.
        """
        self.messages.extend(messages)
        with anyio.CancelScope(shield=True):
            await self._log.append([self._kept(message) for message in messages])

    async def replace(self, messages: Sequence[ModelMessage], summary: str) -> None:
        """Replace all messages by shorter ones.

        Raises:
            HarnessError: they could not be stored; nothing is changed.
        """
        with anyio.CancelScope(shield=True):
            await self._log.replaced([self._kept(message) for message in messages], self._redactor.text(summary))
        self.messages = list(messages)

    def _kept(self, message: ModelMessage) -> str:
        return dumped(without_secrets(message, self._redactor.text))


def with_words(response: ModelResponse, text: str) -> ModelResponse:
    """Return the response with its text replaced; the first text part holds the new one. Pure."""
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
    """Return the text of a response, without its reasoning. Pure."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


# -- One turn: model responses and calls, until the model makes no more calls, or a cancel or a limit ends the turn.


log = logging.getLogger(__name__)

CANCELLED = "[The operator cancelled this turn. Running calls were interrupted, and may have done part of their work.]"
CUT = "[The answer was cut off: it reached the maximum length of this model's answers.]"
NOTHING = "(the model said nothing)"


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended. ``text`` is the model's last text; ``failure`` says why the status is not ``completed``."""

    status: TurnStatus
    text: str = ""
    failure: str = ""
    steps: int = 0
    spent: Usage = field(default_factory=Usage)
    error: HarnessError | None = None


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What a turn uses of its agent."""

    executor: Executor
    transcript: Transcript
    gate: Gate
    settings: AgentSettings
    instructions: str
    model: Callable[[], Awaitable[OpenModel]]
    """Returns the model for the next response; it may differ each time."""
    news: Callable[[], Sequence[str]]
    """Returns the notices for the model since the last call."""
    situation: Callable[[], Awaitable[str]]
    shorten: Callable[[OpenModel, int], Awaitable[bool]]
    """Compacts the conversation if a request of that many tokens is too long; with 0, in any case."""
    charge: Callable[[Usage, str], None]
    """Counts the usage of a request of the turn with that id."""
    over: Callable[[int], str]
    """Returns why, after that many responses in the turn, no further request may be sent; empty if one may."""


class Turn:
    """The work on one prompt; :meth:`cancel` ends it from another task."""

    def __init__(self, turn_id: str, around: TurnContext) -> None:
        self.turn_id = turn_id
        self._around = around
        self._requester = ModelRequester(
            around.executor.events, around.executor.services.redactor, turn_id, self._count, lambda: not self._over()
        )
        self._asking: anyio.CancelScope | None = None
        self._steps = 0
        self.spent = Usage()
        """Usage of its responses and compactions so far."""
        self._context = 0
        self.calling = False
        """Whether calls are running."""
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the turn: stop the response being received, interrupt running calls, and start no others."""
        self.cancelled = True
        self._around.gate.refuse(cancelled=True)
        if self._asking is not None:
            self._asking.cancel()
        self._around.executor.cancel()

    async def run(self, prompt: str) -> TurnResult:
        """Work on the prompt; failures are in the result, and only the caller's cancellation is raised."""
        self._around.gate.refuse(cancelled=self.cancelled)
        try:
            await self._say([*self._news(), UserPromptPart(prompt)])
            return await self._answers()
        except HarnessError as error:
            return self._result("failed", failure=str(error), error=error)
        except Exception as error:  # the conversation must survive a failed turn
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
            except ModelFailure:  # a failed request may have used up the budget
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
        """Wait until the agent is not paused, or the turn is cancelled."""
        if self._around.gate.paused and not self.cancelled:
            with anyio.CancelScope() as self._asking:
                await self._around.gate.wait_until_open()
            self._asking = None

    async def _answer(self) -> ModelResponse | None:
        """Return the next response, stored and counted.

        Returns:
            None if the turn was cancelled in the meantime.
        """
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
        """Return the response with its text as the operator's hooks leave it; hooks here cannot change its calls."""
        said = text_of(response)
        if not said:
            return response
        calls = len(instructions.calls_of(response, self.turn_id))
        answer = await ask_hooks(self._around.executor, "post_message", said, turn=self.turn_id, calls=calls)
        words = answer.message
        if answer.decision == "deny":
            words = f"[withheld by a hook: {answer.reason or 'no reason given'}]"
        return response if words is None else with_words(response, words)

    async def _asked(self, opened: OpenModel) -> ModelResponse:
        """Send a request; if the conversation is too long for the model, compact it once and retry."""
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
        """Store the received text of a cancelled response, without its incomplete calls."""
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
