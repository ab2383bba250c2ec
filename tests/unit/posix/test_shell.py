"""The held shell: what is said when it cannot live."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from harness.errors import ConnectError, ConnectionLost
from harness.target import Target
from harness_backends.local import LocalTransport
from harness_backends.posix.persistent_shell import open_held_shell

pytestmark = pytest.mark.usefixtures("needs_process")


@pytest.fixture
def path_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is the whole ``PATH``."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put_sh(directory: Path, text: str) -> None:
    (directory / "sh").write_text(f"#!/bin/sh\n{text}\n")
    (directory / "sh").chmod(0o755)


async def first_call() -> ConnectionLost:
    with anyio.fail_after(5):
        async with open_held_shell(LocalTransport(Target.parse("local:"))) as shell:
            with pytest.raises(ConnectionLost) as caught:
                await shell.call("echo never")
            return caught.value


async def test_a_shell_that_ends_at_its_start_says_why(path_of: Path) -> None:
    put_sh(path_of, "echo welcome; echo 'no processes left,' >&2; echo 'ask operations' >&2; exit 3")
    error = await first_call()
    assert error.message == "the shell on the target exited with status 3: no processes left, ask operations"
    assert "limits" in error.hint


async def test_a_shell_that_reads_nothing_says_why_all_the_same(path_of: Path) -> None:
    put_sh(path_of, "exec 0<&-; echo 'not today' >&2; exit 1")
    assert "status 1: not today" in (await first_call()).message


async def test_a_shell_that_is_killed_says_so(path_of: Path) -> None:
    put_sh(path_of, "kill -9 $$")
    assert (await first_call()).message == "the shell on the target exited with status 137"


async def test_a_long_story_is_cut_to_its_end(path_of: Path) -> None:
    put_sh(path_of, "i=0; while [ $i -lt 3000 ]; do echo line$i >&2; i=$((i+1)); done; exit 1")
    message = (await first_call()).message
    assert message.endswith("line2999")
    assert len(message) < 600


async def test_no_shell_at_all_is_a_connect_error(path_of: Path) -> None:
    async with open_held_shell(LocalTransport(Target.parse("local:"))) as shell:
        with pytest.raises(ConnectError, match="sh: no such file"):
            await shell.call("true")


async def test_a_banner_before_the_answers_is_no_part_of_them(path_of: Path) -> None:
    put_sh(path_of, 'echo welcome; exec /bin/sh "$@"')
    async with open_held_shell(LocalTransport(Target.parse("local:"))) as shell:
        reply = await shell.call("echo out; exit 4")
    assert (reply.exit_code, reply.stdout) == (4, b"out\n")


async def test_the_next_call_after_an_end_starts_a_new_shell(path_of: Path, tmp_path: Path) -> None:
    put_sh(path_of, f'[ -e {tmp_path}/ready ] || exit 9; exec /bin/sh "$@"')
    with anyio.fail_after(5):
        async with open_held_shell(LocalTransport(Target.parse("local:"))) as shell:
            with pytest.raises(ConnectionLost, match="status 9"):
                await shell.call("echo x")
            (tmp_path / "ready").touch()
            assert (await shell.call("echo x")).stdout == b"x\n"


async def test_who_is_inside_when_the_shell_is_killed_is_told(tmp_path: Path) -> None:
    async with open_held_shell(LocalTransport(Target.parse("local:"))) as shell:
        assert int((await shell.call("echo $PPID")).stdout) == os.getpid()
        with anyio.fail_after(5), pytest.raises(ConnectionLost, match="status 137"):
            await shell.call("kill -9 $$")
