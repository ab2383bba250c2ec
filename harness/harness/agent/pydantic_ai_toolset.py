"""The tools of a target as a toolset of pydantic-ai, for agents that are built with that library.

Its contract: https://pydantic.dev/docs/ai/tools-toolsets/toolsets/ (``AbstractToolset``, pydantic-ai 2.60 and newer).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed, UserError
from pydantic_ai.messages import BinaryImage, InstructionPart, ModelResponse
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from ..context import ExecutionContext
from ..fleets import Fleet
from ..toolkit.assembly import ToolkitSettings, open_executor
from ..toolkit.executor import Executor
from ..toolkit.permissions.approver import Approver
from ..toolkit.registry import Registry
from ..toolkit.values import CallOutcome, ToolCall
from .messages.instructions import UNTRUSTED, content_of, definitions, refuse_incomplete_calls

__all__ = ["ExecutorToolset", "toolset"]

_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""Accepts every JSON object: the tools check their arguments themselves, so that refused calls are recorded, too."""


class ExecutorToolset(AbstractToolset[Any]):
    """The tools of an executor, for agents of pydantic-ai.

    Safe to use in several runs at once, which then share what a session has: versions of files that were read, the
    list of tasks, background commands.

    Args:
        executor: Runs the calls. It must stay open while an agent may use the toolset.
        id: The name of the toolset, unique among those of an agent.
    """

    def __init__(self, executor: Executor, *, id: str = "harness") -> None:  # the library's name
        self.executor = executor
        self._id = id
        self._is_closed = False

    def close(self) -> None:
        """Refuse further use: the executor is closed."""
        self._is_closed = True

    @property
    def id(self) -> str:
        """The name of the toolset."""
        return self._id

    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart:
        """Return what the model must know about the results of the tools: that they are data, not requests."""
        return InstructionPart(content=UNTRUSTED, dynamic=False)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that the executor offers now, by name.

        Raises:
            UserError: The toolset is closed.
        """
        self._check_open()
        return {
            definition.name: ToolsetTool(
                toolset=self,
                tool_def=_ordered(definition, self.executor.registry),
                max_retries=ctx.max_retries,
                args_validator=_OBJECT,
            )
            for definition in definitions(self.executor.registry)
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str | list[str | BinaryImage]:
        """Run a call through the policy, the approver and the audit log, and return its result for the model.

        Raises:
            ToolFailed: The call failed or was denied; the message is for the model.
            UserError: The toolset is closed.
        """
        self._check_open()
        call = ToolCall(name, tool_args, provider_id=ctx.tool_call_id or "")
        refused = [one for response in _last_response(ctx) for one in refuse_incomplete_calls(response, [call])]
        outcome = refused[0] if refused else await self._outcome(call)
        content = content_of(outcome, self.executor.registry)
        if outcome.result.is_error:
            raise ToolFailed(content if isinstance(content, str) else str(content[0]))
        return content

    def _check_open(self) -> None:
        if self._is_closed:
            raise UserError("the toolset of harness is closed; run the agent within 'async with harness.toolset(...)'")

    async def _outcome(self, call: ToolCall) -> CallOutcome:
        """Run a call in a task of its own, so that the cancellation that reaches it is always anyio's.

        pydantic-ai cancels the task of a call with the message of its own scope. In that task, the scopes of the call
        would take it for their cancellation, and end it.
        """
        outcomes: list[CallOutcome] = []

        async def run() -> None:
            outcomes.append(await self.executor.call(call))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
        if not outcomes:  # the group has ended the cancellation, as above
            raise anyio.get_cancelled_exc_class()
        return outcomes[0]


def _last_response(ctx: RunContext[Any]) -> list[ModelResponse]:
    """Return the response that makes the calls which run now."""
    return [one for one in ctx.messages if isinstance(one, ModelResponse)][-1:]


def _ordered(definition: ToolDefinition, registry: Registry) -> ToolDefinition:
    """Return the definition; a tool that may not run beside others runs alone, in the order of the calls."""
    tool = registry.get(definition.name)
    return replace(definition, sequential=tool is None or not tool.traits.parallelizable)


@asynccontextmanager
async def toolset(
    execution: ExecutionContext | Fleet,
    settings: ToolkitSettings | None = None,
    *,
    approver: Approver | None = None,
    profile: str | None = None,
    id: str = "harness",  # the library's name
) -> AsyncIterator[ExecutorToolset]:
    """Open the tools of a target as a toolset of pydantic-ai: ``Agent(model, toolsets=[tools])``.

    Each call goes through the policy and is in the audit log, as in ``harness exec``.

    Args:
        execution: The target, or the hosts.
        settings: The settings of tools and permissions (default: those of the settings files).
        approver: Decides calls that need an approval (default: they are denied).
        profile: Offer the names and formats of another product (default: the settings').
        id: The name of the toolset, unique among those of an agent.

    Raises:
        ConfigError: The settings are wrong.
    """
    async with open_executor(execution, settings, approver=approver, profile=profile) as executor:
        tools = ExecutorToolset(executor, id=id)
        try:
            yield tools
        finally:
            tools.close()
