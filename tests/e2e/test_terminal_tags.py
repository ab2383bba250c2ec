"""A job's text in the scrollback, found by the visible prompt tags alone; and background jobs in panes of their own."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk

from harness import PaneBusy, PaneGone, Status, TerminalError, connect

__all__ = ["desk", "open_desk"]

DOUBT = "[harness: other text may stand in this, or its beginning may be missing]\n"
HELD = {
    "one line": ("echo one", "one\n"),
    "lines": ("seq 1 30", "".join(f"{n}\n" for n in range(1, 31))),
    "empty": ("true", ""),
    "failed": ("echo bad; false", "bad\n"),
    "long lines": ("printf '%0400d\\n' 1 2", f"{1:0400d}\n{2:0400d}\n"),
    "command of lines": ("echo a\necho b\necho c", "a\nb\nc\n"),
    "command like a tag": ("echo '[harness 1: 0] x'", "[harness 1: 0] x\n"),
    "output like tags": (
        "printf '[harness 99: 0] $ \\n[harness 2: 7] ls\\nmore\\n'",
        "[harness 99: 0] $ \n[harness 2: 7] ls\nmore\n",
    ),
    "long command": ("echo " + "w" * 380 + " | wc -c", "381\n"),
    "five thousand": ("seq 1 5000", "".join(f"{n}\n" for n in range(1, 5001))),
    "blank lines": ("printf '\\n\\nx\\n\\n'", "\n\nx\n\n"),
}


@pytest.mark.parametrize(("command", "shown"), HELD.values(), ids=HELD.keys())
async def test_a_job_is_found_in_the_scrollback(desk: Desk, command: str, shown: str) -> None:
    await desk.ctx.run_shell("echo before")
    result = await desk.ctx.run_shell(command)
    after = await desk.ctx.run_shell("echo after")
    found = await desk.ctx.capture_pane(job_id=result.job_id)
    assert found.removeprefix(DOUBT) == shown
    assert await desk.ctx.capture_pane(job_id=after.job_id) == "after\n"
    assert await desk.ctx.capture_pane(job_id="1") == "before\n"


@everywhere
async def test_the_first_job_and_the_last_are_found(desk: Desk) -> None:
    first = await desk.ctx.run_shell("echo first")
    assert await desk.ctx.capture_pane(job_id=first.job_id) == "first\n"
    last = await desk.ctx.run_shell("printf 'no newline\\nat the end'")
    assert await desk.ctx.capture_pane(job_id=last.job_id) == "no newline\nat the end"
    await desk.ctx.run_shell("echo after it")
    assert await desk.ctx.capture_pane(job_id=last.job_id) == "no newline\nat the end"


@everywhere
async def test_a_job_that_runs_shows_what_it_has_written(desk: Desk) -> None:
    await desk.ctx.run_shell("echo before")
    job = await desk.ctx.run_shell("echo so far; read answer", wait=False)
    assert job.job_id is not None
    with anyio.fail_after(10):
        while (text := await desk.ctx.capture_pane(job_id=job.job_id)) != "so far\n":
            await anyio.lowlevel.checkpoint()
    assert text == "so far\n"
    await desk.ctx.send_keys(enter=True, pane=job.pane)
    assert (await desk.ctx.wait(job.job_id, timeout=10)).exit_code == 0


async def test_a_job_that_left_the_scrollback_is_an_error_that_says_where_it_is(open_desk: OpenDesk) -> None:
    desk = await open_desk(history_limit=100)
    first = await desk.ctx.run_shell("echo first")
    await desk.ctx.run_shell("seq 1 400")
    with pytest.raises(TerminalError, match=f"job {first.job_id} is no longer in the scrollback") as caught:
        await desk.ctx.capture_pane(job_id=first.job_id)
    assert "harness jobs show" in str(caught.value.hint)


async def test_a_job_whose_beginning_left_the_scrollback_is_said_to_be_incomplete(open_desk: OpenDesk) -> None:
    desk = await open_desk(history_limit=100)
    long = await desk.ctx.run_shell("seq 1 400")
    found = await desk.ctx.capture_pane(job_id=long.job_id)
    assert found.startswith(DOUBT)
    assert found.endswith("\n399\n400\n")


async def test_without_tags_the_error_says_so(open_desk: OpenDesk) -> None:
    desk = await open_desk(prompt_tag=False)
    result = await desk.ctx.run_shell("echo untagged")
    with pytest.raises(TerminalError) as caught:
        await desk.ctx.capture_pane(job_id=result.job_id)
    assert "prompt_tag" in str(caught.value) + str(caught.value.hint)


@everywhere
async def test_background_jobs_have_panes_of_their_own_up_to_the_limit(desk: Desk) -> None:
    await desk.ctx.run_shell("mkfifo gate1 gate2 gate3 gate4; cd /usr")
    jobs = [
        await desk.ctx.run_shell(f"pwd; echo begin {n}; cat $HOME/gate{n}; echo end {n}; sh -c 'exit {n}'", wait=False)
        for n in range(1, 5)
    ]
    assert {job.status for job in jobs} == {Status.RUNNING}
    assert len({job.pane for job in jobs} | {"main"}) == 5
    with pytest.raises(PaneBusy, match=r"limit|busy"):
        await desk.ctx.run_shell("echo one too many", wait=False)
    assert sum(bool(pane.busy) for pane in await desk.ctx.list_panes()) == 4
    assert (await desk.ctx.run_shell("echo foreground; pwd")).stdout == "foreground\n/usr\n"
    for number, job in enumerate(jobs, 1):
        await desk.open_gate(f"gate{number}")
        done = await desk.ctx.wait(job.job_id or "", timeout=10)
        assert (done.status, done.exit_code) == (Status.COMPLETED, number)
        assert done.stdout == f"/usr\nbegin {number}\nend {number}\n"
    again = await desk.ctx.run_shell("echo reused", wait=False)
    assert again.pane in {job.pane for job in jobs}


@everywhere
async def test_a_background_job_is_followed_live(desk: Desk) -> None:
    await desk.ctx.run_shell("mkfifo gate")
    job = await desk.ctx.run_shell("echo begin; cat ~/gate; echo end", wait=False)
    seen = b""
    with anyio.fail_after(15):
        async for chunk in desk.ctx.follow(job.job_id or ""):
            seen += chunk
            if seen == b"begin\n":
                await desk.open_gate()
    assert seen == b"begin\nend\n"
    rest = b"".join([chunk async for chunk in desk.ctx.follow(job.job_id or "", offset=6)])
    assert rest == b"end\n"


async def test_panes_have_rules(desk: Desk) -> None:
    with pytest.raises(TerminalError, match="protected"):
        await desk.ctx.kill_pane("main")
    with pytest.raises(PaneGone, match="nowhere"):
        await desk.ctx.run_shell("echo x", pane="nowhere")
    await desk.ctx.create_pane("build", cwd="/var")
    assert (await desk.ctx.run_shell("pwd", pane="build")).stdout == "/var\n"
    with pytest.raises(TerminalError, match="already"):
        await desk.ctx.create_pane("build")
    with pytest.raises(TerminalError, match="max_sessions"):
        await desk.ctx.create_session("second")
    await desk.ctx.kill_pane("build")
    with pytest.raises(PaneGone):
        await desk.ctx.run_shell("pwd", pane="build")


async def test_two_contexts_share_a_session_without_mixing(open_desk: OpenDesk) -> None:
    one = await open_desk()
    two = await open_desk(tmux_socket=one.config.tmux_socket)

    async def twenty(desk: Desk, name: str) -> None:
        for number in range(20):
            result = await desk.ctx.run_shell(f"echo {name} {number}; (exit {number})")
            assert (result.exit_code, result.stdout) == (number, f"{name} {number}\n"), result

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(twenty, one, "one")
        tasks.start_soon(twenty, two, "two")


async def test_a_job_without_a_terminal_is_on_no_screen(desk: Desk) -> None:
    async with connect(config=desk.config) as plain:
        job = await plain.run_shell("echo aside")
    with pytest.raises(TerminalError, match="without a terminal"):
        await desk.ctx.capture_pane(job_id=job.job_id)


async def test_a_session_of_that_name_that_is_not_ours_is_refused(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    desk.tmux.cmd("new-session", "-d", "-s", "theirs")
    with pytest.raises(TerminalError, match="not made by harness"):
        await open_desk(tmux_socket=desk.config.tmux_socket, session="theirs")
    assert (await desk.ctx.run_shell("echo still")).stdout == "still\n"
