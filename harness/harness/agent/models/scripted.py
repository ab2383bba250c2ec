"""A model that plays a script, for demonstrations and tests without a provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import anyio
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)
from pydantic_ai.settings import ModelSettings

from ...deprecated_names import renamed_arguments
from ...toolkit.values import JsonObject
from .model import ModelProfile, OpenModel

__all__ = ["SCRIPTED", "ScriptedCall", "ScriptedModel", "Step", "open_scripted"]

SCRIPTED = "scripted"
AT_THE_END = "(The script is at its end.)"

Delta = str | DeltaToolCalls | DeltaThinkingCalls


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call."""

    name: str
    arguments: JsonObject = field(default_factory=dict)


CallMaker = Callable[[Sequence[ModelMessage]], Sequence[ScriptedCall]]


@dataclass(frozen=True, slots=True)
class Step:
    """One response: reasoning, text and calls."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ScriptedCall] | CallMaker = ()
    """Calls, or a function that creates them from the conversation so far."""
    wait_for: Callable[[], Awaitable[None]] | None = None
    """Awaited before the response starts."""
    pace: float = 0.0
    """Seconds between two words, for a readable demonstration."""


class ScriptedModel(FunctionModel):
    """Answers each request with the next step of the script, whatever the request is."""

    def __init__(self, script: Sequence[Step], *, name: str = SCRIPTED) -> None:
        super().__init__(self._whole, stream_function=self._streamed, model_name=name)
        self._system = SCRIPTED
        self._steps = iter(tuple(script))
        self._asked = 0

    def _next(self, messages: Sequence[ModelMessage]) -> tuple[Step, list[ToolCallPart]]:
        self._asked += 1
        step = next(self._steps, Step(AT_THE_END))
        calls = step.calls(messages) if callable(step.calls) else step.calls
        made = [
            ToolCallPart(call.name, json.dumps(call.arguments), tool_call_id=f"{SCRIPTED}_{self._asked}_{place}")
            for place, call in enumerate(calls, 1)
        ]
        return step, made

    async def _whole(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step, calls = self._next(messages)
        if step.wait_for is not None:
            await step.wait_for()
        parts: list[ModelResponsePart] = [ThinkingPart(step.reasoning)] if step.reasoning else []
        parts += [TextPart(step.text)] if step.text else []
        return ModelResponse([*parts, *calls])

    async def _streamed(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Delta]:
        step, calls = self._next(messages)
        if step.wait_for is not None:
            await step.wait_for()
        if not (step.text or step.reasoning or calls):
            yield ""  # an empty step is a response too
        for delta in _deltas(step, calls):
            yield delta
            if step.pace:
                await anyio.sleep(step.pace)


def _deltas(step: Step, calls: Sequence[ToolCallPart]) -> Iterator[Delta]:
    for piece in _words(step.reasoning):
        yield {0: DeltaThinkingPart(content=piece)}
    yield from _words(step.text)
    for place, call in enumerate(calls, 1):
        text = call.args_as_json_str()
        yield {place: DeltaToolCall(name=call.tool_name, json_args=text, tool_call_id=call.tool_call_id)}


def _words(text: str) -> Iterator[str]:
    """Yield the words, each with the space after it."""
    words = text.split(" ")
    yield from (f"{word} " for word in words[:-1])
    if words[-1]:
        yield words[-1]


@renamed_arguments(context_limit="context_window")
def open_scripted(script: Sequence[Step], *, name: str = SCRIPTED, context_window: int = 0) -> OpenModel:
    """Return a scripted model in the form that :func:`harness.agent.models.open_model` yields."""
    profile = ModelProfile(name, SCRIPTED, name, context_window=context_window)
    return OpenModel(profile, ScriptedModel(script, name=name), ModelSettings(), context_window)
