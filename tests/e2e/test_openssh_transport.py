"""Programs through a control master and a real sshd: exact streams, exact status, one login."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.sshd import SshServer

from harness.config import Config
from harness.errors import ConnectionLost
from harness.target import Target
from harness.transport import Process, Transport
from harness_backends.ssh.master import list_masters
from harness_backends.ssh.openssh import open_openssh_transport

TIME = 30.0


@asynccontextmanager
async def connected(server: SshServer, config: Config | None = None) -> AsyncIterator[Transport]:
    with anyio.fail_after(TIME):
        async with open_openssh_transport(Target.parse(server.target), config or server.config()) as transport:
            yield transport


async def read_all(process: Process) -> tuple[bytes, bytes]:
    streams: dict[str, bytes] = {"out": b"", "err": b""}

    async def read(name: str) -> None:
        receive = process.receive if name == "out" else process.receive_stderr
        while data := await receive():
            streams[name] += data

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, "out")
        tasks.start_soon(read, "err")
    return streams["out"], streams["err"]


async def run(transport: Transport, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    async with await transport.open_process(argv) as process:

        async def feed() -> None:
            await process.send(stdin)
            await process.send_eof()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed)
            out, err = await read_all(process)
        return await process.wait(), out, err


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("printf 'a\\0b\\377'; printf err >&2; exit 42", (42, b"a\0b\xff", b"err")),
        ("exit 255", (255, b"", b"")),
        ("kill -9 $$", (137, b"", b"")),
        ("kill -TERM $$", (143, b"", b"")),
        ("cat", (0, b"input\n", b"")),
        (":", (0, b"", b"")),
    ],
)
async def test_streams_and_status_are_exact(sshd: SshServer, script: str, expected: tuple[int, bytes, bytes]) -> None:
    async with connected(sshd) as transport:
        assert await run(transport, "sh", "-c", script, stdin=b"input\n") == expected


async def test_ten_megabytes_pass_both_ways(sshd: SshServer) -> None:
    data = os.urandom(10 << 20)
    async with connected(sshd) as transport:
        assert await run(transport, "cat", stdin=data) == (0, data, b"")


async def test_a_second_connection_costs_no_login(sshd: SshServer) -> None:
    async with connected(sshd) as first, connected(sshd) as second:
        assert (await run(first, "true"))[0] == (await run(second, "true"))[0] == 0
    assert sum("Accepted publickey" in line for line in sshd.log) == 1


async def test_a_killed_master_is_a_lost_connection_at_once(sshd: SshServer) -> None:
    async with connected(sshd) as transport:
        async with await transport.open_process(["sh", "-c", "echo go; sleep 60"]) as process:
            assert await process.receive() == b"go\n"
            (master,) = await list_masters()
            assert master.pid is not None
            os.kill(master.pid, signal.SIGKILL)
            with anyio.fail_after(2):
                assert await process.receive() == b""
                with pytest.raises(ConnectionLost):
                    await process.wait()
        assert await run(transport, "echo", "again") == (0, b"again\n", b"")
    assert sum("Accepted publickey" in line for line in sshd.log) == 2
