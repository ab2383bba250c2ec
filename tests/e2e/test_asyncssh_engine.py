"""The asyncssh engine against real servers: logins, questions, host keys, lost links, channel limits."""

from __future__ import annotations

import logging
import os
import pwd
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.sshd import MakeSshd, MakeUser, SshServer

from harness.config import Config
from harness.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionLost,
    HostKeyError,
    TargetNotFound,
    UnsupportedOperation,
)
from harness.extras import install_extra
from harness.login import LoginQuestion, use_prompter
from harness.target import Target
from harness.testing.contract import run_program
from harness.testing.ssh_server import embedded_ssh_server
from harness_backends.local import LocalTransport
from harness_backends.ssh.asyncssh_engine import ReconnectingTransport, open_asyncssh_transport

pytestmark = pytest.mark.usefixtures("ssh_runtime")


class Answers:
    """A prompter with prepared answers; it remembers what was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[LoginQuestion] = []

    async def answer(self, question: LoginQuestion) -> str | None:
        self.questions.append(question)
        return self.answers.pop(0)

    @property
    def kinds(self) -> list[str]:
        return [question.kind for question in self.questions]


@asynccontextmanager
async def connected(
    target: str, config: Config, answers: Answers | None = None
) -> AsyncIterator[ReconnectingTransport]:
    with use_prompter(answers):
        async with open_asyncssh_transport(Target.parse(target), config, None) as transport:
            assert isinstance(transport, ReconnectingTransport)
            yield transport


async def echoes(target: str, config: Config, answers: Answers | None = None) -> None:
    """Assert that a program runs through a new connection."""
    with anyio.fail_after(30):
        async with connected(target, config, answers) as transport:
            assert await run_program(transport, ["echo", "in"]) == (0, b"in\n", b"")


# -- logins


async def test_a_login_by_key_asks_nothing(sshd: SshServer) -> None:
    answers = Answers()
    await echoes(sshd.target, sshd.config(), answers)
    assert answers.questions == []


async def test_a_password_is_asked_for_and_a_wrong_one_asked_again(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user(password="secret words")
    answers = Answers("wrong", "secret words")
    await echoes(f"ssh://{user.name}@127.0.0.1:{server.port}", _without_key(server), answers)
    assert [(question.kind, question.secret, question.attempt) for question in answers.questions] == [
        ("password", True, 1),
        ("password", True, 2),
    ]


async def test_giving_up_on_a_password_ends_the_login(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user(password="secret words")
    answers = Answers(None)
    with pytest.raises(AuthenticationError) as caught:
        await echoes(f"ssh://{user.name}@127.0.0.1:{server.port}", _without_key(server), answers)
    assert answers.kinds == ["password"]
    assert "secret" not in str(caught.value)


async def test_where_nobody_can_answer_a_login_fails_at_once(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user()
    with pytest.raises(AuthenticationError, match="login was refused"):
        await echoes(f"ssh://{user.name}@127.0.0.1:{server.port}", _without_key(server), None)


def _without_key(server: SshServer, **overrides: object) -> Config:
    return server.config(**{"identity": "", **overrides})


@pytest.mark.usefixtures("needs_process")
async def test_a_second_factor_is_asked_for(tmp_path: Path) -> None:
    async with embedded_ssh_server(home=tmp_path, password="pass", second_factor="123456") as server:
        answers = Answers("pass", "123456")
        await echoes(server.target, server.config(identity=""), answers)
    assert [(question.kind, question.text) for question in answers.questions] == [
        ("password", "Password: "),
        ("otp", "Verification code: "),
    ]


@pytest.fixture
def locked_key(sshd: SshServer) -> SshServer:
    """A server whose client key has a passphrase."""
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(sshd.identity)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return sshd


async def test_a_passphrase_is_asked_for_and_a_wrong_one_asked_again(locked_key: SshServer) -> None:
    answers = Answers("wrong", "open sesame")
    await echoes(locked_key.target, locked_key.config(), answers)
    assert answers.kinds == ["passphrase", "passphrase"]
    assert all(question.secret for question in answers.questions)


async def test_a_locked_key_that_nobody_can_unlock_fails_at_once(locked_key: SshServer) -> None:
    with pytest.raises(AuthenticationError):
        await echoes(locked_key.target, locked_key.config(), None)


async def test_an_agent_answers_for_a_locked_key(
    locked_key: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = str(tmp_path / "agent")
    agent = await anyio.open_process(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        with anyio.fail_after(10):
            while not os.path.exists(socket):
                await anyio.lowlevel.checkpoint()
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        monkeypatch.setenv("SSH_ASKPASS", str(_askpass(tmp_path, "open sesame")))
        monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
        await anyio.run_process(["ssh-add", str(locked_key.identity)])
        options = tuple(o for o in locked_key.client_options if not o.startswith("IdentityAgent"))
        answers = Answers()
        await echoes(locked_key.target, locked_key.config(ssh_options=options), answers)
        assert answers.questions == []
    finally:
        agent.terminate()
        await agent.wait()


def _askpass(directory: Path, secret: str) -> Path:
    path = directory / "askpass"
    path.write_text(f"#!/bin/sh\necho '{secret}'\n")
    path.chmod(0o700)
    return path


async def test_the_time_limit_does_not_count_the_time_to_answer(locked_key: SshServer) -> None:
    class Slow(Answers):
        async def answer(self, question: LoginQuestion) -> str | None:
            await anyio.sleep(3.2)
            return await super().answer(question)

    await echoes(locked_key.target, locked_key.config(connect_timeout=3.0), Slow("open sesame"))


# -- host keys


async def test_the_time_limit_of_the_connection_does_not_limit_the_authentication(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    key = tmp_path / "key.pub"
    slow = f'AuthorizedKeysCommand /bin/sh -c "sleep 3.2; cat {key}"'
    server = make_sshd(slow, f"AuthorizedKeysCommandUser {user}")
    (server.directory / "authorized_keys").rename(key)
    await echoes(server.target, server.config(connect_timeout=3.0))
    with pytest.raises(ConnectError, match="did not finish within 1 s") as caught:
        await echoes(server.target, server.config(login_timeout=1.0))
    assert "login_timeout" in caught.value.hint


async def test_an_unknown_host_key_is_asked_about_and_recorded(sshd: SshServer) -> None:
    known = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text("")
    answers = Answers("yes")
    await echoes(sshd.target, sshd.config(), answers)
    assert answers.kinds == ["hostkey"]
    assert "SHA256:" in answers.questions[0].text
    assert sshd.known_hosts.read_text().split()[:3] == known.split()[:3]
    await echoes(sshd.target, sshd.config(), Answers())


async def test_a_fingerprint_is_an_answer_too_and_anything_else_is_a_no(sshd: SshServer) -> None:
    sshd.known_hosts.write_text("")
    answers = Answers("SHA256:of another key")
    with pytest.raises(HostKeyError, match="unknown"):
        await echoes(sshd.target, sshd.config(), answers)
    fingerprint = next(word for word in answers.questions[0].text.split() if word.startswith("SHA256:")).rstrip(".")
    await echoes(sshd.target, sshd.config(), Answers(fingerprint))


async def test_where_nobody_can_answer_an_unknown_host_key_is_refused(sshd: SshServer) -> None:
    sshd.known_hosts.write_text("")
    with pytest.raises(HostKeyError, match=r"unknown.*SHA256:"):
        await echoes(sshd.target, sshd.config(), None)
    assert sshd.known_hosts.read_text() == ""


async def test_a_changed_host_key_is_refused_without_a_question(sshd: SshServer) -> None:
    sshd.new_host_key()
    sshd.restart()
    answers = Answers()
    with pytest.raises(HostKeyError, match=r"does NOT match.*ssh-keygen -R"):
        await echoes(sshd.target, sshd.config(), answers)
    assert answers.questions == []


async def test_accept_new_accepts_new_keys_only(sshd: SshServer) -> None:
    config = sshd.config()
    config = replace(config, ssh_options=(*config.ssh_options, "StrictHostKeyChecking=accept-new"))
    sshd.known_hosts.write_text("")
    await echoes(sshd.target, config)
    assert sshd.known_hosts.read_text() != ""
    sshd.new_host_key()
    sshd.restart()
    with pytest.raises(HostKeyError, match="does NOT match"):
        await echoes(sshd.target, config)


async def test_settings_that_are_not_honoured_are_named(sshd: SshServer, caplog: pytest.LogCaptureFixture) -> None:
    sshd.ssh_config.write_text("StrictHostKeyChecking no\nVerifyHostKeyDNS yes\nControlPath /tmp/none\n")
    with caplog.at_level(logging.WARNING):
        async with connected(sshd.target, sshd.config()) as transport:
            assert len(transport.notices) == 2
    assert "stricthostkeychecking" in caplog.text
    assert "verifyhostkeydns" in caplog.text


async def test_strict_checking_stays_on_when_the_user_switched_it_off(sshd: SshServer) -> None:
    sshd.ssh_config.write_text("StrictHostKeyChecking no\n")
    sshd.new_host_key()
    sshd.restart()
    with pytest.raises(HostKeyError, match="does NOT match"):
        await echoes(sshd.target, sshd.config())


@pytest.mark.parametrize(
    ("line", "cipher"),
    [
        ("", "aes128-gcm@openssh.com"),
        ("Ciphers chacha20-poly1305@openssh.com\n", "chacha20-poly1305@openssh.com"),
        ("Ciphers aes256-ctr\n", "aes256-ctr"),
    ],
)
async def test_a_cheap_cipher_is_used_unless_the_user_chose_one(sshd: SshServer, line: str, cipher: str) -> None:
    sshd.ssh_config.write_text(line)
    async with connected(sshd.target, sshd.config()) as transport:
        assert transport.current.connection.get_extra_info("send_cipher") == cipher


async def test_a_server_without_the_cheap_cipher_is_entered_all_the_same(make_sshd: MakeSshd) -> None:
    server = make_sshd("Ciphers chacha20-poly1305@openssh.com")
    await echoes(server.target, server.config())


# -- where to


async def test_host_aliases_and_jumps_of_the_users_file_are_honoured(make_sshd: MakeSshd) -> None:
    bastion, inner = make_sshd(), make_sshd()
    both = inner.directory / "both"
    both.write_text(bastion.known_hosts.read_text() + inner.known_hosts.read_text())
    inner.ssh_config.write_text(
        f"Host *\n  UserKnownHostsFile {both}\n  GlobalKnownHostsFile /dev/null\n"
        f"Host bastion\n  HostName 127.0.0.1\n  Port {bastion.port}\n  IdentityFile {bastion.identity}\n"
        f"Host web1\n  HostName 127.0.0.1\n  Port {inner.port}\n  IdentityFile {inner.identity}\n  ProxyJump bastion\n"
    )
    config = Config(ssh_config=str(inner.ssh_config), ssh_options=("IdentitiesOnly=yes", f"User={inner.user}"))
    await echoes("ssh://web1", config)
    assert sum("Accepted publickey" in line for line in bastion.log) == 1


async def test_one_host_can_be_reached_through_another_target(make_sshd: MakeSshd) -> None:
    bastion, inner = make_sshd(), make_sshd()
    with use_prompter(None), anyio.fail_after(30):
        async with open_asyncssh_transport(Target.parse(bastion.target), bastion.config(), None) as base:
            target = Target.parse(f"{bastion.target}+{inner.target}")
            async with open_asyncssh_transport(target, inner.config(), base) as transport:
                assert await run_program(transport, ["echo", "in"]) == (0, b"in\n", b"")


async def test_a_local_base_is_no_hop(sshd: SshServer) -> None:
    local = LocalTransport(Target.parse("local:"))
    async with open_asyncssh_transport(Target.parse(sshd.target), sshd.config(), local) as transport:
        assert await run_program(transport, ["echo", "in"]) == (0, b"in\n", b"")


async def test_a_name_that_does_not_resolve_is_target_not_found(sshd: SshServer) -> None:
    with pytest.raises(TargetNotFound):
        await echoes("ssh://no-such-host.invalid", sshd.config())


@contextmanager
def full_queue(address: str, port: int) -> Iterator[None]:
    """Listen with a full queue: the kernel then drops further connections, as a firewall does."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield


async def test_each_address_of_a_host_has_the_time_limit(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    known = socket.getaddrinfo("127.0.0.1", sshd.port, type=socket.SOCK_STREAM)
    silent = [(*entry[:4], ("127.0.0.2", sshd.port)) for entry in known]
    name = ("HostName=two.invalid", f"HostKeyAlias=[127.0.0.1]:{sshd.port}")
    config = sshd.config(connect_timeout=3.0, ssh_options=(*sshd.client_options, *name))
    with full_queue("127.0.0.2", sshd.port):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [*silent, *known])
        await echoes(sshd.target, config)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: silent)
        with pytest.raises(ConnectError, match="Connection timed out"):
            await echoes(sshd.target, config)


async def test_a_closed_port_is_a_connect_error(sshd: SshServer) -> None:
    sshd.stop()
    with pytest.raises(ConnectError, match=r"(?i)refused"):
        await echoes(sshd.target, sshd.config())


@pytest.mark.usefixtures("needs_process")
async def test_a_silent_server_is_given_up_after_the_time_limit() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
        with pytest.raises(ConnectError, match="did not finish"), anyio.fail_after(5):
            await echoes(
                f"ssh://root@127.0.0.1:{port}", Config(connect_timeout=0.5, ssh_options=("IdentityAgent=none",))
            )


