"""Jobs by exec end with what their termination has proved: real shells here, whose kill is answered by the test."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from tests.support.desk import until

from harness.command import Command
from harness.errors import ConnectionLost
from harness.results import Status
from harness.system.background_tasks import open_background_tasks
from harness.target import Target
from harness_backends.container.exec_jobs import ExecJobs
from harness_backends.container.transport import ContainerTransport
from harness_backends.local import LocalTransport
from harness_backends.posix.supervised_process import (
    ENDED,
    REMAINS,
    GroupLeader,
    SupervisedProcess,
    kill_argv,
    new_nonce,
    wrapped_argv,
)

pytestmark = pytest.mark.usefixtures("needs_process")


class Engine:
    """Runs execs on this machine; each kill ends the group, and ``answer`` says what is proved of that."""

    target = "container://here"

    def __init__(self) -> None:
        self.answer: Callable[[], bool] = lambda: True
        self.is_real = False
        """Whether the script that runs in containers does it."""
        self.asked, self.ended = anyio.Event(), anyio.Event()

    async def open_process(self, argv: Sequence[str]) -> SupervisedProcess:
        nonce = new_nonce()
        raw = await LocalTransport(Target.parse("local:")).open_process(wrapped_argv(argv, nonce))
        process = SupervisedProcess(raw, nonce, self._kill, self._verdict)
        assert await process.wait_for_start()
        return process

    async def _kill(self, leader: GroupLeader, ladder: Sequence[tuple[str, float]], tree: bool) -> int:
        self.asked.set()
        if self.is_real:
            argv = kill_argv(leader, ladder, tree=tree, unless_ended=True)
            return (await anyio.run_process(argv, check=False)).returncode
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, signal.SIGKILL)
        if not tree:
            return ENDED
        await self.ended.wait()
        return ENDED if self.answer() else REMAINS

    async def _verdict(self, raw: Any) -> int:
        await raw.wait()
        raise ConnectionLost("the exec is lost", target=self.target)


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[ExecJobs, Engine]]:
    engine = Engine()
    async with open_background_tasks() as tasks:
        with anyio.fail_after(20):
            yield ExecJobs(cast(ContainerTransport, engine), tasks), engine


def command(text: str) -> Command:
    return Command(text, timeout=0.2, on_timeout="kill")


async def killed(jobs: ExecJobs, engine: Engine) -> list[Any]:
    """What a caller gets whose command reaches its time limit, and whose shell has exited before the proof."""
    results: list[Any] = []

    async def run() -> None:
        try:
            results.append(await jobs.run(command("sleep 31.1")))
        except ConnectionLost as error:
            results.append(error)

    async with anyio.create_task_group() as callers:
        callers.start_soon(run)
        await engine.asked.wait()
        await until(lambda: jobs._jobs["d1"].status is not Status.RUNNING)
        for _ in range(3):  # its end is awaited by this process alone
            await anyio.wait_all_tasks_blocked()
        assert (await jobs.get("d1")).ended is None, "the exit of the shell proves nothing"
        engine.ended.set()
    return results


@pytest.mark.parametrize(("proved", "status"), [(True, Status.TIMED_OUT), (False, Status.UNKNOWN)])
async def test_a_killed_command_is_timed_out_only_if_that_is_proved(proved: bool, status: Status) -> None:
    async with opened() as (jobs, engine):
        engine.answer = lambda: proved
        (result,) = await killed(jobs, engine)
        assert (result.status, result.exit_code) == (status, None), result
        assert (await jobs.get("d1")).status is status
        assert any("may still be running" in notice for notice in result.notices) is not proved


async def test_a_kill_whose_answer_is_lost_leaves_the_command_unknown() -> None:
    async with opened() as (jobs, engine):

        def lost() -> bool:
            raise ConnectionLost("no answer", target=engine.target)

        engine.answer = lost
        (error,) = await killed(jobs, engine)
        assert isinstance(error, ConnectionLost)
        ended = await jobs.wait("d1", 10, 1000)
        assert (ended.status, ended.exit_code) == (Status.UNKNOWN, None), ended


async def test_a_command_that_ended_by_itself_is_completed_if_only_its_streams_are_killed() -> None:
    async with opened() as (jobs, engine):
        engine.ended.set()
        result = await jobs.run(command("sleep 31.2 & exit 3"))
        assert (result.status, result.exit_code) == (Status.COMPLETED, 3), result


@pytest.mark.parametrize("how", ["timeout", "kill"])
async def test_an_end_that_is_read_after_the_time_limit_is_the_commands_own(how: str, tmp_path: Path) -> None:
    """A callback blocks, as a write to a slow pipe does, until the command has ended and its time is over."""
    gate, received = tmp_path / "gate", bytearray()
    os.mkfifo(gate)
    async with opened() as (jobs, engine):
        engine.is_real = True

        def slow(data: bytes) -> None:
            if not received:
                gate.write_text("\n")
                leader = jobs._jobs["d1"].process._filter.leader
                assert leader is not None
                stat, end = Path(f"/proc/{leader.pid}/stat"), time.monotonic() + 5
                with suppress(FileNotFoundError):  # it has been waited for
                    while time.monotonic() < end and ") Z" not in stat.read_text():
                        time.sleep(0.01)
                time.sleep(1.0)
                if how == "kill":
                    killing.start_soon(jobs.kill, "d1")
            received.extend(data)

        text = f"seq 1 9; read x <{gate}\nsleep 31.3 >/dev/null 2>&1 & echo $!; seq 1 5000; exit 3"
        async with anyio.create_task_group() as killing:
            order = Command(text, timeout=1.0 if how == "timeout" else 15.0, on_timeout="kill", on_output=slow)
            result = await jobs.run(order)
        left = int(result.stdout.splitlines()[9])
        os.kill(left, signal.SIGKILL)  # what the command left running was not killed
        assert (result.status, result.exit_code) == (Status.COMPLETED, 3), result
        assert result.stdout.splitlines()[10:] == [*map(str, range(1, 5001))]
        assert result.stdout == received.decode()


async def test_a_command_that_is_killed_in_time_is_timed_out_however_it_exits() -> None:
    async with opened() as (jobs, engine):
        engine.is_real = True
        order = Command("trap 'exit 0' TERM; while :; do sleep 0.05; done", timeout=0.5, on_timeout="kill")
        result = await jobs.run(order)
        assert (result.status, result.exit_code) == (Status.TIMED_OUT, None), result
