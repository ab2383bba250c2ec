"""A harness in a process of its own, whose memory and wake-ups can be told from the bench's.

``python -m tests.bench.child KIND COUNT COMMANDS``, with ``{"target": ..., "config": {...}}`` on stdin; it prints one
JSON document per step, and goes on at each line on stdin.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from harness import Config, ExecutionContext, connect

AT_A_TIME = 10


def memory(pid: int | str = "self") -> dict[str, int]:
    """Kilobytes of a process, this one when none is named: resident, and its own alone."""
    gc.collect()
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = {name: int(kb) for name, kb in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
    return {"rss": found["Rss"], "uss": found["Private_Clean"] + found["Private_Dirty"]}


def wake_ups() -> int:
    """How often any thread of this process has slept and been woken."""
    texts = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
    return sum(int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[0]) for text in texts)


def say(**values: Any) -> None:
    print(json.dumps(values), flush=True)


@asynccontextmanager
async def contexts(order: dict[str, Any], count: int) -> AsyncIterator[list[ExecutionContext]]:
    """So many contexts of one target, each with a connection of its own (and a tmux server, as on as many hosts)."""
    config = Config(**{**order["config"], "ssh_options": tuple(order["config"]["ssh_options"]), "env": ()})
    sockets = order["sockets"] or [config.tmux_socket]
    done, opened = anyio.Event(), []
    limit = anyio.CapacityLimiter(AT_A_TIME)

    async def hold(number: int) -> None:
        """Each in a task of its own, which must be the one that leaves it."""
        async with AsyncExitStack() as stack:
            async with limit:
                own = replace(config, tmux_socket=sockets[number % len(sockets)])
                ctx = await stack.enter_async_context(connect(order["target"], tmux=order["tmux"], config=own))
            opened.append(ctx)
            if len(opened) == count:
                ready.set()
            await done.wait()

    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(hold, number)
        await ready.wait()
        yield opened
        done.set()


async def idle(order: dict[str, Any], seconds: int) -> None:
    """One context: its memory, then a silent command."""
    async with contexts(order, 1) as (ctx,):
        await ctx.run_shell("true")
        say(step="ready", **memory())
        sys.stdin.readline()
        before, began = wake_ups(), time.monotonic()
        result = await ctx.run_shell(f"sleep {seconds}", timeout=seconds + 30)
        say(step="waited", wake_ups=wake_ups() - before, seconds=time.monotonic() - began, exit_code=result.exit_code)
        sys.stdin.readline()


async def fleet(order: dict[str, Any], count: int, commands: int) -> None:
    """Many contexts: what each weighs, and how many commands they do in all."""
    async with contexts(order, 1):
        before = memory()
    began = time.monotonic()
    async with contexts(order, count) as all_of_them:
        opened = time.monotonic() - began
        idle_memory = memory()
        for _ in range(2):
            await _run_all(all_of_them, 1, [])
        values: list[float] = []
        began, cpu = time.monotonic(), time.process_time()
        await _run_all(all_of_them, commands, values)
        elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
        say(before=before, idle=idle_memory, after=memory(), opened=opened, elapsed=elapsed, cpu=cpu, values=values)
        sys.stdin.readline()


async def _run_all(opened: list[ExecutionContext], commands: int, values: list[float]) -> None:
    async def run(ctx: ExecutionContext) -> None:
        for _ in range(commands):
            began = time.perf_counter()
            result = await ctx.run_shell("true", timeout=300)
            assert result.exit_code == 0, result
            values.append((time.perf_counter() - began) * 1e3)

    async with anyio.create_task_group() as tasks:
        for ctx in opened:
            tasks.start_soon(run, ctx)


async def main(kind: str, count: int, commands: int) -> None:
    order = json.loads(sys.stdin.readline())
    if kind == "idle":
        await idle(order, count)
    else:
        await fleet(order, count, commands)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
