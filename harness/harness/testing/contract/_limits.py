"""Checks of limits: time, output, cancellation, and many commands at once, with proof that killed processes exited."""

from __future__ import annotations

from typing import Any

import anyio

from ...command import LiveView
from ...context import ExecutionContext
from ...results import ShellResult, Status
from ._commands import MIB, completed, usable
from ._registry import check, scratch, until

LIMITS = (0.5, 2.0, 8.0, 30.0)
"""Time limits to try: a command that has not begun by the first one, on a busy target, gets the next one."""
PRINTED_BEFORE = 0.5
"""Seconds between the output of a command and the file that proves it."""

# A process tree that is hard to kill: ignored signals, a grandchild that holds the output, each writing its id first.
STUBBORN = """echo started
trap '' TERM INT
sh -c 'trap "" TERM INT HUP; echo $$ >{0}/grandchild; while :; do sleep 5; done' &
sh -c 'trap "" TERM INT HUP; echo $$ >{0}/child; while :; do sleep 5; done'
"""
POLITE = "echo started; sh -c 'echo $$ >{0}/grandchild; exec sleep 300' & sh -c 'echo $$ >{0}/child; exec sleep 300'"


async def _have_started(ctx: ExecutionContext, directory: str) -> bool:
    """Return whether both processes of the tree have written their ids."""
    sizes = {entry.name: entry.size for entry in await ctx.list_dir(directory)}
    return all(sizes.get(name, 0) > 1 for name in ("child", "grandchild"))


async def _pids(ctx: ExecutionContext, directory: str) -> list[int]:
    """Wait for both process ids of the tree, and return them."""
    await until(lambda: _have_started(ctx, directory), "the processes have started")
    return [int((await ctx.read_file(f"{directory}/{name}")).text) for name in ("child", "grandchild")]


async def _gone(ctx: ExecutionContext, directory: str, pids: list[int]) -> None:
    """Assert that the processes have exited, by the target's process list and not the context's state."""

    async def none_left() -> bool:
        return all(state in ("", "Z") for state in await _states(ctx, pids))

    await until(none_left, f"processes {pids} have ended", timeout=5)


async def _states(ctx: ExecutionContext, pids: list[int]) -> list[str]:
    """Return the first letter of each process's state, or an empty text for a process that does not exist."""
    script = "ps -o stat= -p {0} 2>/dev/null || grep State: /proc/{0}/status 2>/dev/null | cut -f 2"
    command = "; ".join(f"{script.format(pid)}; echo of {pid}" for pid in pids)
    text, states = completed(await ctx.run_shell(command, tty=False)).stdout, []
    for pid in pids:
        state, _, text = text.partition(f"of {pid}\n")
        states.append(state.strip()[:1])
    return states


async def run_past_limit(ctx: ExecutionContext, directory: str, rest: str, **options: Any) -> ShellResult:
    """Run a command that prints "one" and then does not end, and return its result at its time limit.

    The command creates a file a moment after it has printed. If the file is there at the limit, the output must be too.
    """
    for timeout in (1.0, *LIMITS[1:]):
        name, limit = f"printed-{timeout:g}", anyio.current_time() + timeout
        command = f"echo one; sleep {PRINTED_BEFORE:g}; : >{directory}/{name}; {rest}"
        result = await ctx.run_shell(command, timeout=timeout, **options)
        if result.stdout_bytes or result.status not in (Status.RUNNING, Status.TIMED_OUT):
            break
        printed = name in [entry.name for entry in await ctx.list_dir(directory)]
        in_time = printed and anyio.current_time() < limit + PRINTED_BEFORE / 2
        assert not in_time, f"the output before the limit is lost: {result}"
        await ctx.kill(result.job_id or "")
    return result


async def _ended_at_its_deadline(ctx: ExecutionContext, script: str) -> None:
    started = anyio.current_time()
    for timeout in LIMITS:
        async with scratch(ctx) as directory:
            result = await ctx.run_shell(script.format(directory), timeout=timeout, on_timeout="kill")
            assert result.status is Status.TIMED_OUT, result
            assert result.exit_code is None, result
            assert anyio.current_time() - started < timeout + 18
            if await _have_started(ctx, directory):
                assert result.stdout.splitlines()[0] == "started", result
                await _gone(ctx, directory, await _pids(ctx, directory))
                break
            started = anyio.current_time()
    else:
        raise AssertionError(f"the processes did not start within {timeout:g} s")
    await usable(ctx)


@check("At its deadline a command with on_timeout='kill' is ended with everything it started, and its output is kept.")
async def timeout_kills_the_whole_group(ctx: ExecutionContext) -> None:
    await _ended_at_its_deadline(ctx, POLITE)


@check("Programs that ignore TERM and INT are ended at the deadline too.")
async def timeout_kills_what_ignores_signals(ctx: ExecutionContext) -> None:
    await _ended_at_its_deadline(ctx, STUBBORN)


