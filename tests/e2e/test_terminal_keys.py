"""Typing into a pane: what is given arrives, byte for byte, in the order literal text, keys, Enter."""

from __future__ import annotations

import hashlib

import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until

from harness import ShellResult, Status, TerminalError, connect

__all__ = ["desk", "open_desk"]

TEXTS = [
    "-n leading dash",
    "--",
    "trailing ;",
    ";",
    r"back\slash\;",
    "$HOME `id` $(id)",
    'it\'s "quoted"',
    "#{pane_id} #(id)",
    "{ } ~ % ! * ? [a]",
    "wide 漢字 combining é emoji 😀",
    "  blanks  ",
    "Enter",
    "C-c",
    "%end 1 1 0",
    "a\tb",
]


async def reads(desk: Desk, command: str, before: str = ":") -> ShellResult:
    """Start a command that reads the keyboard, and wait until it has begun: earlier keys are the line editor's."""
    job = await desk.ctx.run_shell(f"{before}; touch begun; {command}", wait=0.05)
    await until((desk.home / "begun").exists)
    return job


@pytest.mark.parametrize("text", TEXTS)
async def test_text_arrives_as_it_is(desk: Desk, text: str) -> None:
    job = await reads(desk, "IFS= read -r line; printf '<%s>' \"$line\"")
    await desk.ctx.send_keys(literal_text=text, enter=True)
    done = await desk.ctx.wait(job.job_id or "", timeout=10)
    assert done.status is Status.COMPLETED
    assert done.stdout.endswith(f"<{text}>")


@everywhere
async def test_a_megabyte_arrives_whole(desk: Desk) -> None:
    text = "".join(f"{number:07d} line of text; $x #{{y}}\n" for number in range(32768))
    job = await reads(desk, "cat >typed; stty echo; sha256sum <typed; wc -c <typed", before="stty -echo")
    await desk.ctx.send_keys("C-d", literal_text=text)
    done = await desk.ctx.wait(job.job_id or "", timeout=30)
    assert done.stdout == f"{hashlib.sha256(text.encode()).hexdigest()}  -\n{len(text)}\n"


async def test_bytes_arrive_as_they_are(desk: Desk) -> None:
    data = bytes(range(0x80, 0x100)) + b"end"
    job = await reads(desk, 'IFS= read -r l; stty echo; printf %s "$l" | sha256sum', before="stty -echo")
    await desk.ctx.send_keys(literal_text=data, enter=True)
    done = await desk.ctx.wait(job.job_id or "", timeout=10)
    assert done.stdout == f"{hashlib.sha256(data).hexdigest()}  -\n"


async def test_literal_text_comes_before_keys_and_enter_last(desk: Desk) -> None:
    job = await reads(desk, "IFS= read -r line; printf '<%s>' \"$line\"")
    await desk.ctx.send_keys(("BSpace", "Space", "z"), literal_text="abc", enter=True)
    done = await desk.ctx.wait(job.job_id or "", timeout=10)
    assert done.stdout.endswith("<ab z>")


async def test_control_c_interrupts(desk: Desk) -> None:
    job = await desk.ctx.run_shell("sleep 300.5", wait=0.1)
    await until(lambda: desk.processes("sleep 300.5"))
    await desk.ctx.send_keys("C-c")
    done = await desk.ctx.wait(job.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.INTERRUPTED, 130)
    assert not desk.processes("sleep 300.5")
    async with connect(config=desk.config) as other:  # by the record and the log
        kept = await other.wait(job.job_id or "", timeout=5)
    assert (kept.status, kept.exit_code, kept.stdout) == (Status.INTERRUPTED, 130, done.stdout)


async def test_a_program_that_ends_with_the_code_of_an_interrupt_has_completed(desk: Desk) -> None:
    result = await desk.ctx.run_shell("(exit 130)")
    assert (result.status, result.exit_code) == (Status.COMPLETED, 130)


@pytest.mark.parametrize("key", ["C-nothing", "NoSuchKey", "F99", ""])
async def test_an_unknown_key_is_refused_and_nothing_is_typed(desk: Desk, key: str) -> None:
    with pytest.raises((TerminalError, ValueError), match="key"):
        await desk.ctx.send_keys(("x", key), literal_text="echo half")
    assert "half" not in await desk.ctx.capture_pane(delay=0.2)
    assert (await desk.ctx.run_shell("echo fine")).stdout == "fine\n"


async def test_keys_reach_a_pane_that_is_scrolled_back(open_desk: OpenDesk) -> None:
    desk = await open_desk()
    await desk.ctx.run_shell("seq 1 300")
    desk.tmux.cmd("copy-mode", "-t", "=harness:main")
    await desk.ctx.send_keys(literal_text="echo ty''ped", enter=True)
    assert "\ntyped" in await desk.ctx.capture_pane(delay=0.5)
