"""Programs through a control master and a real sshd: exact streams, exact status, one login."""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from tests.support.sshd import MakeSshd, SshServer, master_pids
from tests.support.transports import connected, run

from harness.errors import ConnectError, ConnectionLost, UnsupportedOperation


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


async def test_a_killed_master_is_a_lost_connection_at_once(sshd: SshServer, ssh_runtime: Path) -> None:
    async with connected(sshd) as transport:
        async with await transport.open_process(["sh", "-c", "echo go; sleep 60"]) as process:
            assert await process.receive() == b"go\n"
            (pid,) = master_pids(ssh_runtime)
            os.kill(pid, signal.SIGKILL)
            with anyio.fail_after(2):
                assert await process.receive() == b""
                with pytest.raises(ConnectionLost):
                    await process.wait()
        assert await run(transport, "echo", "again") == (0, b"again\n", b"")
    assert sum("Accepted publickey" in line for line in sshd.log) == 2


async def test_reads_are_partial_and_cancelling_one_loses_nothing(sshd: SshServer) -> None:
    async with connected(sshd) as transport, await transport.open_process(["cat"]) as process:
        with anyio.move_on_after(0.05):
            await process.receive()
        await process.send(b"abc")
        assert await process.receive(2) == b"ab"
        assert await process.receive() == b"c"
        await process.send_eof()
        assert [await process.receive(), await process.receive()] == [b"", b""]
        assert [await process.wait(), await process.wait()] == [0, 0]


async def test_a_program_that_reads_no_more_breaks_the_pipe(sshd: SshServer) -> None:
    async with connected(sshd) as transport, await transport.open_process(["sh", "-c", "exit 3"]) as process:
        assert await process.wait() == 3
        await process.receive()  # the end of the output
        with pytest.raises(BrokenPipeError):
            await process.send(b"x" * (8 << 20))


async def test_the_status_arrives_although_a_grandchild_holds_the_output(sshd: SshServer) -> None:
    async with connected(sshd) as transport:
        async with await transport.open_process(["sh", "-c", "sleep 20 & echo $!"]) as process:
            child = int(await process.receive())
            with anyio.fail_after(5):
                assert await process.wait() == 0
        os.kill(child, signal.SIGKILL)


async def test_closing_wakes_whoever_reads_writes_or_waits(sshd: SshServer) -> None:
    ends: list[str] = []

    async with connected(sshd) as transport:
        process = await transport.open_process(["sleep", "30"])

        async def reads() -> None:
            ends.append(repr(await process.receive()))

        async def writes() -> None:
            try:
                await process.send(b"x" * (8 << 20))
            except BrokenPipeError:
                ends.append("broken pipe")

        async def waits() -> None:
            try:
                await process.wait()
            except ConnectionLost:
                ends.append("lost")

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for task in (reads, writes, waits):
                    tasks.start_soon(task)
                await anyio.wait_all_tasks_blocked()
                await process.aclose()
                await process.aclose()
    assert sorted(ends) == ["b''", "broken pipe", "lost"]


async def test_a_cancelled_start_leaves_nothing_open(sshd: SshServer) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with connected(sshd) as transport:
        inside = len(os.listdir("/proc/self/fd"))
        for delay in (0, 0.001, 0.003, 0.01, 0.03):
            with anyio.move_on_after(delay):
                async with await transport.open_process(["sleep", "30"]):
                    pass
        assert len(os.listdir("/proc/self/fd")) == inside
        assert await run(transport, "echo", "fine") == (0, b"fine\n", b"")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("sessions", [2, 10])
async def test_more_programs_than_the_server_allows_wait_their_turn(make_sshd: MakeSshd, sessions: int) -> None:
    server = make_sshd(f"MaxSessions {sessions}")
    results: list[bytes] = []

    async with connected(server) as transport:

        async def one(number: int) -> None:
            results.append((await run(transport, "sh", "-c", f"sleep 0.05; echo {number}"))[1])

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, number)
        assert min(sessions, 9) <= (transport.max_channels or 0) <= 9
    assert sorted(results) == sorted(f"{number}\n".encode() for number in range(20))
    assert sum("Accepted publickey" in line for line in server.log) == 1


@pytest.mark.parametrize("sessions", [1, 2, 3, 5, 8])
async def test_the_limit_of_the_server_is_learnt_exactly(make_sshd: MakeSshd, sessions: int) -> None:
    """Nine ask at once; those that come in stay until the others have been refused."""
    server = make_sshd(f"MaxSessions {sessions}")
    done = anyio.Event()

    async with connected(server) as transport:

        async def hold() -> None:
            async with await transport.open_process(["cat"]):
                await done.wait()

        async with anyio.create_task_group() as tasks:
            for _ in range(9):
                tasks.start_soon(hold)
            with anyio.fail_after(10):
                while transport.max_channels != sessions:  # noqa: ASYNC110  # nothing tells of it
                    await anyio.sleep(0.02)
            done.set()
        assert await run(transport, "echo", "on") == (0, b"on\n", b"")
        assert transport.max_channels == sessions


async def test_a_server_with_one_session_serves_one_program_after_the_other(make_sshd: MakeSshd) -> None:
    server = make_sshd("MaxSessions 1")
    async with connected(server) as transport:
        for number in range(5):
            assert await run(transport, "echo", str(number)) == (0, f"{number}\n".encode(), b"")


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_server_with_few_sessions_says_what_is_lost(make_sshd: MakeSshd, sessions: int) -> None:
    server = make_sshd(f"MaxSessions {sessions}")
    async with connected(server, connect_timeout=3.0) as transport, AsyncExitStack() as stack:
        for _ in range(sessions):
            process = await stack.enter_async_context(await transport.open_process(["cat"]))
        with pytest.raises(UnsupportedOperation, match="MaxSessions"):
            await transport.open_process(["true"])
        assert transport.max_channels == sessions
        await process.send(b"still here")
        assert await process.receive() == b"still here"
    assert sum("Accepted publickey" in line for line in server.log) == 1


async def test_a_server_without_sessions_is_an_error_that_says_so(make_sshd: MakeSshd) -> None:
    async with connected(make_sshd("MaxSessions 0")) as transport:
        with pytest.raises(ConnectError, match="MaxSessions"):
            await transport.open_process(["true"])


async def test_the_users_variables_are_sent(make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_sshd("AcceptEnv FROM_*")
    monkeypatch.setenv("FROM_HERE", "yes it is")
    monkeypatch.setenv("NOT_FROM_HERE", "secret")
    server.ssh_config.write_text("Host *\n  SendEnv FROM_*\n  SetEnv FROM_CONFIG=set\n")
    async with connected(server) as transport:
        _, out, _ = await run(transport, "sh", "-c", "echo $FROM_HERE,$FROM_CONFIG,$NOT_FROM_HERE")
    assert out == b"yes it is,set,\n"
