"""The keyboard of a pane is given back at the end of a command, also when harness is dead or busy."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until
from tests.support.plain_tmux import plain_tmux

from harness import Status

__all__ = ["desk", "open_desk"]

SHELLS = ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish", "/bin/mksh", "busybox"]
PROGRAM = """
import sys
import anyio
from harness import Config, connect

async def main() -> None:
    config = Config(tmux_socket=sys.argv[1], shell=sys.argv[2], cwd=sys.argv[3])
    async with connect("local:", tmux=True, config=config) as ctx:
        await ctx.run_shell(sys.argv[4])

anyio.run(main)
"""


def blocked_until(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Wait as a caller does that lets nothing else of its event loop run."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_free(desk: Desk, pane: str = "") -> bool:
    return desk.show("#{pane_input_off} [#{@harness_busy}]", pane) == "0 []"


async def killed_during(desk: Desk, command: str) -> None:
    """Another harness runs a command in the same pane, and is killed when that has begun."""
    words = (desk.config.tmux_socket, desk.config.shell, str(desk.home), command)
    async with await anyio.open_process([sys.executable, "-c", PROGRAM, *words]) as other:
        await until(lambda: desk.show("#{pane_input_off}") == "1" and desk.processes("cat gate"), 30)
        os.kill(other.pid, signal.SIGKILL)
        await other.wait()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("end", ["cat gate", "cat gate; exit 3"])
async def test_the_target_gives_it_back_when_harness_was_killed(open_desk: OpenDesk, shell: str, end: str) -> None:
    desk = await open_desk(shell=shutil.which(shell) or shell)
    await desk.ctx.run_shell("mkfifo gate")
    await until(lambda: is_free(desk))
    await killed_during(desk, end)
    assert desk.show("#{pane_input_off}") == "1"  # it still runs, and is protected
    await desk.open_gate()
    assert blocked_until(lambda: is_free(desk))
    assert (await desk.ctx.run_shell("echo next")).stdout == "next\n"


@everywhere
async def test_a_caller_who_blocks_the_event_loop_after_a_result_keeps_nobody_out(desk: Desk) -> None:
    for number in range(3):
        assert (await desk.ctx.run_shell(f"echo {number}")).stdout == f"{number}\n"
        assert blocked_until(lambda: is_free(desk))


@pytest.mark.parametrize("control", [True, False])
async def test_nor_does_one_who_blocks_it_while_the_command_runs(
    open_desk: OpenDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: bool
) -> None:
    if not control:
        monkeypatch.setenv("PATH", str(plain_tmux(tmp_path, logs=True)), prepend=":")
    desk = await open_desk()
    await desk.ctx.run_shell("mkfifo gate")
    job = await desk.ctx.run_shell("cat gate", wait=0.2)
    assert job.status is Status.RUNNING
    assert desk.show("#{pane_input_off}") == "1"
    assert blocked_until(lambda: desk._open_gate("gate"))
    assert blocked_until(lambda: is_free(desk))
    assert (await desk.ctx.wait(job.job_id or "")).exit_code == 0


async def test_in_a_nested_shell_it_is_given_back_before_the_caller_has_the_result(desk: Desk) -> None:
    outer = await desk.ctx.run_shell("bash --norc", wait=0.5)
    for number in range(3):
        assert (await desk.ctx.run_shell(f"echo {number}", timeout=20)).stdout == f"{number}\n"
        assert blocked_until(lambda: desk.show("#{pane_input_off} #{@harness_busy}") == f"0 {outer.job_id}")
    assert (await desk.ctx.run_shell("exit 4")).status is Status.SHELL_EXITED
    await desk.ctx.wait(outer.job_id or "", timeout=10)
    await until(lambda: is_free(desk))


async def test_commands_run_also_when_the_keeper_of_a_pane_was_killed(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    for keeper in (desk.state / "panes").glob("*/keeper"):
        os.kill(int(keeper.read_text()), signal.SIGKILL)
    for number in range(3):
        assert (await desk.ctx.run_shell(f"echo {number}")).stdout == f"{number}\n"
    await until(lambda: is_free(desk))


async def test_a_shell_that_was_told_of_a_lost_terminal_ends_and_the_keeper_with_it(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    (folder,) = (desk.state / "panes").iterdir()
    keeper, shell = (int((folder / name).read_text()) for name in ("keeper", "pid"))
    desk.tmux.cmd("kill-server")
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (keeper, shell)))
