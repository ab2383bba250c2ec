"""The toolset for agents of pydantic-ai: its calls go through the policy, its results are what the library expects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.support.own_home import here

import harness
from harness.agent import ExecutorToolset, toolset
from harness.context import ExecutionContext
from harness.toolkit import (
    ApprovalDecision,
    ApprovalRequest,
    ApprovalScope,
    Approver,
    PermissionSettings,
    ToolkitSettings,
)
from harness.toolkit.permissions.rules.settings import Mode

__all__ = ["here"]


class Says(Approver):
    """Gives one answer to every request, and keeps the requests."""

    def __init__(self, answer: ApprovalDecision) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        self.asked.append(str(request.call.arguments["command"]))
        return self.answer


class Script:
    """A model that makes calls, one response after the other, and keeps what it is sent."""

    def __init__(self, *responses: Sequence[ToolCallPart]) -> None:
        self._responses = list(responses)
        self.infos: list[AgentInfo] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.infos.append(info)
        return ModelResponse(self._responses.pop(0) if self._responses else [TextPart("done")])


def call(command: str) -> ToolCallPart:
    return ToolCallPart("run_shell", {"command": command})


async def results(tools: ExecutorToolset, *responses: Sequence[ToolCallPart]) -> list[ToolReturnPart[Any]]:
    run = await Agent(FunctionModel(Script(*responses)), toolsets=[tools]).run("Do it.")
    return [part for one in run.all_messages() for part in one.parts if isinstance(part, ToolReturnPart)]


async def test_a_call_runs_and_its_result_is_marked_as_data(here: ExecutionContext) -> None:
    script = Script([call("echo to''gether")])
    async with harness.toolset(here) as tools:
        run = await Agent(FunctionModel(script), toolsets=[tools]).run("Do it.")
    (part,) = [part for one in run.all_messages() for part in one.parts if isinstance(part, ToolReturnPart)]
    assert (run.output, part.outcome) == ("done", "success")
    assert "together" in part.content
    assert part.content.startswith("[untrusted output ")
    info = script.infos[0]
    assert {"run_shell", "read_file", "write_file"} <= {tool.name for tool in info.function_tools}
    assert "[untrusted output MARK]" in (info.instructions or "")


async def test_what_needs_an_approval_is_denied_without_an_approver(here: ExecutionContext) -> None:
    async with toolset(here) as tools:
        (part,) = await results(tools, [call("touch ~/made")])
    assert part.outcome == "failed"
    assert "no approver is available" in part.content
    assert not (await here.run_shell("ls ~/made")).ok


@pytest.mark.parametrize(("allowed", "outcome"), [(True, "success"), (False, "failed")])
async def test_the_approver_decides(here: ExecutionContext, allowed: bool, outcome: str) -> None:
    approver = Says(ApprovalDecision(ApprovalScope.ONCE if allowed else ApprovalScope.DENY_ONCE, reason="not today"))
    async with toolset(here, approver=approver) as tools:
        (part,) = await results(tools, [call("touch ~/made && echo ok")])
    assert (approver.asked, part.outcome) == (["touch ~/made && echo ok"], outcome)
    assert (await here.run_shell("ls ~/made")).ok is allowed
    assert allowed or "not today" in part.content


async def test_a_failed_command_is_a_result_and_wrong_arguments_are_a_failure(here: ExecutionContext) -> None:
    async with toolset(here) as tools:
        code, wrong, unknown = await results(
            tools,
            [call("ls /nowhere")],
            [ToolCallPart("run_shell", {"comand": "true"})],
            [ToolCallPart("read_file", {})],
        )
    assert "2" in code.content
    assert "did you mean 'command'?" in wrong.content
    assert (wrong.outcome, unknown.outcome) == ("failed", "failed")


@pytest.mark.parametrize("reason", ["length", "content_filter", "error"])
async def test_no_call_of_an_incomplete_response_runs(here: ExecutionContext, reason: Any) -> None:
    answers = [ModelResponse([call("echo half > ~/half")], finish_reason=reason), ModelResponse([TextPart("done")])]
    settings = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    async with toolset(here, settings) as tools:
        run = await Agent(FunctionModel(lambda messages, info: answers.pop(0)), toolsets=[tools]).run("Do it.")
    (part,) = [part for one in run.all_messages() for part in one.parts if isinstance(part, ToolReturnPart)]
    assert part.outcome == "failed"
    assert not (await here.run_shell("ls ~/half")).ok


async def test_calls_that_change_something_run_one_after_the_other(here: ExecutionContext) -> None:
    settings = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    calls = [call(f"sleep 0.{9 - number}; echo {number} >> ~/order") for number in range(4)]
    async with toolset(here, settings) as tools:
        await results(tools, calls)
    assert (await here.run_shell("cat ~/order")).stdout.split() == ["0", "1", "2", "3"]


async def test_arguments_that_are_no_object_are_given_back(here: ExecutionContext) -> None:
    script = Script([ToolCallPart("run_shell", json.dumps(["true"]))])
    async with toolset(here) as tools:
        run = await Agent(FunctionModel(script), toolsets=[tools], retries=1).run("Do it.")
    assert run.output == "done"
    assert len(script.infos) == 2


async def test_a_cancelled_agent_ends_its_command(here: ExecutionContext) -> None:
    settings = ToolkitSettings(permissions=PermissionSettings(mode=Mode.AUTO))
    script = Script([call("echo $$ > ~/new; mv ~/new ~/pid; exec sleep 100")])
    async with toolset(here, settings) as tools, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(Agent(FunctionModel(script), toolsets=[tools]).run, "Do it."))
        assert (await here.run_shell("until [ -e ~/pid ]; do sleep 0.05; done", timeout=30)).ok
        tasks.cancel_scope.cancel()
    gone = await here.run_shell("kill -0 $(cat ~/pid)")
    assert "No such process" in gone.stderr


async def test_a_closed_toolset_is_refused_at_once(here: ExecutionContext) -> None:
    async with toolset(here) as tools:
        pass
    with anyio.fail_after(5), pytest.raises(UserError, match="is closed"):
        await results(tools, [call("true")])
