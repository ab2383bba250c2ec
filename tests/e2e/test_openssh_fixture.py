"""The servers that other tests stand on."""

from __future__ import annotations

import subprocess

from tests.support.sshd import MakeSshd, MakeUser, SshServer


def run(server: SshServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(server.ssh_argv(*arguments), capture_output=True, text=True, timeout=30, check=False)


def test_a_client_logs_in_by_key(sshd: SshServer) -> None:
    done = run(sshd, f"{sshd.user}@127.0.0.1", "echo hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_a_restarted_server_listens_on_the_same_port(sshd: SshServer) -> None:
    port = sshd.port
    sshd.restart()
    assert sshd.port == port
    assert run(sshd, f"{sshd.user}@127.0.0.1", "exit 7").returncode == 7


def test_an_account_has_its_own_shell_and_home(make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server = make_sshd()
    user = make_user(shell="/usr/bin/fish")
    done = run(server, f"{user.name}@127.0.0.1", "echo $FISH_VERSION $HOME")
    assert done.stdout.split()[-1] == str(user.home)
    assert len(done.stdout.split()) == 2
