"""More output than the harness takes: nobody's program freezes, nothing grows, and what is kept is exact."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.faults.children import Child, child
from tests.faults.rig import Place, alive, kill, opened, until, usable, within

from harness import ExecutionContext, Status
from harness_backends.tmux.sources.live_panes import LivePanes
from harness_backends.tmux.sources.stream_gaps import StreamGaps
from harness_backends.tmux.terminal import TmuxTerminal

pytestmark = pytest.mark.usefixtures("needs_tmux")

LINE = "0123456789" * 4
FLOOD = f"n=0; while :; do n=$((n + 1)); echo $n >{{count}}; yes {LINE} | head -c 200000; done"
GATED = "echo 0 >{count}; until [ -e {gate} ]; do sleep 0.05; done; " + FLOOD
"""A flood that begins when the gate is there, so that it does not hold up the start of the others."""
PANES = ("main", "bg-1", "bg-2")


def count(path: Path) -> int:
    """How far a flood has come; it writes the file anew all the time."""
    for _ in range(100):
        text = path.read_text().strip() if path.exists() else ""
        if text:
            return int(text)
        time.sleep(0.002)
    return 0


def runs(path: Path, rounds: int = 0) -> bool:
    """The flood has come that far."""
    return count(path) > rounds


async def grows(path: Path, seconds: float) -> bool:
    """The flood runs on within that time."""
    before = count(path)
    with anyio.move_on_after(seconds):
        while count(path) <= before + 1:  # noqa: ASYNC110  # another process makes it true
            await anyio.sleep(0.02)
        return True
    return False


@contextmanager
def bare_client(place: Place, flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A control client as a program without our precautions holds it: directly, and alone."""
    argv = ["tmux", "-L", place.socket, "-C", "attach-session", "-t", "=harness", "-f", flags]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.wait()


@pytest.mark.slow
async def test_without_our_reader_a_stalled_client_freezes_the_program(here: Place) -> None:
    here.tmux("-f", "/dev/null", "new-session", "-d", "-s", "harness", "-x", "150", "-y", "40")
    for attempt in range(10):  # in about two of three; neither a later reader nor the client's end always frees it
        path = here.path(f"count-{attempt}")
        with bare_client(here, "ignore-size,pause-after=5"):
            await until(lambda: len(here.clients()) == 1, "the client is attached")
            here.tmux("respawn-pane", "-k", "-t", "=harness:", f"sh -c '{FLOOD.format(count=path)}'")
            await until(partial(runs, path), "the flood runs")
            with anyio.move_on_after(6):  # on a busy machine it takes a while until the client's socket is full
                while await grows(path, 1.5):
                    pass
                return
    raise AssertionError("this tmux needs no remedy")


@contextmanager
def flooding(place: Place, tmp: Path) -> Iterator[tuple[Child, list[Path], Path]]:
    """A harness in another process that floods three panes; the files that tell how far they are, and their gate."""
    gate = tmp / "gate"
    counts = [tmp / f"count-{number}" for number in range(len(PANES))]
    with child(place, together=True) as one:
        for number, path in enumerate(counts):
            one.give(GATED.format(count=path, gate=gate), timeout=120, **({} if number == 0 else {"wait": False}))
        one.go()
        yield one, counts, gate


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_programs_run_on_while_the_harness_is_stopped_and_after_it_is_killed(here: Place) -> None:
    with flooding(here, here.directory) as (one, counts, gate):
        for path in counts:
            await until(path.exists, f"{path.name} has begun", 60)
        gate.touch()
        for path in counts:
            await until(partial(runs, path, 3), f"{path.name} runs", 160)  # floods share two cores with other tests
        one.stop()
        await anyio.sleep(3)
        for path in counts:
            assert await grows(path, 2), f"{path.name} froze while the harness was stopped"
        one.kill()
    for path in counts:
        assert await grows(path, 2), f"{path.name} froze after the harness was killed"
    await until(lambda: here.clients() == [], "the dead harness's client goes", 4)
    for path in counts:
        assert await grows(path, 2), f"{path.name} froze after its client went"
    (drainer,) = here.drainers()
    server = here.server_pid()
    here.tmux("kill-server")
    await until(lambda: not alive(server), "the server ends", 5)
    await until(lambda: not alive(drainer), "its reader ends", 5)


@pytest.mark.slow
async def test_programs_are_freed_at_once_when_the_reader_is_killed_under_a_flood(here: Place) -> None:
    async with opened(here) as ctx:
        path = here.path("count")
        job = await ctx.run_shell(FLOOD.format(count=path), wait=False)
        await until(lambda: count(path) > 3, "the flood runs")
        (reader,) = here.drainers()
        kill(reader)
        seconds = await until(lambda: here.drainers() not in ([], [reader]), "another reader", 5)
        assert await grows(path, 2)
        await ctx.kill(job.job_id or "")
        await usable(ctx)
        print(f"another reader after {seconds:.2f} s")  # noqa: T201  # shown by -s: a measurement


@pytest.mark.slow
async def test_a_caller_that_sleeps_gets_everything_in_the_end(here: Place) -> None:
    pieces: list[bytes] = []

    def slow(data: bytes) -> None:
        if not pieces:
            time.sleep(8)  # the whole event loop: longer than tmux waits for us
        pieces.append(data)

    async with opened(here) as ctx:
        result = await within(
            60, ctx.run_shell("seq 1 3000000; (exit 5)", timeout=55, on_output=slow, max_output=1 << 26)
        )
        expected = "".join(f"{number}\n" for number in range(1, 3000001))
        assert (result.status, result.exit_code) == (Status.COMPLETED, 5), result.notices
        assert result.stdout == expected
        assert b"".join(pieces) == expected.encode()
        await usable(ctx)


