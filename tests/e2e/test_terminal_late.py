"""A command that has ended keeps its own status, also if the reader of its output is slower than its time limit.

The reader is a callback that blocks, as a write to a slow pipe does: the event loop stops until the target has recorded
the command's end and the time limit has passed, and it is slow afterwards too.

A pane's first prompt is not lost either: if this process reads it together with the answer that the pane exists, or if
it is written to the log only after another process has read the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, open_desk

from harness import Config, Status, connect
from harness_backends.tmux.channel.control_client import ControlClient
from harness_backends.tmux.setup import Setup

__all__ = ["desk", "open_desk"]

LIMIT = 2.0
LINES = 60_000
COMMAND = f"seq 1 {LINES}; cat gate >/dev/null; echo the end; sh -c 'exit 3'"
NESTED = "nested shell"


class SlowReader:
    """A callback that blocks at the first output until the end is recorded, and a while at all further output."""

    def __init__(self, desk: Desk, *, recorded: bool = True) -> None:
        self._open_gate, self._jobs, self._recorded = partial(desk._open_gate, "gate"), desk.state / "jobs", recorded
        self._blocked = 0.0
        self.data = bytearray()

    def __call__(self, data: bytes) -> None:
        if not self.data:
            begun = time.monotonic()
            _block_until(self._open_gate)  # the command ends while this blocks
            if self._recorded:
                _block_until(self._is_recorded)
            time.sleep(max(0.3, begun + LIMIT + 0.1 - time.monotonic()))
        elif self._blocked < 4:
            self._blocked += 0.3
            time.sleep(0.3)
        self.data += data

    def _is_recorded(self) -> bool:
        last = max((path for path in self._jobs.glob("*.cmd") if path.stat().st_size), key=lambda path: int(path.stem))
        code = last.with_suffix(".exit")
        return code.exists() and code.stat().st_size > 0


def _block_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and not condition():
        time.sleep(0.01)


@pytest.mark.parametrize("on_timeout", ["kill", "keep"])
@pytest.mark.parametrize("kind", ["control mode", NESTED, "fallback mode", "separate streams"])
async def test_an_end_before_the_time_limit_that_is_read_after_it_is_the_commands_own(
    open_desk: OpenDesk, kind: str, on_timeout: Any
) -> None:
    desk = await open_desk(control_mode="never" if kind == "fallback mode" else "auto")
    await desk.ctx.run_shell("mkfifo gate")
    if kind == NESTED:
        await desk.ctx.run_shell("bash --norc", timeout=1)
    reader = SlowReader(desk, recorded=kind != NESTED)
    tty = False if kind == "separate streams" else None
    result = await desk.ctx.run_shell(COMMAND, timeout=LIMIT, on_timeout=on_timeout, on_output=reader, tty=tty)
    assert (result.status, result.exit_code) == (Status.COMPLETED, 3), result.notices
    assert result.stdout.endswith("the end\n")
    assert reader.data.decode().replace("\r", "").splitlines() == [*map(str, range(1, LINES + 1)), "the end"]
    job = await desk.ctx.job(result.job_id or "")
    assert (job.status, job.exit_code) == (Status.COMPLETED, 3)
    after = await desk.ctx.run_shell("echo after")
    assert (after.status, after.stdout) == (Status.COMPLETED, "after\n")


async def test_the_first_prompt_of_a_new_pane_is_seen_that_is_read_with_the_answer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ControlClient._write

    async def write_and_read_late(client: ControlClient, line: bytes) -> None:
        await write(client, line)
        if b"new-window" in line:
            time.sleep(1)  # noqa: ASYNC251  # the whole event loop, as on a busy machine

    monkeypatch.setattr(ControlClient, "_write", write_and_read_late)
    with anyio.fail_after(Config().prompt_timeout / 2):
        result = await desk.ctx.run_shell("echo here", pane=(await desk.ctx.create_pane("late")).name)
    assert (result.stdout, result.exit_code) == ("here\n", 0)


async def test_the_prompt_of_anothers_pane_is_seen_whose_log_is_written_late(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Setup.log_command

    def late_command(setup: Setup, uid: str, number: int) -> str:
        limit, _, log = command(setup, uid, number).partition("exec cat")
        return f"{limit}: {log}; sleep 1.5; exec cat {log}"

    monkeypatch.setattr(Setup, "log_command", late_command)
    await desk.ctx.create_pane("late")
    await desk.ctx.run_shell("exit 3", pane="late")
    assert (await desk.ctx.run_shell("echo there", pane="late")).stdout == "there\n"
    async with connect("local:", tmux=True, config=desk.config) as ctx:
        with anyio.fail_after(Config().prompt_timeout / 2):
            result = await ctx.run_shell("echo here", pane="late")
    assert (result.stdout, result.exit_code, result.notices) == ("here\n", 0, ())
