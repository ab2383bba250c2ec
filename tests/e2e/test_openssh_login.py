"""Questions of a login reach whoever can answer; what cannot be entered is refused with the reason and the remedy."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import asyncssh
import pytest
from tests.support.sshd import MakeSshd, MakeUser, SshServer, free_port
from tests.support.transports import connected, run

from harness import connect
from harness.errors import (
    AuthenticationError,
    ConfigError,
    ConnectError,
    HarnessError,
    HostKeyError,
    TargetNotFound,
    UnsupportedOperation,
)
from harness.login import LoginQuestion, use_prompter

Answer = Callable[[LoginQuestion], str | None]


class Operator:
    """Answers by a function, and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[LoginQuestion] = []

    async def answer(self, question: LoginQuestion) -> str | None:
        await anyio.lowlevel.checkpoint()
        self.asked.append(question)
        return self._answer(question)


async def failure(server: SshServer, target: str = "", **overrides: object) -> HarnessError:
    with pytest.raises(HarnessError) as caught:
        async with connected(server, target, **overrides):
            pass
    return caught.value


def processes() -> str:
    """The command lines of all processes."""
    return subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if not path.is_dir()]


NO_KEY = {"identity": ""}


async def test_a_password_is_asked_for_and_shown_nowhere(
    make_sshd: MakeSshd, make_user: MakeUser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = make_sshd("PasswordAuthentication yes")
    user = make_user(password="pa ss\x15w\x03örd!")  # ^U and ^C would edit the line or interrupt ssh
    operator = Operator(lambda question: user.password)
    with use_prompter(operator):
        async with connected(server, f"ssh://{user.name}@127.0.0.1:{server.port}", **NO_KEY) as transport:
            assert (await run(transport, "whoami"))[1].decode().strip() == user.name
            ours = processes()
    (question,) = operator.asked
    assert (question.kind, question.secret, question.attempt) == ("password", True, 1)
    assert user.password not in caplog.text + ours + repr(question)


async def test_a_wrong_password_is_asked_again_and_then_refused(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user()
    operator = Operator(lambda question: "wrong-word")
    with use_prompter(operator):
        error = await failure(server, f"ssh://{user.name}@127.0.0.1:{server.port}", **NO_KEY)
    assert isinstance(error, AuthenticationError)
    assert "wrong-word" not in repr(error) + str(error)
    assert [question.attempt for question in operator.asked] == [1, 2, 3]


async def test_no_answer_ends_the_login_at_once(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user()
    operator = Operator(lambda question: None)
    with use_prompter(operator), anyio.fail_after(5):
        error = await failure(server, f"ssh://{user.name}@127.0.0.1:{server.port}", **NO_KEY)
    assert isinstance(error, AuthenticationError)
    assert len(operator.asked) == 1


async def test_without_anybody_to_answer_a_password_login_fails_at_once(make_sshd: MakeSshd) -> None:
    with use_prompter(None), anyio.fail_after(5):
        error = await failure(make_sshd("PasswordAuthentication yes"), **NO_KEY)
    assert isinstance(error, AuthenticationError)


async def test_a_passphrase_unlocks_the_key(sshd: SshServer) -> None:
    await anyio.run_process(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(sshd.identity)])
    operator = Operator(lambda question: "open sesame" if question.attempt == 2 else "open wide")
    with use_prompter(operator):
        async with connected(sshd) as transport:
            assert (await run(transport, "true"))[0] == 0
    assert [(question.kind, question.attempt) for question in operator.asked] == [("passphrase", 1), ("passphrase", 2)]


class SecondFactor(asyncssh.SSHServer):
    """Wants a code and a word; the code is not secret."""

    def begin_auth(self, username: str) -> bool:
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        return "", "Two questions", "", [("Verification code: ", True), ("Favourite word > ", False)]

    def validate_kbdint_response(self, username: str, responses: object) -> bool:
        return responses == ["123456", "fish"]


async def test_a_second_factor_is_asked_for(sshd: SshServer) -> None:
    key = asyncssh.read_private_key(str(sshd.directory / "host_key"))
    async with asyncssh.listen("127.0.0.1", 0, server_host_keys=[key], server_factory=SecondFactor) as server:
        port = server.get_port()
        public = " ".join((sshd.directory / "host_key.pub").read_text().split()[:2])
        sshd.known_hosts.write_text(f"[127.0.0.1]:{port} {public}\n")
        operator = Operator(lambda question: "123456" if question.kind == "otp" else "fish")
        with use_prompter(operator):
            async with connected(sshd, f"ssh://me@127.0.0.1:{port}", dedicated_connection=True, **NO_KEY):
                pass
    assert [(question.kind, question.secret) for question in operator.asked] == [("otp", False), ("other", True)]


async def test_an_unknown_host_key_is_refused_without_anybody_to_ask(sshd: SshServer) -> None:
    sshd.known_hosts.write_text("")
    with use_prompter(None):
        error = await failure(sshd)
    assert isinstance(error, HostKeyError)
    assert fingerprint(sshd) in str(error)
    assert sshd.known_hosts.read_text() == ""


@pytest.mark.parametrize("answer", ["yes", "fingerprint"])
async def test_an_unknown_host_key_is_accepted_by_the_operator_alone(sshd: SshServer, answer: str) -> None:
    sshd.known_hosts.write_text("")
    operator = Operator(lambda question: fingerprint(sshd) if answer == "fingerprint" else answer)
    with use_prompter(operator):
        async with connected(sshd) as transport:
            assert (await run(transport, "true"))[0] == 0
    (question,) = operator.asked
    assert question.kind == "hostkey"
    assert fingerprint(sshd) in question.text
    assert "ssh-ed25519" in sshd.known_hosts.read_text()


@pytest.mark.parametrize("answer", ["no", None])
async def test_an_operator_can_refuse_a_host_key(sshd: SshServer, answer: str | None) -> None:
    sshd.known_hosts.write_text("")
    with use_prompter(Operator(lambda question: answer)):
        error = await failure(sshd)
    assert isinstance(error, HostKeyError)
    assert fingerprint(sshd) in str(error)
    assert sshd.known_hosts.read_text() == ""


async def test_a_changed_host_key_is_refused_without_a_question(sshd: SshServer) -> None:
    sshd.new_host_key()
    sshd.restart()
    operator = Operator(lambda question: "yes")
    with use_prompter(operator):
        error = await failure(sshd)
    assert isinstance(error, HostKeyError)
    assert "does NOT match" in str(error)
    assert fingerprint(sshd) in str(error)
    assert operator.asked == []


def fingerprint(server: SshServer) -> str:
    command = ["ssh-keygen", "-l", "-f", str(server.directory / "host_key.pub")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]


async def test_an_unknown_name_is_target_not_found(sshd: SshServer) -> None:
    assert isinstance(await failure(sshd, "ssh://no-such-host.invalid"), TargetNotFound)


async def test_a_closed_port_is_a_connect_error_that_says_so(sshd: SshServer) -> None:
    error = await failure(sshd, f"ssh://root@127.0.0.1:{free_port()}")
    assert type(error) is ConnectError
    assert "refused" in str(error)
    assert "no server listens" in error.hint


async def test_a_server_that_never_speaks_is_given_up_in_time(sshd: SshServer) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with anyio.fail_after(5):
            error = await failure(sshd, f"ssh://root@127.0.0.1:{port}", connect_timeout=1.0)
    assert type(error) is ConnectError
    assert "does not speak SSH" in error.hint


async def test_a_key_that_is_not_allowed_is_an_authentication_error(sshd: SshServer) -> None:
    (sshd.directory / "authorized_keys").write_text("")
    with use_prompter(None):
        assert isinstance(await failure(sshd), AuthenticationError)


# -- the reason is on this side: each is named, with what to do


@pytest.fixture
def other_key(sshd: SshServer) -> Path:
    """A key that the server takes, beside the usual one."""
    path = sshd.directory / "other_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    (sshd.directory / "authorized_keys").write_text((sshd.directory / "other_key.pub").read_text())
    return path


async def refusal(server: SshServer, **overrides: object) -> AuthenticationError:
    with use_prompter(None):
        error = await failure(server, "", **overrides)
    assert isinstance(error, AuthenticationError)
    assert "Permission denied (publickey)" in error.message
    return error


async def test_a_missing_key_file_is_named(sshd: SshServer) -> None:
    error = await refusal(sshd, identity="/no/such/key")
    assert "/no/such/key was not used: No such file" in error.message


async def test_a_key_that_others_may_read_is_named(sshd: SshServer, other_key: Path) -> None:
    other_key.chmod(0o644)
    error = await refusal(sshd, identity=str(other_key))
    assert f"{other_key} was ignored: other users can read it (mode 0644)" in error.message
    assert f"chmod 600 {other_key}" in error.hint


async def test_a_key_of_an_unknown_format_is_named(sshd: SshServer, other_key: Path) -> None:
    other_key.write_text("PuTTY-User-Key-File-3: ssh-ed25519\n")
    other_key.with_suffix(".pub").unlink()
    error = await refusal(sshd, identity=str(other_key))
    assert f"the key {other_key} was not used" in error.message
    assert "puttygen" in error.hint


async def test_a_locked_key_that_nobody_can_unlock_is_named(sshd: SshServer, other_key: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(other_key)], check=True)
    error = await refusal(sshd, identity=str(other_key))
    assert f"accepts the key {other_key}" in error.message
    assert "passphrase" in error.message


async def test_a_key_that_is_not_in_authorized_keys_is_named(sshd: SshServer) -> None:
    (sshd.directory / "authorized_keys").write_text("")
    error = await refusal(sshd)
    assert f"the server does not accept {sshd.identity} (ED25519)" in error.message
    assert "authorized_keys" in error.hint


def only_agent(server: SshServer, socket: Path) -> dict[str, object]:
    keep = [option for option in server.client_options if not option.startswith("Identity")]
    return {"identity": "", "ssh_options": (*keep, "IdentityFile=none", f"IdentityAgent={socket}")}


async def test_an_agent_without_keys_is_named(sshd: SshServer) -> None:
    socket = sshd.directory / "agent"
    async with await anyio.open_process(["ssh-agent", "-D", "-a", str(socket)]) as agent:
        assert agent.stdout is not None
        await agent.stdout.receive()  # it says where it listens
        error = await refusal(sshd, **only_agent(sshd, socket))
        agent.terminate()
    assert "the agent holds no key" in error.message
    assert "ssh-add" in error.hint


async def test_an_agent_that_is_not_there_is_named(sshd: SshServer) -> None:
    error = await refusal(sshd, **only_agent(sshd, sshd.directory / "no-agent"))
    assert "the agent could not be reached (No such file or directory)" in error.message


async def test_another_service_on_the_port_is_named(sshd: SshServer) -> None:
    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n\x00")
            await stream.receive()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            error = await failure(sshd, f"ssh://root@127.0.0.1:{port}")
            tasks.cancel_scope.cancel()
    assert type(error) is ConnectError
    assert "is not SSH" in error.hint


async def test_a_host_behind_a_host_of_ssh_is_refused_with_the_way_to_do_it(make_sshd: MakeSshd) -> None:
    first, second = make_sshd(), make_sshd()
    with anyio.fail_after(20), pytest.raises(UnsupportedOperation, match="ProxyJump"):
        async with connect(f"{first.target}+{second.target}", config=first.config()):
            pass
    assert not any("Accepted" in line for line in second.log)


async def test_a_wrong_option_is_a_config_error(sshd: SshServer) -> None:
    error = await failure(sshd, ssh_options=("NoSuchOption=1",))
    assert isinstance(error, ConfigError)
    assert "nosuchoption" in str(error).lower()


async def test_a_cancelled_login_leaves_no_process_and_no_file(
    make_sshd: MakeSshd, make_user: MakeUser, ssh_runtime: Path
) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user()
    asked = anyio.Event()

    class Silent:
        async def answer(self, question: LoginQuestion) -> str | None:
            asked.set()
            await anyio.sleep_forever()
            return None

    async def log_in() -> None:
        async with connected(server, f"ssh://{user.name}@127.0.0.1:{server.port}", **NO_KEY):
            pass

    before = len(os.listdir("/proc/self/fd"))
    with use_prompter(Silent()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log_in)
            with anyio.fail_after(10):
                await asked.wait()
            tasks.cancel_scope.cancel()
    assert str(server.known_hosts) not in processes()
    assert files_below(ssh_runtime) == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_the_login_time_limit_holds(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, user = make_sshd("PasswordAuthentication yes"), make_user()

    class Slow:
        async def answer(self, question: LoginQuestion) -> str | None:
            await anyio.sleep_forever()
            return None

    with use_prompter(Slow()), anyio.fail_after(5):
        error = await failure(server, f"ssh://{user.name}@127.0.0.1:{server.port}", login_timeout=1.0, **NO_KEY)
    assert type(error) is ConnectError