@pytest.mark.slow
async def test_a_gigabyte_is_stopped_at_the_deadline_and_the_harness_does_not_grow(here: Place) -> None:
    with child(here) as one:
        one.give("true")
        one.give("yes | head -c 1000000000", timeout=6, on_timeout="kill", max_output=10000)
        one.give("echo right")
        one.go()
        assert one.hear()["status"] == "completed"
        before = peak = one.rss()
        async with anyio.create_task_group() as tasks:
            said: list[dict[str, object]] = []

            async def hear() -> None:
                said.extend([await anyio.to_thread.run_sync(one.hear) for _ in range(2)])
                tasks.cancel_scope.cancel()

            tasks.start_soon(hear)
            with anyio.fail_after(40):
                while True:
                    peak = max(peak, one.rss())
                    await anyio.sleep(0.1)
        assert said[0]["status"] == "timed_out", said[0]
        assert (said[1]["status"], said[1]["out"]) == ("completed", "right\n"), said[1]
        assert peak - before < 40 << 20, (before, peak)
        print(f"grew by {(peak - before) >> 20} MiB")  # noqa: T201  # shown by -s: a measurement


async def test_output_beyond_the_log_still_ends_with_the_right_code(here: Place) -> None:
    async with opened(here, job_log_max_bytes=1 << 20) as ctx:
        result = await within(30, ctx.run_shell("seq 1 1000000 | tail -c 4000000; (exit 3)", max_output=1 << 23))
        assert (result.status, result.exit_code, len(result.stdout_bytes)) == (Status.COMPLETED, 3, 4000000)
        after = await within(30, ctx.run_shell("echo kept; (exit 4)"))
    async with opened(here, job_log_max_bytes=1 << 20) as other:
        kept = await within(30, other.wait(after.job_id or ""))
        assert (kept.status, kept.exit_code, kept.stdout) == (Status.COMPLETED, 4, "kept\n"), kept
        await usable(other)


async def test_a_command_after_a_full_log_that_was_read_late_has_its_output(here: Place) -> None:
    seen: list[bytes] = []

    def read_late(data: bytes) -> None:
        if not seen:
            time.sleep(2.5)  # the whole event loop: longer than tmux waits for us
        seen.append(data)

    async with opened(here, job_log_max_bytes=1 << 20) as ctx:
        flood = ctx.run_shell("seq 1 1000000 | tail -c 4000000; (exit 3)", max_output=1 << 23, on_output=read_late)
        result = await within(30, flood)
        assert (result.status, result.exit_code) == (Status.COMPLETED, 3)
        for number in range(3):
            after = await within(30, ctx.run_shell(f"echo {number}; (exit {number})"))
            assert (after.stdout, after.exit_code, after.notices) == (f"{number}\n", number, ()), after


@pytest.mark.slow
async def test_requests_beside_floods_do_not_wait_for_seconds_of_output(here: Place) -> None:
    seconds: list[float] = []
    async with opened(here) as ctx:
        jobs = [await ctx.run_shell(f"yes {LINE}", wait=False) for _ in PANES]
        await anyio.sleep(1)
        for _ in range(7):
            began = anyio.current_time()
            await ctx.list_panes()
            seconds.append(anyio.current_time() - began)
            await anyio.sleep(0.3)
        for job in jobs:
            await ctx.kill(job.job_id or "")
    assert statistics.median(seconds) < 2, seconds


def gaps_of(ctx: ExecutionContext) -> StreamGaps:
    """What reads the logs of panes whose stream has a gap."""
    terminal = ctx._terminal
    assert isinstance(terminal, TmuxTerminal)
    assert isinstance(terminal._source, LivePanes)
    return terminal._source.gaps


@pytest.mark.slow
async def test_the_log_of_a_flood_is_read_once_however_often_tmux_stops_to_send_it(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, positions = StreamGaps._read_log, list[int]()

    async def noted(gaps: StreamGaps, log: str, position: int) -> bytes:
        positions.append(position)
        return await read(gaps, log, position)

    monkeypatch.setattr(StreamGaps, "_read_log", noted)
    async with opened(here) as ctx:
        gaps = gaps_of(ctx)
        job = await ctx.run_shell(f"yes {LINE}", wait=False)
        for _ in range(2):
            before = len(positions)
            time.sleep(2.5)  # noqa: ASYNC251  # the whole event loop: longer than tmux waits for us
            await until(lambda before=before: len(positions) > before + 2 and not gaps._stopped, "it is sent again")
        await ctx.kill(job.job_id or "")
    assert positions == sorted(positions)


@pytest.mark.slow
async def test_a_pane_that_was_stopped_before_this_harness_used_it_is_sent_again(here: Place) -> None:
    async with opened(here) as ctx, opened(here) as other:
        await other.create_pane("theirs")
        job = await other.run_shell(f"yes {LINE}", wait=0.5, pane="theirs")
        time.sleep(2.5)  # noqa: ASYNC251  # the whole event loop: longer than tmux waits for us
        await until(lambda: bool(gaps_of(ctx)._stopped), "it is stopped")
        await other.kill(job.job_id or "")
        for word in ("first", "second"):
            result = await within(30, ctx.run_shell(f"echo {word}", pane="theirs"))
            assert (result.stdout, result.exit_code, result.notices) == (f"{word}\n", 0, ()), result
