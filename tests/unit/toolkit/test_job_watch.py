"""A session is told once when a job that it left running has ended, whatever happens to the link meanwhile."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from tests.support.desk import until
from tests.support.toolbox import toolbox

from harness import Config, ExecutionContext, connect
from harness.errors import AuthenticationError, ConfigError, ConnectionLost, HarnessError, JobNotFound, TargetGone
from harness.login import current_prompter
from harness.results import Job, ShellResult, Status
from harness.testing.memory import MemoryBackend
from harness.toolkit import CallStatus, ToolCall
from harness.toolkit.events import Event, EventBus, JobExited, JobStarted, Subscription, ToolCallCompleted
from harness.toolkit.session import job_watch
from harness.toolkit.session.job_watch import watched_jobs
from harness.toolkit.values import CallOutcome, ToolResult
from harness_tools.shell import RunShell

STARTED = JobStarted(job_id="7", command="make")
DONE = ToolCallCompleted(outcome=CallOutcome(ToolCall("time"), ToolResult.of("now"), CallStatus.OK))
ENDED = Job("7", "make", Status.COMPLETED, 3)


class Answers(ExecutionContext):
    """Answers what a job is as it is told, one answer after the other, and counts the waits."""

    def __init__(self, *answers: Job | HarnessError | Callable[[], None]) -> None:
        super().__init__(MemoryBackend(), None, Config())
        self.answers = list(answers)
        self.waits: list[float] = []
        self.prompters: list[object] = []

    async def wait(self, job_id: str, *, timeout: float = 0, max_output: int = 0) -> ShellResult:
        self.waits.append(timeout)
        assert max_output == 0
        return ShellResult("make", Status.UNKNOWN, job_id=job_id)

    async def job(self, job_id: str) -> Job:
        self.prompters.append(current_prompter())
        if not self.answers:
            await anyio.sleep_forever()
        answer = self.answers.pop(0)
        if isinstance(answer, Job):
            return answer
        if isinstance(answer, HarnessError):
            raise answer
        answer()
        return Job(job_id, "make", Status.RUNNING)


async def exits(events: Subscription) -> AsyncIterator[JobExited]:
    async for event in events:
        if isinstance(event, JobExited):
            yield event


async def first_exit(execution: ExecutionContext, *published: Event) -> JobExited:
    bus = EventBus("s1")
    with anyio.fail_after(60), bus.subscribe() as events:
        async with watched_jobs(execution, bus):
            for event in published:
                bus.publish(event)
            return await anext(exits(events))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks again soon."""
    monkeypatch.setattr(job_watch, "FIRST_PAUSE", 0.01)


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ((ENDED,), 3),
        ((Job("7", "make", Status.INTERRUPTED, 143),), 143),
        ((Job("7", "make", Status.UNKNOWN),), None),
        ((Job("7", "make", Status.TIMED_OUT),), None),
        ((JobNotFound("no job '7'"),), None),
        ((TargetGone("the container was removed"),), None),
        ((ConnectionLost("cut"), ConnectionLost("still"), Job("7", "make", Status.RUNNING), ENDED), 3),
    ],
)
async def test_an_end_is_told_as_the_target_knows_it(
    quick: None, answers: tuple[Job | HarnessError, ...], code: int | None
) -> None:
    execution = Answers(*answers)
    event = await first_exit(execution, STARTED)
    assert (event.job_id, event.exit_code, event.session_id) == ("7", code, "s1")
    assert execution.waits == [job_watch.LONG] * len(answers)
    assert set(execution.prompters) == {None}


async def test_a_login_that_needs_somebody_waits_for_a_call_that_got_through(quick: None) -> None:
    bus = EventBus("s1")
    execution = Answers(AuthenticationError("a password is needed"), ENDED)
    with anyio.fail_after(60), bus.subscribe() as events:
        async with watched_jobs(execution, bus):
            bus.publish(STARTED)
            await until(lambda: len(execution.answers) == 1, 60)
            await anyio.wait_all_tasks_blocked()
            assert [event for event in events.drain() if isinstance(event, JobExited)] == []
            assert len(execution.answers) == 1
            bus.publish(DONE)
            assert (await anext(exits(events))).exit_code == 3


async def test_a_job_that_is_named_twice_is_told_once_and_again_when_it_starts_again(quick: None) -> None:
    bus = EventBus("s1")
    execution = Answers(ENDED, ENDED)
    with anyio.fail_after(60), bus.subscribe() as events:
        async with watched_jobs(execution, bus):
            bus.publish(STARTED)
            bus.publish(STARTED)
            await anext(exits(events))
            await anyio.wait_all_tasks_blocked()
            assert (events.drain(), len(execution.answers)) == ([], 1)
            bus.publish(STARTED)
            await anext(exits(events))


async def test_a_fault_ends_the_watch_and_not_the_session(quick: None, caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus("s1")

    def fault() -> None:
        raise ValueError("a fault")

    async with watched_jobs(Answers(fault, ConfigError("wrong")), bus):
        bus.publish(STARTED)
        await until(lambda: "a fault" in caplog.text, 60)
        bus.publish(STARTED)
        await until(lambda: "wrong" in caplog.text, 60)


async def test_nothing_is_waited_for_when_the_session_ends() -> None:
    with anyio.fail_after(60):
        async with watched_jobs(Answers(), bus := EventBus("s1")):
            bus.publish(STARTED)
            await anyio.wait_all_tasks_blocked()


@pytest.mark.usefixtures("needs_process")
async def test_many_jobs_end_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    os.mkfifo(tmp_path / "gate")
    async with connect("local:") as execution:
        box = toolbox([RunShell()], execution=execution)
        with anyio.fail_after(100), box.events.subscribe() as events:
            async with watched_jobs(execution, box.events):
                jobs = {}
                for code in range(20):
                    command = f"read x <{tmp_path}/gate; exit {code}"
                    outcome = await box.executor.call(ToolCall("run_shell", {"command": command, "wait": False}))
                    assert isinstance(outcome.result.data, dict)
                    jobs[str(outcome.result.data["job_id"])] = code
                holder = os.open(tmp_path / "gate", os.O_RDWR)
                os.write(holder, b"\n" * 20)
                told = {}
                async for event in exits(events):
                    told[event.job_id] = event.exit_code
                    if len(told) == len(jobs):
                        break
                os.close(holder)
    assert told == jobs
