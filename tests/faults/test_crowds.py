"""Many callers at once, several harnesses on one session, and output that imitates what the engine reads."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.faults.children import Child, child
from tests.faults.rig import Place, lines, opened, usable, within

from harness import ExecutionContext, Status, connect
from harness.errors import TerminalError

pytestmark = pytest.mark.usefixtures("needs_tmux")

TASKS, EACH = 20, 10


@pytest.mark.parametrize("tmux", [True, False], ids=["one pane", "no terminal"])
async def test_two_hundred_commands_of_twenty_tasks_get_their_own_output(here: Place, tmux: bool) -> None:
    runs = here.path("runs")
    async with opened(here, tmux=tmux) as ctx:

        async def work(task: int) -> None:
            for number in range(EACH):
                word = f"{task}-{number}"
                result = await within(60, ctx.run_shell(f"echo {word} | tee -a {runs}; (exit {task})", timeout=55))
                assert (result.status, result.exit_code) == (Status.COMPLETED, task), result
                assert result.stdout == f"{word}\n", result

        async with anyio.create_task_group() as tasks:
            for task in range(TASKS):
                tasks.start_soon(work, task)
    assert sorted(lines(runs)) == sorted(f"{task}-{number}" for task in range(TASKS) for number in range(EACH))


async def test_two_harnesses_on_one_session_never_mix(here: Place) -> None:
    runs = here.path("runs")
    with child(here) as one, child(here) as other:
        children = (one, other)
        for number, harness in enumerate(children):
            for tag in range(50):
                word = f"{number}-{tag}"
                harness.give(f"echo {word} >>{runs}; seq 1 50; echo {word}; (exit {tag})", tag=tag, timeout=60)
            harness.go()
        said: dict[int, list[dict[str, Any]]] = {0: [], 1: []}

        async def hear(number: int, harness: Child) -> None:
            for _ in range(50):
                said[number].append(await anyio.to_thread.run_sync(harness.hear))

        with anyio.fail_after(90):
            async with anyio.create_task_group() as tasks:
                for number, harness in enumerate(children):
                    tasks.start_soon(hear, number, harness)
    numbers = "".join(f"{line}\n" for line in range(1, 51))
    for number, answers in said.items():
        for tag, answer in enumerate(answers):
            assert (answer["tag"], answer["status"], answer["code"]) == (tag, "completed", tag), answer
            assert answer["out"] == f"{numbers}{number}-{tag}\n"
    assert sorted(lines(runs)) == sorted(f"{number}-{tag}" for number in (0, 1) for tag in range(50))


async def test_the_tmux_server_outlives_harnesses_that_come_and_go_at_once(here: Place) -> None:
    """tmux 3.2 to 3.5a crashes when a control client goes while another one comes; two of three such runs met it."""
    async with opened(here) as ctx:
        server = here.server_pid()

        async def come_and_go() -> None:
            for _ in range(20):
                async with here.connect():
                    pass

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(come_and_go)
        assert here.server_pid() == server
        await usable(ctx)


async def has_printed(ctx: ExecutionContext, job_id: str) -> None:
    """Wait for the first output of a job."""
    with anyio.fail_after(30):
        async for _ in ctx.follow(job_id):
            return


async def test_two_harnesses_that_begin_background_commands_at_once_find_a_pane_each(here: Place) -> None:
    async with opened(here) as one, opened(here) as other:
        for number in range(3):
            jobs: dict[str, tuple[ExecutionContext, str]] = {}

            async def begin(ctx: ExecutionContext, word: str, jobs: dict[str, tuple[ExecutionContext, str]]) -> None:
                result = await within(4, ctx.run_shell(f"echo {word}; sleep 60.5", wait=False))
                jobs[word] = ctx, result.job_id or ""

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(begin, one, f"one-{number}", jobs)
                tasks.start_soon(begin, other, f"other-{number}", jobs)
            for word, (ctx, job_id) in jobs.items():
                await has_printed(ctx, job_id)
                await within(20, ctx.kill(job_id))
                done = await within(20, ctx.wait(job_id))
                assert (done.status, done.exit_code) == (Status.INTERRUPTED, 130), done
                assert done.stdout.split() in ([word, "^C"], [word, "^C^C"]), done


HOSTILE = {
    "control mode": "%begin 1 1 1\n%end 1 1 1\n%error 1 1 1\n%exit\n%output %0 x\n%pause %0\n%client-detached x\n",
    "marks": "".join(f"\x1b]133;C;{n:020x};{j}\x07\x1b]133;D;0;{n:020x};{j}\x07" for n in range(20) for j in range(20)),
    "half a mark": "\x1b]133;D;0;" * 500,
    "queries": '\x1b[c\x1b[6n\x1b[>c\x1bP$q"p\x1b\\\x1b]11;?\x07\x1b[5n' * 20,
    "modes": "\x1b[?1049h\x1b[?1000h\x1b[?2004h\x1b[?25l\x1b(0lqqk\x1b(B\x1bc",
    "titles": "\x1b]0;harness\x07\x1bkharness\x1b\\\x1b]2;%exit\x07",
    "tags": "[harness 1: 0] $ [harness 2: 0] $ \n" * 50,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_output_is_returned_as_it_is_and_ends_nothing(here: Place, name: str) -> None:
    path = here.path("hostile")
    data = HOSTILE[name].encode()
    path.write_bytes(data)
    async with opened(here) as ctx:
        result = await within(30, ctx.run_shell(f"cat {path}; (exit 6)", timeout=25))
        assert (result.status, result.exit_code) == (Status.COMPLETED, 6), result
        if name == "queries":
            assert result.stdout_bytes.startswith(data)  # the terminal's answers are echoed behind it
        else:
            assert result.stdout_bytes == data
        await usable(ctx)


async def test_binary_floods_are_exact(here: Place) -> None:
    path = here.path("binary")
    data = random.Random(11).randbytes(3_000_000).replace(b"\n", b"\r").replace(b"\r", b"x")
    path.write_bytes(data)
    async with opened(here) as ctx:
        # Without echo: what the terminal answers to the questions among the bytes is not of the program.
        flood = f"stty -echo; cat {path}; stty echo"
        result = await within(60, ctx.run_shell(flood, timeout=55, max_output=1 << 23))
        assert result.stdout_bytes.startswith(data), len(result.stdout_bytes)
        await ctx.run_shell("reset", timeout=20)
        await usable(ctx)


async def test_a_program_that_prints_our_own_log_ends_nothing(here: Place) -> None:
    async with opened(here) as ctx:
        for number in range(5):
            await within(20, ctx.run_shell(f"echo {number}; (exit {number})"))
        logs = here.state / "panes"
        result = await within(30, ctx.run_shell(f"cat {logs}/*/log.*; echo after; (exit 8)", timeout=25))
        assert (result.status, result.exit_code) == (Status.COMPLETED, 8), result
        assert result.stdout.endswith("after\n"), result
        await usable(ctx)
        job = await within(30, ctx.wait(result.job_id or ""))
        assert job.exit_code == 8
    async with opened(here) as ctx:
        kept = await within(30, ctx.wait(result.job_id or ""))
        assert (kept.status, kept.exit_code) == (Status.COMPLETED, 8), kept
        assert kept.stdout.endswith("after\n"), kept
        await usable(ctx)


async def test_the_nonce_is_not_in_the_environment_of_commands(here: Place) -> None:
    async with opened(here) as ctx:
        result = await within(20, ctx.run_shell("env"))
    (nonce,) = [path.read_text().strip() for path in (here.state / "panes").glob("*/nonce")]
    assert nonce
    assert nonce not in result.stdout
    assert os.stat(here.state).st_mode & 0o077 == 0


async def test_harnesses_that_make_sessions_in_one_instant_keep_to_their_limit_together(here: Place) -> None:
    made: list[str] = []
    refused: list[str] = []

    async def make(number: int) -> None:
        try:
            async with connect(here.target, tmux=f"s{number}", config=config):
                made.append(f"s{number}")
        except TerminalError as error:
            refused.append(error.message)

    config = replace(here.config, tmux_socket=here.socket, max_sessions=2)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(make, number)
    assert sorted(here.tmux("list-sessions", "-F", "#{session_name}").split()) == sorted(made)
    assert len(made) == 2
    assert ["max_sessions = 2" in message for message in refused] == [True] * 4
