"""Programs that want a person, and shells inside the pane's shell: found, answered, and exact results afterwards."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from urllib.parse import urlsplit

import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until
from tests.support.sshd import MakeUser, make_user

from harness import Status, connect
from harness.results import ShellResult

__all__ = ["desk", "make_user", "open_desk"]


async def exact(desk: Desk, code: int = 7) -> None:
    """The pane's shell answers exactly."""
    result = await desk.ctx.run_shell(f"printf 'a\\nb'; (exit {code})", timeout=15)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, code, "a\nb"), result


def waits(result: ShellResult, *words: str) -> None:
    """It was found waiting, soon, and the notices say what waits, with its screen."""
    assert result.status is Status.RUNNING, result
    assert result.duration < 3
    notices = "\n".join(result.notices)
    assert "waiting for input" in notices or "password" in notices, notices
    for word in words:
        assert word in notices


PROGRAMS = [
    ("seq 1 500 | less", "less", ("q",), ""),
    ("vim -u NONE notes", "vim", ("Escape", ":", "q", "!", "Enter"), ""),
    ("top -d 60", "top", ("q",), ""),
    ("python3 -q", "python3", ("C-d",), ""),
    ("ed -p '* '", "ed", ("q", "Enter"), ""),
    ("cat", "cat", ("C-d",), ""),
]


@pytest.mark.parametrize(("command", "name", "keys", "_"), PROGRAMS, ids=[row[1] for row in PROGRAMS])
async def test_a_program_that_waits_is_named_and_can_be_left(
    desk: Desk, command: str, name: str, keys: tuple[str, ...], _: str
) -> None:
    result = await desk.ctx.run_shell(command, timeout=20)
    waits(result, name, "screen shows")
    await desk.ctx.send_keys(keys)
    done = await desk.ctx.wait(result.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 0), done
    await exact(desk)


@everywhere
async def test_a_question_is_answered_with_keys(desk: Desk) -> None:
    result = await desk.ctx.run_shell("read -p 'Go on? ' x; echo \"said $x\"; (exit 3)")
    waits(result, "Go on?")
    await desk.ctx.send_keys(literal_text="yes", enter=True)
    done = await desk.ctx.wait(result.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 3)
    assert done.stdout == "Go on? yes\nsaid yes\n"
    await exact(desk)


async def test_python_is_talked_to_line_by_line(desk: Desk) -> None:
    waits(await desk.ctx.run_shell("python3 -q"), ">>>")
    await desk.ctx.send_keys(literal_text="print(6*7)", enter=True)
    assert "42" in await desk.ctx.capture_pane(delay=0.5)
    await desk.ctx.send_keys("C-d")
    await exact(desk)


@everywhere
async def test_a_typed_password_is_kept_nowhere(desk: Desk) -> None:
    secret = f"s3cret{uuid.uuid4().hex}"
    result = await desk.ctx.run_shell("read -r -s -p 'Password: ' x; echo; echo ${#x}")
    waits(result, "password", "Password:")
    await desk.ctx.send_keys(literal_text=secret, enter=True)
    done = await desk.ctx.wait(result.job_id or "", timeout=10)
    assert done.stdout == f"Password: \n{len(secret)}\n"
    assert secret not in repr(done) + await desk.ctx.capture_pane(start="-")
    found = subprocess.run(["grep", "-rlF", secret, str(desk.state)], capture_output=True, text=True)
    assert found.stdout == ""
    assert secret not in "\n".join(desk.tmux.cmd("list-buffers").stdout)


@everywhere
async def test_a_command_while_a_program_waits_is_refused_and_nothing_is_typed(desk: Desk) -> None:
    from harness import PaneBusy

    result = await desk.ctx.run_shell('read -r x; echo "got:$x"')
    with pytest.raises(PaneBusy, match=f"job {result.job_id}"):
        await desk.ctx.run_shell("echo never", timeout=10)
    await desk.ctx.send_keys("Enter")
    assert (await desk.ctx.wait(result.job_id or "", timeout=10)).stdout == "\ngot:\n"


INNER = ["bash --norc", "dash", "zsh -f", "mksh", "fish --no-config", "busybox ash", "bash --posix --norc", "sh"]


@pytest.mark.parametrize("inner", INNER)
async def test_an_inner_shell_is_adopted_and_left(desk: Desk, inner: str) -> None:
    first = await desk.ctx.run_shell(inner, timeout=20)
    assert first.status is Status.RUNNING, first
    result = await desk.ctx.run_shell("printf 'one\\ntwo'; sh -c 'exit 9'", timeout=20)
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 9, "one\ntwo"), result
    lines = await desk.ctx.run_shell("echo 'a\tb'\necho \"it's\"\necho '!x \\n'\n", timeout=20)
    assert lines.stdout.splitlines()[:2] == ["a\tb", "it's"]
    await desk.ctx.run_shell("cd /usr")
    assert (await desk.ctx.run_shell("pwd")).stdout == "/usr\n"
    left = await desk.ctx.run_shell("exit 4", timeout=10)
    assert (left.status, left.exit_code) == (Status.SHELL_EXITED, 4), left
    done = await desk.ctx.wait(first.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 4), done
    await exact(desk)


