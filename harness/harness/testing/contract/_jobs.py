"""Checks of jobs: background commands, and the records of all commands on the target."""

from __future__ import annotations

import secrets

import anyio

from ...context import ExecutionContext
from ...errors import FileNotFound, JobNotFound, KeyInUse, UnsupportedOperation
from ...results import Status
from ._commands import completed, usable
from ._limits import gate, open_gate
from ._registry import check, scratch

UNKNOWN_ID = "99999999"


@check("wait=False returns at once with a job id; the result can be waited for and is exact.")
async def background_jobs_can_be_waited_for(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        result = await ctx.run_shell(f"echo a; {gate(directory)}; printf b; (exit 4)", wait=False)
        assert (result.status, result.exit_code) == (Status.RUNNING, None), result
        assert result.job_id, result
        assert (await ctx.job(result.job_id)).status is Status.RUNNING
        await open_gate(ctx, directory)
        done = await ctx.wait(result.job_id, timeout=30)
        assert (done.status, done.exit_code, done.stdout) == (Status.COMPLETED, 4, "a\nb"), done
        again = await ctx.wait(result.job_id, timeout=30)
        assert (again.exit_code, again.stdout) == (4, "a\nb"), again


@check("A job can be waited for by several callers at once.")
async def jobs_have_many_waiters(ctx: ExecutionContext) -> None:
    async with scratch(ctx) as directory:
        result = await ctx.run_shell(f"{gate(directory)}; echo end", wait=False)
        outputs: list[str] = []

        async def wait() -> None:
            outputs.append(completed(await ctx.wait(result.job_id or "", timeout=30)).stdout)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait)
            await open_gate(ctx, directory)
    assert outputs == ["end\n"] * 3


@check("follow gives the output live until the job ends, and from any byte on.")
async def jobs_can_be_followed(ctx: ExecutionContext) -> None:
    whole = b"first\n" + b"".join(b"%d\n" % number for number in range(1, 5001))
    async with scratch(ctx) as directory:
        result = await ctx.run_shell(f"echo first; {gate(directory)}; seq 1 5000", wait=False)
        data = b""
        async for chunk in ctx.follow(result.job_id or ""):
            data += chunk
            if data == b"first\n":
                await open_gate(ctx, directory)
        assert data == whole, (len(data), len(whole), data[:100], data[-100:])
        rest = b"".join([chunk async for chunk in ctx.follow(result.job_id or "", offset=6)])
        assert rest == whole[6:], rest[:100]
        assert b"".join([chunk async for chunk in ctx.follow(result.job_id or "", offset=len(whole))]) == b""


@check("read_job gives each byte once, from where the last part ended, and waits for the next.")
async def jobs_can_be_read_on(ctx: ExecutionContext) -> None:
    whole = b"first\n" + b"".join(b"%d\n" % number for number in range(1, 5001))
    async with scratch(ctx) as directory:
        result = await ctx.run_shell(f"echo first; {gate(directory)}; seq 1 5000", wait=False)
        job_id = result.job_id or ""
        data = await _until_read(ctx, job_id, 6)
        assert data == b"first\n", data
        assert (await ctx.read_job(job_id, stdout=6)).stdout.data == b""
        await open_gate(ctx, directory)
        done = await ctx.wait(job_id, timeout=30)
        while True:
            part = await ctx.read_job(job_id, stdout=len(data), limit=7000, wait=10)
            assert len(part.stdout.data) <= 7000, part
            data += part.stdout.data
            if part.stdout.end >= part.stdout.size and part.job.status is not Status.RUNNING:
                break
        assert (data, part.job.exit_code) == (whole, done.exit_code), (len(data), part)
        assert (await ctx.read_job(job_id, stdout=len(whole) - 5)).stdout.data == b"5000\n"


