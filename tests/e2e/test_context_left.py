"""A context that was left: every call on it says so at once, and what still waits in it ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.desk import Desk, desk, open_desk

from harness import ContextClosed, ExecutionContext, connect

__all__ = ["desk", "open_desk"]

CALLS: dict[str, Callable[[ExecutionContext], Awaitable[Any]]] = {
    "run_shell": lambda ctx: ctx.run_shell("touch ran"),
    "without waiting": lambda ctx: ctx.run_shell("touch ran", wait=False),
    "beside": lambda ctx: ctx.run_helper("touch ran"),
    "read_file": lambda ctx: ctx.read_file("/etc/passwd"),
    "write_file": lambda ctx: ctx.write_file("/tmp/never", "x"),
    "stat": lambda ctx: ctx.stat("/"),
    "jobs": lambda ctx: ctx.jobs(),
    "job": lambda ctx: ctx.job("1"),
    "wait": lambda ctx: ctx.wait("1"),
    "kill": lambda ctx: ctx.kill("1"),
    "read_job": lambda ctx: ctx.read_job("1"),
    "in another pane": lambda ctx: ctx.in_pane("other").run_shell("touch ran"),
}
OF_TERMINALS: dict[str, Callable[[ExecutionContext], Awaitable[Any]]] = {
    "capture_pane": lambda ctx: ctx.capture_pane(),
    "send_keys": lambda ctx: ctx.send_keys("Enter"),
    "create_pane": lambda ctx: ctx.create_pane("q"),
    "list_panes": lambda ctx: ctx.list_panes(),
}


@pytest.mark.parametrize(("tmux", "control_mode"), [(False, "auto"), (True, "auto"), (True, "never")])
async def test_every_call_says_that_the_context_was_left(desk: Desk, tmux: bool, control_mode: str) -> None:
    config = replace(desk.config, control_mode=control_mode)
    async with connect("local:", tmux=tmux, config=config) as ctx:
        pane = ctx.in_pane("main") if tmux else ctx
        await ctx.run_shell("true")
        assert ctx.interactive_command(["sh", "-c", "true"]) == ["sh", "-c", "true"]
    for name, call in {**CALLS, **(OF_TERMINALS if tmux else {})}.items():
        with anyio.fail_after(3), pytest.raises(ContextClosed, match="has been left"):
            await call(ctx)
        with pytest.raises(ContextClosed):
            await pane.run_shell("true")
        assert str(ctx.target) in repr(ctx), name
    with pytest.raises(ContextClosed):
        ctx.follow("1")
    with pytest.raises(ContextClosed):
        ctx.interactive_command(["sh"])
    assert not Path(desk.home, "ran").exists()


@pytest.mark.parametrize("tmux", [False, True])
async def test_what_waits_in_a_context_ends_with_it(desk: Desk, tmux: bool) -> None:
    waiting: list[asyncio.Task[Any]] = []
    async with connect("local:", tmux=tmux, config=desk.config) as ctx:
        job_id = (await ctx.run_shell("sleep 425.1", wait=False)).job_id or ""
        followed = ctx.follow(job_id)
        calls = (ctx.run_shell("sleep 426.1"), ctx.wait(job_id), ctx.read_job(job_id, wait=60.0), anext(followed))
        waiting += [asyncio.ensure_future(call) for call in calls]
        with anyio.fail_after(10):
            while not (desk.processes("sleep 425.1") and desk.processes("sleep 426.1")):  # noqa: ASYNC110  # others' doing
                await anyio.sleep(0.02)
    with anyio.fail_after(10):
        for ended in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(ended, ContextClosed), ended
    assert desk.processes("sleep 425.1")
    assert not desk.processes("sleep 426.1")


async def test_a_part_of_a_context_that_is_kept_ends_with_it_too(desk: Desk) -> None:
    async with connect("local:", config=desk.config) as ctx:
        files = ctx.files
        await files.read("/etc/passwd")
    with anyio.fail_after(3), pytest.raises(Exception, match="closed"):
        await files.read("/etc/passwd")