@check("With on_timeout='keep' a command runs on, and its result can be had later by its job id.")
async def timeout_keeps(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        result = await run_past_limit(ctx, directory, f"{gate(directory)}; echo two; (exit 7)", on_timeout="keep")
        assert result.status is Status.RUNNING, result
        assert result.exit_code is None, result
        assert result.stdout == "one\n", result
        assert result.job_id, result
        early = await ctx.wait(result.job_id, timeout=0.5)
        assert (early.status, early.stdout) == (Status.RUNNING, "one\n"), early
        await open_gate(ctx, directory)
        late = await ctx.wait(result.job_id, timeout=30)
        assert (late.status, late.exit_code, late.stdout) == (Status.COMPLETED, 7, "one\ntwo\n"), late
    await usable(ctx)


@check("wait may be a number of seconds or a duration such as '1s'.")
async def wait_takes_durations(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        result = await ctx.run_shell(gate(directory), wait="500ms", on_timeout="keep")
        assert result.status is Status.RUNNING, result
        await open_gate(ctx, directory)
        completed(await ctx.wait(result.job_id or "", timeout=30))


@check("Cancelling the caller ends the command with everything it started; the context stays usable.")
async def cancelling_ends_the_command(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        pids: list[int] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ctx.run_shell, POLITE.format(directory))
            pids = await _pids(ctx, directory)
            tasks.cancel_scope.cancel()
        await _gone(ctx, directory, pids)
    await usable(ctx)


@check("Beyond max_output the head and the tail are returned, and truncated counts exactly what is between.")
async def long_output_keeps_head_and_tail(ctx: ExecutionContext) -> None:
    whole = b"".join(b"%d\n" % number for number in range(1, 100_001))
    for limit in (10_000, 1000, 10):
        result = completed(await ctx.run_shell("seq 1 100000", max_output=limit))
        kept = result.stdout_bytes
        assert 0 < len(kept) <= limit, (limit, len(kept))
        assert result.truncated == len(whole) - len(kept), result.truncated
        place, omitted = result.stdout_gap or (0, 0)
        assert whole[:place] + whole[place + omitted :] == kept, result.stdout_gap
        head = next(size for size in range(len(kept), -1, -1) if whole.startswith(kept[:size]))
        assert whole.endswith(kept[head:]), (limit, head)
        assert 0 < head < len(kept), (limit, head)
    result = completed(await ctx.run_shell("seq 1 100000", max_output=len(whole)))
    assert (result.stdout_bytes, result.truncated, result.stdout_gap) == (whole, 0, None)


@check("max_output=0 returns no output and counts all of it.")
async def no_output_wanted(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("printf 12345", max_output=0))
    assert (result.stdout_bytes, result.truncated) == (b"", 5), result


@check("The whole of a truncated output stays with the job.")
async def truncated_output_is_kept(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("seq 1 100000", max_output=100))
    data = b"".join([chunk async for chunk in ctx.follow(result.job_id or "")])
    assert data == b"".join(b"%d\n" % number for number in range(1, 100_001))


@check("on_output receives the output as it comes, all of it, in order.")
async def output_is_reported_live(ctx: ExecutionContext) -> None:
    chunks: list[bytes] = []
    seen = anyio.Event()

    def receive(data: bytes) -> None:
        chunks.append(data)
        seen.set()

    async with scratch(ctx) as directory, anyio.create_task_group() as tasks:

        async def run() -> None:
            script = f"echo first; {gate(directory)}; seq 1 20000"
            completed(await ctx.run_shell(script, on_output=receive, max_output=MIB))

        tasks.start_soon(run)
        with anyio.fail_after(20):
            await seen.wait()  # before the command can end
        await open_gate(ctx, directory)
    assert b"".join(chunks) == b"first\n" + b"".join(b"%d\n" % number for number in range(1, 20_001))


@check("A live view gets output in order, is told how much it does not get, and always gets the end.")
async def output_is_viewed(ctx: ExecutionContext) -> None:
    pieces: list[bytes | int] = []
    view = LiveView(pieces.append, pieces.append)
    result = completed(await ctx.run_shell("seq 1 300000", on_output=view, max_output=4 * MIB))
    whole, at = b"".join(b"%d\n" % number for number in range(1, 300_001)), 0
    assert result.stdout_bytes == whole
    for piece in pieces:
        if isinstance(piece, bytes):
            assert whole[at : at + len(piece)] == piece, at
        at += piece if isinstance(piece, int) else len(piece)
    assert at == len(whole)
    assert isinstance(pieces[-1], bytes)


@check("200 commands from 20 tasks at once: each gets its own output and its own exit code.")
async def many_commands_at_once(ctx: ExecutionContext) -> None:
    ids: list[str] = []

    async def worker(first: int) -> None:
        for number in range(first, 200, 20):
            result = completed(await ctx.run_shell(f"echo {number}; (exit {number % 256})"), number % 256)
            assert result.stdout == f"{number}\n", result
            ids.append(result.job_id or "")

    async with anyio.create_task_group() as tasks:
        for first in range(20):
            tasks.start_soon(worker, first)
    assert len(set(ids)) == 200, "every command has a job id of its own"


def gate(directory: str) -> str:
    """Return shell text that waits until :func:`open_gate`."""
    return f"while ! [ -e {directory}/go ]; do sleep 0.1; done"


async def open_gate(ctx: ExecutionContext, directory: str) -> None:
    """Let a command that waits at the gate continue, without using the terminal."""
    await ctx.write_file(f"{directory}/go", b"")
