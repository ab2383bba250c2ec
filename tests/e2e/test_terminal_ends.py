"""How commands and shells end: time limits, cancelling, killing, and shells that leave."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until

from harness import ShellNotReady, Status, connect
from harness_backends.tmux import terminal
from harness_backends.tmux.jobs import kill_script

__all__ = ["desk", "open_desk"]


async def usable(desk: Desk) -> None:
    result = await desk.ctx.run_shell("echo usable; (exit 2)", timeout=10)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 2, "usable\n"), result


@everywhere
async def test_a_command_that_outlasts_its_time_is_kept_and_gives_all_later(desk: Desk) -> None:
    await desk.ctx.run_shell("mkfifo gate")
    result = await desk.ctx.run_shell("echo first; cat gate; echo last; (exit 3)", timeout=0.5)
    assert (result.status, result.exit_code, result.stdout) == (Status.RUNNING, None, "first\n")
    await desk.open_gate()
    done = await desk.ctx.wait(result.job_id or "", timeout=10)
    assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 3, "first\nlast\n")
    await usable(desk)


STUBBORN = {
    "plain": "sleep 400.1",
    "grandchildren": "sh -c 'sh -c \"sleep 400.1\" & sleep 400.1 & wait'",
    "deaf": "sh -c 'trap \"\" INT TERM HUP; sleep 400.1; sleep 400.1; sleep 400.1'",
    "deaf in the shell": "trap '' INT; sleep 400.1; sleep 400.1",
    "background of the job": "sleep 400.1 & sleep 400.1",
    "detached": "nohup sleep 400.1 >/dev/null 2>&1 & sleep 400.1",
    "session of its own": "(setsid sleep 400.1; true) & sleep 400.1",
    "session whose parent a C-c ends": "sh -c 'setsid sleep 400.1 & sleep 400.1'",
    "loop": "while :; do sleep 400.1; done",
    "raw": "stty raw -echo; sleep 400.1",
    "function": "f() { sleep 400.1; f; }; f",
    "starts more until it dies": "sh -c 'trap \"\" INT TERM HUP; while :; do sleep 400.1 & sleep 0.01; done'",
}


@pytest.mark.parametrize("command", STUBBORN.values(), ids=STUBBORN.keys())
async def test_a_killed_command_is_proved_gone(
    open_desk: OpenDesk, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limit is for the waits of the script that kills: what else that does takes longer on a busy machine."""
    waits = tmp_path / "waits"
    waits.touch()
    count_waits = f'hx_nap() {{ echo "$1" >>{waits}; sleep "$1"; }}\n'
    monkeypatch.setattr(kill_script, "_FUNCTIONS", kill_script._FUNCTIONS + count_waits)
    monkeypatch.setattr(kill_script, "ANSWER_TIMEOUT", 60.0)
    monkeypatch.setattr(terminal, "END_TIMEOUT", 60.0)
    desk = await open_desk()
    result = await desk.ctx.run_shell(f"echo before\n{command}", timeout=0.5, on_timeout="kill")
    assert (result.status, result.exit_code) == (Status.TIMED_OUT, None), result
    assert result.stdout.startswith("before\n")
    assert desk.processes("sleep 400.1") == []
    waited = sum(map(float, waits.read_text().split()))
    assert waited < 5
    assert waited > 3 or "INT TERM" not in command  # what is deaf gets its time to end by itself
    await desk.ctx.run_shell("trap - INT")
    await usable(desk)


@pytest.mark.parametrize("tmux", [True, False])
async def test_another_harness_ends_what_is_in_a_session_of_its_own(desk: Desk, tmux: bool) -> None:
    job = await desk.ctx.run_shell("sh -c 'setsid sleep 410.1 & sleep 410.1'", wait=False)
    await until(lambda: len(desk.processes("sleep 410.1")) == 2)
    async with connect(str(desk.ctx.target), tmux=tmux, config=desk.config) as other:
        killed = await other.kill(job.job_id or "")
    assert killed.status is Status.INTERRUPTED
    assert desk.processes("sleep 410.1") == []


