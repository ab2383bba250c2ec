"""Any login shell and any start-up file of the account: exact output, or a clear error in time."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.support.sshd import MakeUser, SshServer, SystemUser
from tests.support.transports import connected, run

from harness.errors import ConnectError

WORDS = ["a b", "it's", "!x", "back\\slash", "new\nline\n", "$HOME `id`", '"dq"', "é漢", "*", "~", "", "%d", "{a,b}"]
SHELLS = ["/bin/sh", "/bin/bash", "/usr/bin/zsh", "/usr/bin/fish", "/usr/bin/tcsh", "/bin/mksh"]


def target(server: SshServer, user: SystemUser) -> str:
    return f"ssh://{user.name}@127.0.0.1:{server.port}"


@pytest.fixture
def bash_user(make_user: MakeUser) -> SystemUser:
    """An account whose start-up file bash reads for every command over SSH."""
    return make_user(shell="/bin/bash")


def start_up(user: SystemUser, text: str) -> None:
    Path(user.home, ".cshrc" if "csh" in user.shell else ".bashrc").write_text(text)


@pytest.mark.parametrize("shell", SHELLS)
async def test_arguments_arrive_through_the_login_shell(sshd: SshServer, make_user: MakeUser, shell: str) -> None:
    user = make_user(shell=shell)
    async with connected(sshd, target(sshd, user)) as transport:
        code, out, err = await run(transport, "printf", "%s|", *WORDS)
        assert (code, out.decode(), err) == (0, "".join(f"{word}|" for word in WORDS), b"")
        assert await run(transport, "sh", "-c", "echo err >&2; kill -9 $$") == (137, b"", b"err\n")


async def test_noise_of_start_up_files_is_dropped(sshd: SshServer, bash_user: SystemUser) -> None:
    start_up(bash_user, "echo welcome; printf 'no line end'; echo warning >&2; printf '\\033[1mbold'\n")
    async with connected(sshd, target(sshd, bash_user)) as transport:
        assert await run(transport, "sh", "-c", "echo out; echo err >&2") == (0, b"out\n", b"err\n")


async def test_noise_of_csh_start_up_files_is_dropped(sshd: SshServer, make_user: MakeUser) -> None:
    user = make_user(shell="/usr/bin/tcsh")
    start_up(user, "echo noise\nset prompt = 'x'\nset histchars\n")
    async with connected(sshd, target(sshd, user)) as transport:
        assert await run(transport, "printf", "%s", "it's !x") == (0, b"it's !x", b"")


async def test_a_slow_start_up_file_only_takes_its_time(sshd: SshServer, bash_user: SystemUser) -> None:
    start_up(bash_user, "sleep 1\n")
    async with connected(sshd, target(sshd, bash_user)) as transport:
        assert await run(transport, "cat", stdin=b"all of it\n") == (0, b"all of it\n", b"")


@pytest.mark.parametrize("reads", ["cat >/dev/null", "read line", "exec sleep 30"])
async def test_a_start_up_file_that_waits_is_a_clear_error_in_time(
    sshd: SshServer, bash_user: SystemUser, reads: str
) -> None:
    start_up(bash_user, f"{reads}\n")
    async with connected(sshd, target(sshd, bash_user), prompt_timeout=0.7) as transport:
        with anyio.fail_after(5), pytest.raises(ConnectError, match="start-up file"):
            await transport.open_process(["true"])


async def test_a_start_up_file_that_exits_is_a_clear_error(sshd: SshServer, bash_user: SystemUser) -> None:
    start_up(bash_user, "echo 'use the other host' >&2; exit 3\n")
    async with connected(sshd, target(sshd, bash_user)) as transport:
        with pytest.raises(ConnectError, match=r"status 3 .*use the other host"):
            await transport.open_process(["true"])


async def test_an_account_without_a_shell_is_a_clear_error(sshd: SshServer, make_user: MakeUser) -> None:
    user = make_user(shell="/usr/sbin/nologin")
    async with connected(sshd, target(sshd, user)) as transport:
        with pytest.raises(ConnectError, match="not available"):
            await transport.open_process(["true"])


async def test_what_was_given_up_never_runs_later(sshd: SshServer, bash_user: SystemUser) -> None:
    """A start-up file slower than our patience must not start the program after we reported a failure."""
    home = bash_user.home
    start_up(bash_user, f"mkfifo {home}/gate; read x < {home}/gate; touch {home}/went-on\n")
    async with connected(sshd, target(sshd, bash_user), prompt_timeout=0.7) as transport:
        with pytest.raises(ConnectError):
            await transport.open_process(["touch", f"{home}/ran"])
        start_up(bash_user, "")
        busy = f"pgrep -u {bash_user.name} -f '[t]ouch .*/ran'"
        script = f"echo go > gate; until test -e went-on && ! {busy}; do sleep 0.05; done; test ! -e ran"
        assert (await run(transport, "sh", "-c", script))[0] == 0
