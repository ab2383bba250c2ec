"""A command that harness ends gets the status that is proved, also if its shell exits before the proof arrives.

Kills run on the target as always; a test only delays or withholds their answers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, open_desk, until

from harness import ConnectionLost, Status, connect
from harness_backends.tmux.jobs import kill_script
from harness_backends.tmux.jobs.kill_script import PaneJobEnd, PaneKill
from harness_backends.tmux.jobs.pane_job import PaneJob

__all__ = ["desk", "open_desk"]

DEAF = "trap '' INT; while :; do :; done; touch next"
"""A command that ends with its shell only."""

KINDS = pytest.mark.parametrize("kind", ["control mode", "nested shell", "fallback mode"])
Answer = Callable[[Callable[[], Awaitable[PaneJobEnd]], Any], Awaitable[PaneJobEnd]]


class Kills:
    """The kills of this process, and the ends that shells and records reported."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reported: list[Status] = []
        self.count = 0
        self.answer: Answer = lambda run, _: run()
        real_run, real_told, real_finish = PaneKill.run, PaneJob.finish_as_reported, PaneJob.finish

        async def run(kill: PaneKill, *arguments: Any, **options: Any) -> PaneJobEnd:
            self.count += 1
            return await self.answer(lambda: real_run(kill, *arguments, **options), options.get("on_sent"))

        def told(job: PaneJob, status: Status, *arguments: Any) -> None:
            self.reported.append(status)
            real_told(job, status, *arguments)

        def finish(job: PaneJob, status: Status, *arguments: Any) -> None:
            self.reported.append(status)
            real_finish(job, status, *arguments)

        patch.setattr(PaneKill, "run", run)
        patch.setattr(PaneJob, "finish_as_reported", told)
        patch.setattr(PaneJob, "finish", finish)

    async def until_reported(self) -> None:
        """Wait until the shell's exit or the command's end has arrived."""
        await until(lambda: self.reported)


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Kills:
    return Kills(monkeypatch)


async def opened(open_desk: OpenDesk, kind: str, kills: Kills) -> Desk:
    desk = await open_desk(control_mode="never" if kind == "fallback mode" else "auto")
    await desk.ctx.run_shell("mkfifo gate")
    if kind == "nested shell":
        await desk.ctx.run_shell("bash --norc", timeout=1)
        assert (await desk.ctx.run_shell("echo nested")).stdout == "nested\n"
    kills.reported.clear()
    return desk


async def kept(desk: Desk, command: str) -> str:
    """A command that runs in the default pane."""
    result = await desk.ctx.run_shell(command, timeout=0.5)
    assert result.status is Status.RUNNING, result
    return result.job_id or ""


def prove_late(patch: pytest.MonkeyPatch, desk: Desk) -> None:
    """Let kills record their proof only once the file ``asked`` exists."""
    real, record = PaneKill.script, 'hx_record "$status"'

    def script(kill: PaneKill, *arguments: Any, **options: Any) -> str:
        text = real(kill, *arguments, **options)
        assert record in text
        return text.replace(record, f"until [ -e {desk.home}/asked ]; do hx_nap 0.1; done; {record}")

    patch.setattr(PaneKill, "script", script)


