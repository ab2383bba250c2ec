"""Whatever happens to a container, the outcome is bounded and honest, and never that of another container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest
from tests.support.contained import WAYS, MakeWay, Way, make_way
from tests.support.engines import Container, container

from harness import ExecutionContext, ShellResult, Status
from harness.errors import ConnectError, HarnessError, TargetNotFound

__all__ = ["make_way"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, make_way: MakeWay) -> Way:
    return make_way(request.param)


@asynccontextmanager
async def started(ctx: ExecutionContext, results: list[ShellResult], command: str) -> AsyncIterator[None]:
    """A command that runs; its result is in ``results`` when this is left, and that is bounded."""
    up = anyio.Event()

    async def run() -> None:
        results.append(await ctx.run_shell(command, on_output=lambda data: up.set(), timeout=60))

    with anyio.fail_after(45):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await up.wait()
            yield


async def refused(ctx: ExecutionContext, command: str) -> None:
    """Run it twice: the first may be told that the link is lost, the second why."""
    with anyio.fail_after(40):
        result = await ctx.run_shell(command)
        assert result.status is Status.UNKNOWN
        await ctx.run_shell(command)


async def do(one: Container, verb: str) -> None:
    await anyio.to_thread.run_sync(one.do, verb)


@pytest.mark.parametrize(
    ("verb", "said", "fix"),
    [("stop", "is stopped", "start"), ("pause", "is paused", "unpause"), ("kill", "is stopped", "start")],
)
async def test_a_container_that_takes_no_programs_is_refused_with_the_fix(
    way: Way, verb: str, said: str, fix: str
) -> None:
    with container(way.engine) as one:
        one.do(verb)
        with pytest.raises(ConnectError) as caught:
            async with way.connect(one):
                pass
        assert f"container {one.name} {said}" in str(caught.value)
        assert f"{way.engine.kind} {fix} {one.name}" in caught.value.hint
        if verb == "pause":
            one.do("unpause")


async def test_an_unknown_name_is_told_with_the_engine_that_was_asked(way: Way) -> None:
    with pytest.raises(TargetNotFound, match="no container 'hx-nobody'") as caught:
        async with way.connect(f"{way.engine.kind}://hx-nobody"):
            pass
    assert f"{way.engine.kind} ps -a" in caught.value.hint


@pytest.mark.parametrize("verb", ["stop", "kill", "rm"])
async def test_a_container_that_ends_during_a_command_gives_unknown(way: Way, verb: str) -> None:
    results: list[ShellResult] = []
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            async with started(ctx, results, "echo up; sleep 1000"):
                await do(one, "kill" if verb == "rm" else verb)
                if verb == "rm":
                    await do(one, "rm")
            assert results[0].status is Status.UNKNOWN
            assert results[0].exit_code is None
            assert results[0].job_id
            with pytest.raises(HarnessError) as caught:
                await refused(ctx, "echo again")
            assert ("was removed" if verb == "rm" else "is stopped") in str(caught.value)


async def test_a_restarted_container_gives_unknown_and_then_serves_again(way: Way) -> None:
    results: list[ShellResult] = []
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            async with started(ctx, results, "echo up; sleep 1000"):
                await do(one, "restart")
            assert results[0].status is Status.UNKNOWN
            assert (await ctx.run_shell("echo again")).stdout == "again\n"
            lost = await ctx.wait(results[0].job_id or "", timeout=20)
            assert (lost.status, lost.stdout) == (Status.UNKNOWN, "up\n")


async def test_another_container_of_the_same_name_is_never_entered(way: Way) -> None:
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            assert (await ctx.run_shell("echo old > /which")).ok
            await do(one, "kill")
            await do(one, "rm")
            with container(way.engine, name=one.name) as other:
                with pytest.raises(ConnectError, match="was replaced") as caught:
                    await refused(ctx, "echo new > /which")
                assert other.id[:12] in str(caught.value)
                assert other.run("sh", "-c", "cat /which 2>/dev/null || echo nothing") == "nothing"


async def test_a_paused_container_is_waited_for_within_the_time_and_serves_again(way: Way) -> None:
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            assert (await ctx.run_shell("echo up")).ok
            await do(one, "pause")
            try:
                with anyio.fail_after(40):
                    result = await ctx.run_shell("echo late", timeout=1)
                assert result.status in (Status.UNKNOWN, Status.RUNNING, Status.TIMED_OUT)
            finally:
                await do(one, "unpause")
            with anyio.fail_after(40):
                assert (await ctx.run_shell("echo again")).stdout == "again\n"


async def test_the_state_is_in_the_description(way: Way) -> None:
    with container(way.engine) as one:
        async with way.connect(one) as ctx:
            assert one.id[:12] in ctx.describe()
            assert "running" in ctx.describe()
