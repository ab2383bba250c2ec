"""Containers of a host that is entered over SSH: its own program for the engine, one login, no exposed port."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.contained import MakeWay, Way, make_way
from tests.support.engines import Engine, container
from tests.support.sshd import MakeSshd, SshServer

from harness import ExecutionContext, connect
from harness.config import Config
from harness.discovery import open_target
from harness.errors import ConnectError, TargetNotFound
from harness.target import Target
from harness.testing.contract import run_transport_check, transport_checks

__all__ = ["make_way"]

QUICK = ("streams_and_status_are_exact", "arguments_are_exact", "bulk_data_passes", "closing_is_bounded")


@pytest.fixture(params=["docker", "podman"])
def way(request: pytest.FixtureRequest, make_way: MakeWay) -> Way:
    return make_way(request.param)


@pytest.fixture
def host(way: Way, make_sshd: MakeSshd, tmp_path: Path) -> SshServer:
    """A host whose sessions find the engine."""
    return make_sshd(*session_environ(tmp_path, **way.engine.environ(api=False)))


def session_environ(home: Path, **more: str) -> tuple[str, ...]:
    """The lines of a server's configuration that set the variables of sessions."""
    return (
        "Match All",
        "  SetEnv " + " ".join(f"{name}={value}" for name, value in {"HOME": str(home), **more}.items()),
    )


def logins(host: SshServer) -> int:
    return sum("Accepted publickey" in line for line in host.log)


async def test_a_container_of_a_host_is_entered_with_one_login(way: Way, host: SshServer) -> None:
    with container(way.engine, "debian") as one:
        target = f"{host.target}+{one.target}"
        async with connect(target, config=host.config()) as ctx:
            result = await ctx.run_shell("hostname; exit 5")
            assert (result.exit_code, result.stdout) == (5, one.run("hostname") + "\n")
            await ctx.write_file("/tmp/\udcff\n", b"\0x")
            assert (await ctx.read_file("/tmp/\udcff\n")).data == b"\0x"
            assert str(ctx.target) == target
            assert "running" in ctx.describe()
        assert logins(host) == 1


async def test_the_transport_keeps_its_contract_over_ssh(way: Way, host: SshServer) -> None:
    with container(way.engine) as one:
        target = Target.parse(f"{host.target}+{one.target}")
        async with open_target(target, host.config()) as backend:
            for check in transport_checks():
                if check.name in QUICK:
                    await run_transport_check(check, backend.transport)
            words = backend.transport.interactive_argv(["sh", "-l"])
    assert words[0] == "ssh"
    assert f"{way.engine.kind} exec -it {one.id} sh -l" in " ".join(words)


async def test_tmux_in_a_container_of_a_host_can_be_attached_to(way: Way, host: SshServer) -> None:
    with container(way.engine, "debian") as one:
        config = replace(host.config(), tmux_socket=f"hx-{secrets.token_hex(4)}")
        async with connect(f"{host.target}+{one.target}", tmux=True, config=config) as ctx:
            assert (await ctx.run_shell("cd /var/log")).ok
            assert (await ctx.run_shell("pwd")).stdout == "/var/log\n"
            assert f"exec -it {one.id} tmux" in " ".join(ctx.attach_command)
            assert "tmux" in one.run("ps", "-eo", "comm")


async def test_the_engine_need_not_be_named(way: Way, host: SshServer) -> None:
    with container(way.engine) as one:
        async with connect(f"{host.target}+container://{one.name}", config=host.config()) as ctx:
            assert (await ctx.run_shell("hostname")).ok
        with pytest.raises(TargetNotFound, match="no container 'hx-nobody'"):
            async with connect(f"{host.target}+container://hx-nobody", config=host.config()):
                pass


async def test_an_engine_that_the_host_does_not_have_is_named(
    make_way: MakeWay, make_sshd: MakeSshd, tmp_path: Path
) -> None:
    make_way("docker")
    for name in ("sh", "id", "mkdir", "ls", "cat", "head", "sed", "tail", "wc"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    host = make_sshd(*session_environ(tmp_path, PATH=str(tmp_path)))
    with pytest.raises(ConnectError, match="docker is not installed"):
        async with connect(f"{host.target}+docker://app", config=host.config()):
            pass


async def test_a_cancelled_command_leaves_nothing_in_the_container(way: Way, host: SshServer) -> None:
    with container(way.engine) as one:
        async with connect(f"{host.target}+{one.target}", config=host.config()) as ctx:
            await cancelled(ctx, "sleep 4321 & echo up; sleep 4321")
            assert [line for _, line in one.processes() if "4321" in line] == []


async def cancelled(ctx: ExecutionContext, command: str) -> None:
    """Cancel a command once it has written something."""
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await ctx.run_shell(command, on_output=lambda data: tasks.cancel_scope.cancel())

        tasks.start_soon(run)


async def test_a_docker_host_behind_ssh_is_entered_as_every_ssh_target(
    make_way: MakeWay, make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine: Engine = make_way("docker").engine
    host = make_sshd(*session_environ(tmp_path, DOCKER_HOST=engine.environ()["DOCKER_HOST"]))
    monkeypatch.setenv("DOCKER_HOST", host.target)
    with container(engine) as one:
        async with connect(one.target, config=host.config()) as ctx:
            assert (await ctx.run_shell("hostname")).stdout == one.run("hostname") + "\n"
        assert logins(host) == 1


@pytest.mark.usefixtures("needs_tmux")
async def test_tmux_runs_here_where_the_image_has_none_and_says_so(
    way: Way, host: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = f"hx-{secrets.token_hex(4)}"
    config: Config = replace(host.config(), tmux_socket=socket)
    with container(way.engine) as one:
        try:
            async with connect(f"{host.target}+{one.target}", tmux=True, config=config) as ctx:
                result = await ctx.run_shell("cd /bin; echo $$")
                assert any("tmux is not installed on the target" in notice for notice in result.notices)
                assert (await ctx.run_shell("pwd; hostname")).stdout == f"/bin\n{one.run('hostname')}\n"
                assert ctx.attach_command[0] == "tmux"
        finally:
            subprocess.run(["tmux", "-L", socket, "kill-server"], check=False, capture_output=True, timeout=20)
