"""Sub-agents on a terminal: each works in a pane of its own, which is gone when it has ended."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from tests.support.desk import Desk, desk, everywhere, open_desk
from tests.support.toolbox import toolbox

from harness.testing.agents import ScriptedSpawner
from harness.toolkit import CallOutcome, CallStatus, Executor, ToolCall
from harness.toolkit.delegation import SpawnRequest, SpawnResult
from harness_tools import agents, core

__all__ = ["desk", "open_desk"]


def parent(desk: Desk, spawner: ScriptedSpawner) -> Executor:
    made = toolbox([*core.tools(), *agents.tools()], execution=desk.ctx).executor
    return replace(made, spawner=spawner)


async def panes(desk: Desk) -> list[str]:
    return sorted(pane.name for pane in await desk.ctx.list_panes())


@everywhere
async def test_an_agent_works_in_its_own_pane(desk: Desk) -> None:
    seen: list[list[str]] = []
    outcomes: list[CallOutcome] = []

    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        outcomes.append(await executor.call(ToolCall("run_shell", {"command": "cd /tmp && mine=1; pwd"})))
        await executor.call(ToolCall("run_shell", {"command": "exec sleep 3210", "wait": False}))
        outcomes.append(await executor.call(ToolCall("run_shell", {"command": "pwd; echo ${mine-none}"})))
        await executor.call(ToolCall("send_keys", {"literal_text": "echo typed", "enter": True}))
        seen.append(await panes(desk))
        return SpawnResult(str(executor.execution.pane))

    executor = parent(desk, ScriptedSpawner(script))
    with anyio.fail_after(90):
        await executor.call(ToolCall("run_shell", {"command": "mine=parent"}))
        outcome = await executor.call(ToolCall("task", {"prompt": "look"}))
        assert outcome.status is CallStatus.OK, outcome.result.text
        after = await executor.call(ToolCall("run_shell", {"command": "pwd; echo $mine"}))
    assert outcomes[1].result.text == "exit code: 0\nstdout:\n/tmp\n1"
    own = outcome.result.text.splitlines()[0]
    assert own in seen[0]
    assert own not in await panes(desk)
    assert desk.processes("sleep 3210") == []
    assert after.result.text == f"exit code: 0\nstdout:\n{desk.home}\nparent"


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_dead_agent_leaves_no_pane_and_no_program(desk: Desk, how: str) -> None:
    started = anyio.Event()

    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        await executor.call(ToolCall("run_shell", {"command": "sleep 4321", "wait": False}))
        started.set()
        if how == "fails":
            raise ValueError("no")
        await anyio.sleep_forever()
        raise AssertionError

    executor = parent(desk, ScriptedSpawner(script))
    with anyio.fail_after(90):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.call, ToolCall("task", {"prompt": "x"}))
            await started.wait()
            if how == "is cancelled":
                executor.cancel()
    assert [name for name in await panes(desk) if name.startswith("agent-")] == []
    assert desk.processes("sleep 4321") == []
    jobs = [job for job in await desk.ctx.jobs() if job.command == "sleep 4321"]
    assert [job.status.value in ("interrupted", "unknown") for job in jobs] == [True]
    shown = await executor.call(ToolCall("run_shell", {"command": "echo fine"}))
    assert shown.status is CallStatus.OK


async def test_agents_that_work_at_once_do_not_meet(desk: Desk) -> None:
    async def script(request: SpawnRequest, executor: Executor) -> SpawnResult:
        await executor.call(ToolCall("run_shell", {"command": f"me={request.prompt}"}))
        outcome = await executor.call(ToolCall("run_shell", {"command": "echo I am $me"}))
        return SpawnResult(outcome.result.text)

    executor = parent(desk, ScriptedSpawner(script))
    before = await panes(desk)
    with anyio.fail_after(90):
        outcomes = await executor.batch([ToolCall("task", {"prompt": name}) for name in ("one", "two")])
    assert [outcome.result.text.splitlines()[-1] for outcome in outcomes] == ["I am one", "I am two"]
    assert await panes(desk) == before
