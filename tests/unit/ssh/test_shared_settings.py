"""The settings of many hosts: two runs of ssh are enough for a plain configuration, and give what ssh -G prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from harness.config import Config
from harness.errors import ConfigError
from harness.system.child_process import ProgramOutput, run_program
from harness.target import Target
from harness_backends.ssh import configuration
from harness_backends.ssh.configuration import read_defaults, read_settings
from harness_backends.ssh.options import SshSettings, query_argv

pytestmark = pytest.mark.usefixtures("needs_ssh")

HOSTS = ("web1", "web2", "web3", "db1", "10.0.0.7", "Web9", "web_5.example.com")
PLAIN = [
    "User deploy\nIdentityFile ~/.ssh/id_web",
    "Host web1\n  Port 2201\nHost web2\n\tPort=2202\nHost web3\n Port = 2203\nHost *\n  HostName 127.0.0.1\n  User me",
    "Host web* !web2\n  HostName 10.1.1.1\nHost web2\n  HostName 10.1.1.2\n  User root\nHost db? web3\n  User admin",
    "Host web1 web2\n  Port 1\n  Port 2\n# Host web3 \u00e9\nHOST db1\n  PORT 3\n  user me\nHost *\n  ForwardAgent yes",
]
OTHERS = [
    "Host web1\n  ForwardAgent yes\nHost *\n  Port 2200",
    "Match host web2\n  Port 2202",
    "Match exec true\n  Port 2202",
    "Host *\n  HostName %h.example.com",
    "Host web1\n  HostName WEB1\nHost web2\n  HostName 0x7f.1\nHost web3\n  HostName 010.0.0.1",
    "Host web2 # comment\n  Port 2202\nHost web3\n  Port 2203 # comment\nHost db1\n  User 'a b'",
    "CanonicalizePermittedCNAMEs *:*\nHost *\n  HostName 127.0.0.1",
    'Host "web2"\n  Port 2202\nHost web3\n  Port "2203"',
    "CanonicalizeHostname yes\nCanonicalDomains example.com\nHost web2\n  Port 2202",
    "Host web1\n  Port 2201\nHost web2\n  IdentityFile /k2\nHost web3\n  Port ssh",
]
"""Configurations of which ssh is asked about some hosts, or all."""


class Runs:
    """The runs of ssh in a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(configuration, "run_program", self._run)

    async def _run(self, argv: Sequence[str], **options: object) -> ProgramOutput:
        self.count += 1
        return await run_program(argv, **options)  # type: ignore[arg-type]  # passed on as they are


async def read_all(config: Config, hosts: Sequence[str] = HOSTS) -> dict[str, SshSettings]:
    """What all hosts get that are asked about at the same time."""
    found: dict[str, SshSettings] = {}

    async def read(host: str) -> None:
        found[host] = await read_settings(Target.parse(f"ssh://{host}"), config)

    async with anyio.create_task_group() as tasks:
        for host in hosts:
            tasks.start_soon(read, host)
    return found


async def printed(host: str, config: Config) -> SshSettings:
    """What ssh -G prints for a host."""
    argv = query_argv(Target.parse(f"ssh://{host}").last, config)
    done = await run_program(argv, timeout=30, stdout_limit=1 << 20, stderr_limit=1 << 20)
    assert done.code == 0, done.stderr
    return SshSettings.parse(done.stdout.decode())


@pytest.mark.parametrize("text", PLAIN + OTHERS)
async def test_every_host_gets_what_ssh_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "config").write_text(text + "\n")
    config = Config(ssh_config=str(tmp_path / "config"))
    await read_defaults(Target.parse("ssh://web1"), config)
    runs = Runs(monkeypatch)
    found = await read_all(config)
    needed = runs.count
    for host in HOSTS:
        expected = await printed(host, config)
        assert [*found[host].values.items()] == [*expected.values.items()], host
    if text in PLAIN:
        assert needed == 3  # the third is for Web9, whose capital letter ssh may or may not keep
    else:
        assert needed > 3


async def test_included_files_and_options_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.conf").write_text("User inner\nHost web2\n  Port 2202\n")
    (tmp_path / "c.conf").write_text("Host web3\n  Port 2203\n")
    config = Config(ssh_config=str(tmp_path / "config"), ssh_options=("Compression=yes",), identity="/k")
    (tmp_path / "config").write_text(f"Host web*\n  Include {tmp_path}/*.conf\nHost db1\n  Port 9\nHost *\n  Port 8\n")
    hosts = ("web1", "web2", "web3", "web4", "db1", "db2")
    await read_defaults(Target.parse("ssh://web1"), config)
    runs = Runs(monkeypatch)
    found = await read_all(config, hosts)
    assert runs.count == 2
    for host in hosts:
        assert found[host] == await printed(host, config), host
    changed = Config(ssh_config=config.ssh_config, ssh_options=("Port=77",))
    assert {settings.get("port") for settings in (await read_all(changed, hosts)).values()} == {"77"}
    quoted = Config(ssh_config=config.ssh_config, ssh_options=('"Port" 8',))
    assert {settings.get("port") for settings in (await read_all(quoted, ("web1", "db2", "db1"))).values()} == {"8"}
    (tmp_path / "a.conf").write_text("User new\n")
    assert (await read_all(config, ("web5",)))["web5"].get("user") == "new"


async def test_a_written_file_counts_at_once_and_a_script_for_ssh_is_asked_about_each_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text("Host web1\n  Port 1\n")
    config = Config(ssh_config=str(path))
    await read_all(config)
    path.write_text("Host web3\n  Port 33\n")
    assert (await read_all(config))["web3"].get("port") == "33"
    path.write_text("Port x\n")
    with pytest.raises(ConfigError):
        await read_settings(Target.parse("ssh://web3"), config)
    path.write_text("Port 5\n")
    (tmp_path / "ssh").write_text('#!/bin/sh\nfor host; do :; done\n/usr/bin/ssh -o "User=$host" "$@"\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    other = Config(ssh_config=str(path), ssh_options=("Compression=yes",))
    assert {host: found.get("user") for host, found in (await read_all(other)).items()} == {
        host: host for host in HOSTS
    }
