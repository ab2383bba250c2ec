"""Jobs that outlive the harness that started them, and what is kept of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import SHELLS, JobTarget, open_job_target, path_of, processes_of

from harness.config import Config
from harness.errors import JobNotFound
from harness.results import Job, Status
from harness_backends.posix.jobs.follow import _FOLLOW_BOTH
from harness_backends.posix.jobs.table import JobTable, parse_table
from harness_backends.posix.state_directory import JobRecord, render_record

TIME = 40.0

# A harness of its own: starts a command, says so, and waits for it.
CHILD = """
import anyio, json, sys
from pathlib import Path
from tests.support.job_targets import open_job_target

async def main():
    async with open_job_target(sys.argv[1], Path(sys.argv[2])) as target:
        def say(data):
            print(json.dumps({"said": data.decode()}), flush=True)
        await target.run(sys.argv[3], on_output=say)

anyio.run(main)
"""


def start_harness(shell: str, directory: Path, command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, shell, str(directory), command],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


async def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return str(json.loads(await anyio.to_thread.run_sync(child.stdout.readline))["said"])


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
async def test_a_killed_harness_loses_neither_output_nor_exit_code(tmp_path: Path, shell: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.mkfifo(home / "go")
    child = start_harness(shell, tmp_path, f"echo one; read x <{home}/go; echo $x; echo err >&2; exit 5")
    with anyio.fail_after(TIME):
        assert await first_line(child) == "one\n"
        end(child)
        async with open_job_target(shell, tmp_path) as target:
            (job,) = await target.jobs.list()
            assert (job.status, job.exit_code, job.ended) == (Status.RUNNING, None, None)
            await anyio.Path(home / "go").write_text("two\n")
            result = await target.jobs.wait(job.job_id, 10, 1000)
            assert (result.status, result.exit_code) == (Status.COMPLETED, 5)
            assert (result.stdout, result.stderr) == ("one\ntwo\n", "err\n")


@pytest.mark.usefixtures("needs_process")
async def test_another_harness_follows_and_kills_a_job(tmp_path: Path) -> None:
    child = start_harness("dash", tmp_path, "echo begun; sleep 91")
    with anyio.fail_after(TIME):
        assert await first_line(child) == "begun\n"
        async with open_job_target("dash", tmp_path) as target:
            (job,) = await target.jobs.list()
            pieces = []
            async for data in target.jobs.follow(job.job_id):
                pieces.append(data)
                assert (await target.jobs.kill(job.job_id)).status is Status.INTERRUPTED
            assert b"".join(pieces) == b"begun\n"
            assert processes_of(job.job_id, target.state) == []
    end(child)


@pytest.mark.usefixtures("needs_process")
async def test_a_lost_link_after_dispatch_is_unknown_and_the_job_runs_on(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            fifo = target.home / "go"
            os.mkfifo(fifo)
            results = []

            async def run() -> None:
                results.append(await target.run(f"echo x >>{target.home}/count; read x <{fifo}; exit 4"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                while not (target.home / "count").exists():
                    await anyio.lowlevel.checkpoint()
                await target.transport.opened[0].aclose()
            (lost,) = results
            assert (lost.status, lost.exit_code) == (Status.UNKNOWN, None)
            assert lost.job_id is not None
            await anyio.Path(fifo).write_text("go\n")
            done = await target.jobs.wait(lost.job_id, 10, 1000)
            assert (done.status, done.exit_code) == (Status.COMPLETED, 4)
            assert (target.home / "count").read_text() == "x\n"


@pytest.mark.usefixtures("needs_process")
async def test_a_job_whose_processes_and_keeper_are_gone_is_unknown(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            job = await target.run("echo a; sleep 90", wait=False)
            async for data in target.jobs.follow(job.job_id or ""):
                assert data == b"a\n"
                break
            pid = int((target.state / "jobs" / f"{job.job_id}.pid").read_text().split()[0])
            stat = Path(f"/proc/{pid}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)  # its keeper
            os.killpg(pid, signal.SIGKILL)
            result = await target.jobs.wait(job.job_id or "", 10, 1000)
            assert (result.status, result.exit_code, result.stdout) == (Status.UNKNOWN, None, "a\n")
            assert result.notices == ("the command has ended without an exit code",)


@pytest.mark.usefixtures("needs_process")
async def test_a_recycled_process_id_is_nobody_of_ours(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            bystander = await anyio.open_process(["sleep", "89"], start_new_session=True)
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            jobs = target.state / "jobs"
            (jobs / "7.cmd").write_text(render_record(JobRecord("7", "sleep 89")))
            (jobs / "7.pid").write_text(f"{bystander.pid} {boot} 12345\n")
            (jobs / "8.cmd").write_text(render_record(JobRecord("8", "sleep 89")))
            (jobs / "8.pid").write_text(f"{bystander.pid} another-boot 12345\n")
            for name in ("7", "8"):
                assert (await target.jobs.kill(name)).status is Status.UNKNOWN
            assert bystander.returncode is None
            bystander.kill()
            await bystander.aclose()


async def kept(target: JobTarget, job_id: str) -> Job:
    return next(job for job in await target.jobs.list() if job.job_id == job_id)


@pytest.mark.usefixtures("needs_process")
async def test_a_listed_job_tells_what_ran_where_and_when(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            before = time.time() - 1
            text = "echo 'é\t'\n# second line\nexit 3"
            result = await target.run(text, cwd="/tmp")
            job = await kept(target, result.job_id or "")
            assert (job.command, job.status, job.exit_code, job.cwd) == (text, Status.COMPLETED, 3, "/tmp")
            assert job.started is not None
            assert job.ended is not None
            assert before < job.started <= job.ended < time.time() + 1
            assert (job.owner or "").endswith(f":{os.getpid()}")
            assert await target.jobs.get(job.job_id) == job
            again = await target.jobs.wait(job.job_id, 0, 1000)
            assert (again.status, again.exit_code, again.notices) == (Status.COMPLETED, 3, ())
            assert again.duration == job.ended - job.started < 1
            assert await target.jobs.kill(job.job_id) == job, "it has ended: nothing is killed, and it keeps its code"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("job_id", ["999999", "", "x", "../../etc/passwd", "1;true"])
async def test_an_unknown_job_is_said_to_be_unknown(tmp_path: Path, job_id: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            with pytest.raises(JobNotFound):
                await target.jobs.get(job_id)


@pytest.mark.usefixtures("needs_process")
async def test_secrets_in_the_environment_and_the_input_are_not_kept_in_records(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            await target.run("true", env=(("TOKEN", "s3cr3t-value"),))
            for path in (target.state / "jobs").iterdir():
                assert b"s3cr3t" not in path.read_bytes()
                assert path.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["dash", "busybox"])
async def test_cleaning_removes_old_and_big_ended_jobs_only(tmp_path: Path, shell: str) -> None:
    config = Config(jobs_max_age=2 * 86400, jobs_max_bytes=3 << 20)
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path, config) as target:
            old = await target.run("true")
            big = [await target.run("head -c 2000000 /dev/zero", max_output=10) for _ in range(3)]
            running = await target.run("sleep 88", wait=False)
            jobs = target.state / "jobs"
            for path in jobs.glob(f"{old.job_id}.*"):
                os.utime(path, (1, 1))
            assert await target.jobs.clean() == 3
            newest = max((job.job_id or "" for job in big), key=int)
            assert [job.job_id for job in await target.jobs.list()] == [newest, running.job_id]
            assert await target.store.claim() > (running.job_id or "")
            await target.jobs.kill(running.job_id or "")


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["dash", "busybox"])
async def test_cleaning_that_takes_long_keeps_nobody_waiting(tmp_path: Path, shell: str) -> None:
    slow = f'find() {{ : >{tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; command find "$@"; }}'
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target, anyio.create_task_group() as tasks:
            await target.run("true")
            await target.shell.request(lambda number: f"{slow}\nhx_call {number} :\n", timeout=10)
            cleaned: list[int] = []

            async def clean() -> None:
                cleaned.append(await target.jobs.clean())

            tasks.start_soon(clean)
            while not (tmp_path / "begun").exists():
                assert (await target.run("echo here")).stdout == "here\n"
            assert (await target.shell.call("echo there")).text == "there\n"
            assert cleaned == []
            (tmp_path / "go").touch()
    assert cleaned == [0]


@pytest.mark.usefixtures("needs_process")
async def test_jobs_are_cleaned_once_in_ten_minutes_however_many_harnesses_there_are(tmp_path: Path) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target("dash", tmp_path) as target:
            table = JobTable(target.transport, target.shell, target.store, Config(jobs_max_age=2 * 86400))
            assert await table.clean_if_due() == 0
            old = await target.run("true")
            for path in (target.state / "jobs").glob(f"{old.job_id}.*"):
                os.utime(path, (1, 1))
            assert await table.clean_if_due() == 0
            os.utime(target.state / "jobs/cleaned", (1, 1))
            assert await table.clean_if_due() == 1


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_reader_that_is_there_before_the_files_shows_them_and_nothing_else(tmp_path: Path, shell: str) -> None:
    out, err, run = tmp_path / "jobs/1.out", tmp_path / "jobs/1.err", tmp_path / "run"
    for directory in (out.parent, run):
        directory.mkdir()
    argv = ["sh", "-c", _FOLLOW_BOTH, "sh", str(out), str(err), "1", "1", str(tmp_path)]
    env = {"PATH": path_of(shell)}
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stderr is not None
        err.write_text("late\n")
        out.write_text("one\n")
        assert reader.stderr.readline() == b"late\n"
        assert reader.stdout.readline() == b"one\n"
        reader.stdin.close()
        assert (reader.stdout.read(), reader.stderr.read()) == (b"", b"")
    assert list(run.iterdir()) == []


@pytest.mark.usefixtures("needs_root")
async def test_a_full_disk_is_reported_and_nothing_runs_half(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "state").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(home / "state")], check=True)
    try:
        with anyio.fail_after(TIME):
            async with open_job_target("dash", tmp_path) as target:
                result = await target.run("head -c 1000000 /dev/zero; echo $? >&2; exit 3", max_output=1 << 21)
                assert (result.status, result.exit_code) == (Status.COMPLETED, 3)
                assert len(result.stdout_bytes) < 100_000
    finally:
        subprocess.run(["umount", "-l", str(home / "state")], check=True)


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["dash", "busybox"])
async def test_a_command_in_a_directory_with_a_long_name_is_listed(tmp_path: Path, shell: str) -> None:
    with anyio.fail_after(TIME):
        async with open_job_target(shell, tmp_path) as target:
            deep = target.home.joinpath(*["\u4e00" * 60] * 12)
            deep.mkdir(parents=True)
            done = await target.run("pwd", cwd=str(deep))
            assert (done.exit_code, done.stdout) == (0, f"{deep}\n")
            (job,) = await target.jobs.list()
            assert (job.job_id, job.cwd, job.command) == (done.job_id, str(deep), "pwd")


def test_a_listing_with_torn_lines_is_read_as_far_as_it_goes() -> None:
    record = render_record(JobRecord("2", "two\nlines", started=5.0, kind="pane", pane="%1", log="panes/u1/log.1"))
    body = "\n".join(f" {line}" for line in record.split("\n"))
    states = "job 1 ended 0 \njob 2 pane  \ntime 2.cmd 9\ntime x y\npane u1 %1 4\n"
    text = f"{states}record 1.cmd\n #% jo\nrecord 2.cmd\n{body}\n"
    (kept_job,) = parse_table(text)
    assert kept_job.job == Job("2", "two\nlines", Status.RUNNING, started=5.0, pane="%1")
    (gone,) = parse_table(text.replace("pane u1", "pane u2"))
    assert (gone.job.status, gone.exit_code_lost) == (Status.UNKNOWN, False)
    (unwritten,) = parse_table(text.replace("job 2 pane", "job 2 unwritten"))
    assert (unwritten.job.status, unwritten.exit_code_lost) == (Status.UNKNOWN, True)