async def test_a_daemon_that_was_detached_before_the_end_lives_on(desk: Desk) -> None:
    result = await desk.ctx.run_shell("(setsid sleep 408.1 &); sleep 409.1", timeout=0.5, on_timeout="kill")
    assert result.status is Status.TIMED_OUT
    (daemon,) = desk.processes("sleep 408.1")
    os.kill(daemon, signal.SIGKILL)
    assert desk.processes("sleep 409.1") == []


FOLLOWED = {
    "after a deaf program": "trap '' INT; sleep 405.1; touch next",
    "in a loop": "trap '' INT; while :; do sleep 405.1; touch next; done",
    "builtins alone": "trap '' INT; while :; do :; done; touch next",
    "many lines": "trap '' INT\nsleep 405.1\ntouch next",
    "a pipeline": "trap '' INT; sleep 405.1 | cat; touch next",
}


@pytest.mark.parametrize("command", FOLLOWED.values(), ids=FOLLOWED.keys())
@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/bin/mksh", "busybox"])
async def test_what_follows_in_a_killed_command_does_not_run(open_desk: OpenDesk, shell: str, command: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell("cd")
    result = await desk.ctx.run_shell(command, timeout=0.5, on_timeout="kill")
    assert (result.status, result.exit_code) == (Status.TIMED_OUT, None), result
    assert desk.processes("sleep 405.1") == []
    again = await desk.ctx.run_shell("ls; echo usable")
    assert again.stdout.split()[-1] == "usable"
    assert "next" not in again.stdout
    kept = await desk.ctx.wait(result.job_id or "")
    assert kept.status is Status.TIMED_OUT


async def test_an_operators_background_programs_are_not_killed_with_ours(desk: Desk) -> None:
    await desk.ctx.run_shell("sleep 401.1 &")
    await anyio.sleep(0.5)  # older than the command below by more than the clock's grain
    result = await desk.ctx.run_shell("sleep 401.2", timeout=0.3, on_timeout="kill")
    assert result.status is Status.TIMED_OUT
    assert desk.processes("sleep 401.1")
    assert not desk.processes("sleep 401.2")


async def test_an_interrupted_loop_in_fish_gives_its_output_alone(open_desk: OpenDesk) -> None:
    desk = await open_desk(shell="/usr/bin/fish")
    result = await desk.ctx.run_shell("echo a; while true; end", timeout=0.5, on_timeout="kill")
    assert result.status is Status.TIMED_OUT, result
    assert result.stdout in ("a\n^C", "a\n^C^C")  # a second one when the first was not heard at once
    kept = await desk.ctx.wait(result.job_id or "")
    assert kept.stdout == result.stdout


@everywhere
async def test_cancelling_interrupts_and_confirms(desk: Desk) -> None:
    with anyio.move_on_after(0.7):
        await desk.ctx.run_shell("sh -c 'trap \"\" INT; sleep 402.1; sleep 402.1'")
    assert desk.processes("sleep 402.1") == []
    await usable(desk)


@everywhere
async def test_a_job_is_killed_by_its_id(desk: Desk) -> None:
    result = await desk.ctx.run_shell("sleep 403.1", wait=False)
    await until(lambda: desk.processes("sleep 403.1"))
    await desk.ctx.kill(result.job_id or "")
    assert desk.processes("sleep 403.1") == []
    done = await desk.ctx.wait(result.job_id or "", timeout=5)
    assert done.status is Status.INTERRUPTED


SHELLS = ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish", "/bin/mksh"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("exec true", 0), ("echo x; exit", 0)])
async def test_a_shell_that_ends_is_told_and_replaced(open_desk: OpenDesk, shell: str, command: str, code: int) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell("cd /usr")
    result = await desk.ctx.run_shell(command, timeout=10)
    assert (result.status, result.exit_code) == (Status.SHELL_EXITED, code), result
    assert any("new shell" in notice for notice in result.notices)
    assert result.stdout.removesuffix("exit\n") == ("x\n" if "echo x" in command else "")  # bash and mksh say so
    again = await desk.ctx.run_shell("echo usable", timeout=10)
    assert (again.status, again.stdout) == (Status.COMPLETED, "usable\n"), again


@pytest.mark.parametrize(
    ("command", "code"), [("kill -9 $$", 137), ("set -e; false", 1), ("logout", None), ("kill -HUP $$", 129)]
)
async def test_a_shell_that_dies_is_told_and_replaced(desk: Desk, command: str, code: int | None) -> None:
    result = await desk.ctx.run_shell(command, timeout=10)
    if code is None:  # not a login shell: bash says so
        assert result.status in (Status.COMPLETED, Status.SHELL_EXITED)
    else:
        assert (result.status, result.exit_code) == (Status.SHELL_EXITED, code), result
    await usable(desk)


async def test_a_shell_that_ends_between_commands_is_told_with_the_next(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    await desk.ctx.send_keys(literal_text="exit 5", enter=True)
    result = await desk.ctx.run_shell("echo next", timeout=10)
    assert (result.status, result.stdout) == (Status.COMPLETED, "next\n"), result
    assert any("new shell" in notice for notice in result.notices), result


async def test_a_start_up_file_that_ends_the_shell_is_an_error_soon(open_desk: OpenDesk) -> None:
    desk = await open_desk(rc={".bash_profile": "exit 1\n"}, prompt_timeout=5.0)
    with pytest.raises(ShellNotReady, match="no prompt") as caught:
        await desk.ctx.run_shell("echo never", timeout=15)
    assert "start-up file" in str(caught.value.hint)


async def test_a_start_up_file_that_hangs_is_an_error_that_names_it(open_desk: OpenDesk) -> None:
    desk = await open_desk(rc={".bash_profile": "sleep 404.1\n"}, prompt_timeout=1.0)
    with pytest.raises(ShellNotReady, match=r"sleep 404\.1"):
        await desk.ctx.run_shell("echo never", timeout=15)
    assert desk.processes("sleep 404.1")


async def test_a_start_up_file_that_asks_gets_no_command_for_an_answer(open_desk: OpenDesk) -> None:
    desk = await open_desk(
        rc={".bash_profile": "read -s -p 'Passphrase: ' x; echo \"$x\" >answer\n"}, prompt_timeout=1.0
    )
    with pytest.raises(ShellNotReady, match="Passphrase"):
        await desk.ctx.run_shell("echo never", timeout=15)
    await desk.ctx.send_keys(literal_text="right", enter=True)
    assert (await desk.ctx.run_shell("cat answer", timeout=15)).stdout == "right\n"


TRAPS = """#!/bin/bash
cd "$(dirname "$0")"
trap 'echo HUP >>got; exit 5' HUP
trap 'echo INT >>got; exit 6' INT
trap 'echo TERM >>got; exit 7' TERM
echo ready
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("control_mode", ["auto", "never"])
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize(
    ("name", "code", "before", "after"),
    [("sighup", 5, "", ""), ("HUP", 5, "true; ", "; touch $HOME/next"), ("int", 6, "", ""), ("HUP", 5, "", "")],
)
async def test_the_signal_that_was_asked_for_is_the_first(
    open_desk: OpenDesk, control_mode: str, other: bool, name: str, code: int, before: str, after: str
) -> None:
    desk = await open_desk(control_mode=control_mode)
    (desk.home / "prog").write_text(TRAPS)
    (desk.home / "prog").chmod(0o755)
    job = await desk.ctx.run_shell(f"{before}{desk.home}/prog{after}", wait=False)
    job_id = job.job_id or ""
    await until(lambda: desk.processes(f"/bin/bash {desk.home}/prog"))
    await _said(desk, job_id, "ready")
    if other:
        async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as second:
            killed = await second.kill(job_id, signal=name)
    else:
        killed = await desk.ctx.kill(job_id, signal=name)
    assert killed.status is Status.INTERRUPTED, killed
    await until(lambda: (desk.home / "got").exists() and (desk.home / "got").read_text())
    assert (desk.home / "got").read_text() == name.upper().removeprefix("SIG") + "\n"
    assert after or killed.exit_code == code, killed
    assert not (desk.home / "next").exists()


async def _said(desk: Desk, job_id: str, word: str) -> None:
    async for chunk in desk.ctx.follow(job_id):
        if word.encode() in chunk:
            return


async def test_a_word_that_is_no_signal_is_refused(desk: Desk) -> None:
    job = await desk.ctx.run_shell("sleep 424.1", wait=False)
    with pytest.raises(ValueError, match="not a valid signal"):
        await desk.ctx.kill(job.job_id or "", signal="nosuch")
    assert (await desk.ctx.job(job.job_id or "")).status is Status.RUNNING