@KINDS
@pytest.mark.parametrize("proved", [True, False])
async def test_only_the_kill_ends_a_command_whose_shell_it_killed(
    open_desk: OpenDesk, kills: Kills, kind: str, proved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await opened(open_desk, kind, kills)
    job = await kept(desk, DEAF)

    async def late(run: Callable[[], Awaitable[PaneJobEnd]], _: Any) -> PaneJobEnd:
        end = await run()
        return end if proved else PaneJobEnd()

    prove_late(monkeypatch, desk)
    kills.answer = late
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.ctx.kill, job)
        await kills.until_reported()
        meanwhile = await desk.ctx.wait(job, timeout=0.1)
        assert (meanwhile.status, meanwhile.exit_code) == (Status.RUNNING, None), meanwhile
        (desk.home / "asked").touch()
    ended = await desk.ctx.wait(job, timeout=10)
    expected = (Status.INTERRUPTED, 137) if proved else (Status.UNKNOWN, None)
    assert (ended.status, ended.exit_code) == expected, ended
    assert any("not confirmed" in notice for notice in ended.notices) is not proved
    assert (await desk.ctx.run_shell("echo usable; [ ! -e next ]")).ok


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("control_mode", ["auto", "never"])
async def test_a_record_that_precedes_the_proof_has_the_exit_code(
    open_desk: OpenDesk, shell: str, control_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a C-c, dash records nothing; this process does."""
    desk = await open_desk(shell=f"/bin/{shell}", control_mode=control_mode)
    job = await kept(desk, "sleep 431.2")
    record = desk.state / "jobs" / f"{job}.exit"
    prove_late(monkeypatch, desk)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.ctx.kill, job)
        await until(lambda: record.exists() and record.stat().st_size)
        meanwhile = await desk.ctx.job(job)
        assert (meanwhile.status is Status.UNKNOWN, meanwhile.exit_code) == (False, 130), record.read_text()
        (desk.home / "asked").touch()
    ended = await desk.ctx.job(job)
    assert (ended.status, ended.exit_code) == (Status.INTERRUPTED, 130)


@pytest.mark.parametrize("kind", ["control mode", "fallback mode"])
@pytest.mark.parametrize("proved", [True, False])
async def test_a_kill_whose_answer_was_lost_is_proved_by_the_record_or_unknown(
    open_desk: OpenDesk, kills: Kills, kind: str, proved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await opened(open_desk, kind, kills)
    real, record = PaneKill.script, 'hx_record "$status"'

    def die_before_the_record(kill: PaneKill, *arguments: Any, **options: Any) -> str:
        script = real(kill, *arguments, **options)
        assert record in script
        return script.replace(record, "exit")

    if not proved:
        monkeypatch.setattr(PaneKill, "script", die_before_the_record)

    async def lose_answer(run: Callable[[], Awaitable[PaneJobEnd]], _: Any) -> PaneJobEnd:
        await run()
        await kills.until_reported()
        monkeypatch.setattr(kill_script, "_duration", lambda grace: 0.2)  # nothing is recorded any more
        raise ConnectionLost("no answer", target=desk.ctx.target)

    kills.answer = lose_answer
    result = await desk.ctx.run_shell(DEAF, timeout=0.5, on_timeout="kill")
    assert (result.status, result.exit_code) == (Status.TIMED_OUT if proved else Status.UNKNOWN, None), result
    assert any("not confirmed" in notice for notice in result.notices) is not proved
    assert kills.count == 1, "what has ended is not killed again"
    assert (await desk.ctx.wait(result.job_id or "")).status is result.status


@pytest.mark.parametrize("kind", ["control mode", "fallback mode"])
@pytest.mark.parametrize(("command", "status"), [("exit 3", Status.SHELL_EXITED), ("(exit 3)", Status.COMPLETED)])
async def test_a_command_that_ended_by_itself_before_the_kill_keeps_its_end(
    open_desk: OpenDesk, kills: Kills, kind: str, command: str, status: Status
) -> None:
    desk = await opened(open_desk, kind, kills)
    job = await kept(desk, f"cat gate; {command}")

    async def too_late(run: Callable[[], Awaitable[PaneJobEnd]], _: Any) -> PaneJobEnd:
        await desk.open_gate()
        await kills.until_reported()
        return await run()

    kills.answer = too_late
    await desk.ctx.kill(job)
    ended = await desk.ctx.wait(job, timeout=10)
    assert (ended.status, ended.exit_code) == (status, 3), ended


@pytest.mark.parametrize("kind", ["control mode", "fallback mode"])
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(("command", "status"), [("exit 3", Status.SHELL_EXITED), ("(exit 3)", Status.COMPLETED)])
async def test_a_kill_that_may_not_have_arrived_claims_no_end_and_hides_none_that_is_certain(
    open_desk: OpenDesk, kills: Kills, kind: str, sent: bool, command: str, status: Status
) -> None:
    desk = await opened(open_desk, kind, kills)
    job = await kept(desk, f"cat gate; {command}")

    async def lost(_: Any, on_sent: Callable[[], None]) -> PaneJobEnd:
        if sent:
            on_sent()
        raise ConnectionLost("the link is lost", target=desk.ctx.target)

    kills.answer = lost
    with pytest.raises(ConnectionLost):
        await desk.ctx.kill(job)
    await desk.open_gate()
    ended = await desk.ctx.wait(job, timeout=10)
    expected = (Status.UNKNOWN, None) if sent else (status, 3)
    assert (ended.status, ended.exit_code) == expected, ended


async def test_a_caller_who_stops_waiting_for_a_kill_leaves_no_job_that_never_ends(
    open_desk: OpenDesk, kills: Kills
) -> None:
    desk = await opened(open_desk, "control mode", kills)
    job = await kept(desk, DEAF)

    async def never(run: Callable[[], Awaitable[PaneJobEnd]], on_sent: Callable[[], None]) -> PaneJobEnd:
        await run()
        await kills.until_reported()
        await anyio.sleep_forever()
        raise AssertionError

    kills.answer = never
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.ctx.kill, job)
        await kills.until_reported()
        tasks.cancel_scope.cancel()
    assert (await desk.ctx.wait(job, timeout=10)).status is Status.UNKNOWN


async def test_a_program_that_outlives_its_killed_shell_makes_the_record_unknown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, send = PaneKill.script, 'hx_kill "-$signal" "${entry%:*}"'

    def spare_programs(kill: PaneKill, *arguments: Any, **options: Any) -> str:
        script = real(kill, *arguments, **options)
        assert send in script
        return script.replace(send, ":")

    monkeypatch.setattr(PaneKill, "script", spare_programs)
    result = await desk.ctx.run_shell("trap '' INT TERM HUP; sleep 431.1; true", timeout=0.5, on_timeout="kill")
    assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
    (record,) = (desk.state / "jobs").glob("*.exit")
    await until(lambda: record.read_text().endswith(" unknown\n"), 20)
    for process in desk.processes("sleep 431.1"):
        os.kill(process, signal.SIGKILL)
    async with connect(str(desk.ctx.target), tmux=False, config=desk.config) as other:
        assert (await other.job(result.job_id or "")).status is Status.UNKNOWN
