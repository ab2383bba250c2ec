"""The SSH engine of each host of a fleet: asyncssh, or OpenSSH where the host's ssh configuration needs it."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.support.sshd import MakeSshd, SshServer

import harness
from harness.config import Config
from harness.errors import ConnectError, HarnessError, HostKeyError, UnsupportedOperation
from harness.operate.checks import check_ssh_client
from harness.operate.doctor import check_engine
from harness.target import Hop, Target
from harness_backends.ssh import configuration, disconnect, explain_engine, list_masters

WEB = "Host web1 web2 web3\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {key}\n"
EXPLAIN = """
import sys, anyio
from harness.config import Config
from harness.target import Target
from harness_backends.ssh import explain_engine
print(anyio.run(explain_engine, Target.parse("ssh://web1"), Config(ssh_config=sys.argv[1])))
"""
LOGGER = "harness_backends.ssh.host_engine"


def write(server: SshServer, first: str = "") -> Config:
    """Write a configuration in which web1 to web3 are the server; ``first`` comes before it."""
    text = WEB.format(port=server.port, user=server.user, key=server.identity)
    rest = f"Host *\n  UserKnownHostsFile {server.known_hosts}\n  GlobalKnownHostsFile none\n  IdentityAgent none\n"
    server.ssh_config.write_text(f"{first}\n{text}{rest}")
    return Config(ssh_config=str(server.ssh_config))


async def engines(config: Config, hosts: str = "web[1-3]") -> dict[str, str]:
    """The connection of each host of a fleet, or its error."""
    async with harness.fleet(hosts, config=config) as fleet:
        found = {}
        for name in fleet.names:
            try:
                context = await fleet.connected(name)
            except HarnessError as error:
                found[name] = error.message
            else:
                found[name] = (context.interactive_command(["true"])[2] == "-S" and "openssh") or "asyncssh"
                result = await context.run_shell("echo $((6 * 7))")
                assert result.stdout == "42\n"
        return found


async def test_a_usual_host_gets_asyncssh_and_leaves_no_connection(sshd: SshServer) -> None:
    assert await engines(write(sshd)) == dict.fromkeys(("web1", "web2", "web3"), "asyncssh")
    assert await list_masters() == []


async def test_ssh_is_asked_once_for_each_host_and_once_for_its_defaults(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "_defaults", [])
    program = tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\nexec {shutil.which("ssh")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = write(sshd)
    async with harness.fleet("web[1-3]", config=config) as fleet:
        assert sorted([name async for name, _ in fleet.run_shell("true")]) == ["web1", "web2", "web3"]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(call.split()[-1] for call in calls) == ["localhost", "web1", "web2", "web3"]


async def test_only_the_host_whose_configuration_needs_it_gets_openssh(
    sshd: SshServer, caplog: pytest.LogCaptureFixture
) -> None:
    config = write(sshd, "Host web2\n  ForwardAgent yes\nHost web3\n  Ciphers aes256-ctr")
    with caplog.at_level(logging.DEBUG, LOGGER):
        assert await engines(config) == {"web1": "asyncssh", "web2": "openssh", "web3": "openssh"}
    texts = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert texts == [
        "ssh://web2: OpenSSH, because of: forwardagent yes",
        "ssh://web3: OpenSSH, because of: ciphers aes256-ctr",
    ]


@pytest.mark.parametrize(("engine", "found"), [("openssh", "openssh"), ("asyncssh", "asyncssh"), ("auto", "asyncssh")])
async def test_the_setting_overrides_the_choice(sshd: SshServer, engine: str, found: str) -> None:
    config = replace(write(sshd), ssh_engine=engine)  # type: ignore[arg-type]  # a parameter
    assert await engines(config, "web1") == {"web1": found}


async def test_one_host_gets_openssh(sshd: SshServer) -> None:
    async with harness.connect("ssh://web1", config=write(sshd)) as context:
        assert context.interactive_command(["true"])[2] == "-S"
    assert len(await list_masters()) == 1


async def test_a_kept_connection_of_openssh_is_used(sshd: SshServer) -> None:
    config = write(sshd)
    async with harness.connect("ssh://web1", config=config):
        pass
    logins = sum("Accepted publickey" in line for line in sshd.log)
    assert await engines(config, "web1") == {"web1": "openssh"}
    assert sum("Accepted publickey" in line for line in sshd.log) == logins
    await disconnect(config, None)
    assert await engines(config, "web1") == {"web1": "asyncssh"}


async def test_a_fleet_with_tmux_gets_openssh(sshd: SshServer, needs_tmux: None) -> None:
    async with harness.fleet("web1", config=replace(write(sshd), tmux_host="local"), tmux=True) as fleet:
        assert (await fleet.connected("web1")).interactive_command(["true"])[2] == "-S"
    await disconnect(write(sshd), None)


async def test_without_asyncssh_a_fleet_gets_openssh(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    assert await engines(write(sshd), "web1") == {"web1": "openssh"}


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("raise ImportError('no library')", "asyncssh cannot be imported: no library"),
        ("raise AttributeError('X509')", "asyncssh cannot be imported: X509"),
        ("__version__ = '2.10.1'", "asyncssh 2.10.1 is not supported"),
        ("__version__ = '3.0.0'", "asyncssh 3.0.0 is not supported"),
    ],
)
async def test_with_an_asyncssh_that_cannot_be_used_a_fleet_gets_openssh(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, problem: str
) -> None:
    (tmp_path / "asyncssh.py").write_text(module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "asyncssh"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    config = write(sshd)
    assert await engines(config, "web1") == {"web1": "openssh"}
    await disconnect(config, None)
    assert list(await explain_engine(Target.parse("ssh://web1"), config)) == [problem]
    with pytest.raises(UnsupportedOperation, match=problem):
        async with harness.connect("ssh://web1", config=replace(config, ssh_engine="asyncssh")):
            pass


async def test_a_silent_agent_does_not_keep_a_fleet_waiting(
    sshd: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(write(sshd), connect_timeout=1.0, login_timeout=2.0)
    text = sshd.ssh_config.read_text()
    sshd.ssh_config.write_text(text.replace("IdentityAgent none", f"IdentityAgent {tmp_path}/agent"))
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        with anyio.fail_after(30):
            assert await engines(config, "web1") == {"web1": "the login did not finish within 2 s"}  # by ssh
            reasons = await explain_engine(Target.parse("ssh://web1"), config)
    assert list(reasons) == [f"identityagent {tmp_path}/agent: it does not answer"]


@pytest.mark.parametrize(
    "option",
    ["KexAlgorithms diffie-hellman-group-exchange-sha256", "MACs umac-128@openssh.com\nCiphers aes128-ctr"],
)
async def test_a_server_without_an_algorithm_of_asyncssh_gets_openssh(
    make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    import asyncssh.mac

    monkeypatch.setattr(asyncssh.mac, "_mac_algs", [name for name in asyncssh.mac._mac_algs if b"umac" not in name])
    server = make_sshd(*option.split("\n"))
    config = write(server)
    assert await engines(config, "web1") == {"web1": "openssh"}
    with pytest.raises(ConnectError, match="key exchange failed"):
        async with harness.connect("ssh://web1", config=replace(config, ssh_engine="asyncssh")):
            pass


@pytest.mark.parametrize("setting", ["IdentityFile", "UserKnownHostsFile"])
async def test_a_named_pipe_is_left_to_openssh(sshd: SshServer, tmp_path: Path, setting: str) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    known = f"{tmp_path}/pipe {sshd.known_hosts}" if setting == "UserKnownHostsFile" else f"{tmp_path}/pipe"
    write(sshd, f"{setting} {known}")
    argv = [sys.executable, "-c", EXPLAIN, str(sshd.ssh_config)]  # a process that can be ended if it blocks
    with anyio.fail_after(30):
        done = await anyio.run_process(argv, check=False)
    assert "is not a regular file" in done.stdout.decode(), done.stderr


@pytest.mark.parametrize(
    ("bastion", "engine"),
    [("", "asyncssh"), ("ForwardAgent yes", "openssh"), ("ControlPath /tmp/none-%C", "openssh")],
)
async def test_hosts_behind_a_jump_host_follow_its_configuration(
    make_sshd: MakeSshd, bastion: str, engine: str
) -> None:
    jump, inner = make_sshd(), make_sshd()
    first = (
        f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n  User {jump.user}\n  IdentityFile {jump.identity}\n"
        f"  UserKnownHostsFile {jump.known_hosts}\n  {bastion}\nHost web*\n  ProxyJump bastion"
    )
    config = write(inner, first)
    assert await engines(config) == dict.fromkeys(("web1", "web2", "web3"), engine)
    assert sum("Accepted publickey" in line for line in jump.log) == 1
    await disconnect(config, None)


async def test_keys_that_ssh_treats_otherwise_get_openssh(sshd: SshServer, tmp_path: Path) -> None:
    config = write(sshd)
    Path(f"{sshd.identity}-cert.pub").touch()
    assert await engines(config, "web1") == {"web1": "openssh"}
    Path(f"{sshd.identity}-cert.pub").unlink()
    await disconnect(config, None)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "ca")], check=True)
    authority = (tmp_path / "ca.pub").read_text()
    known = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text(f"{known}@cert-authority * {authority}")
    assert await engines(config, "web1") == {"web1": "openssh"}
    await disconnect(config, None)
    sshd.known_hosts.write_text(known)
    assert await engines(config, "web1") == {"web1": "asyncssh"}


async def test_a_host_key_is_refused_in_the_same_words(sshd: SshServer) -> None:
    sshd.new_host_key()
    sshd.restart()
    config = write(sshd)
    messages = set()
    for engine in ("default", "openssh"):
        async with harness.fleet("web1", config=replace(config, ssh_engine=engine)) as fleet:  # type: ignore[arg-type]  # a parameter
            with pytest.raises(HostKeyError) as refused:
                await fleet.connected("web1")
        messages.add(refused.value.message)
    assert len(messages) == 1


async def test_jump_hosts_behind_each_other_are_an_error(sshd: SshServer) -> None:
    first = (
        "Host one\n  ProxyJump two\nHost two\n  ProxyJump one\nHost web1\n  ProxyJump one\nHost web2\n  ProxyJump two"
    )
    found = await engines(write(sshd, first), "web[1,2]")
    assert all("behind itself" in error for error in found.values()), found


async def test_doctor_names_the_engine_and_what_needs_openssh(sshd: SshServer) -> None:
    config = write(sshd, "Host web2\n  ForwardAgent yes")
    (finding,) = await check_engine(Target.parse("ssh://web1"), config)
    assert (finding.check, finding.message) == ("ssh engine", "asyncssh in a fleet")
    (finding,) = await check_engine(Target.parse("ssh://web2"), config)
    assert finding.message == "OpenSSH, because of: forwardagent yes"
    assert await check_engine(Target.parse("ssh://web1"), replace(config, ssh_engine="openssh")) == []


# -- a machine without the ssh program


@pytest.fixture
def no_ssh(sshd: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No ssh program on ``$PATH``, after the server has started."""
    monkeypatch.setattr(configuration, "_defaults", [])
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "env"):
        path = shutil.which(name)
        assert path is not None
        (programs / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(programs))


