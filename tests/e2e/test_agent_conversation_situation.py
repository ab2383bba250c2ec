"""What a request says of a real terminal, here and over SSH."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from tests.support.agent_desk import profile_for
from tests.support.desk import Desk, desk, everywhere, open_desk, until
from tests.support.model_server import call, model_server, say

from harness.agent.messages.instructions import instructions
from harness.agent.messages.situation import RunningJobs, situation
from harness.agent.opening import open_agent
from harness.agent.storage import MemoryLog
from harness.toolkit import Executor
from harness.toolkit.assembly import ToolkitSettings, open_toolkit
from harness.toolkit.events import JobExited
from harness.toolkit.permissions.rules.settings import Mode, PermissionSettings
from harness.toolkit.values import ToolCall

__all__ = ["desk", "open_desk"]

LIMIT = 120.0
TOKEN = "ghp_" + "a1B2" * 9
SAID = {"risk": "low", "mutation": False, "privesc": False, "why": "test"}


async def run(executor: Executor, command: str, **more: object) -> None:
    await executor.call(ToolCall("run_shell", {"command": command, **SAID, **more}))  # type: ignore[dict-item]  # JSON


async def told(executor: Executor, jobs: RunningJobs, what: str) -> str:
    """The situation, as soon as it says this: a program takes its time to write, and a pane to be free."""
    while what not in (text := await situation(executor, jobs, limit=LIMIT)):  # noqa: ASYNC110  # nobody sets an event
        await anyio.sleep(0.02)
    return text


@everywhere
async def test_a_request_says_what_runs_in_the_terminal_and_what_is_on_its_screen(desk: Desk) -> None:
    jobs = RunningJobs()
    with anyio.fail_after(LIMIT):
        async with executor_in(Mode.AUTO, desk) as executor:
            with executor.events.listening(jobs.heard):
                first = instructions(desk.ctx, executor.registry, Mode.AUTO)
                assert "in a tmux pane that the operator sees" in first
                await run(executor, "cd /tmp")
                idle = await told(executor, jobs, "at the prompt")
                assert idle.splitlines()[2:-1] == ["- your pane main: at the prompt, in /tmp"]

                await run(executor, f"echo token {TOKEN}; read -r answer; echo got $answer", wait=1)
                ((job_id, _),) = jobs.now()
                busy = await told(executor, jobs, "token ")
                assert f"your pane main: job {job_id} runs" in busy
                assert "screen of main:" in busy
                assert TOKEN not in busy
                assert f"- job {job_id} runs in the background: echo token" in busy

                with executor.events.subscribe() as events:
                    await desk.ctx.send_keys(literal_text="yes", enter=True)
                    async for event in events:
                        if isinstance(event, JobExited):
                            break
                after = await told(executor, jobs, "at the prompt")
                assert instructions(desk.ctx, executor.registry, Mode.AUTO) == first
                assert after.splitlines()[2:-1] == ["- your pane main: at the prompt, in /tmp"]


async def test_a_person_who_works_in_the_pane_is_seen_and_a_strict_policy_shows_no_screen(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        async with AsyncExitStack() as stack:
            executors = [await stack.enter_async_context(executor_in(mode, desk)) for mode in Mode]
            desk.tmux.cmd("send-keys", "-t", "=harness:main", "-l", "cat # from a person")
            desk.tmux.cmd("send-keys", "-t", "=harness:main", "Enter")
            await until(lambda: desk.show("#{pane_current_command}") == "cat", LIMIT)
            for mode, executor in zip(Mode, executors, strict=True):
                text = await situation(executor, limit=LIMIT)
                assert "your pane main: cat runs, possibly started by an operator" in text
                assert ("# from a person" in text) is (mode in (Mode.ASK, Mode.AUTO))
            desk.tmux.cmd("send-keys", "-t", "=harness:main", "C-c")


@asynccontextmanager
async def executor_in(mode: Mode, desk: Desk) -> AsyncIterator[Executor]:
    settings = ToolkitSettings(permissions=PermissionSettings(mode))
    async with open_toolkit(settings) as toolkit, toolkit.executor(desk.ctx) as executor:
        yield executor


async def test_a_terminal_that_is_gone_holds_no_request_up(desk: Desk) -> None:
    """Its screen is left out; whoever calls next learns why."""
    with anyio.fail_after(LIMIT):
        async with open_toolkit() as toolkit, toolkit.executor(desk.ctx) as executor:
            desk.tmux.kill()
            assert "screen of" not in await situation(executor)


async def test_a_model_is_told_of_a_waiting_program_and_nothing_of_it_is_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_TEST_KEY", "key-of-the-test")
    monkeypatch.setitem(situation.__kwdefaults__, "limit", LIMIT)  # a loaded machine is no target that hangs
    log = MemoryLog()
    asks = {"command": "echo Overwrite the disk?; read -r answer", "wait": 1, **SAID}
    script = [call("run_shell", asks), say("It waits."), say("It still does.")]
    settings = ToolkitSettings(permissions=PermissionSettings(Mode.AUTO))
    with anyio.fail_after(LIMIT), model_server(script) as server:
        async with (
            open_toolkit(settings) as toolkit,
            open_agent(desk.ctx, toolkit, profile_for(server, "anthropic"), log=log) as agent,
        ):
            assert (await agent.turn("wipe it")).text == "It waits."
            await told(agent.executor, agent.jobs, "Overwrite the disk?")
            assert (await agent.turn("and now?")).text == "It still does."
            last = server.asked[-1].body["messages"][-1]["content"]
            await desk.ctx.send_keys("C-c")
    assert server.refused == []
    assert last[-1]["text"].startswith("[situation: ")
    assert "Overwrite the disk?" in last[-1]["text"]
    assert "runs (" in last[-1]["text"]
    assert last[-2]["text"] == "and now?"
    assert server.asked[-1].text.count("[situation: added") == 1
    assert "[situation: added" not in "".join(log.messages)
