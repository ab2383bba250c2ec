"""The link between the harness and the target is cut, stalled, slow, or loses one of its ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import anyio
import pytest
from tests.faults.rig import Place, feed, kill, lines, opened, until, usable, within

from harness import Status


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
        print(f"recovered in {seconds:.2f} s")  # noqa: T201 - shown by -s: a measurement
        await until(lambda: len(far.clients()) == 1, "one control client is left")
        assert len(far.drainers()) == 1
