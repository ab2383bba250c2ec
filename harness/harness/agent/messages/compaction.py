"""Makes a conversation shorter: its older messages give way to notes about them.

The last turns stay as they are. A call and its result always stay, or go, together.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import anyio
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse

from ...errors import HarnessError
from ...toolkit.executor import Executor
from ...toolkit.hooks_session import ask_hooks
from ..models import ModelFailure, OpenModel, model_failure, unfinished
from .counted import Counting, Request
from .history import repaired
from .secretless import without_secrets
from .summarizing import (
    ASK,
    CANCELLED,
    RULES,
    digest,
    failed_in,
    prompts_in,
    replacement,
    said_to,
    shortened_inside,
    transcript,
)
from .tokens import estimate

__all__ = ["Compacted", "Compacting", "admit_compaction", "cut_at", "needed", "trimmed"]

NEAR = 0.85
"""Of the model's limit: from here on a conversation is made shorter before the next request."""
TURNS = 3
"""The last turns, which stay as they are if there is room."""
KEPT = 0.25
"""Of the model's limit: what may stay as it is."""
KEPT_UNKNOWN = 25_000
"""Tokens that stay where the limit is not known."""
LEAST = 400
"""Tokens of older messages that are worth notes."""
SHOWN = 0.6
"""Of the model's limit: what it is shown of the older messages."""
SHOWN_UNKNOWN = 60_000
MOST = 0.5
"""Of the model's limit: what stays may not be more, so that long results in it are shortened."""
RESULTS = (20_000, 8_000, 3_000, 1_000, 300)
"""Characters of one result, when it has to be shortened."""
TRIMMED = "[harness: long results were shortened, to make room.]"
CHARACTERS = 2.5
"""Of a token, at the least, in what a model is shown."""
PATIENCE = 180.0
"""Seconds that the notes may take."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compacted:
    """A shorter conversation. ``before`` and ``after`` count its messages.

    ``answer`` is what the model said, with what it used; None when it could not write the notes: ``failure`` says why,
    and they were made without it.
    """

    messages: tuple[ModelMessage, ...]
    summary: str
    before: int
    after: int
    answer: ModelResponse | None = None
    failure: str = ""


async def admit_compaction(executor: Executor, trigger: str, messages: int) -> None:
    """Ask the operator's hooks before a conversation is made shorter; ``trigger`` is ``auto`` or ``request``.

    Raises:
        HarnessError: one of them denies it; the conversation stays as it is.
    """
    answer = await ask_hooks(executor, "pre_compact", trigger=trigger, messages=messages)
    if answer.decision == "deny":
        raise HarnessError(f"a hook refused to compact the conversation: {answer.reason or 'it gave no reason'}")


def needed(messages: Sequence[ModelMessage], used: int, limit: int, share: float = NEAR) -> bool:
    """Whether to compact before the next request. Pure.

    Args:
        used: tokens of the last request and its answer, as the provider counted; 0: not known.
        limit: what the model takes; 0: not known, then never.
        share: of the limit that is near enough.
    """
    whole = estimate(messages)
    last = max((place for place, one in enumerate(messages) if isinstance(one, ModelResponse)), default=-1)
    now = used + estimate(messages[last + 1 :]) if used else whole
    return limit > 0 and max(now, whole // 2) >= share * limit  # some servers count nothing


def cut_at(messages: Sequence[ModelMessage], budget: int, turns: int = TURNS) -> int | None:
    """Where the part begins that stays: the last turns, or as much of the last one as ``budget`` tokens are. Pure.

    None: there is nothing before it that is worth notes. Results stay with their calls in any case.
    """
    sizes = [estimate([one]) for one in messages]
    after = [*reversed(list(accumulate(reversed(sizes)))), 0]
    places = [place for place in range(1, len(messages)) if _may_begin(messages, place)]
    starts = [place for place in places if _is_start(messages[place])]
    last = starts[-1] if starts else 0
    fitting = [place for place in (*starts[-turns:], *(one for one in places if one > last)) if after[place] <= budget]
    place = next(iter(fitting), places[-1] if places else 0)
    answered = any(isinstance(message, ModelResponse) for message in messages[:place])
    return place if answered and after[0] - after[place] >= LEAST else None


def _may_begin(messages: Sequence[ModelMessage], place: int) -> bool:
    """Whether no result from there on belongs to a call before."""
    for message in messages[place:]:
        if isinstance(message, ModelResponse):
            return True
        if any(isinstance(part, ToolReturnPart) for part in message.parts):
            return False
    return True


def _is_start(message: ModelMessage) -> bool:
    """Whether a turn begins with it: what is told during one comes with results, or says that it was cancelled."""
    if isinstance(message, ModelResponse) or any(isinstance(part, ToolReturnPart) for part in message.parts):
        return False
    return any(not text.startswith(CANCELLED) for text in said_to(message))


def _worked_on(older: Sequence[ModelMessage], later: Sequence[ModelMessage]) -> list[str]:
    """The prompt of a turn that began in ``older`` and goes on in ``later``; nothing when it was a job that ended."""
    start = next((message for message in reversed(older) if _is_start(message)), None)
    goes_on = bool(later) and isinstance(later[0], ModelResponse)
    return prompts_in([start]) if goes_on and start is not None else []


class Compacting:
    """Compacts conversations.

    Args:
        open_model: opens the model that writes the notes.
        count: is called with what was answered, as far as it came, by whom, and the tokens of the request, estimated;
            also when the answer is cancelled or of no use.
        redact: takes secrets out of the older messages before they are shortened: half of one would not be known any
            more.
    """

    def __init__(
        self,
        open_model: Callable[[], AbstractAsyncContextManager[OpenModel]],
        count: Counting = lambda response, opened, asked: None,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._open_model = open_model
        self._count = count
        self._redact = redact

    async def compact(self, messages: Sequence[ModelMessage], limit: int = 0) -> Compacted | None:
        """The conversation, shorter; None when there is nothing that could go.

        One request goes to the model. When it fails, the notes are made without it: to go on matters more. Results that
        are too long even for what stays are shortened.

        Args:
            limit: tokens that the model takes; 0: not known.
        """
        place = cut_at(messages, int(KEPT * limit) or KEPT_UNKNOWN)
        if place is None:
            shorter = trimmed(messages, int(MOST * limit)) if limit else list(messages)
            same = estimate(shorter) == estimate(messages)
            return None if same else Compacted(tuple(shorter), TRIMMED, len(messages), len(shorter))
        older, later = [without_secrets(one, self._redact) for one in repaired(messages[:place])], messages[place:]
        answer, failure = await self._asked(older, limit)
        prompts, now = prompts_in(older), _worked_on(messages[:place], later)
        mark = os.urandom(4).hex()
        said = _words(answer) if answer is not None else digest(older, mark)
        notes = replacement(said, prompts[: len(prompts) - len(now)], failed_in(older), mark)
        first = ModelRequest([UserPromptPart(text) for text in (notes, *now)])
        shorter = [first, *(trimmed(later, int(MOST * limit)) if limit else later)]
        return Compacted(tuple(shorter), notes, len(messages), len(shorter), answer, failure)

    async def _asked(self, older: Sequence[ModelMessage], limit: int) -> tuple[ModelResponse | None, str]:
        """What the model says, or why it says nothing."""
        shown = transcript(older, int((SHOWN * limit or SHOWN_UNKNOWN) * CHARACTERS))
        try:
            with anyio.fail_after(PATIENCE):
                async with self._open_model() as opened:
                    return await self._answer(opened, ASK.format(transcript=shown)), ""
        except TimeoutError:
            return None, f"it took longer than {PATIENCE:g} s"
        except HarnessError as error:
            log.debug("no notes could be had: %s", self._redact(str(error)))
            return None, error.message

    async def _answer(self, opened: OpenModel, prompt: str) -> ModelResponse:
        """What the model writes.

        Raises:
            ModelFailure: it writes nothing.
        """
        try:
            answer = await self._whole(opened, prompt)
        except Exception as error:  # every provider has errors of its own
            raise model_failure(error, opened.profile) from None
        if failure := unfinished(answer, opened.profile):
            raise failure
        if not _words(answer):
            raise ModelFailure(f"{opened.profile.name} wrote no summary", kind="other")
        return answer

    async def _whole(self, opened: OpenModel, prompt: str) -> ModelResponse:
        parameters = ModelRequestParameters(instruction_parts=[InstructionPart(content=RULES)])
        asked = [ModelRequest([UserPromptPart(prompt)])]
        request = Request(asked, parameters, estimate(RULES) + estimate(asked))
        return await request.answer(opened, self._count, _read)


async def _read(stream: StreamedResponse) -> None:
    async for _ in stream:
        pass


def trimmed(messages: Sequence[ModelMessage], budget: int) -> list[ModelMessage]:
    """The messages with long results shortened until all are ``budget`` tokens, or the results are short. Pure."""
    found = list(messages)
    for longest in RESULTS:
        if estimate(found) <= budget:
            break
        found = [_with_short_results(message, longest) for message in messages]
    return found


def _with_short_results(message: ModelMessage, longest: int) -> ModelMessage:
    if isinstance(message, ModelResponse):
        return message
    return replace(message, parts=[_short(part, longest) for part in message.parts])


def _short(part: ModelRequestPart, longest: int) -> ModelRequestPart:
    return _short_result(part, longest) if isinstance(part, ToolReturnPart) else part


def _short_result(part: ToolReturnPart[Any], longest: int) -> ToolReturnPart[Any]:
    content = part.content
    return replace(part, content=shortened_inside(content, longest)) if isinstance(content, str) else part


def _words(answer: ModelResponse) -> str:
    return "".join(part.content for part in answer.parts if isinstance(part, TextPart)).strip()
