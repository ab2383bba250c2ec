"""One answer of the model: streamed, asked for again where that can help, and kept as far as it came."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.tools import ToolDefinition

from ..toolkit.events import EventBus
from ..toolkit.seams import Redactor
from ..toolkit.secrets_stream import StreamRedactor
from .conversation.counted import Counting, Request
from .conversation.history import checked
from .conversation.tokens import estimate, overhead
from .events import AnswerDelta, ModelRetry, ReasoningDelta
from .models import ModelFailure, OpenModel, backoff, model_failure, unfinished

__all__ = ["Requester", "Wanted"]

GUESS = r"The provider sent a `function_call_arguments\.done`"
"""How the library begins to say that the arguments of a call came in two versions, and that it took one of them."""


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Requester:
    """Asks a model for the answers of one turn.

    Args:
        count: is called once for each request that was answered, cut off or cancelled.
        may_ask: whether there is a budget left to ask again.
    """

    events: EventBus
    redactor: Redactor
    turn_id: str
    count: Counting = lambda response, opened, asked: None
    may_ask: Callable[[], bool] = lambda: True
    partial: ModelResponse | None = None
    """What had come of an answer that was cancelled."""
    _random: random.Random = field(default_factory=random.Random)

    async def ask(self, opened: OpenModel, wanted: Wanted) -> ModelResponse:
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

    async def _once(self, opened: OpenModel, wanted: Wanted) -> ModelResponse:
        """One request; an answer that is not whole is a failure."""
        self.partial = None
        _take_no_guesses()
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


def _take_no_guesses() -> None:
    """Make an error of it when the library takes one of two versions of a call: the other one may be what was meant."""
    warnings.filterwarnings("error", message=GUESS, category=UserWarning)  # the same filter again takes its own place
