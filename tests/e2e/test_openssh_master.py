"""Control masters: shared, kept for a time, never the user's own, never stale, never somebody else's."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pexpect
import pytest
from tests.support.sshd import MakeSshd, SshServer, master_pids
from tests.support.transports import connected, run

from harness.config import Config
from harness.errors import ConnectError, ConnectionLost
from harness.login import LoginQuestion
from harness.target import Target
from harness_backends.ssh import disconnect, list_masters
from harness_backends.ssh.control_master import plan_master

OTHER_PROCESS = """
import anyio, sys
from harness.config import Config
from harness.login import LoginQuestion, use_prompter
from harness.target import Target
from harness_backends.ssh import open_transport

async def main(target, config, after):
    async with open_transport(Target.parse(target), config, None) as transport:
        async with await transport.open_process(["echo", "there"]) as process:
            print((await process.receive()).decode(), end="", flush=True)
            await process.wait()
        if after == "stay":
            await anyio.sleep_forever()

anyio.run(main, sys.argv[1], eval(sys.argv[2]), sys.argv[3])
"""


def other(server: SshServer, after: str = "", **overrides: object) -> subprocess.Popen[str]:
    """Another harness process with a context of its own."""
    argv = [sys.executable, "-c", OTHER_PROCESS, server.target, repr(server.config(**overrides)), after]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True)


def logins(server: SshServer) -> int:
    return sum("Accepted publickey" in line for line in server.log)


def sockets(runtime: Path) -> list[Path]:
    return [path for path in runtime.glob("harness/*") if path.is_socket()]


def kill(pid: int) -> None:
    """End a process, and return when it has ended."""
    descriptor = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        select.select([descriptor], [], [], 10)
    finally:
        os.close(descriptor)


async def until_gone(path: Path) -> None:
    with anyio.fail_after(10):
        while path.exists():  # noqa: ASYNC110  # ssh tells nobody that it has ended
            await anyio.sleep(0.05)


async def test_five_processes_at_once_share_one_login(sshd: SshServer, ssh_runtime: Path) -> None:
    processes = [other(sshd) for _ in range(5)]
    outputs = [await anyio.to_thread.run_sync(process.communicate) for process in processes]
    assert [output for output, _ in outputs] == ["there\n"] * 5
    assert logins(sshd) == 1
    assert [path.name for path in ssh_runtime.glob("harness/*")] == [path.name for path in sockets(ssh_runtime)]


async def test_a_master_is_kept_and_ends_after_its_time(sshd: SshServer, ssh_runtime: Path) -> None:
    for _ in range(2):  # the second harness finds the master of the first
        async with connected(sshd, control_persist=3.0) as transport:
            (path,) = sockets(ssh_runtime)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            await anyio.sleep(3.5)  # in use, although nothing runs
            assert await run(transport, "echo", "x") == (0, b"x\n", b"")
    assert logins(sshd) == 1
    await until_gone(path)


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_killed_harness_leaves_a_master_that_ends_by_itself(
    sshd: SshServer, ssh_runtime: Path, fresh: bool
) -> None:
    process = other(sshd, "stay", control_persist=1.0, dedicated_connection=fresh)
    assert process.stdout is not None
    assert await anyio.to_thread.run_sync(process.stdout.readline) == "there\n"
    (path,) = sockets(ssh_runtime)
    process.kill()
    process.wait()
    process.stdout.close()
    await until_gone(path)


async def test_a_fresh_connection_is_private_and_ends_with_us(sshd: SshServer, ssh_runtime: Path) -> None:
    async with connected(sshd), connected(sshd, dedicated_connection=True) as transport:
        assert (await run(transport, "true"))[0] == 0
        assert len(sockets(ssh_runtime)) == 2
        assert logins(sshd) == 2
    assert len(sockets(ssh_runtime)) == 1


async def test_a_stale_socket_is_replaced(sshd: SshServer, ssh_runtime: Path) -> None:
    async with connected(sshd):
        pass
    (pid,) = master_pids(ssh_runtime)
    kill(pid)
    assert len(sockets(ssh_runtime)) == 1
    async with connected(sshd) as transport:
        assert (await run(transport, "true"))[0] == 0
    assert logins(sshd) == 2


async def test_sockets_of_killed_masters_are_removed_by_the_next_login(make_sshd: MakeSshd, ssh_runtime: Path) -> None:
    first, second = make_sshd(), make_sshd()
    async with connected(first):
        (stale,) = sockets(ssh_runtime)
    (pid,) = master_pids(ssh_runtime)
    kill(pid)
    async with connected(second):
        assert not stale.exists()


async def test_what_a_killed_login_left_is_removed_by_the_next(sshd: SshServer, ssh_runtime: Path) -> None:
    path = Path((await plan_master(Target.parse(sshd.target), sshd.config(dedicated_connection=True))).path)
    left = Path(f"{path}.lock")
    left.touch()
    async with connected(sshd):
        assert not left.exists()


async def test_a_frozen_master_is_replaced_before_the_next_program(
    sshd: SshServer, ssh_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness_backends.ssh.control_master.ANSWER_TIMEOUT", 0.3)
    async with connected(sshd) as transport:
        (pid,) = master_pids(ssh_runtime)
        os.kill(pid, signal.SIGSTOP)
        try:
            with anyio.fail_after(10):
                assert await run(transport, "echo", "on") == (0, b"on\n", b"")
        finally:
            os.kill(pid, signal.SIGKILL)


async def test_a_socket_where_nobody_answers_is_not_waited_for_long(
    sshd: SshServer, ssh_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness_backends.ssh.control_master.ANSWER_TIMEOUT", 0.3)
    async with connected(sshd):
        pass
    (pid,) = master_pids(ssh_runtime)
    os.kill(pid, signal.SIGSTOP)
    try:
        with anyio.fail_after(10):
            async with connected(sshd) as transport:
                assert (await run(transport, "true"))[0] == 0
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
async def test_something_else_in_the_sockets_place_is_refused_and_kept(sshd: SshServer, kind: str) -> None:
    path = Path((await plan_master(Target.parse(sshd.target), sshd.config())).path)
    make = {"file": path.touch, "link": lambda: path.symlink_to("/nowhere"), "directory": path.mkdir}
    make[kind]()
    with pytest.raises(ConnectError, match="is not a control socket"):
        async with connected(sshd):
            pass
    assert os.path.lexists(path)


@pytest.mark.parametrize("kind", ["link", "open to others", "somebody else's"])
async def test_a_directory_that_cannot_be_trusted_is_refused(
    sshd: SshServer, ssh_runtime: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    directory = ssh_runtime / "harness"
    if kind == "somebody else's":
        request.getfixturevalue("needs_root")
    if kind == "link":
        directory.symlink_to(sshd.directory)
    else:
        directory.mkdir(mode=0o700)
        if kind == "open to others":
            directory.chmod(0o777)
        else:
            os.chown(directory, 1, 1)
    with pytest.raises(ConnectError, match="is unsafe"):
        async with connected(sshd):
            pass
    assert logins(sshd) == 0


@pytest.mark.usefixtures("needs_root")
async def test_a_socket_of_another_user_is_never_used(sshd: SshServer) -> None:
    path = (await plan_master(Target.parse(sshd.target), sshd.config())).path
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        os.chown(path, 1, 1)
        async with connected(sshd) as transport:
            assert (await run(transport, "true"))[0] == 0
    assert logins(sshd) == 1


async def test_a_long_runtime_directory_falls_back_to_a_short_one(
    sshd: SshServer, ssh_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ssh_runtime / ("x" * 80)
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    path = (await plan_master(Target.parse(sshd.target), sshd.config())).path
    assert len(path) <= 90
    assert path.startswith(f"/tmp/harness-{os.getuid()}/ssh-")


async def test_disconnect_ends_the_masters_of_one_target(make_sshd: MakeSshd, ssh_runtime: Path) -> None:
    first, second = make_sshd(), make_sshd()
    async with connected(first) as one, connected(second) as other_one, await one.open_process(["cat"]) as process:
        ended = await disconnect(Config(), Target.parse(first.target))
        assert [master.name for master in ended] == [first.target.removeprefix("ssh://")]
        with anyio.fail_after(5), pytest.raises(ConnectionLost):
            await process.wait()
        assert (await run(other_one, "true"))[0] == 0
        ours = [master for master in await list_masters() if str(ssh_runtime) in master.path]
        assert [master.name for master in ours] == [second.target.removeprefix("ssh://")]


async def test_disconnect_takes_no_name_for_another(sshd: SshServer) -> None:
    places = ("web1", "web10", f"{sshd.user}@web1")
    sshd.ssh_config.write_text(f"Host web*\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n")
    async with AsyncExitStack() as stack:
        for place in places:
            await stack.enter_async_context(connected(sshd, f"ssh://{place}"))
        for place, left in zip(places, (places[1:], places[2:], ()), strict=True):
            ended = await disconnect(Config(), Target.parse(f"ssh://{place}"))
            assert [master.name for master in ended] == [place]
            assert {master.name for master in await list_masters()} == set(left)


async def test_names_that_are_cut_are_still_told_apart(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness_backends.ssh.control_master.MAX_PATH", 70)
    sshd.ssh_config.write_text(f"Host web*\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User {sshd.user}\n")
    long = "web" + "x" * 40
    async with connected(sshd, f"ssh://{long}1"), connected(sshd, f"ssh://{long}2") as second:
        (ended,) = await disconnect(Config(), Target.parse(f"ssh://{long}1"))
        assert ended.name.endswith("x~")
        assert await disconnect(Config(), Target.parse("ssh://web")) == []
        assert (await run(second, "true"))[0] == 0
        assert len(await list_masters()) == 1


async def test_disconnecting_all_leaves_those_of_another_environment(
    sshd: SshServer, ssh_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("XDG_RUNTIME_DIR")
        async with connected(sshd, control_persist=1.0) as theirs:
            elsewhere.setenv("XDG_RUNTIME_DIR", str(ssh_runtime))
            async with connected(sshd):
                assert len(await disconnect(Config(), None)) == 1
            assert logins(sshd) == 2
            assert await run(theirs, "echo", "untouched") == (0, b"untouched\n", b"")
            assert logins(sshd) == 2


async def test_a_link_is_renewed_although_the_runtime_directory_has_gone(sshd: SshServer, ssh_runtime: Path) -> None:
    async with connected(sshd) as transport:
        (pid,) = master_pids(ssh_runtime)
        kill(pid)
        shutil.rmtree(ssh_runtime / "harness")
        assert await run(transport, "echo", "again") == (0, b"again\n", b"")
    assert logins(sshd) == 2
    assert len(sockets(ssh_runtime)) == 1


# -- the user's configuration


def alias(server: SshServer, *lines: str) -> None:
    header = ("Host web1", "  HostName 127.0.0.1", f"  Port {server.port}", f"  User {server.user}")
    server.ssh_config.write_text("\n".join((*header, *(f"  {line}" for line in lines))) + "\n")


HARMFUL = [
    "RemoteCommand echo gotcha",
    "RequestTTY force",
    "ControlMaster auto",
    "ControlPersist yes",
    "LocalForward 1 localhost:1",
    "ExitOnForwardFailure yes",
    "ForwardX11 yes",
    "PermitLocalCommand yes",
    "EscapeChar none",
    "StdinNull yes",
    "ForkAfterAuthentication yes",
    "SessionType none",
    "Tunnel ethernet",
    "LogLevel QUIET",
    "StrictHostKeyChecking yes",
    "BatchMode no",
]


@pytest.mark.usefixtures("ssh_terminal")
async def test_harmful_settings_of_the_user_are_switched_off(sshd: SshServer, ssh_runtime: Path) -> None:
    flag = sshd.directory / "local-command-ran"
    control = sshd.directory / "users-own-socket"
    alias(sshd, *HARMFUL, f"LocalCommand touch {flag}", f"ControlPath {control}")
    async with connected(sshd, "ssh://web1") as transport:
        assert await run(transport, "cat", stdin=b"exact\n") == (0, b"exact\n", b"")
        child = pexpect.spawn("env", transport.interactive_argv(["sh", "-c", "tty; exit 7"]), timeout=15)
        child.expect("/dev/pts/")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 7
    assert not flag.exists()
    assert not control.exists()
    assert logins(sshd) == 1


async def test_a_changed_alias_is_another_master(make_sshd: MakeSshd) -> None:
    first, second = make_sshd(), make_sshd()
    alias(first)
    async with connected(first, "ssh://web1"):
        pass
    alias(first, f"UserKnownHostsFile {second.known_hosts}")
    first.ssh_config.write_text(first.ssh_config.read_text().replace(str(first.port), str(second.port)))
    shutil.copy(second.known_hosts, first.known_hosts)
    (second.directory / "authorized_keys").write_text((first.directory / "authorized_keys").read_text())
    async with connected(first, "ssh://web1") as transport:
        out = (await run(transport, "sh", "-c", "echo $SSH_CONNECTION"))[1].decode()
    assert out.split()[-1] == str(second.port)


class Nobody:
    """Could answer, so that ssh gets a terminal for its login."""

    async def answer(self, question: LoginQuestion) -> str | None:
        return None


@pytest.mark.parametrize("prompter", [None, Nobody()], ids=["silent", "on a terminal"])
async def test_a_jump_host_is_passed(make_sshd: MakeSshd, prompter: Nobody | None) -> None:
    jump, inner = make_sshd(), make_sshd()
    options = [f"  UserKnownHostsFile {jump.directory}/both", f"  IdentityFile {jump.identity}", "  IdentitiesOnly yes"]
    (jump.directory / "both").write_text(jump.known_hosts.read_text() + inner.known_hosts.read_text())
    (inner.directory / "authorized_keys").write_text((jump.directory / "authorized_keys").read_text())
    jump.ssh_config.write_text(
        "\n".join(
            [
                *("Host bastion", "  HostName 127.0.0.1", f"  Port {jump.port}"),
                *("Host inner", "  HostName 127.0.0.1", f"  Port {inner.port}", "  ProxyJump bastion"),
                *("Host *", f"  User {jump.user}", *options),
            ]
        )
    )
    async with connected(
        jump, "ssh://inner", identity="", ssh_options=("GlobalKnownHostsFile=/dev/null",)
    ) as transport:
        assert await run(transport, "echo", "through") == (0, b"through\n", b"")
        jump.stop()
        with anyio.fail_after(5), pytest.raises((ConnectError, ConnectionLost)):
            await run(transport, "true")


@pytest.mark.usefixtures("ssh_terminal")
async def test_a_person_can_use_the_command_after_the_master_has_gone(sshd: SshServer, ssh_runtime: Path) -> None:
    async with connected(sshd) as transport:
        argv = transport.interactive_argv(["printf", "%s|", "it's", "a b"])
    await disconnect(Config(), Target.parse(sshd.target))
    assert sockets(ssh_runtime) == []
    child = pexpect.spawn(argv[0], argv[1:], timeout=15, encoding="utf-8")
    child.expect_exact("it's|a b|")
    child.expect(pexpect.EOF)
    child.close()
    assert sockets(ssh_runtime) == []


# -- faults of the link


async def test_a_stalled_link_is_noticed_by_keep_alives(sshd: SshServer) -> None:
    async with (
        connected(sshd, keepalive_interval=1, keepalive_count=2) as transport,
        await transport.open_process(["cat"]) as process,
    ):
        stalled = sshd.session_pids()
        for pid in stalled:
            os.kill(pid, signal.SIGSTOP)
        try:
            with anyio.fail_after(1 * 2 + 2):
                assert await process.receive() == b""
                with pytest.raises(ConnectionLost):
                    await process.wait()
        finally:
            for pid in stalled:
                os.kill(pid, signal.SIGCONT)
        assert await run(transport, "echo", "again") == (0, b"again\n", b"")


async def test_a_restarted_server_is_logged_in_to_again(sshd: SshServer) -> None:
    async with connected(sshd) as transport, await transport.open_process(["cat"]) as process:
        sshd.restart()
        with anyio.fail_after(5), pytest.raises(ConnectionLost):
            await process.wait()
        assert await run(transport, "echo", "again") == (0, b"again\n", b"")
    assert logins(sshd) == 2


async def test_a_server_that_went_away_is_an_error_until_it_is_back(sshd: SshServer) -> None:
    async with connected(sshd) as transport:
        sshd.stop()
        for _ in range(2):
            with anyio.fail_after(10), pytest.raises((ConnectError, ConnectionLost)):
                await transport.open_process(["true"])
        sshd.start()
        assert await run(transport, "echo", "back") == (0, b"back\n", b"")
