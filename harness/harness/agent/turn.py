"""One turn: answers of the model and calls, until it has nothing more to do, is cancelled, or reaches a limit."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse, TextPart, UserPromptPart

from ..errors import HarnessError
from ..toolkit.executor import Executor
from ..toolkit.hooks_session import ask_hooks
from ..toolkit.values import CallOutcome, ToolCall
from .conversation import history, secretless, situation, tokens, tooling
from .events import AnswerCompleted, RequestStarted, TurnStatus
from .gate import Gate
from .models import ModelFailure, OpenModel
from .requesting import Requester, Wanted
from .settings import AgentSettings
from .transcript import Transcript, text_of, with_words
from .usage import Spent, spent_on

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Surroundings", "Turn", "TurnResult"]

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
    spent: Spent = field(default_factory=Spent)
    error: HarnessError | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
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
    charge: Callable[[Spent, str], None]
    """Count what a request of the turn of that id has used."""
    over: Callable[[int], str]
    """Why, after so many answers of the turn, no further one may be asked for; empty when one may."""


class Turn:
    """The work on one prompt. :meth:`cancel` ends it from another task."""

    def __init__(self, turn_id: str, around: Surroundings) -> None:
        self.turn_id = turn_id
        self._around = around
        self._requester = Requester(
            around.executor.events, around.executor.services.redactor, turn_id, self._count, lambda: not self._over()
        )
        self._asking: anyio.CancelScope | None = None
        self._steps = 0
        self.spent = Spent()
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
            calls = tooling.calls_of(response, self.turn_id)
            if not calls:
                return self._result("completed", text or NOTHING)
            outcomes = tooling.withheld(response, calls) or await self._called(calls)
            await self._say([*tooling.returns_of(outcomes, self._around.executor.registry), *self._news()])

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
                await self._around.gate.passed()
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
        response = secretless.without_secret_names(response, executor.services.redactor.text, known)
        response = await self._heard_by_hooks(response)
        await self._answered(opened, response, anyio.current_time() - started)
        return response

    async def _heard_by_hooks(self, response: ModelResponse) -> ModelResponse:
        """The answer with the words that the operator's hooks leave of it; its calls are not theirs to change here."""
        said = text_of(response)
        if not said:
            return response
        calls = len(tooling.calls_of(response, self.turn_id))
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
        wanted = Wanted(messages, around.instructions, tooling.definitions(around.executor.registry))
        started = RequestStarted(turn_id=self.turn_id, step=self._steps + 1, tokens=tokens.estimate(messages))
        around.executor.events.publish(started)
        return await self._requester.ask(opened, wanted)

    async def _answered(self, opened: OpenModel, response: ModelResponse, seconds: float) -> None:
        self._steps += 1
        response = history.answered_by(response, opened.model)
        if response.finish_reason == "length":
            response = replace(response, parts=[*response.parts, TextPart(f"\n{CUT}")])
        await self._around.transcript.append(response)
        redact = self._around.executor.services.redactor.text
        text, calls = redact(text_of(response)), len(tooling.calls_of(response, self.turn_id))
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
        fixed = tokens.overhead(around.instructions, tooling.definitions(around.executor.registry))
        return fixed + tokens.estimate(around.transcript.messages)

    def _result(
        self, status: TurnStatus, text: str = "", *, failure: str = "", error: HarnessError | None = None
    ) -> TurnResult:
        return TurnResult(status, text, failure, self._steps, self.spent, error)
