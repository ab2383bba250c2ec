"""The shell that waits for the next command: never seen by the command, never in the way, never left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import SHELLS, JobTarget, open_job_target

from harness.errors import FileNotFound, NotADirectory
from harness.results import Status

pytestmark = pytest.mark.usefixtures("needs_process")

TIME = 40.0


def processes_at(home: Path) -> set[int]:
    """Every process whose environment says that it belongs to the target."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"HOME={home}\0".encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


async def ended(left: Callable[[], set[int]]) -> None:
    while left():  # noqa: ASYNC110  # other processes end, and nobody tells
        await anyio.sleep(0.02)


async def gone(home: Path) -> None:
    await ended(lambda: processes_at(home))


async def waiting_shell(target: JobTarget) -> int:
    """The process that waits for the next command, once it is there."""
    await target.run("true")
    while True:
        await target.run("true")  # one for which no id was at hand prepares nothing
        with anyio.move_on_after(2):
            while (found := waiting_pid(target.state / "jobs")) is None:  # noqa: ASYNC110  # a process makes it
                await anyio.sleep(0.01)
            return found


def waiting_pid(jobs: Path) -> int | None:
    for path in jobs.glob("*.pid"):
        if path.with_suffix(".cmd").stat().st_size == 0 and (text := path.read_text()):
            return int(text.split()[0])
    return None


@pytest.mark.parametrize("shell", SHELLS)
async def test_commands_one_after_the_other_keep_their_own_directory_environment_and_input(
    tmp_path: Path, shell: str
) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            used = set()
            for number in range(24):
                place = tmp_path / f"place {number}"
                place.mkdir()
                value = f"v'{number}\n^{number}.\n#{number}.\n"
                options = {"env": (("VALUE", value),), "stdin": b"\0%d" % number} if number % 3 else {}
                result = await target.run(
                    'printf "%s|%s|" "$PWD" "${VALUE-unset}"; cat; echo $HARNESS_JOB >&2; exit ' + str(number),
                    cwd=str(place),
                    **options,
                )
                expected = value.encode() + b"|\0%d" % number if options else b"unset|"
                assert result.stdout_bytes == f"{place}|".encode() + expected
                assert (result.exit_code, result.stderr) == (number, f"{result.job_id}\n")
                used.add(result.job_id)
            assert len(used) == 24
            assert len(await target.jobs.list()) == 24


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_wrong_directory_is_the_same_error_with_and_without_it(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            for _ in range(3):
                await waiting_shell(target)
                with pytest.raises(FileNotFound):
                    await target.run("true", cwd="/no/such/place")
                await waiting_shell(target)
                with pytest.raises(NotADirectory):
                    await target.run("true", cwd="/etc/passwd")
            assert all(job.status is Status.COMPLETED for job in await target.jobs.list())


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_waiting_shell_that_was_killed_costs_nothing(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            for _ in range(3):
                os.kill(await waiting_shell(target), signal.SIGKILL)
                assert (await target.run("echo a")).stdout == "a\n"


@pytest.mark.parametrize("shell", SHELLS)
async def test_nothing_is_left_when_the_harness_leaves(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            await waiting_shell(target)
            jobs = target.state / "jobs"
        await gone(tmp_path / "home")
        assert {path.suffix for path in jobs.iterdir()} <= {".cmd", ".sh", ".exit", ".out", ".err", ".pid", ""}
        assert all(path.stat().st_size for path in jobs.glob("*.cmd"))
        assert list((jobs.parent / "run").iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_held_shell_that_is_killed_takes_its_waiting_shell_along(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            await waiting_shell(target)
            reply = await target.shell.call('echo "$$"')
            before = processes_at(tmp_path / "home")
            os.kill(int(reply.text), signal.SIGKILL)
            # A clean-up may start another held shell meanwhile.
            await ended(lambda: before & processes_at(tmp_path / "home"))
            result = await target.run("echo again")
            if result.status is Status.UNKNOWN:  # it was sent before the loss was noticed
                result = await target.run("echo again")
            assert result.stdout == "again\n"


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_timeout_and_a_cancel_end_a_command_that_it_became(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            await waiting_shell(target)
            assert (await target.run("echo a; sleep 87", timeout=0.3)).status is Status.TIMED_OUT
            await waiting_shell(target)
            with anyio.CancelScope() as scope:
                await target.run("echo b; sleep 86", on_output=lambda _: scope.cancel())
            cancelled = next(job for job in await target.jobs.list() if "86" in job.command)
            assert cancelled.status is Status.INTERRUPTED


async def test_a_caller_that_gives_up_at_any_moment_confuses_no_later_command(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            for number in range(40):
                with anyio.move_on_after(0.0004 * (number % 20)):
                    await target.run("echo never asked for")
                assert (await target.run(f"echo {number}")).stdout == f"{number}\n"
