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
Step = tuple[str, str]
"""A call and its result, as hashes."""


def circles(steps: Sequence[Step], call: str, repeats: int) -> int:
    """How long the circle is that ``call`` would go on with: 1 for the same again, 2 for two that alternate. 0: none.

    A circle is the same calls with the same results, ``repeats`` times at the end of ``steps``. Pure.
    """
    for length in (1, 2):
        tail = list(steps[-length * repeats :])
        if len(tail) == length * repeats and tail == tail[:length] * repeats and tail[0][0] == call:
            return length
    return 0


class StuckLoop:
    """Refuses the call that an agent has made ``repeats`` times in a row with the same result each time, or as one of
    two in turn. Any other call, or another result, breaks the circle. Agents do not count for one another.
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
            text = f"not run: {_said(length)} {self._repeats} times with the same result; try something else"
            return CallOutcome(call, ToolResult.failure("stuck", text), CallStatus.DENIED)
        outcome = await following(call)
        steps.append((asked, _result(outcome.result)))
        return outcome

    def _of(self, ctx: ToolContext) -> deque[Step]:
        key = (ctx.session_id, ctx.agent_id)
        steps = self._steps.setdefault(key, deque(maxlen=2 * self._repeats))
        self._steps.move_to_end(key)
        while len(self._steps) > AGENTS:
            self._steps.popitem(last=False)
        return steps


def _said(length: int) -> str:
    return "this very call was made" if length == 1 else "this call and the one before it were made in turn"


def _result(result: ToolResult) -> str:
    blocks = [block.data.hex() if isinstance(block, Image) else block.text for block in result.content]
    return _hash(str(result.is_error), result.error_code, *blocks)


def _hash(*parts: str) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8) + data)
    return found.hexdigest()
