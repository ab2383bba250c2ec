"""Calls of a profile with the results that its model is to see, run one after the other on a real target."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from harness import ExecutionContext
from harness.toolkit import Executor, JsonObject, ToolCall
from harness.toolkit.assembly import Toolkit, ToolkitSettings, open_toolkit
from harness.toolkit.permissions.approver import Approver
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.values import Json

__all__ = ["WAIT", "Agreeing", "Step", "differences", "open_unasking", "step"]


WAIT = "(wait)"
"""No tool: wait for the job that a step has named."""


@dataclass(frozen=True)
class Step:
    """One call. ``text`` is the result, or with ``like`` a regular expression that finds it; ``{dir}`` is the place.

    ``{1}`` in an argument is the first group of the expression of the step before that had one.
    """

    tool: str
    arguments: JsonObject
    text: str = ""
    like: bool = False
    error: bool = False
    terminal: bool | None = None
    """Only with a terminal, or only without."""
    optional: bool = False
    """Only where the target can serve it."""


def step(tool: str, text: str = "", /, *, like: bool = False, error: bool = False, **arguments: Json) -> Step:
    """A step on every target."""
    return Step(tool, arguments, text, like, error)


class Agreeing(Approver):
    """Somebody who says yes."""

    async def ask(self, question: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(ApprovalScope.ONCE)


def open_unasking() -> AbstractAsyncContextManager[Toolkit]:
    """Everything as people have it, but that little asks."""
    return open_toolkit(ToolkitSettings(permissions=PermissionSettings(Mode.AUTO)))


async def differences(
    toolkit: Toolkit, execution: ExecutionContext, profile: str, steps: Sequence[Step], directory: str
) -> list[str]:
    """Run the steps in one session of a profile, and say which results are others."""
    found: list[str] = []
    last = ""
    async with toolkit.executor(execution, approver=Agreeing(), profile=profile, cwd=directory) as executor:
        for number, one in enumerate(_those_for(steps, execution), 1):
            if one.tool == WAIT:
                await execution.wait(last, timeout=60)
                continue
            if one.optional and executor.registry.get(one.tool) is None:
                continue
            said, last = await _difference(executor, one, directory, last)
            found += [f"{profile} {number} {one.tool} {dict(one.arguments)}: {said}"] if said else []
    return found


def _those_for(steps: Iterable[Step], execution: ExecutionContext) -> list[Step]:
    return [one for one in steps if one.terminal is None or one.terminal == execution.has_terminal]


async def _difference(executor: Executor, one: Step, directory: str, last: str) -> tuple[str, str]:
    arguments = _filled(one.arguments, directory, last)
    assert isinstance(arguments, dict)
    outcome = await executor.call(ToolCall(one.tool, arguments))
    text, wanted = outcome.result.text, one.text.replace("{dir}", directory)
    if outcome.result.is_error != one.error:
        return f"is_error is {outcome.result.is_error}: {text!r}", last
    if not one.like:
        return ("" if text == wanted else f"{text!r} is not {wanted!r}"), last
    match = re.search(wanted, text, re.DOTALL)
    if match is None:
        return f"{text!r} is not like {wanted!r}", last
    return "", match[1] if match.groups() else last


def _filled(value: Json | JsonObject, directory: str, last: str) -> Json:
    if isinstance(value, str):
        return value.replace("{dir}", directory).replace("{1}", last)
    if isinstance(value, list):
        return [_filled(item, directory, last) for item in value]
    if isinstance(value, dict):
        return {name: _filled(item, directory, last) for name, item in value.items()}
    return value if not hasattr(value, "items") else _filled(dict(value.items()), directory, last)