@pytest.mark.parametrize("inner", INNER)
async def test_an_inner_shell_is_taken_up_by_one_harness_after_the_other(desk: Desk, inner: str) -> None:
    await desk.ctx.run_shell(inner, timeout=2)
    for number in range(2):
        async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:
            result = await other.run_shell(f"echo {number}; sh -c 'exit 9'", timeout=30)
            assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 9, f"{number}\n"), result


@everywhere
async def test_a_login_as_another_user_asks_adopts_and_ends(desk: Desk, make_user: MakeUser) -> None:
    user = make_user("/bin/bash")
    middle = make_user("/bin/bash")
    waits(await desk.ctx.run_shell(f"su - {middle.name}"), "su")
    assert (await desk.ctx.run_shell("id -un", timeout=20)).stdout == f"{middle.name}\n"
    asked = await desk.ctx.run_shell(f"su - {user.name}", timeout=20)
    waits(asked, "assword")
    await desk.ctx.send_keys(literal_text=user.password, enter=True)
    result = await desk.ctx.run_shell("id -un; (exit 6)", timeout=20)
    assert (result.exit_code, result.stdout) == (6, f"{user.name}\n")
    await desk.ctx.run_shell("exit")
    assert (await desk.ctx.run_shell("id -un")).stdout == f"{middle.name}\n"
    await desk.ctx.run_shell("exit")
    await exact(desk)
    assert subprocess.run(["grep", "-rlF", user.password, str(desk.state)], capture_output=True).stdout == b""


@pytest.mark.usefixtures("needs_ssh")
async def test_ssh_inside_and_a_user_inside_that(open_desk: OpenDesk, make_user: MakeUser) -> None:
    user = make_user("/bin/bash")
    outer = await open_desk()
    inner = await open_desk("ssh")
    server = urlsplit(str(inner.ctx.target))
    argv = ["ssh", "-F", inner.config.ssh_config, "-i", inner.config.identity, "-p", str(server.port)]
    argv += [word for option in inner.config.ssh_options for word in ("-o", option)]
    waits(await outer.ctx.run_shell(" ".join([*argv, f"{server.username}@127.0.0.1"]), timeout=20), "ssh")
    result = await outer.ctx.run_shell("echo $HOME; (exit 8)", timeout=20)
    assert (result.exit_code, result.stdout) == (8, f"{inner.home}\n")
    waits(await outer.ctx.run_shell(f"su - {user.name}", timeout=20))
    assert (await outer.ctx.run_shell("id -un; pwd", timeout=20)).stdout == f"{user.name}\n{user.home}\n"
    await outer.ctx.run_shell("exit")
    assert (await outer.ctx.run_shell("echo $HOME")).stdout == f"{inner.home}\n"
    await outer.ctx.run_shell("exit")
    await exact(outer)


async def test_sudo_and_its_password(desk: Desk, make_user: MakeUser) -> None:
    user = make_user("/bin/bash")
    rule = f"/etc/sudoers.d/{user.name}"
    subprocess.run(["sh", "-c", f"umask 337; echo '{user.name} ALL=(ALL) ALL' >{rule}"], check=True)
    try:
        await desk.ctx.run_shell(f"su - {user.name}")
        asked = await desk.ctx.run_shell("sudo -k; sudo -i", timeout=20)
        waits(asked, "sudo", "assword")
        await desk.ctx.send_keys(literal_text=user.password, enter=True)
        assert (await desk.ctx.run_shell("id -un", timeout=20)).stdout == "root\n"
        await desk.ctx.run_shell("exit")
        assert (await desk.ctx.run_shell("id -un")).stdout == f"{user.name}\n"
    finally:
        subprocess.run(["rm", "-f", rule])


@pytest.mark.usefixtures("needs_root")
async def test_a_shell_in_namespaces_of_its_own(desk: Desk) -> None:
    assert shutil.which("unshare")
    first = await desk.ctx.run_shell("unshare --uts --mount --pid --fork bash --norc")
    assert first.status is Status.RUNNING
    result = await desk.ctx.run_shell("hostname inside; hostname; (exit 2)", timeout=20)
    assert (result.exit_code, result.stdout) == (2, "inside\n")
    await desk.ctx.run_shell("exit")
    await exact(desk)


async def test_control_d_leaves_an_inner_shell(desk: Desk) -> None:
    first = await desk.ctx.run_shell("bash --norc")
    assert (await desk.ctx.run_shell("echo $((1+1))", timeout=20)).stdout == "2\n"
    await desk.ctx.send_keys("C-d")
    done = await desk.ctx.wait(first.job_id or "", timeout=10)
    assert done.status is Status.COMPLETED
    await until(lambda: desk.show("#{pane_current_command}") == "bash")
    await exact(desk)
