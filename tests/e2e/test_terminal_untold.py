"""What a later harness must not conclude from a pane's log: an operator's program had its place for a time."""

from __future__ import annotations

import anyio
import pytest
from tests.support.desk import Desk, desk, everywhere, open_desk, until

from harness import PaneBusy, Status, connect

__all__ = ["desk", "open_desk"]

MAIN = ("-t", "=harness:main")
TAKES = [("pipe-pane", *MAIN), ("pipe-pane", *MAIN, "cat >/dev/null")]
"""How an operator takes the place of the log: nothing follows it, or a program of theirs."""


async def told_later(desk: Desk, command: str) -> tuple[str, tuple[str, ...], float]:
    """What a harness gets that knows the pane from its log alone, and how long it took."""
    async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:
        began = anyio.current_time()
        result = await other.run_shell(command)
        return result.stdout, result.notices, anyio.current_time() - began


@everywhere
@pytest.mark.parametrize("take", TAKES)
async def test_a_log_that_was_taken_costs_later_harnesses_no_wait(desk: Desk, take: tuple[str, ...]) -> None:
    await desk.ctx.run_shell("true")
    job = await desk.ctx.run_shell("mkfifo gate; cat gate", wait=0.5)
    await until(lambda: desk.processes("cat gate"))
    desk.tmux.cmd(*take)
    await desk.open_gate()
    assert (await desk.ctx.wait(job.job_id or "", timeout=10)).status is Status.COMPLETED
    for number in range(4):
        if number == 2:
            desk.tmux.cmd("pipe-pane", *MAIN)
        stdout, notices, seconds = await told_later(desk, f"echo {number}")
        assert (stdout, notices) == (f"{number}\n", ()), number
        assert seconds < 4, number


@pytest.mark.parametrize("take", TAKES)
async def test_nothing_is_typed_over_a_program_of_which_the_log_does_not_tell(
    desk: Desk, take: tuple[str, ...]
) -> None:
    await desk.ctx.run_shell("true")
    desk.tmux.cmd(*take)
    desk.tmux.cmd("send-keys", *MAIN, "cat", "Enter")
    await until(lambda: desk.show("#{pane_current_command}") == "cat")  # others may be the log's
    with pytest.raises(PaneBusy, match="cat is waiting for input"):
        await told_later(desk, "echo late")
    assert "hx" not in "\n".join(desk.tmux.cmd("capture-pane", "-p", *MAIN).stdout)


async def test_nothing_is_typed_into_a_program_in_the_place_of_the_shell(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    desk.tmux.cmd("respawn-pane", "-k", *MAIN, "exec dash")
    await until(lambda: desk.processes("dash"))
    stdout, _, _ = await told_later(desk, "echo adopted")
    assert stdout == "adopted\n"
    assert "not found" not in "\n".join(desk.tmux.cmd("capture-pane", "-p", *MAIN).stdout)


async def test_who_waits_is_told_when_another_program_takes_the_place_of_the_shell(desk: Desk) -> None:
    first = await desk.ctx.run_shell("echo a; sleep 431.1", wait=0.5)
    await until(lambda: desk.processes("sleep 431.1"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_put_in_its_place, desk)
        with anyio.fail_after(20):
            done = await desk.ctx.wait(first.job_id or "")
    assert (done.status, done.exit_code, done.stdout) == (Status.UNKNOWN, None, "a\n"), done


async def _put_in_its_place(desk: Desk) -> None:
    await anyio.sleep(0.1)
    desk.tmux.cmd("respawn-pane", "-k", *MAIN, "exec sleep 432.1")
