"""``tty=False`` in a terminal: a fresh ``sh`` with separate streams, shown to people as it runs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until
from tests.support.plain_tmux import plain_tmux

from harness import OutputDropped, Status, connect

__all__ = ["desk", "open_desk"]

SHELLS = ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish", "/bin/mksh"]


@pytest.fixture(params=["control", "plain"])
async def either(
    open_desk: OpenDesk, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """A desk with control mode, or without."""
    if request.param == "plain":
        monkeypatch.setenv("PATH", str(plain_tmux(tmp_path, logs=True)), prepend=":")
    return await open_desk()


@pytest.mark.parametrize("shell", SHELLS)
async def test_it_is_a_fresh_sh_and_changes_nothing_in_the_pane(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    before = (await desk.ctx.run_shell("pwd")).stdout
    probe = (
        "cd /; A=1; export B=2; f() { :; }; set -e; echo ${BASH_VERSION-}${ZSH_VERSION-}${FISH_VERSION-}; echo $0 $#"
    )
    result = await desk.ctx.run_shell(probe, tty=False)
    async with connect(config=desk.config) as without:
        assert (result.stdout, result.stderr, result.exit_code) == ((await without.run_shell(probe)).stdout, "", 0)
    ended = await desk.ctx.run_shell("echo last; exit 3; echo never", tty=False)
    assert (ended.status, ended.exit_code, ended.stdout) == (Status.COMPLETED, 3, "last\n")
    after = await desk.ctx.run_shell("pwd; echo $A $B")
    assert (after.stdout.strip(), after.notices) == (before.strip(), ())


async def test_the_words_of_the_panes_shell_mean_nothing_in_it(desk: Desk) -> None:
    await desk.ctx.run_shell(
        "sh() { echo a function; }; alias sh='echo an alias' ls='echo an alias'; shopt -s nullglob"
    )
    result = await desk.ctx.run_shell("ls -d /; echo *.nothing; sh -c 'echo fine' >&2", tty=False)
    assert (result.stdout, result.stderr) == ("/\n*.nothing\n", "fine\n")


@everywhere
async def test_people_see_the_command_and_both_streams_while_it_runs(desk: Desk) -> None:
    operator = await desk.operator(150, 42)
    await desk.ctx.run_shell("mkfifo gate")
    async with anyio.create_task_group() as tasks:
        results = []

        async def run() -> None:
            command = "echo to out; echo to err >&2; cat gate; printf rest"
            results.append(await desk.ctx.run_shell(command, tty=False))

        tasks.start_soon(run)
        await operator.sees("echo to out; echo to err >&2")
        await operator.sees("\nto out")
        await operator.sees("\nto err")
        await desk.open_gate()
    assert [(one.stdout, one.stderr, one.exit_code) for one in results] == [("to out\nrest", "to err\n", 0)]
    await operator.sees("\nrest")


async def test_callbacks_get_each_stream_exactly_as_it_is_written(either: Desk) -> None:
    await either.ctx.run_shell("mkfifo gate")
    out, err, first = bytearray(), bytearray(), anyio.Event()

    def on_output(data: bytes) -> None:
        out.extend(data)
        first.set()

    async with anyio.create_task_group() as tasks:
        results = []

        async def run() -> None:
            command = "printf 'a\\r\\n\\0'; printf e >&2; cat gate; head -c 1000000 /dev/zero | tr '\\0' x"
            results.append(
                await either.ctx.run_shell(command, tty=False, on_output=on_output, on_stderr=err.extend, max_output=10)
            )

        tasks.start_soon(run)
        with anyio.fail_after(20):
            await first.wait()
        assert out.startswith(b"a\r\n\0")
        await either.open_gate()
    assert (bytes(out) == b"a\r\n\0" + b"x" * 1_000_000, bytes(err)) == (True, b"e")
    assert results[0].truncated == 1_000_004 - 10


def kept_bytes(desk: Desk, job_id: str | None) -> int:
    """What the output of a job takes on the disk."""
    return next((path.stat().st_blocks * 512 for path in desk.state.rglob(f"jobs/{job_id}.out")), 0)


FLOOD = "head -c 40000000 /dev/zero | tr '\\0' x; echo end >flooded"


async def test_the_target_keeps_the_log_limit_also_when_nobody_waits(either: Desk) -> None:
    config = replace(either.config, job_log_max_bytes=1 << 20)
    async with connect(tmux=True, config=config) as ctx:
        await ctx.run_shell("mkfifo gate first")
        job = await ctx.run_shell(f"cat first; {FLOOD}; cat gate", tty=False, wait=0.2)
    await either.open_gate("first")
    await until((either.home / "flooded").exists)
    await until(lambda: kept_bytes(either, job.job_id) <= 3 << 20, 30)
    await either.open_gate()
    async with connect(tmux=True, config=config) as ctx:
        result = await ctx.wait(job.job_id or "", timeout=20, max_output=4 << 20)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 0)
    assert set(result.stdout_bytes) == {ord("x")}
    assert result.truncated == 40_000_000 - len(result.stdout_bytes) > 30_000_000
    assert any("of stdout were dropped" in notice for notice in result.notices)


async def test_what_a_callback_did_not_get_in_time_is_an_error_and_no_hole(either: Desk) -> None:
    config = replace(either.config, job_log_max_bytes=1 << 20)
    given = bytearray()

    def slow(data: bytes) -> None:
        given.extend(data)
        until_gap = time.monotonic() + 20
        while not list(either.state.rglob("jobs/*.outgap")) and time.monotonic() < until_gap:
            time.sleep(0.05)  # the whole program is held up: nothing reads on

    async with connect(tmux=True, config=config) as ctx:
        with pytest.raises(OutputDropped, match="of stdout of job"):
            await ctx.run_shell(FLOOD, tty=False, on_output=slow)
    assert set(given) == {ord("x")}


@pytest.mark.parametrize("tty", [None, False])
async def test_an_error_of_a_callback_is_the_callers_and_leaves_no_command_behind(
    either: Desk, tty: bool | None
) -> None:
    def fail(data: bytes) -> None:
        raise LookupError(data.decode())

    for command in ("echo said", "echo said; sleep 300.875"):
        with pytest.raises(LookupError, match="said"):
            await either.ctx.run_shell(command, tty=tty, on_output=fail)
        await until(lambda: not either.processes("sleep 300.875"))
        assert (await either.ctx.run_shell("echo next", tty=tty)).stdout == "next\n"


async def test_what_is_left_running_in_the_background_keeps_nobody_waiting(either: Desk) -> None:
    with anyio.fail_after(20):
        result = await either.ctx.run_shell("sleep 300.125 & echo started", tty=False)
    assert (result.status, result.stdout) == (Status.COMPLETED, "started\n")


@pytest.mark.parametrize("how", ["timeout", "keys", "kill"])
async def test_it_can_be_ended_and_what_it_wrote_is_there(either: Desk, how: str) -> None:
    command = "echo before; sleep 300.375; echo after"
    if how == "timeout":
        result = await either.ctx.run_shell(command, tty=False, timeout=1, on_timeout="kill")
        assert result.status is Status.TIMED_OUT
    else:
        job = await either.ctx.run_shell(command, tty=False, wait=0.5)
        await (either.ctx.send_keys("C-c") if how == "keys" else either.ctx.kill(job.job_id or ""))
        result = await either.ctx.wait(job.job_id or "", timeout=20)
        assert result.exit_code == 130
        assert how == "keys" or result.status is Status.INTERRUPTED
    assert (result.stdout, result.stderr) == ("before\n", "")
    await until(lambda: not either.processes("sleep 300.375"))
    assert (await either.ctx.run_shell("echo next")).stdout == "next\n"


async def test_a_flood_is_exact_and_does_not_flood_the_pane(desk: Desk) -> None:
    result = await desk.ctx.run_shell("seq 2000000", tty=False, max_output=1 << 25)
    assert result.stdout_bytes.count(b"\n") == 2_000_000
    assert len(await desk.ctx.capture_pane(start="-", end="-")) < 2_000_000
