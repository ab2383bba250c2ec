"""A server and the SDK's own client over streams in memory: calls, progress, cancelling, errors, many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from tests.support.mcp_session import connected
from tests.support.toolbox import Toolbox, toolbox

from harness.errors import ConnectionLost, ToolError
from harness.mcp.server.elicitation import ClientApprover
from harness.mcp.server.server import AT_ONCE
from harness.toolkit import (
    Arguments,
    CallStatus,
    Category,
    Executor,
    FunctionTool,
    Image,
    Text,
    ToolContext,
    ToolResult,
)
from harness.toolkit import tool as make
from harness.toolkit.interfaces import Verdict


class Say(Arguments):
    """Say something."""

    text: str = ""
    seconds: float = 0.0


@make(Say, name="say", category=Category.SHELL, mutating=True)
async def say(args: Say, ctx: ToolContext) -> ToolResult:
    await anyio.sleep(args.seconds)
    return ToolResult.of(args.text, data={"said": args.text})


def of(box: Toolbox) -> Callable[[ClientApprover], Executor]:
    return lambda approver: box.executor


def texts(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


def failing(error: Exception) -> FunctionTool[Say]:
    @make(Say, name="fail")
    async def fail(args: Say, ctx: ToolContext) -> ToolResult:
        raise error

    return fail


async def test_the_tools_of_the_registry_are_listed_by_name_and_the_same_each_time() -> None:
    box = toolbox([say, failing(ToolError("x"))])
    async with connected(of(box)) as client:
        first, second = await client.list_tools(), await client.list_tools()
    assert [tool.name for tool in first.tools] == ["fail", "say"]
    assert first.model_dump_json() == second.model_dump_json()


async def test_a_call_goes_through_the_executor_once() -> None:
    box = toolbox([say])
    async with connected(of(box)) as client:
        result = await client.call_tool("say", {"text": "hello"})
    assert texts(result) == ["hello"]
    assert result.structured_content == {"said": "hello"}
    assert result.is_error is False
    (entry,) = box.ledger.begun
    assert (entry.call.name, entry.call.arguments) == ("say", {"text": "hello"})
    assert result.meta is not None
    assert result.meta["harness/call_id"] == entry.call.call_id
    assert [status for _, status, _, _ in box.ledger.ended] == [CallStatus.OK]


async def test_what_is_refused_is_a_result_that_says_why_and_nothing_runs() -> None:
    box = toolbox([say], answer=lambda request: Verdict(False, "not on this host", "rule 1"))
    async with connected(of(box)) as client:
        result = await client.call_tool("say", {"text": "hello"})
    assert result.is_error
    assert texts(result) == ["not allowed: not on this host"]
    assert box.ledger.begun == []
    assert len(box.ledger.denied) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("sya", {}, "did you mean 'say'"),
        ("say", {"txet": "x"}, "did you mean"),
        ("say", {"seconds": "soon"}, "seconds"),
    ],
)
async def test_a_mistake_of_the_model_is_a_result_that_it_can_learn_from(
    name: str, arguments: dict[str, Any], words: str
) -> None:
    async with connected(of(toolbox([say]))) as client:
        result = await client.call_tool(name, arguments)
    assert result.is_error
    assert words in texts(result)[0]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("the disk is full", hint="make room"), "the disk is full"),
        (ConnectionLost("the link broke", target="ssh://h"), "may have changed something"),
        (RuntimeError("oops"), "fail failed: RuntimeError: oops"),
    ],
)
async def test_a_tool_that_could_not_run_is_a_result_and_no_error_of_the_protocol(error: Exception, words: str) -> None:
    async with connected(of(toolbox([failing(error)]))) as client:
        result = await client.call_tool("fail", {})
        assert (await client.list_tools()).tools != []  # and the server lives on
    assert result.is_error
    assert words in texts(result)[0]


async def test_what_is_secret_is_taken_out_before_the_client_sees_it() -> None:
    async with connected(of(toolbox([say]))) as client:
        result = await client.call_tool("say", {"text": "password hunter2"})
    assert "hunter2" not in result.model_dump_json()
    assert texts(result) == ["password [redacted]"]


async def test_an_image_is_sent_as_one() -> None:
    @make(Say, name="draw")
    async def draw(args: Say, ctx: ToolContext) -> ToolResult:
        return ToolResult((Text("here"), Image(b"\x89PNG", "image/png")))

    async with connected(of(toolbox([draw]))) as client:
        result = await client.call_tool("draw", {})
    assert [block.type for block in result.content] == ["text", "image"]


# -- progress


def talking(said: anyio.Event) -> FunctionTool[Say]:
    @make(Say, name="talk")
    async def talk(args: Say, ctx: ToolContext) -> ToolResult:
        for number in range(200):
            ctx.progress(f"line {number}\n")
        await said.wait()
        ctx.progress("last\n")
        return ToolResult.of("done")

    return talk


async def test_output_is_told_while_the_call_runs_in_few_pieces_and_in_order() -> None:
    told: list[tuple[float, str]] = []
    said = anyio.Event()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))
        said.set()

    async with connected(of(toolbox([talking(said)]))) as client:
        with anyio.fail_after(10):
            result = await client.call_tool("talk", {}, progress_callback=heard)
    assert texts(result) == ["done"]
    assert len(told) == 2  # two hundred pieces in one, and what came after it
    assert "line 0\n" in told[0][1] or "left out" in told[0][1]
    assert "line 199\n" in told[0][1]
    assert told[1][1] == "last\n"
    assert told[0][0] < told[1][0]


async def test_a_silent_call_shows_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.mcp.server.server.HEARTBEAT", 0.05)
    alive = anyio.Event()
    told: list[float] = []

    @make(Say, name="wait")
    async def wait(args: Say, ctx: ToolContext) -> ToolResult:
        await alive.wait()
        return ToolResult.of("done")

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)
        assert (message or "").startswith("running for ")
        if len(told) == 3:
            alive.set()

    async with connected(of(toolbox([wait]))) as client:
        with anyio.fail_after(10):
            await client.call_tool("wait", {}, progress_callback=heard)
    assert told == sorted(set(told))


async def test_no_progress_is_sent_to_a_client_that_did_not_ask_for_it() -> None:
    said = anyio.Event()
    said.set()
    seen: list[object] = []

    async def heard(message: object) -> None:
        seen.append(message)

    async with connected(of(toolbox([talking(said)])), message_handler=heard) as client:
        await client.call_tool("talk", {})
    assert [item for item in seen if isinstance(item, types.ProgressNotification)] == []


# -- cancelling, many at once


async def test_a_call_that_the_client_cancels_is_ended_and_recorded_so() -> None:
    box = toolbox([say])
    async with connected(of(box)) as client:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "say", {"text": "never", "seconds": 60.0})
                while not box.ledger.begun:
                    await client.send_ping()
                tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            while not box.ledger.ended:
                await client.send_ping()
        assert texts(await client.call_tool("say", {"text": "next"})) == ["next"]
    assert [status for _, status, _, _ in box.ledger.ended] == [CallStatus.CANCELLED, CallStatus.OK]


async def test_a_client_that_goes_leaves_no_call_behind() -> None:
    box = toolbox([say])
    async with connected(of(box)) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "say", {"seconds": 60.0})
        with anyio.fail_after(5):
            while not box.ledger.begun:
                await client.send_ping()
        tasks.cancel_scope.cancel()
    assert box.executor.running == ()
    assert [status for _, status, _, _ in box.ledger.ended] == [CallStatus.CANCELLED]


async def test_many_calls_run_at_once_and_each_gets_its_own_result() -> None:
    box = toolbox([say])
    got: dict[int, list[str]] = {}

    async def one(client: ClientSession, number: int) -> None:
        got[number] = texts(await client.call_tool("say", {"text": f"n{number}", "seconds": 0.05}))

    async with connected(of(box)) as client:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(one, client, number)
    assert got == {number: [f"n{number}"] for number in range(100)}


async def test_no_more_calls_run_at_once_than_are_allowed() -> None:
    running, most, enough = 0, 0, anyio.Event()

    @make(Say, name="count")
    async def count(args: Say, ctx: ToolContext) -> ToolResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == AT_ONCE:
            enough.set()
        await enough.wait()
        running -= 1
        return ToolResult.of("")

    async with connected(of(toolbox([count]))) as client:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE * 3):
                    tasks.start_soon(client.call_tool, "count", {})
    assert most == AT_ONCE


async def test_a_flood_of_calls_is_refused_and_those_that_wait_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.mcp.server.server.WAITING", 2)
    box, refused, done = toolbox([say]), [], []

    async def one(client: ClientSession) -> None:
        try:
            done.append(await client.call_tool("say", {"seconds": 0.2}))
        except MCPError as error:
            refused.append(error.error.message)

    async with connected(of(box)) as client:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(AT_ONCE + 5):
                    tasks.start_soon(one, client)
    assert len(done) == AT_ONCE + 2
    assert refused == ["2 calls are waiting already; nothing was run"] * 3
    assert len(box.ledger.begun) == AT_ONCE + 2


# -- changes of the registry


async def test_a_client_is_told_when_there_are_other_tools() -> None:
    box, told = toolbox([say]), anyio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with connected(of(box), message_handler=heard) as client:
        await client.list_tools()
        box.executor.registry.register(failing(ToolError("x")))
        with anyio.fail_after(5):
            await told.wait()
        assert [tool.name for tool in (await client.list_tools()).tools] == ["fail", "say"]
