"""Images that have little: what works there, and what people are told of the rest."""

from __future__ import annotations

import secrets
import subprocess
import time
from pathlib import Path

import anyio
import pytest
from tests.support.contained import WAYS, MakeWay, Way, make_way
from tests.support.engines import Container, container

from harness import ExecutionContext, Status
from harness.config import Config
from harness.errors import ConnectError, FileNotFound, JobNotFound, UnsupportedOperation
from harness.testing.contract import run_program

__all__ = ["make_way"]

ROOT = "root"
"""The name of that user, and of its home in the images."""

NOT_REAPING = ("sh", "-c", "rm -f /bin/ps /usr/bin/ps; exec sleep 1000000000")
"""A first process that never waits for the orphans that it gets: they stay as zombies. No ps tells them apart."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, make_way: MakeWay) -> Way:
    return make_way(request.param)


def remaining(one: Container, mark: str) -> list[str]:
    return [line for _, line in one.processes() if mark in line]


@pytest.mark.parametrize(
    ("image", "options", "place"),
    [
        ("busybox", (), f"/{ROOT}/.local/state/harness"),
        ("non-root", (), "/home/app/.local/state/harness"),
        ("no-tmp", (), f"/{ROOT}/.local/state/harness"),
        ("busybox", ("--user", "4242", "--env", "HOME="), "/tmp/harness-4242"),
        ("busybox", ("--read-only", "--tmpfs", "/tmp"), "/tmp/harness-0"),
        ("no-tmp", ("--user", "4242"), "/dev/shm/harness-4242"),
    ],
)
async def test_jobs_are_kept_where_the_container_lets_them(
    way: Way, image: str, options: tuple[str, ...], place: str
) -> None:
    with container(way.engine, image, options=options) as one:
        async with way.connect(one) as ctx:
            job = await ctx.run_shell("printf 'd\\303\\251j\\303\\240'; exit 4", wait=False)
            assert ctx.capabilities.state_dir == place
        async with way.connect(one) as ctx:
            result = await ctx.wait(job.job_id or "", timeout=20)
            assert (result.exit_code, result.stdout) == (4, "déjà")


async def test_files_work_on_a_busybox_and_fail_as_files_do_on_a_read_only_root(way: Way) -> None:
    with container(way.engine, options=("--read-only",)) as one:
        async with way.connect(one) as ctx:
            assert "root" in (await ctx.read_file("/etc/passwd")).text
            with pytest.raises(OSError, match=r"read-only|full"):
                await ctx.write_file("/etc/passwd", "x")


async def test_an_image_with_a_shell_alone_runs_commands_and_says_what_is_lost(way: Way, tmp_path: Path) -> None:
    with container(way.engine, "only-sh") as one:
        async with way.connect(one) as ctx:
            result = await ctx.run_shell("printf '%s|' \"$HARNESS_JOB\" \"$A\"; read x; echo $x; echo e >&2; exit 7",
                                         stdin="in\n", env={"A": "b\nc'd"})  # fmt: skip
            assert (result.exit_code, result.stdout, result.stderr) == (7, "d1|b\nc'd|in\n", "e\n")
            assert any("the job ends with it" in notice for notice in result.notices)
            assert (await ctx.run_shell("pwd", cwd="/pause")).stdout == "/pause\n"
            with pytest.raises(FileNotFound, match="nothing ran"):
                await ctx.run_shell("pwd", cwd="/nowhere")
            (tmp_path / "input").write_text("a line\n" * 100_000)
            counting = "n=0; while read -r x; do n=$((n + 1)); done; echo $n"
            assert (await ctx.run_shell(counting, stdin=tmp_path / "input")).stdout == "100000\n"
            with pytest.raises(FileNotFoundError):
                await ctx.run_shell("echo no", stdin=tmp_path / "missing")
            assert (await ctx.run_shell("exit 3\n" + "#" * 1_000_000)).exit_code == 3
            assert await run_program(ctx._backend.transport, ["sh", "-c", "echo on"]) == (0, b"on\n", b"")


async def test_jobs_that_the_harness_keeps_behave_as_all_jobs_while_it_lives(way: Way) -> None:
    loop = "echo up; trap '' TERM; while :; do read -r x </dev/null; done"
    with container(way.engine, "only-sh") as one:
        async with way.connect(one) as ctx:
            assert (await ctx.run_shell(loop, timeout=1)).status is Status.TIMED_OUT
            kept = await ctx.run_shell(loop, timeout=0.5, on_timeout="keep")
            assert kept.status is Status.RUNNING
            job = await ctx.run_shell("echo a; echo b", wait=False)
            done = await ctx.wait(job.job_id or "", timeout=20)
            assert (done.status, done.stdout) == (Status.COMPLETED, "a\nb\n")
            assert b"".join([data async for data in ctx.follow(job.job_id or "", offset=2)]) == b"b\n"
            killed = await ctx.kill(kept.job_id or "", grace=0.3)
            assert killed.status is Status.INTERRUPTED
            assert [item.job_id for item in await ctx.jobs()] == ["d1", "d2", "d3"]
            with pytest.raises(JobNotFound):
                await ctx.job("d99")
            await cancelled(ctx, loop)
        assert remaining(one, "trap") == []


async def test_a_failing_callback_ends_the_command_and_comes_back(way: Way) -> None:
    def fail(data: bytes) -> None:
        raise RuntimeError("on purpose")

    with container(way.engine, "only-sh") as one:
        async with way.connect(one) as ctx:
            with anyio.fail_after(30), pytest.raises(RuntimeError, match="on purpose"):
                await ctx.run_shell("echo up; while :; do :; done", on_output=fail)
            assert (await ctx.run_shell("echo on")).stdout == "on\n"


async def test_an_image_without_a_shell_is_named(way: Way) -> None:
    with container(way.engine, "no-shell") as one, pytest.raises(ConnectError, match=r"no-shell.* has no shell"):
        async with way.connect(one):
            pass


async def cancelled(ctx: ExecutionContext, command: str) -> None:
    """Cancel a command once it has written something."""
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await ctx.run_shell(command, on_output=lambda data: tasks.cancel_scope.cancel())

        tasks.start_soon(run)


@pytest.mark.parametrize("image", ["busybox", "debian"])
async def test_the_end_of_a_tree_is_proved_also_where_nobody_reaps_orphans(way: Way, image: str) -> None:
    tree = "(trap '' INT TERM; echo up; sleep 4321 & sleep 4321) & sleep 4321"
    with container(way.engine, image, command=NOT_REAPING) as one:
        async with way.connect(one) as ctx:
            result = await ctx.run_shell(tree, timeout=1, on_timeout="kill")
            assert (result.status, result.stdout) == (Status.TIMED_OUT, "up\n"), result.notices
            began = time.monotonic()
            await cancelled(ctx, tree)
            assert time.monotonic() - began < 15
            assert remaining(one, "4321") == []


async def test_a_closed_program_leaves_nothing_of_its_group(way: Way) -> None:
    with container(way.engine, command=NOT_REAPING) as one:
        async with way.connect(one) as ctx:
            script = "trap '' TERM HUP; sleep 4321 & echo up; wait; sleep 4321"
            process = await ctx._backend.transport.open_process(["sh", "-c", script])
            assert await process.receive() == b"up\n"
            with anyio.fail_after(15):
                await process.aclose()
            assert remaining(one, "4321") == []


async def test_another_user_is_taken_from_the_image_or_from_the_engine(way: Way) -> None:
    with container(way.engine, "non-root") as one:
        async with way.connect(one) as ctx:
            assert (await ctx.run_shell("id -u")).stdout == "1000\n"
            result = await ctx.run_shell("id -un; echo $A", user="nobody", env={"A": "b"})
            assert (result.stdout, result.ok) == ("nobody\nb\n", True)
            assert (await ctx.run_shell("id -u", user="root")).stdout == "0\n"
            assert (await ctx.run_shell("id -u", user="777")).stdout == "777\n"
            with pytest.raises(UnsupportedOperation, match="cannot run as stranger"):
                await ctx.run_shell("id -u", user="stranger")
        async with way.connect(one.target.replace("://", "://root@")) as ctx:
            assert (await ctx.run_shell("id -u")).stdout == "0\n"


async def test_a_command_that_the_engine_runs_as_another_user_ends_with_its_sessions(way: Way) -> None:
    with container(way.engine, "non-root") as one:
        async with way.connect(one) as ctx:
            result = await ctx.run_shell("setsid sleep 4322 & sleep 4322", user="nobody", timeout=1, on_timeout="kill")
            assert result.status is Status.TIMED_OUT, result
            assert remaining(one, "4322") == []


@pytest.mark.usefixtures("needs_tmux")
async def test_a_session_here_belongs_to_one_container_whatever_others_are_called(make_way: MakeWay) -> None:
    config = Config(tmux_socket=f"hx-{secrets.token_hex(4)}")
    name = f"hx-{secrets.token_hex(4)}"
    try:
        with container(make_way("docker").engine, name=name) as one, anyio.fail_after(60):
            async with make_way("docker").connect(f"container://{name}", tmux=True, config=config) as ctx:
                await ctx.run_shell("echo first >/who")
            with container(make_way("podman").engine, name=name) as other:
                async with make_way("podman").connect(f"container://{name}", tmux=True, config=config) as ctx:
                    assert (await ctx.run_shell("echo second >/who; hostname")).stdout == f"{other.run('hostname')}\n"
                    assert [session.default for session in await ctx.list_sessions()] == [True]
            assert one.run("cat", "/who") == "first"
    finally:
        subprocess.run(["tmux", "-L", config.tmux_socket, "kill-server"], check=False, capture_output=True, timeout=20)
