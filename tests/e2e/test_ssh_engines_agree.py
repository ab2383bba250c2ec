"""Both SSH engines with the same configuration: the same account by the same key, or the same refusal."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.support.sshd import MakeSshd, SshServer

import harness
from harness.config import Config
from harness.errors import HarnessError, HostKeyError
from harness.login import use_prompter

ENGINES = ("openssh", "asyncssh")
ACCEPTED = re.compile(r"Accepted publickey for (\S+) .*?(SHA256:\S+)")


@dataclass
class Desk:
    """A server that accepts two keys, ``first`` and ``second``, and the client's files."""

    server: SshServer
    first: Path
    second: Path

    @property
    def directory(self) -> Path:
        return self.server.directory

    def fingerprint(self, key: Path) -> str:
        done = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, text=True, check=True)
        return done.stdout.split()[1]

    def write(self, text: str, *, known: bool = True) -> None:
        """Write the configuration of web1; ``{first}`` and so on are the files."""
        words = {"first": self.first, "second": self.second, "dir": self.directory, "port": self.server.port}
        rest = f"Port {self.server.port}\nUser {self.server.user}\nHostName 127.0.0.1\nGlobalKnownHostsFile none\n"
        rest += f"UserKnownHostsFile {self.server.known_hosts}\n" if known else ""
        self.server.ssh_config.write_text(f"{text.format(**words)}\nHost *\n{rest}")

    async def outcome(self, engine: str) -> tuple[str, ...]:
        """The account and the key of a login to web1, or its error."""
        config = Config(
            ssh_config=str(self.server.ssh_config),
            ssh_engine=engine,
            dedicated_connection=True,  # type: ignore[arg-type]  # a parameter
        )
        before = len(self.server.log)
        try:
            with use_prompter(None), anyio.fail_after(30):
                async with harness.connect("ssh://web1", config=config):
                    return await self._accepted(before)
        except HostKeyError as error:
            return "HostKeyError", error.message, error.hint.partition(" -F")[0].partition(" to record")[0]
        except HarnessError as error:
            return (type(error).__name__,)

    async def error(self, engine: str) -> HarnessError:
        """The error of a login to web1."""
        config = Config(ssh_config=str(self.server.ssh_config), ssh_engine=engine)  # type: ignore[arg-type]  # a parameter
        with use_prompter(None), anyio.fail_after(30), pytest.raises(HarnessError) as caught:
            async with harness.connect("ssh://web1", config=config):
                pass
        return caught.value

    async def _accepted(self, before: int) -> tuple[str, ...]:
        """The account and the key of the login that the server logs behind a line, maybe after it was accepted."""
        while True:
            for line in self.server.log[before:]:
                if match := ACCEPTED.search(line):
                    return match.groups()
            await anyio.sleep(0.02)

    async def both(self) -> tuple[str, ...]:
        """The outcome, which must be the same with both engines."""
        known = self.server.known_hosts.read_bytes()
        outcomes = []
        for engine in ENGINES:
            self.server.known_hosts.write_bytes(known)
            outcomes.append(await self.outcome(engine))
        assert outcomes[0][:2] == outcomes[1][:2]
        return outcomes[0]

    async def logs_in_with(self, key: Path) -> None:
        assert await self.both() == (self.server.user, self.fingerprint(key))


def new_key(path: Path, *more: str) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *more]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


@pytest.fixture
def desk(make_sshd: MakeSshd) -> Desk:
    server = make_sshd()
    second = new_key(server.directory / "second")
    with (server.directory / "authorized_keys").open("a") as file:
        file.write(Path(f"{second}.pub").read_text())
    return Desk(server, server.identity, second)


