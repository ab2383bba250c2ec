"""Commands that take longer than a client waits: handed over as jobs, never ended for it and never run twice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from tests.support.mcp_session import connected, subscribe, unsubscribe
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext, connect
from harness.toolkit.interfaces import Verdict
from harness_tools.search.listing import Glob
from harness_tools.shell import RunShell, wait_policy

LIMIT = 20
LOOKED = ["resource_describe", "resource_jobs", "resource_log", "resource_jobs"]


@pytest.mark.parametrize(
    ("wait", "handoff", "expected"),
    [
        (True, None, (True, None)),
        (30.0, None, (30.0, None)),
        (False, 45.0, (False, None)),
        (True, 45.0, (45.0, "keep")),
        (True, 120.0, (True, None)),
        (True, 600.0, (True, None)),
        (30.0, 45.0, (30.0, None)),
        ("10m", 45.0, (45.0, "keep")),
        ("30s", 45.0, ("30s", None)),
    ],
)
def test_a_command_is_waited_for_as_long_as_asked_or_until_it_is_handed_over(
    wait: Any, handoff: float | None, expected: Any
) -> None:
    assert wait_policy(wait, handoff) == expected


@pytest.fixture
async def execution(
    needs_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ExecutionContext]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    async with connect("local:", cwd=str(tmp_path)) as context:
        yield context


@asynccontextmanager
async def client_of(execution: ExecutionContext, handoff: float) -> AsyncIterator[tuple[ClientSession, Toolbox]]:
    box = toolbox([RunShell()], execution=execution)
    async with connected(lambda approver: replace(box.executor, handoff=handoff)) as client:
        yield client, box


async def page(client: ClientSession, uri: str) -> tuple[str, dict[str, Any]]:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return content.text, content.meta or {}


async def test_a_long_command_is_handed_over_without_an_error_and_runs_on(
    execution: ExecutionContext, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"echo begun; echo x >> {tmp_path}/runs; while [ ! -e {gate} ]; do sleep 0.05; done; echo ended; (exit 7)"
    async with client_of(execution, 0.5) as (client, box):
        with anyio.fail_after(LIMIT):
            result = await client.call_tool("run_shell", {"command": command})
        assert not result.is_error
        data = result.structured_content
        assert (data["status"], data["exit_code"], data["stdout"]) == ("running", None, "begun\n")
        uri = f"harness://job/{data['job_id']}/log"
        assert uri in result.model_dump_json()
        text, meta = await page(client, uri)
        assert text == "begun\n"
        assert (meta["harness/status"], meta["harness/end_of_log"], meta["harness/exit_code"]) == (
            "running",
            False,
            None,
        )
        gate.touch()
        done = await execution.wait(data["job_id"], timeout=LIMIT)
        assert done.exit_code == 7
        text, meta = await page(client, f"{uri}?offset={meta['harness/next_offset']}")
        assert text == "ended\n"
        assert (meta["harness/status"], meta["harness/end_of_log"], meta["harness/exit_code"]) == ("completed", True, 7)
    assert (tmp_path / "runs").read_text() == "x\n"
    assert [job for _, _, _, job in box.ledger.ended if job][:1] == [data["job_id"]]


async def test_a_short_command_is_not_handed_over(execution: ExecutionContext) -> None:
    async with client_of(execution, 30.0) as (client, _):
        result = await client.call_tool("run_shell", {"command": "echo hi"})
    assert result.structured_content["status"] == "completed"
    assert "harness://" not in result.model_dump_json()


async def test_whoever_subscribed_to_a_log_is_told_of_output_and_of_the_end(
    execution: ExecutionContext, tmp_path: Path
) -> None:
    told: list[str] = []
    some = anyio.Event()

    async def heard(message: object) -> None:
        nonlocal some
        if isinstance(message, types.ResourceUpdatedNotification):
            told.append(message.params.uri)
            some.set()

    command = f"while [ ! -e {tmp_path}/one ]; do sleep 0.05; done; echo out; "
    command += f"while [ ! -e {tmp_path}/two ]; do sleep 0.05; done"
    box = toolbox([RunShell()], execution=execution)
    async with connected(lambda approver: box.executor, message_handler=heard) as client:
        started = await client.call_tool("run_shell", {"command": command, "wait": False})
        uri = f"harness://job/{started.structured_content['job_id']}/log"
        await subscribe(client, uri)
        for gate in ("one", "two"):
            some = anyio.Event()
            (tmp_path / gate).touch()
            with anyio.fail_after(LIMIT):
                await some.wait()
        assert set(told) == {uri}
        listed = len(told)
        await unsubscribe(client, uri)
        await client.send_ping()
        assert len(told) == listed


async def test_whoever_subscribed_to_the_jobs_is_told_when_one_starts(execution: ExecutionContext) -> None:
    some = anyio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and message.params.uri == "harness://jobs":
            some.set()

    box = toolbox([RunShell()], execution=execution)
    async with connected(lambda approver: box.executor, message_handler=heard) as client:
        await subscribe(client, "harness://jobs")
        with anyio.fail_after(LIMIT):
            await client.call_tool("run_shell", {"command": "true"})
            await some.wait()


async def test_the_work_of_tools_is_no_job_of_the_resources(execution: ExecutionContext) -> None:
    told: list[str] = []
    some = anyio.Event()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.append(message.params.uri)
            some.set()

    box = toolbox([RunShell(), Glob()], execution=execution)
    async with connected(lambda approver: box.executor, message_handler=heard) as client:
        await subscribe(client, "harness://jobs")
        await client.call_tool("glob", {"pattern": "*"})
        jobs, _ = await page(client, "harness://jobs")
        assert (json.loads(jobs), len(await execution.jobs())) == ({"jobs": [], "left_out": 0}, 1)
        await anyio.sleep(0.5)  # the time in which a change would have been told
        assert told == []
        await client.call_tool("run_shell", {"command": "true"})
        with anyio.fail_after(LIMIT):
            await some.wait()


async def test_jobs_and_their_logs_are_listed_and_read_through_the_pipeline(execution: ExecutionContext) -> None:
    async with client_of(execution, 30.0) as (client, box):
        await client.call_tool("run_shell", {"command": "echo password hunter2"})
        found = {str(item.uri): item for item in (await client.list_resources()).resources}
        (log,) = [uri for uri in found if uri.endswith("/log")]
        text, _ = await page(client, log)
        jobs, _ = await page(client, "harness://jobs")
    assert text == "password [redacted]\n"
    assert "hunter2" not in jobs
    assert "hunter2" not in (found[log].description or "")
    assert [job["command"] for job in json.loads(jobs)["jobs"]] == ["echo password [redacted]"]
    assert [entry.call.name for entry in box.ledger.begun] == ["run_shell", *LOOKED]


async def test_what_the_policy_refuses_cannot_be_looked_at_either(execution: ExecutionContext) -> None:
    box = toolbox([RunShell()], execution=execution, answer=lambda request: Verdict(False, "not here", "rule 1"))
    async with connected(lambda approver: box.executor) as client:
        listed = [str(item.uri) for item in (await client.list_resources()).resources]
        for uri in listed:
            with pytest.raises(MCPError, match="not allowed: not here"):
                await client.read_resource(uri)
    assert listed == ["harness://jobs", "harness://describe"]
    assert {entry.call.name for entry in box.ledger.denied} == {"resource_jobs", "resource_describe"}


@pytest.mark.parametrize(
    "uri", ["harness://job/999/log", "harness://pane/main/screen", "harness://nothing", "file:///etc/passwd"]
)
async def test_what_is_not_there_is_an_error_of_the_protocol(execution: ExecutionContext, uri: str) -> None:
    async with client_of(execution, 30.0) as (client, _):
        with pytest.raises(MCPError, match=r"no |needs|resource") as caught:
            await client.read_resource(uri)
    assert caught.value.error.code == -32002


async def test_what_is_not_there_cannot_be_subscribed_to(execution: ExecutionContext) -> None:
    async with client_of(execution, 30.0) as (client, _):
        for uri in ("harness://job/999/log", "harness://pane/main/screen", "harness://nothing"):
            with pytest.raises(MCPError) as caught:
                await subscribe(client, uri)
            assert caught.value.error.code == -32002


async def test_a_client_has_so_many_subscriptions_and_no_more(
    execution: ExecutionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.mcp.server.resources.LIMIT", 1)
    async with client_of(execution, 30.0) as (client, _):
        await subscribe(client, "harness://jobs")
        with pytest.raises(MCPError, match="too many"):
            await subscribe(client, "harness://describe")
        await unsubscribe(client, "harness://jobs")
        await subscribe(client, "harness://describe")


async def test_pages_of_a_long_log_put_together_are_the_log(execution: ExecutionContext) -> None:
    async with client_of(execution, 30.0) as (client, _):
        done = await client.call_tool("run_shell", {"command": "seq 1 20000"})
        base = f"harness://job/{done.structured_content['job_id']}/log"
        text, at, ended = "", 0, False
        while not ended:
            more, meta = await page(client, f"{base}?offset={at}&limit=40000")
            text, at, ended = text + more, meta["harness/next_offset"], meta["harness/end_of_log"]
    assert text == "".join(f"{number}\n" for number in range(1, 20001))


async def test_binary_output_and_odd_names_reach_the_client(execution: ExecutionContext) -> None:
    async with client_of(execution, 30.0) as (client, _):
        done = await client.call_tool("run_shell", {"command": r"printf 'a\377b\000c\n'"})
    assert done.structured_content["stdout"] == "a\ufffdb\x00c\n"
