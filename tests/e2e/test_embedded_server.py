"""The embedded SSH server, driven by the real OpenSSH client."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from harness.config import Config
from harness.testing.ssh_server import EmbeddedSshServer, embedded_ssh_server

pytestmark = pytest.mark.usefixtures("needs_process")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedSshServer]:
    async with embedded_ssh_server(shell="/bin/sh", home=tmp_path) as running:
        yield running


def ssh(server: EmbeddedSshServer, *options: str) -> list[str]:
    config: Config = server.config()
    settings = [word for option in config.ssh_options for word in ("-o", option)]
    login = ["-F", config.ssh_config, "-i", config.identity, "-p", str(server.port), *settings]
    return ["ssh", *login, *options, f"{server.user}@127.0.0.1"]


async def run(argv: list[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    with anyio.fail_after(30):
        return await anyio.run_process(argv, input=data, check=False)


def test_it_works_in_a_plain_asyncio_program_too(tmp_path: Path) -> None:
    """There, anyio starts tasks only from tasks, and asyncssh calls from none."""

    async def main() -> None:
        async with embedded_ssh_server(shell="/bin/sh", home=tmp_path) as server:
            assert (await run([*ssh(server), "echo out"])).stdout == b"out\n"

    asyncio.run(main())


async def test_a_command_has_separate_exact_streams_and_its_own_exit_code(server: EmbeddedSshServer) -> None:
    done = await run([*ssh(server), "cat; printf err >&2; exit 42"], bytes(range(256)) * 1000)
    assert (done.returncode, done.stdout, done.stderr) == (42, bytes(range(256)) * 1000, b"err")


async def test_the_home_of_sessions_is_an_empty_one_that_is_removed() -> None:
    async with embedded_ssh_server(shell="/bin/sh") as server:
        home = (await run([*ssh(server), 'cd; touch mark; printf "%s" "$PWD"'])).stdout.decode()
        assert os.listdir(home) == ["mark"]
        assert home != os.path.expanduser("~")
    assert not os.path.exists(home)


async def test_output_in_bulk_is_complete(server: EmbeddedSshServer) -> None:
    done = await run([*ssh(server), "head -c 30000000 /dev/zero; exit 3"])
    assert (done.returncode, len(done.stdout)) == (3, 30_000_000)


async def test_death_by_a_signal_is_reported_as_such(server: EmbeddedSshServer) -> None:
    done = await run([*ssh(server), "kill -9 $$"])
    assert done.returncode == 255  # what OpenSSH makes of an exit-signal message


async def test_a_terminal_has_the_size_and_the_modes_of_the_client(server: EmbeddedSshServer) -> None:
    script = f"stty rows 33 cols 101 -echo; exec {' '.join(ssh(server, '-tt'))} 'tty; stty size; stty -a'"
    done = await run(["script", "-qec", script, "/dev/null"])
    assert done.returncode == 0
    assert b"/dev/pts/" in done.stdout
    assert b"33 101" in done.stdout
    assert b"-echo " in done.stdout


async def test_a_terminal_is_the_controlling_one(server: EmbeddedSshServer) -> None:
    done = await run([*ssh(server, "-tt"), "echo yes >/dev/tty; test -t 0 && test -t 1 && echo $TERM"])
    assert (done.returncode, done.stdout.split()[0]) == (0, b"yes")


async def test_hanging_up_ends_what_runs_on_the_terminal(server: EmbeddedSshServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gone")
    command = "trap 'exec 3>gone' HUP; echo ready; while :; do read -r line || exit; done"
    async with await anyio.open_process([*ssh(server, "-tt"), command]) as client:
        assert client.stdout is not None
        with anyio.fail_after(10):
            while b"ready" not in await client.stdout.receive():
                pass
            client.kill()
            assert await anyio.Path(tmp_path / "gone").read_bytes() == b""


async def test_control_master_carries_many_sessions(server: EmbeddedSshServer, tmp_path: Path) -> None:
    control = f"ControlPath={tmp_path / 'ctl'}"
    master = await anyio.open_process(ssh(server, "-M", "-N", "-o", control), stdin=subprocess.DEVNULL)
    try:
        with anyio.fail_after(10):
            while not (tmp_path / "ctl").exists():
                await anyio.lowlevel.checkpoint()
        results: list[bytes] = []

        async def session(number: int) -> None:
            results.append((await run([*ssh(server, "-o", control), f"echo {number}"])).stdout)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(session, number)
        assert sorted(results) == [b"%d\n" % number for number in range(8)]
        assert server.logins == 1
    finally:
        master.terminate()
        await master.wait()


async def test_a_wrong_key_is_refused(server: EmbeddedSshServer, tmp_path: Path) -> None:
    await run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")])
    argv = [str(tmp_path / "other") if word == server.identity else word for word in ssh(server, "-o", "BatchMode=yes")]
    done = await run([*argv, "true"])
    assert done.returncode == 255
    assert b"Permission denied" in done.stderr


async def test_sessions_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async with embedded_ssh_server(shell="/bin/sh", home=tmp_path, max_sessions=0) as server:
        done = await run([*ssh(server), "true"])
    assert done.returncode == 255


async def test_nothing_runs_on_after_the_server(tmp_path: Path) -> None:
    async with embedded_ssh_server(shell="/bin/sh", home=tmp_path) as server:
        client = await anyio.open_process([*ssh(server), "trap '' HUP; echo $$; exec sleep 300"])
        assert client.stdout is not None
        pid = int(await client.stdout.receive())
        os.kill(pid, 0)
    await client.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_delay_is_added_to_each_direction(tmp_path: Path) -> None:
    async with embedded_ssh_server(shell="/bin/sh", home=tmp_path, delay=0.0) as server:
        assert server.link is not None
        async with await anyio.open_process([*ssh(server), "while read -r line; do echo $line; done"]) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            await client.stdin.send(b"warm\n")
            await client.stdout.receive()
            server.link.delay = 0.05
            trips = []
            for _ in range(10):
                started = anyio.current_time()
                await client.stdin.send(b"x\n")
                assert await client.stdout.receive() == b"x\n"
                trips.append(anyio.current_time() - started)
            assert 0.1 <= min(trips) < 0.15  # the shortest one: a busy machine adds to the others