# -- login shells and start-up files


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/tcsh"])
async def test_any_login_shell_will_do(make_sshd: MakeSshd, make_user: MakeUser, shell: str) -> None:
    server, user = make_sshd(), make_user(shell=shell)
    async with connected(f"ssh://{user.name}@127.0.0.1:{server.port}", server.config()) as transport:
        words = ["it's", "a b", "$HOME", "!x", "new\nline", "back\\slash", "é"]
        expected = "".join(f"{word}\0" for word in words).encode()
        assert await run_program(transport, ["printf", "%s\\0", *words]) == (0, expected, b"")


async def test_noise_of_start_up_files_is_dropped(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd(), make_user(shell="/bin/bash")
    (user.home / ".bashrc").write_text("echo welcome; echo careful >&2; printf 'no line end'\n")
    async with connected(f"ssh://{user.name}@127.0.0.1:{server.port}", server.config()) as transport:
        assert await run_program(transport, ["sh", "-c", "echo out; echo err >&2"]) == (0, b"out\n", b"err\n")


async def test_a_start_up_file_that_exits_is_a_clear_error(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd(), make_user(shell="/bin/bash")
    (user.home / ".bashrc").write_text("echo down for maintenance; exit 3\n")
    async with connected(f"ssh://{user.name}@127.0.0.1:{server.port}", server.config()) as transport:
        with pytest.raises(ConnectError, match="down for maintenance"):
            await transport.open_process(["true"])


async def test_a_start_up_file_that_hangs_is_given_up(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd(), make_user(shell="/bin/bash")
    (user.home / ".bashrc").write_text("sleep 300\n")
    config = server.config(login_timeout=1.0)
    async with connected(f"ssh://{user.name}@127.0.0.1:{server.port}", config) as transport:
        with pytest.raises(ConnectError, match="did not start the program"), anyio.fail_after(10):
            await transport.open_process(["true"])


# -- lost links


async def test_a_lost_link_ends_the_streams_and_is_no_exit_status(sshd: SshServer) -> None:
    async with connected(sshd.target, sshd.config()) as transport:
        process = await transport.open_process(["sh", "-c", "echo up; sleep 300"])
        assert await process.receive() == b"up\n"
        sshd.stop()
        with anyio.fail_after(10):
            assert await process.receive() == b""
            with pytest.raises(ConnectionLost):
                await process.wait()
            with pytest.raises(BrokenPipeError):
                await process.send(b"x")
            with pytest.raises((ConnectionLost, ConnectError)):  # it logs in again, and nobody listens
                await transport.open_process(["true"])
            await process.aclose()
        sshd.start()
        with anyio.fail_after(10):
            async with await transport.open_process(["echo", "again"]) as process:
                assert await process.receive() == b"again\n"


async def test_output_that_nobody_has_read_does_not_hide_a_lost_link(sshd: SshServer) -> None:
    async with connected(sshd.target, sshd.config()) as transport:
        process = await transport.open_process(["head", "-c", "100000000", "/dev/zero"])
        await process.receive()
        sshd.stop()
        with anyio.fail_after(10):
            with pytest.raises(ConnectionLost):
                await process.wait()
            while await process.receive():
                pass
            await process.aclose()


async def test_a_frozen_server_is_noticed_by_keep_alives(sshd: SshServer) -> None:
    config = sshd.config(keepalive_interval=1, keepalive_count=2)
    async with connected(sshd.target, config) as transport:
        process = await transport.open_process(["sh", "-c", "echo up; sleep 300"])
        assert await process.receive() == b"up\n"
        frozen = sshd.session_pids()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            with anyio.fail_after(6), pytest.raises(ConnectionLost):
                await process.wait()
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("needs_process")
async def test_a_cut_link_is_a_lost_connection(tmp_path: Path) -> None:
    async with embedded_ssh_server(home=tmp_path, shell="/bin/sh", delay=0.0) as server:
        assert server.link is not None
        async with connected(server.target, server.config()) as transport:
            process = await transport.open_process(["cat"])
            server.link.cut()
            with anyio.fail_after(5), pytest.raises(ConnectionLost):
                await process.wait()


# -- channels


async def test_more_processes_than_channels_take_turns(make_sshd: MakeSshd) -> None:
    server = make_sshd("MaxSessions 2")
    async with connected(server.target, server.config()) as transport:
        results = []

        async def run(number: int) -> None:
            results.append(await run_program(transport, ["sh", "-c", f"echo {number}"]))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(run, number)
        assert sorted(results) == [(0, b"%d\n" % number, b"") for number in range(8)]
        assert transport.max_channels == 2


async def test_a_server_without_sessions_is_a_clear_error(make_sshd: MakeSshd) -> None:
    server = make_sshd("MaxSessions 0")
    async with connected(server.target, server.config()) as transport:
        with pytest.raises(ConnectError, match="MaxSessions"):
            await transport.open_process(["true"])


async def test_cancelled_opens_free_their_channels(make_sshd: MakeSshd) -> None:
    server = make_sshd("MaxSessions 1")
    async with connected(server.target, server.config(max_channels=1)) as transport:
        for number in range(20):
            with anyio.move_on_after(number * 0.002):
                async with await transport.open_process(["cat"]):
                    pass
        with anyio.fail_after(10):
            assert await run_program(transport, ["echo", "in"]) == (0, b"in\n", b"")


async def test_a_gigabyte_of_output_takes_no_memory(sshd: SshServer) -> None:
    async with connected(sshd.target, sshd.config()) as transport:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with await transport.open_process(["head", "-c", "1000000000", "/dev/zero"]) as process:
            size = 0
            while data := await process.receive():
                size += len(data)
            assert (size, await process.wait()) == (1_000_000_000, 0)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB


# -- beside the engine


@pytest.mark.usefixtures("ssh_terminal")
async def test_people_get_a_command_line_with_a_terminal(sshd: SshServer) -> None:
    async with connected(sshd.target, sshd.config()) as transport:
        argv = transport.interactive_argv(["sh", "-c", 'test -t 0 && echo "it\'s a terminal"'])
    done = await anyio.run_process(["script", "-qec", _joined(argv), "/dev/null"])
    assert b"it's a terminal" in done.stdout


def _joined(argv: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)


async def test_leaving_the_context_ends_the_connection_and_nothing_is_left(sshd: SshServer) -> None:
    async with connected(sshd.target, sshd.config()) as transport:
        await transport.open_process(["cat"])
        assert sshd.session_pids() != []
    with anyio.fail_after(10):
        while sshd.session_pids():  # noqa: ASYNC110  # sshd cannot signal it
            await anyio.sleep(0.02)
    assert [task for task in anyio.get_running_tasks() if "asyncssh" in repr(task.coro)] == []


async def test_without_asyncssh_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    with pytest.raises(UnsupportedOperation, match=re.escape(install_extra("asyncssh"))):
        await echoes("ssh://web1", Config())
