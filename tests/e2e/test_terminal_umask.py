"""A pane's shell whose umask takes new files from their owner too: what it records can be read all the same."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.sshd import MakeUser, SshServer, SystemUser

from harness import FileError, Status, connect
from harness.config import Config


@pytest.fixture
def user(make_user: MakeUser) -> SystemUser:
    """Root may read any file, so this takes somebody else."""
    return make_user(shell="/bin/sh")


@pytest.fixture
def config(needs_tmux: None, sshd: SshServer, user: SystemUser) -> Iterator[Config]:
    """Settings with a tmux server of their own, which is ended."""
    socket = f"hx-{secrets.token_hex(4)}"
    yield replace(sshd.config(), tmux_socket=socket)
    kill = ["setpriv", f"--reuid={user.name}", "--clear-groups", "tmux", "-L", socket, "kill-server"]
    subprocess.run(kill, check=False, capture_output=True, timeout=20)


@pytest.mark.parametrize("control_mode", ["auto", "never"])
@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash", "/usr/bin/fish"])
async def test_what_such_a_shell_records_is_known_to_all(
    sshd: SshServer, user: SystemUser, config: Config, control_mode: str, shell: str
) -> None:
    target = f"ssh://{user.name}@{sshd.host}:{sshd.port}"
    config = replace(config, shell=shell, control_mode=control_mode)
    async with connect(target, tmux=True, config=config) as ctx:
        await ctx.run_shell("umask 777")
        ended = [await ctx.run_shell(command, timeout=20) for command in ("echo late", "sh -c 'exit 3'")]
        with pytest.raises(FileError, match="/nowhere"):
            await ctx.run_shell("true", cwd="/nowhere", timeout=20)
        async with connect(target, tmux=False, config=config) as other:
            jobs = {job.job_id: (job.status, job.exit_code) for job in await other.jobs()}
            done = [await other.wait(result.job_id or "", timeout=20) for result in ended]
    assert {status for status, _ in jobs.values()} == {Status.COMPLETED}, jobs
    assert [(result.status, result.exit_code) for result in done] == [(Status.COMPLETED, 0), (Status.COMPLETED, 3)]
