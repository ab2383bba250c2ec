"""Commands with a key when their callers are killed, compete, or sleep at the wrong moment: nothing runs twice."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.rig import Place, lines
from tests.support.program import Program

from harness import ExecutionContext, connect
from harness.backend import NotStarted, Reservation
from harness.command import Command
from harness.config import Config
from harness.errors import UnsupportedOperation
from harness.results import Status

pytestmark = pytest.mark.usefixtures("needs_process")

KILLS = 30


@pytest.fixture(params=["plain", "tmux", "fallback"])
def ways(request: pytest.FixtureRequest, program: Program) -> Iterator[Program]:
    """The program without a terminal, in a pane, and in a pane without control mode."""
    if request.param == "plain":
        yield program
        return
    request.getfixturevalue("needs_tmux")
    socket = f"hx-key-{os.getpid()}-{random.randrange(1 << 30):x}"
    settings = f'tmux_socket = "{socket}"\n' + ('control_mode = "never"\n' if request.param == "fallback" else "")
    folder = program.home / "config/harness"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(settings)
    program.always = ("--tmux",)
    yield program
    subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)


def outcome(done: subprocess.CompletedProcess[bytes]) -> dict[str, object]:
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_a_kill_at_any_moment_a_further_call_runs_nothing_twice(ways: Program) -> None:
    chance, seen = random.Random(7), set()
    assert ways.run("run", "--", "true").returncode == 0
    began = time.monotonic()
    assert ways.run("run", "--", "true").returncode == 0
    whole = time.monotonic() - began
    for number in range(KILLS):
        effects = ways.home / f"effects-{number}"
        words = ("--json", "run", "--key", f"run-{number}", "--", f"echo line >>{shlex.quote(str(effects))}")
        process = ways.start(*words)
        try:
            process.wait(chance.uniform(0.25, 1.6) * whole)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        before = len(lines(effects))
        again = outcome(ways.run(*words))
        times = len(lines(effects))
        assert times <= 1, (number, again)
        if again["status"] == "completed":
            assert (times, again["exit_code"]) == (1, 0), (number, again)
        else:
            assert again["status"] == "unknown", (number, again)
        seen.add((before, str(again["status"])))
    assert {before for before, _ in seen} == {0, 1}, f"the kills came all too early or too late: {seen}"


def test_of_many_calls_at_once_one_runs_and_all_give_its_result(ways: Program) -> None:
    effects = ways.home / "effects"
    command = f"echo line >>{shlex.quote(str(effects))}; sleep 1; echo said; (exit 6)"
    assert ways.run("run", "--", "true").returncode == 0
    processes = [ways.start("--json", "run", "--key", "deploy-7", "--", command) for _ in range(5)]
    results = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert {(result["status"], result["exit_code"], result["stdout"]) for result in results} == {
        ("completed", 6, "said\n")
    }
    assert len({result["job_id"] for result in results}) == 1
    assert lines(effects) == ["line"]


async def reserved(ctx: ExecutionContext, key: str) -> str:
    found = await ctx._backend.jobs.reserve(key)
    assert found.state == "ours"
    return found.job_id


async def test_a_caller_that_slept_after_its_reservation_runs_nothing(home: Path) -> None:
    command = f"echo line >>{home}/effects"
    async with connect("local:") as slow, connect("local:") as quick:
        job_id = await reserved(slow, "k")
        assert (await quick.run_shell(command, key="k")).ok
        with pytest.raises(NotStarted):
            await slow._backend.jobs.run(Command(command, key="k", job_id=job_id))
        late = await slow.run_shell(command, key="k")
        assert (late.status, late.job_id != job_id) == (Status.COMPLETED, True)
    assert lines(home / "effects") == ["line"]


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("control", ["auto", "never"])
async def test_a_pane_whose_caller_slept_after_its_reservation_runs_nothing(
    here: Place, control: str, home: Path
) -> None:
    command = f"echo line >>{home}/effects"
    async with here.connect(control_mode=control) as slow, connect("local:") as quick:
        job_id = await reserved(slow, "k")
        assert (await quick.run_shell(command, key="k")).ok
        with pytest.raises(NotStarted):
            await slow._terminal.run(Command(command, key="k", job_id=job_id))
        assert (await slow.run_shell(command, key="k")).ok
        assert (await slow.run_shell("echo usable")).stdout == "usable\n"
    assert lines(home / "effects") == ["line"]


async def test_a_reserved_id_that_another_command_got_does_not_take_the_key(home: Path) -> None:
    async with connect("local:") as ctx:
        job_id = await reserved(ctx, "k")
        assert (await ctx._backend.jobs.run(Command("echo other", job_id=job_id))).ok
        assert (await ctx.run_shell("echo mine", key="k")).stdout == "mine\n"


async def test_a_record_that_is_being_written_keeps_the_key_for_a_while(home: Path) -> None:
    async with connect("local:") as ctx:
        job_id = await reserved(ctx, "k")
        record = home / f".local/state/harness/jobs/{job_id}.cmd"
        record.write_text(f"#% job: {job_id} #% started: 1")
        assert await ctx._backend.jobs.reserve("k") == Reservation(job_id, "pending")
        done = await ctx.run_shell("echo mine", key="k")
        assert (done.stdout, done.job_id != job_id) == ("mine\n", True)
        assert record.with_suffix(".void").exists()


@pytest.mark.usefixtures("needs_tmux")
async def test_a_nested_shell_refuses_a_key(here: Place) -> None:
    async with here.connect() as ctx:
        await ctx.run_shell("sh", timeout=3)
        assert (await ctx.run_shell("echo nested")).stdout == "nested\n"
        with pytest.raises(UnsupportedOperation, match="nested shell"):
            await ctx.run_shell("echo no", key="k")


# -- cleanup


def aged(path: Path, days: float = 400.0) -> None:
    moment = time.time() - days * 86400
    os.utime(path, (moment, moment), follow_symlinks=False)


async def test_a_cleanup_for_space_keeps_the_outcome_of_a_key_but_not_its_output(home: Path) -> None:
    async with connect("local:", config=Config(jobs_max_bytes=0)) as ctx:
        done = await ctx.run_shell("echo said; exit 5", key="k")
        plain = await ctx.run_shell("echo other")
        await ctx._backend.jobs.clean()
        again = await ctx.run_shell("echo said; exit 5", key="k")
        assert (again.job_id, again.exit_code, again.stdout) == (done.job_id, 5, "")
        assert any("output was removed" in notice for notice in again.notices), again.notices
        assert plain.job_id not in {job.job_id for job in await ctx.jobs()}


async def test_an_old_key_goes_with_its_job_and_a_young_one_stays(home: Path) -> None:
    state = home / ".local/state/harness"
    async with connect("local:") as ctx:
        old = await ctx.run_shell("echo old", key="old")
        await ctx.run_shell("echo young", key="young")
        running = await ctx.run_shell("sleep 60", key="running", wait=False)
        for path in (*state.glob("keys/*"), *state.glob(f"jobs/{old.job_id}.*")):
            aged(path)
        await ctx._backend.jobs.clean()
        assert await ctx.job_with_key("old") is None
        assert await ctx.job_with_key("young") is not None
        assert await ctx.job_with_key("running") is not None
        assert len(list(state.glob("keys/*"))) == 2
        assert (await ctx.run_shell("echo old", key="old")).job_id != old.job_id
        await ctx.kill(running.job_id or "")


@pytest.mark.parametrize("key", ["#% key: x #%%", "a b\n'\"$(touch /tmp/never)*", "ü" * 100, "k #| x"])
async def test_any_text_is_a_key(key: str, home: Path) -> None:
    async with connect("local:") as ctx:
        first = await ctx.run_shell("echo $$", key=key)
        assert (await ctx.run_shell("echo $$", key=key)).stdout == first.stdout
        job = await ctx.job_with_key(key)
        assert job is not None
        assert job.key == key


@pytest.mark.parametrize("key", ["", "x" * 201, "a\0b"])
async def test_what_is_no_key_is_refused(key: str, home: Path) -> None:
    async with connect("local:") as ctx:
        with pytest.raises(ValueError, match="key"):
            await ctx.run_shell("true", key=key)


async def test_waiting_for_the_start_of_a_job_with_a_key(home: Path) -> None:
    async with connect("local:") as ctx, connect("local:") as other:
        began = await ctx.run_shell(f"until [ -e {home}/go ]; do sleep 0.1; done; echo done", key="k", wait=False)
        again = await other.run_shell(f"until [ -e {home}/go ]; do sleep 0.1; done; echo done", key="k", wait=False)
        assert (again.status, again.job_id) == (Status.RUNNING, began.job_id)
        (home / "go").touch()
        assert (await other.wait(began.job_id or "")).stdout == "done\n"