@pytest.fixture
def agent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An agent that holds the second key."""
    path = desk.directory / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it listens now
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        subprocess.run(["ssh-add", "-q", str(desk.second)], check=True)
        yield path
    finally:
        process.terminate()
        process.communicate()


BY_THE_FIRST = [
    "IdentityFile {first}",
    "IdentityFile {first}\nIdentityFile {second}",
    "IdentityFile {dir}/missing\nIdentityFile {first}",
    "Host web1\n  IdentityFile {first}\nHost web2\n  IdentityFile {second}",
    "Match host 127.0.0.1 originalhost web1\n  IdentityFile {second}\nMatch originalhost web1\n  IdentityFile {first}",
    "Match originalhost web2\n  IdentityFile {second}\nMatch exec true\n  IdentityFile {first}",
    "Include {dir}/more",
    "IdentityFile {first}\nHostKeyAlias [127.0.0.1]:{port}",
    "IdentityFile {first}\nUserKnownHostsFile {dir}/none {dir}/known_hosts",
    "IdentityFile {first}\nStrictHostKeyChecking yes",
    "IdentityFile {first}\nAddressFamily inet\nSetEnv A=1\nSendEnv LC_*",
]


@pytest.mark.parametrize("text", BY_THE_FIRST)
async def test_the_same_key_is_used(desk: Desk, text: str) -> None:
    (desk.directory / "more").write_text(f"Host web1\n  IdentityFile {desk.first}\n")
    desk.write(text)
    await desk.logs_in_with(desk.first)


@pytest.mark.parametrize(
    ("text", "which"),
    [
        ("IdentityFile {first}", "second"),  # keys of the agent come first
        ("IdentityFile {first}\nIdentitiesOnly yes", "first"),
        ("IdentityFile {first}\nIdentityFile {second}\nIdentitiesOnly yes", "second"),
        ("IdentityFile {second}.pub\nIdentitiesOnly yes", "second"),
        ("IdentityFile {first}\nIdentityAgent none", "first"),
        ("IdentityFile {dir}/missing\nIdentityAgent {dir}/agent", "second"),
    ],
)
@pytest.mark.usefixtures("agent")
async def test_the_agents_keys_are_used_as_ssh_uses_them(desk: Desk, text: str, which: str) -> None:
    desk.write(text)
    await desk.logs_in_with(getattr(desk, which))


@pytest.mark.parametrize("text", ["IdentityFile {dir}/missing", "IdentityFile {first}"])
async def test_a_key_that_the_agent_restricts_to_a_host_is_used_by_ssh(desk: Desk, agent: Path, text: str) -> None:
    """Only ssh proves to the agent which host it is; the login must not end, nor use the next key."""
    subprocess.run(["ssh-add", "-q", "-D"], check=True, capture_output=True)
    known = desk.directory / "known_to_agent"
    known.write_text(f"web1 {desk.server.known_hosts.read_text().split(maxsplit=1)[1]}")
    subprocess.run(["ssh-add", "-q", "-H", str(known), "-h", "web1", str(desk.second)], check=True)
    desk.write(text)
    expected = desk.server.user, desk.fingerprint(desk.second)
    assert [await desk.outcome(engine) for engine in ("openssh", "auto")] == [expected] * 2


@pytest.mark.parametrize(
    "text",
    [
        "IdentityFile none",
        "IdentityFile {dir}/missing",
        "IdentityFile {first}\nUser no-such-account",
        "IdentityFile {dir}/open",
    ],
)
async def test_the_same_logins_are_refused(desk: Desk, text: str) -> None:
    readable = desk.directory / "open"
    readable.write_bytes(desk.first.read_bytes())
    readable.chmod(0o644)
    desk.write(f"IdentityAgent none\nIdentitiesOnly yes\n{text}")
    assert await desk.both() == ("AuthenticationError",)


@pytest.mark.parametrize("checking", ["ask", "yes", "accept-new"])
async def test_an_unknown_host_key_is_treated_alike(desk: Desk, checking: str) -> None:
    desk.server.known_hosts.write_text("")
    desk.write(f"IdentityFile {{first}}\nStrictHostKeyChecking {checking}")
    if checking == "accept-new":
        await desk.logs_in_with(desk.first)
        return
    kind, message, _ = await desk.both()
    assert kind == "HostKeyError"
    assert message.startswith("the host key is unknown: ssh-ed25519 SHA256:")


@pytest.mark.parametrize("checking", ["ask", "yes", "accept-new"])
async def test_a_changed_host_key_is_refused_in_the_same_words(desk: Desk, checking: str) -> None:
    desk.write(f"IdentityFile {{first}}\nStrictHostKeyChecking {checking}")
    desk.server.new_host_key()
    desk.server.restart()
    _, message, _ = await desk.both()
    assert "does NOT match the recorded one" in message
    assert f"{desk.server.known_hosts}:1" in message


@pytest.mark.parametrize("more", ["", "HostName no-such-host.invalid"])
async def test_an_unreachable_host_is_reported_in_the_same_words(desk: Desk, more: str) -> None:
    desk.server.stop()
    desk.write(more)
    messages = {str(await desk.error(engine)) for engine in ENGINES}
    assert len(messages) == 1, messages


async def test_a_hashed_name_is_found(desk: Desk) -> None:
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(desk.server.known_hosts)], check=True, capture_output=True)
    assert "127.0.0.1" not in desk.server.known_hosts.read_text()
    desk.write("IdentityFile {first}\nStrictHostKeyChecking yes")
    await desk.logs_in_with(desk.first)


async def test_a_key_is_recorded_alike(desk: Desk) -> None:
    desk.write("IdentityFile {first}\nStrictHostKeyChecking accept-new\nHashKnownHosts yes")
    name = f"[127.0.0.1]:{desk.server.port}"
    for engine in ENGINES:
        desk.server.known_hosts.write_text("")
        assert await desk.outcome(engine) == (desk.server.user, desk.fingerprint(desk.first))
        assert desk.server.known_hosts.read_text().startswith("|1|")
        command = ["ssh-keygen", "-F", name, "-f", str(desk.server.known_hosts)]
        assert b"ssh-ed25519" in subprocess.run(command, capture_output=True, check=True).stdout


async def test_a_revoked_host_key_is_refused_by_both(desk: Desk) -> None:
    line = desk.server.known_hosts.read_text()
    desk.server.known_hosts.write_text(f"{line}@revoked * {line.split(maxsplit=1)[1]}")
    desk.write("IdentityFile {first}")
    for engine in ENGINES:
        kind, message, _ = await desk.outcome(engine)
        assert (kind, message.partition(":")[0]) == ("HostKeyError", "the host key is revoked")


async def test_a_key_of_the_address_is_unknown_for_the_name(desk: Desk) -> None:
    desk.write("IdentityFile {first}\nHostName localhost\nAddressFamily inet")
    assert (await desk.both())[1].startswith("the host key is unknown: ")


async def test_a_key_of_the_name_without_the_port_is_trusted(desk: Desk) -> None:
    key = desk.server.known_hosts.read_text().split(maxsplit=1)[1]
    desk.server.known_hosts.write_text(f"127.0.0.1 {key}")
    desk.write("IdentityFile {first}\nStrictHostKeyChecking yes")
    await desk.logs_in_with(desk.first)


async def test_a_host_certificate_is_trusted_by_its_authority(make_sshd: MakeSshd) -> None:
    server = make_sshd()
    authority = new_key(server.directory / "authority")
    command = ["ssh-keygen", "-q", "-s", str(authority), "-h", "-I", "web", "-n", "127.0.0.1"]
    subprocess.run([*command, str(server.directory / "host_key.pub")], check=True)
    config = server.directory / "sshd_config"
    config.write_text(f"HostCertificate {server.directory}/host_key-cert.pub\n{config.read_text()}")
    server.restart()
    key = " ".join(Path(f"{authority}.pub").read_text().split()[:2])
    desk = Desk(server, server.identity, server.identity)
    desk.write("IdentityFile {first}\nStrictHostKeyChecking yes")
    await desk.logs_in_with(desk.first)  # by the key in the certificate
    server.known_hosts.write_text(f"@cert-authority [127.0.0.1]:{server.port} {key}\n")
    await desk.logs_in_with(desk.first)
    server.known_hosts.write_text(f"@cert-authority other {key}\n")
    assert {(await desk.outcome(engine))[0] for engine in ENGINES} == {"HostKeyError"}


async def test_a_certificate_of_the_user_is_offered(make_sshd: MakeSshd, tmp_path: Path) -> None:
    authority = new_key(tmp_path / "authority")
    server = make_sshd(f"TrustedUserCAKeys {authority}.pub")
    (server.directory / "authorized_keys").write_text("")
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", server.user]
    subprocess.run([*command, f"{server.identity}.pub"], check=True)
    desk = Desk(server, server.identity, server.identity)
    desk.write("IdentityFile {first}")
    await desk.logs_in_with(desk.first)
    os.rename(f"{server.identity}-cert.pub", f"{server.identity}-moved.pub")
    desk.write("IdentityFile {first}\nCertificateFile {first}-moved.pub")
    await desk.logs_in_with(desk.first)
