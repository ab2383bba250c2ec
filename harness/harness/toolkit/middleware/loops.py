"""Noticing an agent that goes round in circles."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Sequence

from ..context import ToolContext
from ..seams import Next
from ..values import CallOutcome, CallStatus, Image, ToolCall, ToolResult

__all__ = ["StuckLoop", "circles"]

AGENTS = 1_000
"""Agents whose last calls are remembered."""
LONGEST = 4
"""Calls of the longest circle that is noticed."""
Step = tuple[str, str]
"""A call and its result, as hashes."""


def circles(steps: Sequence[Step], call: str, repeats: int) -> int:
    """How many calls the circle has that ``call`` is one of: 1 for the same again, 2 for two in turn. 0: none.

    A circle is the same calls with the same results, ``repeats`` times at the end of ``steps``. Pure.
    """
    for length in range(1, LONGEST + 1):
        tail = list(steps[-length * repeats :])
        circle = tail[:length]
        if len(tail) == length * repeats and tail == circle * repeats and call in {step[0] for step in circle}:
            return length
    return 0


class StuckLoop:
    """Refuses every call of a circle: of up to ``LONGEST`` calls that an agent has made ``repeats`` times in turn with
    the same results each time. What is refused is no step, so they stay refused until the agent makes another call.
    Another result on the way keeps it from being a circle. Agents do not count for one another.
    """

    def __init__(self, repeats: int = 4) -> None:
        if repeats < 2:
            raise ValueError("what happens once is no circle")
        self._repeats = repeats
        self._steps: OrderedDict[tuple[str, str], deque[Step]] = OrderedDict()

    async def __call__(self, call: ToolCall, ctx: ToolContext, following: Next) -> CallOutcome:
        steps = self._of(ctx)
        asked = _hash(call.name, json.dumps(call.arguments, sort_keys=True, default=str))
        length = circles(tuple(steps), asked, self._repeats)
        if length:
            text = f"not run: {_said(length, self._repeats)}; try something else"
            return CallOutcome(call, ToolResult.failure("stuck", text), CallStatus.DENIED)
        outcome = await following(call)
        steps.append((asked, _result(outcome.result)))
        return outcome

    def _of(self, ctx: ToolContext) -> deque[Step]:
        key = (ctx.session_id, ctx.agent_id)
        steps = self._steps.setdefault(key, deque(maxlen=LONGEST * self._repeats))
        self._steps.move_to_end(key)
        while len(self._steps) > AGENTS:
            self._steps.popitem(last=False)
        return steps


def _said(length: int, repeats: int) -> str:
    if length == 1:
        return f"this very call was made {repeats} times with the same result"
    return f"the same {length} calls, of which this is one, were made {repeats} times in turn with the same results"


def _result(result: ToolResult) -> str:
    blocks = [block.data.hex() if isinstance(block, Image) else block.text for block in result.content]
    return _hash(str(result.is_error), result.error_code, *blocks)


def _hash(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8) + data)
    return found.hexdigest()
