"""Jobs through their tools: here and behind SSH, each without a terminal and with one, whose panes run bash or dash."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.support.desk import until
from tests.support.shells_everywhere import PLACES, Place, open_place
from tests.support.toolbox import Toolbox, toolbox

from harness import ExecutionContext
from harness.toolkit import CallOutcome, CallStatus, ToolCall
from harness.toolkit.events import JobExited
from harness.toolkit.session.job_watch import watched_jobs
from harness_tools.background import tools
from harness_tools.shell import RunShell

pytestmark = pytest.mark.usefixtures("needs_process")

WAIT = 60
"""Seconds: what is waited for comes in a moment, and on a loaded machine a little later."""


@pytest.fixture(params=PLACES)
async def place(
    needs_tmux: None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    async with open_place(request.param, monkeypatch) as opened:
        yield opened


def box_of(ctx: ExecutionContext) -> Toolbox:
    return toolbox([RunShell(), *tools()], execution=ctx)


async def call(box: Toolbox, name: str, **arguments: Any) -> CallOutcome:
    with anyio.fail_after(2 * WAIT):
        return await box.executor.call(ToolCall(name, arguments))


async def facts(box: Toolbox, name: str, **arguments: Any) -> dict[str, Any]:
    outcome = await call(box, name, **arguments)
    assert outcome.status is CallStatus.OK, outcome.result.text
    assert isinstance(outcome.result.data, dict)
    return outcome.result.data


async def start(box: Toolbox, command: str) -> str:
    started = await facts(box, "run_shell", command=command, wait=False)
    assert started["status"] == "running", started
    return str(started["job_id"])


def open_gate(place: Place, name: str = "gate") -> bool:
    """Let a program go that reads the named pipe, once it does."""
    try:
        os.close(os.open(place.home / name, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:  # nobody may have waited for it yet
        return file.read().rpartition(")")[2].split()[0] == "Z"


async def test_what_a_job_writes_comes_once_and_then_its_exit_code(place: Place) -> None:
    box = box_of(place.ctx)
    os.mkfifo(place.home / "gate")
    job = await start(box, "cd; echo one; echo bad >&2; read x <gate; printf 'two\\nthree'; (exit 3)")
    first: dict[str, Any] = {"stdout": "", "stderr": ""}
    with anyio.fail_after(WAIT):
        while not ("one\n" in first["stdout"] and "bad\n" in first["stdout"] + first["stderr"]):
            more = await facts(box, "bash_output", bash_id=job, wait=WAIT)
            assert (more["done"], more["exit_code"]) == (False, None)
            first = {name: first[name] + more[name] for name in first}
    expected = ("one\nbad\n", "") if place.tmux else ("one\n", "bad\n")
    assert (first["stdout"], first["stderr"]) == expected
    assert "(no new output)" in (await call(box, "bash_output", bash_id=int(job))).result.text
    await until(lambda: open_gate(place), WAIT)
    rest = ""
    with anyio.fail_after(WAIT):
        while not (last := await facts(box, "job_output", shell_id=job, wait=WAIT))["done"]:
            rest += last["stdout"]
    assert (rest + last["stdout"], last["stderr"], last["exit_code"]) == ("two\nthree", "", 3)
    again = await call(box, "bash_output", bash_id=job)
    assert again.result.text == f"job {job} has ended, exit code: 3\n(no new output)"
    whole = await facts(box, "bash_output", bash_id=job, since=0)
    assert (whole["stdout"], whole["stderr"]) == (expected[0] + "two\nthree", expected[1])


async def test_a_job_ends_with_everything_that_it_started_and_its_record_stays(place: Place) -> None:
    box = box_of(place.ctx)
    with box.events.subscribe() as events:
        async with watched_jobs(place.ctx, box.events):
            job = await start(box, "sh -c 'trap \"\" TERM; sleep 4000 & echo $!; wait; sleep 4001'")
            with anyio.fail_after(WAIT):
                child = int((await facts(box, "bash_output", bash_id=job, wait=WAIT))["stdout"])
            assert not is_gone(child)
            listed = await facts(box, "list_shells", include_finished=False)
            assert [row["bash_id"] for row in listed["shells"]] == [job]
            killed = await facts(box, "kill_shell", shell_id=job, grace=0.5, signal="sigterm")
            assert (killed["already_ended"], killed["status"] in ("running", "unknown")) == (False, False)
            await until(lambda: is_gone(child), WAIT)
            with anyio.fail_after(WAIT):
                exits = [await anext(aiter(exits_of(events)))]
        exits += [event for event in events.drain() if isinstance(event, JobExited)]
    assert [(event.job_id, event.exit_code) for event in exits] == [(job, killed["exit_code"])]
    assert (await facts(box, "kill_shell", bash_id=job))["already_ended"]
    assert (await facts(box, "list_shells", include_finished=False))["shells"] == []
    assert job in [row["bash_id"] for row in (await facts(box, "list_shells"))["shells"]]
    assert (await facts(box, "bash_output", bash_id=job, since="0", tail=1))["stdout"]


async def exits_of(events: Any) -> AsyncIterator[JobExited]:
    async for event in events:
        if isinstance(event, JobExited):
            yield event


async def test_a_job_of_another_harness_is_read_and_ended(place: Place) -> None:
    job = await start(box_of(place.ctx), "seq 1 30000; echo ready; sleep 4000")
    async with place.again() as other:
        box = box_of(other)
        text, positions = "", []
        with anyio.fail_after(WAIT):
            while not text.endswith("ready\n"):
                part = await facts(box, "bash_output", bash_id=job, wait=WAIT)
                text += part["stdout"]
                positions.append(part["next"])
        assert text == "".join(f"{number}\n" for number in range(1, 30001)) + "ready\n"
        assert positions == sorted(set(positions), key=int)
        tail = await facts(box, "bash_output", bash_id=job, since=0, tail=2)
        assert (tail["stdout"], tail["skipped"]) == ("30000\nready\n", len(text) - len("30000\nready\n"))
        found = await facts(box, "bash_output", bash_id=job, since=0, filter="^2999[89]$|dy")
        assert (found["stdout"], found["matches"], found["lines"]) == ("29998\n29999\nready\n", 3, 30001)
        killed = await facts(box, "kill_shell", shell_id=job)
        assert killed["status"] not in ("running", "unknown"), killed
    assert (await facts(box_of(place.ctx), "bash_output", bash_id=job, wait=WAIT))["done"]
