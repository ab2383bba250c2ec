"""A second look at what was read: a link may have come to lead to a secret after the decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..results_cache import DEPENDS
from ..seams import Hook
from ..values import ToolCall, ToolResult

if TYPE_CHECKING:
    from ..context import ToolContext
    from .policy import RulePolicy

__all__ = ["SecretGuard"]


class SecretGuard(Hook):
    """Keeps back a result that was made of a secret, by the real paths that the tool says it is made of."""

    def __init__(self, policy: RulePolicy) -> None:
        self._policy = policy

    async def after(self, call: ToolCall, result: ToolResult, ctx: ToolContext) -> ToolResult:
        """The result, or a refusal that holds nothing of it."""
        for path in _files(result):
            try:
                reason = await self._policy.kept_back(path, ctx.execution)
            except Exception as error:  # the pipeline would go on with the result
                reason = f"whether {path} may be shown could not be found out: {type(error).__name__}"
            if reason:
                return ToolResult.failure("denied", f"not shown: {reason}")
        return result


def _files(result: ToolResult) -> Iterator[str]:
    named = result.metadata.get(DEPENDS)
    for entry in named if isinstance(named, list) else ():
        if isinstance(entry, list) and entry and isinstance(entry[0], str):
            yield entry[0]
