"""What of many files no tool may show: for tools that search a directory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anyio import to_thread

from ...context import ExecutionContext
from .harddenials import HardDenials
from .pathclaims import path_forms
from .ruleindex import RuleIndex
from .rules import Action
from .targetpaths import RealPath

__all__ = ["found_among", "locked_among"]

MANY = 500
"""Paths beyond which they are judged in a thread, so that others are not held up."""
READER = "read_file"
"""A rule that denies this tool a file denies what is in it to the others."""


async def found_among(
    paths: Collection[str],
    execution: ExecutionContext,
    denials: HardDenials,
    rules: Sequence[RuleIndex],
    top: str,
    holders: Collection[str] | None,
) -> frozenset[str]:
    """Those of some real paths that are secrets, that a rule denies, or that an ``.aiexclude`` keeps back.

    Raises:
        HarnessError: the link was lost.
    """

    def by_name() -> set[str]:
        home = execution.capabilities.home
        return {path for path in paths if denials.hidden(path, home) or _denied(path, READER, execution, rules)}

    found = await to_thread.run_sync(by_name) if len(paths) > MANY else by_name()
    rest = [path for path in paths if path not in found]
    return frozenset(found | await denials.excluded(rest, execution, top, holders))


async def locked_among(
    paths: Collection[str], tool: str, execution: ExecutionContext, denials: HardDenials, rules: Sequence[RuleIndex]
) -> frozenset[str]:
    """Those of some real paths that decide what may be done, or that a rule denies this tool."""

    def by_name() -> frozenset[str]:
        home = execution.capabilities.home
        return frozenset(path for path in paths if denials.locked(path, home) or _denied(path, tool, execution, rules))

    return await to_thread.run_sync(by_name) if len(paths) > MANY else by_name()


def _denied(path: str, tool: str, execution: ExecutionContext, rules: Sequence[RuleIndex]) -> bool:
    forms = path_forms(RealPath(path, path, path), tool, execution) if rules else ()
    return any(index.first(forms, (Action.DENY,)) is not None for index in rules)
