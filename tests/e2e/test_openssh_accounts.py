"""Any login shell and any start-up file of the account: exact output, or a clear error in time."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.sshd import MakeSshd, MakeUser, SshServer, SystemUser
from tests.support.transports import connected, run

from harness import connect
from harness.errors import ConnectError, HarnessError

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
        async with connected(sshd, target(sshd, bash_user)) as patient:
            assert (await run(patient, "sh", "-c", script))[0] == 0


ENGINES = ["openssh", "asyncssh"]


async def refusal(server: SshServer, url: str, engine: str) -> HarnessError:
    """Why a whole context to the account could not be opened."""
    with anyio.fail_after(20), pytest.raises(HarnessError) as caught:
        async with connect(url, config=server.config(ssh_engine=engine, control_persist=1.0)):
            pass
    return caught.value


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_account_with_a_command_of_its_own_says_so(make_sshd: MakeSshd, engine: str) -> None:
    server = make_sshd("ForceCommand echo 'this account is for backups' >&2; exit 4")
    error = await refusal(server, server.target, engine)
    assert "status 4" in error.message
    assert "this account is for backups" in error.message


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_target_without_sh_says_so(sshd: SshServer, bash_user: SystemUser, engine: str) -> None:
    start_up(bash_user, "PATH=/nonexistent\n")
    error = await refusal(sshd, target(sshd, bash_user), engine)
    assert "status 127" in error.message
    assert "not found" in error.message


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_account_that_may_start_no_more_processes_says_so(
    sshd: SshServer, bash_user: SystemUser, engine: str
) -> None:
    start_up(bash_user, "ulimit -u 1\n")
    error = await refusal(sshd, target(sshd, bash_user), engine)
    assert "limits" in error.hint or "start-up files" in error.hint
    assert "status" in error.message


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_shell_that_ends_after_its_start_says_why(sshd: SshServer, bash_user: SystemUser, engine: str) -> None:
    fake = bash_user.home / "bin"
    fake.mkdir(mode=0o755)
    (fake / "sh").write_text(
        '#!/bin/sh\nif [ "$1" = -c ]; then exec /bin/sh "$@"; fi\necho "disk quota exceeded" >&2; exit 5\n'
    )
    (fake / "sh").chmod(0o755)
    start_up(bash_user, f"PATH={fake}:$PATH\n")
    error = await refusal(sshd, target(sshd, bash_user), engine)
    assert error.message == "the shell on the target exited with status 5: disk quota exceeded"


@pytest.mark.parametrize("control_mode", ["auto", "never"])
async def test_in_a_pane_another_shell_takes_the_place_of_one_without_markers(
    sshd: SshServer, make_user: MakeUser, control_mode: str
) -> None:
    user = make_user(shell="/usr/bin/tcsh")
    config = replace(sshd.config(control_mode=control_mode), tmux_socket=f"hx-{secrets.token_hex(4)}")
    with anyio.fail_after(60):
        async with connect(target(sshd, user), tmux=True, config=config) as ctx:
            first = await ctx.run_shell("echo out; (exit 3)")
            assert (first.exit_code, first.stdout) == (3, "out\n")
            assert any("tcsh" in notice for notice in first.notices)
            await ctx.create_pane("more")
            assert (await ctx.run_shell("x=1; echo $x", pane="more")).stdout == "1\n"
        async with connect(target(sshd, user), tmux=True, config=config) as ctx:
            assert not any("tcsh" in notice for notice in (await ctx.run_shell("true")).notices)
            await ctx.run_helper(f"tmux -L {config.tmux_socket} kill-server")
