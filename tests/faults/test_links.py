"""The link between the harness and the target is cut, stalled, slow, or loses one of its ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.faults.rig import Place, feed, kill, lines, opened, until, usable, within
from tests.support.sshd import master_pids

from harness import ShellResult, Status


def cut(place: Place) -> Callable[[], None]:
    assert place.proxy is not None
    place.proxy.cut()
    return place.proxy.resume


def stall(place: Place) -> Callable[[], None]:
    assert place.proxy is not None
    place.proxy.stall()
    return place.proxy.resume


def kill_sessions(place: Place) -> Callable[[], None]:
    assert place.sshd is not None
    for pid in place.sshd.session_pids():
        kill(pid)
    return lambda: None


def stop_sessions(place: Place) -> Callable[[], None]:
    assert place.sshd is not None
    stopped = place.sshd.session_pids()
    for pid in stopped:
        kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        for pid in stopped:
            kill(pid, signal.SIGCONT)

    return go_on


FAULTS = [cut, stall, kill_sessions, stop_sessions]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_command_in_flight_has_its_right_result_when_the_link_comes_back(
    far: Place, fault: Callable[[Place], Callable[[], None]]
) -> None:
    runs = far.path("runs")
    gate = far.path("gate")
    os.mkfifo(gate)
    async with opened(far) as ctx:
        await usable(ctx)
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            results = []

            async def run() -> None:
                command = f"echo once >>{runs}; seq 1 3000; cat {gate}; seq 3001 6000; (exit 7)"
                results.append(await within(45, ctx.run_shell(command, timeout=40)))

            tasks.start_soon(run)
            await until(lambda: bool(lines(runs)), "the command runs")
            repair = fault(far)
            await anyio.sleep(0.5)
            await feed(gate, b"through\n")
            await anyio.sleep(0.5)
            repair()
        seconds = time.monotonic() - began
        expected = "".join(f"{n}\n" for n in [*range(1, 3001), "through", *range(3001, 6001)])
        result = results[0]
        assert (result.status, result.exit_code) == (Status.COMPLETED, 7), result
        assert result.stdout == expected
        assert lines(runs) == ["once"]
        await usable(ctx)
        print(f"recovered in {seconds:.2f} s")  # noqa: T201  # shown by -s: a measurement
        await until(lambda: len(far.clients()) == 1, "one control client is left")
        assert len(far.drainers()) == 1


async def test_a_link_that_stays_down_makes_the_outcome_unknown_in_time_and_nothing_runs_twice(far: Place) -> None:
    runs = far.path("runs")
    async with opened(far, 150) as ctx:
        await usable(ctx)
        assert far.proxy is not None
        results: list[ShellResult] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                results.append(await within(20, ctx.run_shell(f"echo once >>{runs}; sleep 300", timeout=6)))

            tasks.start_soon(run)
            await until(lambda: bool(lines(runs)), "the command runs")
            far.proxy.cut()
        (result,) = results
        assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
        assert result.job_id
        assert any(result.job_id in notice for notice in result.notices), result
        far.proxy.resume()
    async with opened(far) as ctx:
        job = await ctx.kill(result.job_id)
        assert job.status not in (Status.RUNNING, Status.UNKNOWN), job
        await usable(ctx)
    assert lines(runs) == ["once"]


@pytest.mark.parametrize("engine", ["openssh"], indirect=True)
async def test_a_connection_master_that_is_killed_is_replaced(far: Place, ssh_runtime: Path) -> None:
    async with opened(far) as ctx:
        for number in range(3):
            runs, gate = far.path(f"runs-{number}"), far.path(f"gate-{number}")
            os.mkfifo(gate)
            results: list[ShellResult] = []
            async with anyio.create_task_group() as tasks:

                async def run(command: str, to: list[ShellResult] = results) -> None:
                    to.append(await within(25, ctx.run_shell(command, timeout=20)))

                tasks.start_soon(run, f"echo once >>{runs}; cat {gate}; (exit 3)")
                await until(partial(has_lines, runs), "the command runs")
                (master,) = master_pids(ssh_runtime)
                kill(master)
                await feed(gate, b"data\n")
            (result,) = results
            assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 3, "data\n"), result
            assert lines(runs) == ["once"]
            await usable(ctx)


def has_lines(path: Path) -> bool:
    return bool(lines(path))


async def test_a_slow_link_changes_nothing_but_the_time(far: Place) -> None:
    assert far.proxy is not None
    far.proxy.delay = 0.05
    async with opened(far) as ctx:
        for number in range(5):
            result = await within(20, ctx.run_shell(f"seq 1 2000; (exit {number})"))
            assert (result.status, result.exit_code) == (Status.COMPLETED, number), result
            assert result.stdout == "".join(f"{line}\n" for line in range(1, 2001))


async def test_programs_run_on_when_the_link_is_cut_under_a_flood(far: Place) -> None:
    count = far.path("count")
    flood = f"n=0; while :; do n=$((n + 1)); echo $n >>{count}; yes 0123456789 | head -c 200000; done"
    async with opened(far) as ctx:
        job = await ctx.run_shell(flood, wait=False)
        await until(partial(has_lines, count), "the flood runs")
        assert far.proxy is not None
        far.proxy.stall()
        await anyio.sleep(1)
        before = len(lines(count))
        await until(lambda: len(lines(count)) > before + 1, "it runs on while the link is stalled", 3)
        far.proxy.cut()
        before = len(lines(count))
        await until(lambda: len(lines(count)) > before + 1, "it runs on while the link is cut", 3)
        far.proxy.resume()
    async with opened(far) as ctx:
        await ctx.kill(job.job_id or "", signal="KILL")
        await usable(ctx)


async def test_without_a_terminal_an_unknown_outcome_has_the_output_that_had_arrived(far: Place) -> None:
    gate = far.path("gate")
    os.mkfifo(gate)
    pieces: list[bytes] = []
    async with opened(far, tmux=False) as ctx:
        await usable(ctx)
        assert far.proxy is not None
        results: list[ShellResult] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                command = f"seq 1 3000; echo wrong >&2; cat {gate}"
                results.append(await within(30, ctx.run_shell(command, timeout=25, on_output=pieces.append)))

            tasks.start_soon(run)
            await until(lambda: b"3000\n" in b"".join(pieces) and b"wrong" in b"".join(pieces), "its output is here")
            far.proxy.cut()
        (result,) = results
        assert result.status is Status.UNKNOWN, result
        assert (result.stdout, result.stderr) == ("".join(f"{n}\n" for n in range(1, 3001)), "wrong\n")
        far.proxy.resume()
        await feed(gate, b"")


def floods(word: str) -> list[int]:
    """The processes of a flood."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes() == f"yes\0{word}\0".encode():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", ["deadline", "cancel"])
async def test_a_flood_over_a_slow_link_is_ended_on_the_target_and_nothing_unproved_is_claimed(
    far: Place, how: str
) -> None:
    assert far.proxy is not None
    word = f"flood-{os.getpid()}-{how}"
    async with opened(far, keepalive_interval=60) as ctx:
        await usable(ctx)
        far.proxy.rate = 20_000
        if how == "deadline":
            result = await within(60, ctx.run_shell(f"yes {word}", timeout=4, on_timeout="kill"))
            assert result.status in (Status.UNKNOWN, Status.TIMED_OUT), result
            assert "connection lost" not in " ".join(result.notices), result
        else:
            with anyio.move_on_after(4):
                await ctx.run_shell(f"yes {word}", timeout=90)
        await until(lambda: not floods(word), "the flood is ended", 20)
        job = next(path.stem for path in far.state.glob("jobs/*.cmd") if word in path.read_text())
        far.proxy.cut()  # what is on its way would take minutes
        far.proxy.rate = 0
        far.proxy.resume()
    async with opened(far) as ctx:
        kept = await ctx.job(job)
        assert kept.status is (Status.TIMED_OUT if how == "deadline" else Status.INTERRUPTED), kept