@pytest.mark.parametrize("engine", ["default", "auto"])
async def test_asyncssh_takes_the_place_of_a_missing_ssh(
    sshd: SshServer, no_ssh: None, engine: Literal["default", "auto"]
) -> None:
    harmless = "# a comment\nLogLevel ERROR\nVerifyHostKeyDNS no\nHost *\n  StrictHostKeyChecking ask\n"
    config = replace(write(sshd, harmless), ssh_engine=engine)
    async with harness.connect("ssh://web1", config=config) as context:
        assert (await context.run_shell("echo $((6 * 7))")).stdout == "42\n"
    async with harness.fleet("web[1-3]", config=config) as fleet:
        found = await fleet.gather("echo $((6 * 7))")
    assert [one.result and one.result.stdout for one in found.values()] == ["42\n"] * 3
    assert [finding.level for finding in await check_ssh_client(Hop("ssh", "web1"), config)] == ["ok"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Include more", "line 1 has include more"),
        ("Match all", "line 1 has match all"),
        ("Ciphers aes256-ctr", "line 1 has ciphers aes256-ctr"),
        ("Host other\n  HashKnownHosts yes", "line 2 has hashknownhosts yes"),
        ("ForwardAgent yes", "forwardagent yes"),
        ("StrictHostKeyChecking no", "stricthostkeychecking no"),
        ("  VerifyHostKeyDNS=yes", "verifyhostkeydns yes"),
    ],
)
async def test_what_only_ssh_follows_is_an_error_without_it(
    sshd: SshServer, no_ssh: None, line: str, reason: str
) -> None:
    with pytest.raises(ConnectError, match="ssh is not installed, and asyncssh does not follow") as caught:
        async with harness.connect("ssh://web1", config=write(sshd, line)):
            raise AssertionError
    assert reason in caught.value.message
    assert 'ssh_engine = "asyncssh"' in caught.value.hint


async def test_the_error_about_a_missing_ssh_offers_asyncssh(sshd: SshServer, no_ssh: None) -> None:
    with pytest.raises(ConnectError, match="ssh is not installed") as caught:
        async with harness.connect("ssh://web1", config=replace(write(sshd), ssh_engine="openssh")):
            raise AssertionError
    assert caught.value.hint == 'install the OpenSSH client, or set ssh_engine = "asyncssh"'
