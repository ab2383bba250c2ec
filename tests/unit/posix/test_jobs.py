"""Commands without a terminal, through real shells on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import SHELLS, JobTarget, open_job_target, processes_of

from harness.config import Config
from harness.errors import FileNotFound, NotADirectory, UnsupportedOperation
from harness.results import Status

pytestmark = pytest.mark.usefixtures("needs_process")

TIME = 40.0


@pytest.fixture(params=SHELLS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[JobTarget]:
    with anyio.fail_after(TIME):
        async with open_job_target(request.param, tmp_path) as opened:
            yield opened


@pytest.fixture
async def dash(tmp_path: Path) -> AsyncIterator[JobTarget]:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as opened:
            yield opened


def exit_text(target: JobTarget, job_id: str | None) -> str:
    return (target.state / "jobs" / f"{job_id}.exit").read_text()


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        ("true", 0, b"", b""),
        ("false", 1, b"", b""),
        ("exit 42", 42, b"", b""),
        ("printf 'no newline'", 0, b"no newline", b""),
        ("echo out; echo err >&2; exit 3", 3, b"out\n", b"err\n"),
        ("printf '\\n\\n a \\t\\n\\n'", 0, b"\n\n a \t\n\n", b""),
        ("printf 'a\\000b\\377\\r\\n'", 0, b"a\0b\xff\r\n", b""),
        ("kill -9 $$", 137, b"", b""),
        ("kill -TERM $$", 143, b"", b""),
        ("return 4", 4, b"", b""),
        ("cat <<'EOF'\n\tdollar $x ! \\\nEOF\n", 0, b"\tdollar $x ! \\\n", b""),
        ("echo a # comment", 0, b"a\n", b""),
        ("echo a; ", 0, b"a\n", b""),
        ("echo a &", 0, None, b""),
        ("-x 2>/dev/null", 127, b"", b""),
        ("set -e; false; echo no", 1, b"", b""),
        ("exec sh -c 'exit 7'", 7, b"", b""),
        ("trap 'echo bye' EXIT; exit 5", 5, b"bye\n", b""),
        ("echo $#", 0, b"0\n", b""),
        ("cat", 0, b"", b""),
    ],
)
async def test_a_command_gives_its_exact_bytes_and_exit_code(
    target: JobTarget, command: str, code: int, stdout: bytes | None, stderr: bytes
) -> None:
    result = await target.run(command)
    assert (result.status, result.exit_code, result.stderr_bytes) == (Status.COMPLETED, code, stderr)
    assert stdout is None or result.stdout_bytes == stdout
    assert exit_text(target, result.job_id) == f"{code}\n"


@pytest.mark.parametrize("command", ["echo 'abc", "if true; then", ")", "cat <<EOF >/dev/null\nx"])
async def test_text_that_is_no_complete_command_ends_with_an_error_and_no_hang(target: JobTarget, command: str) -> None:
    result = await target.run(command)
    assert result.status is Status.COMPLETED
    assert (await target.run("echo next")).stdout == "next\n"


async def test_a_command_starts_with_the_signals_and_streams_of_a_login(target: JobTarget) -> None:
    has_reset = target.capabilities.has("env --default-signal") or target.capabilities.has("perl")
    status = (await target.run("cat /proc/self/status")).stdout
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1]
    named = int(ignored, 16) & 0x7FFFFFFF  # beyond 31 are those of the C library, which no program can name
    assert named == (0 if has_reset else 0b110)
    assert (await target.run("ls /proc/self/fd")).stdout.split() == ["0", "1", "2", "3"]


async def test_a_command_gets_its_directory_environment_and_input(target: JobTarget, tmp_path: Path) -> None:
    place = tmp_path / 'it\'s a "place"\n$HOME'
    place.mkdir()
    data = bytes(range(256)) * 3
    result = await target.run(
        'printf "%s|%s|" "$PWD" "$VALUE"; cat',
        cwd=str(place),
        env=(("VALUE", "a'b\n$x`\\"), ("PATH", os.environ["PATH"])),
        stdin=data,
    )
    assert result.stdout_bytes == f"{place}|a'b\n$x`\\|".encode() + data
    assert (await target.run('echo "${VALUE-unset}"; pwd')).stdout.startswith("unset\n")


async def test_a_command_has_the_locale_of_the_login_or_its_own(target: JobTarget) -> None:
    login = os.environ.get("LC_ALL", "unset")
    for own in (None, "C.UTF-8", None, ""):  # in new shells and in prestarted ones
        for _ in range(3):
            result = await target.run("echo ${LC_ALL-unset}", env=() if own is None else (("LC_ALL", own),))
            assert result.stdout == f"{login if own is None else own}\n"


async def test_a_large_binary_input_arrives_whole(target: JobTarget) -> None:
    data = os.urandom(1 << 20)
    assert (await target.run("cat", stdin=data, max_output=1 << 21)).stdout_bytes == data


async def test_a_missing_directory_is_an_error_and_nothing_runs(target: JobTarget, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(FileNotFound, match="/no/such/place"):
        await target.run(f"touch {marker}", cwd="/no/such/place")
    with pytest.raises(NotADirectory):
        await target.run(f"touch {marker}", cwd="/etc/passwd", wait=False)
    with pytest.raises(FileNotFoundError):
        await target.run(f"touch {marker}", cwd="-")  # not the directory before
    assert not marker.exists()
    assert await target.jobs.list() == []


async def test_a_megabyte_of_command_text_is_one_unit(target: JobTarget) -> None:
    text = "x='" + "é\t!" * 300_000 + '\'\necho "$x" | wc -c'
    assert (await target.run(text)).stdout.strip() == str(4 * 300_000 + 1)


async def test_output_that_imitates_frames_is_returned_verbatim(target: JobTarget) -> None:
    hostile = "\n0123456789abcdef 1 0\nhx_run\n%end 1 2 3\n\x1b]133;D;0;x;1\x07"
    result = await target.run("cat", stdin=hostile.encode())
    assert result.stdout == hostile


async def test_output_beyond_the_limit_keeps_head_and_tail_and_counts_the_rest(target: JobTarget) -> None:
    for size in (5_000, 1_000_000):
        result = await target.run(f"printf A; head -c {size} /dev/zero; printf Z; echo e >&2", max_output=100)
        assert (result.stdout_bytes[:1], result.stdout_bytes[-1:]) == (b"A", b"Z")
        assert (len(result.stdout_bytes), result.truncated) == (100, size + 2 - 100)
        assert result.stderr == "e\n"


async def test_a_timeout_kills_the_whole_group_and_returns_what_was_written(target: JobTarget) -> None:
    result = await target.run_to_limit("echo part", "sleep 97 & (trap '' TERM; sleep 98) & sleep 99")
    assert (result.status, result.exit_code, result.stdout) == (Status.TIMED_OUT, None, "part\n")
    assert processes_of(result.job_id or "", target.state) == []
    assert exit_text(target, result.job_id).endswith(" timed_out\n")


async def test_keeping_a_command_beyond_its_timeout_loses_nothing(target: JobTarget) -> None:
    fifo = target.home / "go"
    os.mkfifo(fifo)
    first = await target.run_to_limit("echo one", "read x <go; echo $x; exit 3", on_timeout="keep", cwd="~")
    assert (first.status, first.exit_code, first.stdout) == (Status.RUNNING, None, "one\n")
    await anyio.Path(fifo).write_text("two\n")
    done = await target.jobs.wait(first.job_id or "", 10, 1000)
    assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 3, "one\ntwo\n")


async def test_cancelling_the_caller_interrupts_the_command(target: JobTarget) -> None:
    with anyio.CancelScope() as scope:
        await target.run("echo begun; sleep 96; echo no", on_output=lambda _: scope.cancel())
    (job,) = await target.jobs.list()
    assert job.status is Status.INTERRUPTED
    assert processes_of(job.job_id, target.state) == []


async def test_a_background_job_can_be_followed_waited_for_and_killed(target: JobTarget) -> None:
    job = await target.run("echo a; sleep 0.2; echo b; echo c >&2; exit 6", wait=False)
    assert (job.status, job.exit_code) == (Status.RUNNING, None)
    assert b"".join([data async for data in target.jobs.follow(job.job_id or "")]) == b"a\nb\nc\n"
    assert b"".join([data async for data in target.jobs.follow(job.job_id or "", 3)]) == b"\nc\n"
    done = await target.jobs.wait(job.job_id or "", 5, 1000)
    assert (done.exit_code, done.stdout, done.stderr) == (6, "a\nb\n", "c\n")

    sleeper = await target.run("sleep 95", wait=False)
    assert (await target.jobs.wait(sleeper.job_id or "", 0.2, 1000)).status is Status.RUNNING
    killed = await target.jobs.kill(sleeper.job_id or "")
    assert (killed.status, killed.exit_code) == (Status.INTERRUPTED, 143)
    assert processes_of(killed.job_id, target.state) == []


async def test_live_output_arrives_before_the_end_and_whole(target: JobTarget) -> None:
    fifo = target.home / "go"
    os.mkfifo(fifo)
    pieces: list[bytes] = []

    def release(data: bytes) -> None:
        pieces.append(data)
        if data == b"one\n":
            fifo.write_bytes(b"x\n")

    result = await target.run("echo one; read x <~/go; echo two; echo three >&2", on_output=release)
    assert result.status is Status.COMPLETED
    assert pieces[0] == b"one\n"
    assert sorted(b"".join(pieces).split()) == [b"one", b"three", b"two"]


async def test_an_error_in_the_callback_ends_the_command_and_is_raised(dash: JobTarget) -> None:
    def fail(data: bytes) -> None:
        raise LookupError(data.decode())

    with pytest.raises(LookupError, match="hello"):
        await dash.run("echo hello; sleep 94", on_output=fail)
    (job,) = await dash.jobs.list()
    assert job.status is Status.INTERRUPTED


async def test_grandchildren_that_hold_the_output_do_not_delay_the_result(target: JobTarget) -> None:
    result = await target.run("sleep 93 & echo done")
    assert (result.status, result.stdout) == (Status.COMPLETED, "done\n")
    assert result.duration < 5
    for pid in processes_of(result.job_id or "", target.state):
        os.kill(pid, signal.SIGKILL)


async def test_many_tasks_share_the_channel_without_mixing(target: JobTarget) -> None:
    async def worker(name: int) -> None:
        for number in range(10):
            result = await target.run(f"echo {name}.{number}; echo e{name}.{number} >&2; exit {name}")
            assert result.status is Status.COMPLETED, result
            assert (result.stdout, result.stderr) == (f"{name}.{number}\n", f"e{name}.{number}\n")
            assert result.exit_code == name

    async with anyio.create_task_group() as tasks:
        for name in range(20):
            tasks.start_soon(worker, name)
    assert len(target.transport.opened) == 1
    assert len(await target.jobs.list()) == 200


async def test_one_channel_is_enough_for_everything(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            target.transport.single = True
            pieces: list[bytes] = []
            await target.run("echo a; sleep 0.1; echo b", on_output=pieces.append)
            assert b"".join(pieces) == b"a\nb\n"
            job = await target.run("sleep 0.2; echo c", wait=False)
            assert [data async for data in target.jobs.follow(job.job_id or "")] == [b"c\n"]
            assert len((await target.run("head -c 2000000 /dev/zero", max_output=1 << 20)).stdout_bytes) > 0


async def test_a_hundred_megabytes_of_output_stay_on_the_target(dash: JobTarget) -> None:
    result = await dash.run("head -c 100000000 /dev/zero; echo end", max_output=1000)
    assert (len(result.stdout_bytes), result.truncated) == (1000, 100_000_004 - 1000)
    assert result.stdout_bytes.endswith(b"\0end\n")


@pytest.mark.parametrize("shell", ["dash", "busybox"])
async def test_output_without_end_does_not_fill_the_disk(tmp_path: Path, shell: str) -> None:
    limit = 4 << 20
    command = "printf A; head -c 30000000 /dev/zero; sleep 2; head -c 3000000 /dev/zero; printf Z"
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, Config(job_log_max_bytes=limit)) as target:
            result = await target.run(command, max_output=100)
            kept = (target.state / "jobs" / f"{result.job_id}.out").stat()
    assert (result.exit_code, len(result.stdout_bytes), result.truncated) == (0, 100, 33_000_002 - 100)
    assert result.stdout_bytes.endswith(b"Z")
    assert kept.st_size == 33_000_002
    assert kept.st_blocks * 512 < limit + 6_000_000
    assert "dropped" in result.notices[0]


@pytest.mark.usefixtures("needs_root")
async def test_another_user_runs_the_command_with_its_input_and_environment(target: JobTarget) -> None:
    result = await target.run('id -un; echo "$V"; cat', user="nobody", env=(("V", "x y"),), stdin=b"in\0put", cwd="/")
    assert result.stdout_bytes == b"nobody\nx y\nin\0put"
    ended = await target.run("sleep 92", user="nobody", timeout=0.3, cwd="/")
    assert ended.status is Status.TIMED_OUT


async def test_a_strange_user_name_is_refused(dash: JobTarget) -> None:
    with pytest.raises(UnsupportedOperation):
        await dash.run("true", user="a;b")


async def test_a_user_who_does_not_exist_is_refused_and_nothing_runs(target: JobTarget) -> None:
    with pytest.raises(UnsupportedOperation, match="nobody-of-that-name"):
        await target.run("true", user="nobody-of-that-name")
    assert await target.jobs.list() == []