async def _until_read(ctx: ExecutionContext, job_id: str, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += (await ctx.read_job(job_id, stdout=len(data), wait=20)).stdout.data
    return data


@check("kill ends a job, and its record says that it is over.")
async def jobs_can_be_killed(ctx: ExecutionContext) -> None:
    result = await ctx.run_shell("echo started; sleep 300", wait=False)
    job = await ctx.kill(result.job_id or "")
    assert job.status not in (Status.RUNNING, Status.UNKNOWN), job
    done = await ctx.wait(result.job_id or "", timeout=20)
    assert done.status not in (Status.RUNNING, Status.UNKNOWN), done
    await usable(ctx)


@check("kill ends a job that ignores the signal, after the grace.")
async def stubborn_jobs_can_be_killed(ctx: ExecutionContext) -> None:
    result = await ctx.run_shell("sh -c \"trap '' TERM; echo started; while :; do sleep 1; done\"", wait=False)
    async for _ in ctx.follow(result.job_id or ""):
        break
    job = await ctx.kill(result.job_id or "", grace=0.5)
    assert job.status not in (Status.RUNNING, Status.UNKNOWN), job
    await usable(ctx)


@check("Killing a job that has ended changes nothing.")
async def ended_jobs_stay_ended(ctx: ExecutionContext) -> None:
    result = completed(await ctx.run_shell("echo x; (exit 3)"), 3)
    job = await ctx.kill(result.job_id or "")
    assert (job.status, job.exit_code) == (Status.COMPLETED, 3), job
    again = await ctx.wait(result.job_id or "")
    assert (again.exit_code, again.stdout) == (3, "x\n"), again


@check(
    "Every command is a job on the target: id, text, status, exit code and times; ids are never used again; a tool's "
    "own work is marked."
)
async def jobs_are_listed(ctx: ExecutionContext) -> None:
    text = "echo 'a %s\n\tjob' é; (exit 6)"
    first = completed(await ctx.run_shell(text), 6)
    second = completed(await ctx.run_shell("true"))
    assert int(second.job_id or "0") > int(first.job_id or "0"), (first, second)
    beside = completed(await ctx.run_helper("echo beside"))
    listed = {job.job_id: job for job in await ctx.jobs()}
    assert [listed[one.job_id or ""].helper for one in (first, second, beside)] == [False, False, True], listed
    job = listed[first.job_id or ""]
    assert job.command == text, job
    assert (job.status, job.exit_code) == (Status.COMPLETED, 6), job
    assert job == await ctx.job(job.job_id)
    assert job.started is not None, job
    assert job.ended is None or job.ended >= job.started - 1, job
    assert list(listed) == sorted(listed, key=int), list(listed)


@check("A job id that the target does not know is JobNotFound, also for one that is no number.")
async def unknown_jobs_are_refused(ctx: ExecutionContext) -> None:
    for job_id in (UNKNOWN_ID, "x", "../../etc/passwd", ""):
        for operation in (ctx.job, ctx.wait, ctx.kill, ctx.read_job):
            try:
                await operation(job_id)
            except JobNotFound as error:
                assert str(ctx.target) in str(error), error
            else:
                raise AssertionError(f"{operation.__name__}({job_id!r}) did not raise JobNotFound")


# -- keys


async def _takes_keys(ctx: ExecutionContext, key: str) -> bool:
    """Return whether the target can store keys."""
    try:
        completed(await ctx.run_shell("true", key=f"{key}-first"))
    except UnsupportedOperation:
        return False
    return True


@check("A command with a key runs once per target, and every call with the key gives the first one's job.")
async def keys_run_a_command_once(ctx: ExecutionContext) -> None:
    key = secrets.token_hex(8)
    if not await _takes_keys(ctx, key):
        return
    async with scratch(ctx) as directory:
        command, results = f"echo line >>{directory}/lines; echo said; (exit 7)", []
        assert await ctx.job_with_key(key) is None

        async def call() -> None:
            results.append(await ctx.run_shell(command, key=key, timeout=60))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
        results.append(await ctx.run_shell(command, key=key))
        assert {(done.status, done.exit_code, done.stdout) for done in results} == {(Status.COMPLETED, 7, "said\n")}
        assert len({done.job_id for done in results}) == 1, results
        assert (await ctx.read_file(f"{directory}/lines")).text == "line\n"
        job = await ctx.job_with_key(key)
        assert job is not None
        assert (job.job_id, job.key, job.exit_code) == (results[0].job_id, key, 7), job


@check("A call with the key of a running job waits for it, and gets its output from the beginning.")
async def keys_find_a_running_job(ctx: ExecutionContext) -> None:
    key, seen = secrets.token_hex(8), bytearray()
    if not await _takes_keys(ctx, key):
        return
    async with scratch(ctx) as directory:
        command = f"echo first; {gate(directory)}; echo last"
        started = await ctx.run_shell(command, key=key, wait=False)
        early = await ctx.run_shell(command, key=key, timeout=0.5, on_timeout="kill")
        assert (early.status, early.job_id) == (Status.RUNNING, started.job_id), early
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_gate, ctx, directory)
            done = await ctx.run_shell(command, key=key, timeout=60, on_output=seen.extend)
        assert (done.exit_code, done.stdout, done.job_id) == (0, "first\nlast\n", started.job_id), done
        assert bytes(seen) == b"first\nlast\n", seen


@check("A key is refused for another command, and is free again if nothing ran.")
async def keys_stand_for_one_command(ctx: ExecutionContext) -> None:
    key = secrets.token_hex(8)
    if not await _takes_keys(ctx, key):
        return
    async with scratch(ctx) as directory:
        try:
            await ctx.run_shell("echo ran", key=key, cwd=f"{directory}/missing")
        except FileNotFound:
            pass
        else:
            raise AssertionError("a missing directory is an error")
        assert completed(await ctx.run_shell("echo ran", key=key)).stdout == "ran\n"
        try:
            await ctx.run_shell(f"echo x >{directory}/other", key=key)
        except KeyInUse:
            pass
        else:
            raise AssertionError("the key belongs to another command")
        assert not await ctx.glob("*", root=directory)
    await usable(ctx)
