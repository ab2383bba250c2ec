"""``harness shell`` over a real sshd, in a real terminal: what ends ssh does not end it."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.support.program import Program, options_of, over_ssh, program
from tests.support.reconnecting_shell import RECONNECTED, detached, ended, opened, shows
from tests.support.resources import skip_without_ssh_terminal
from tests.support.sshd import MakeSshd, MakeUser, SshServer, master_pids

__all__ = ["over_ssh", "program"]

LOST = "connection lost"


@pytest.fixture
def ops(needs_tmux: None, over_ssh: Program) -> Iterator[Program]:
    """The program with a host behind SSH and a tmux server of its own there."""
    skip_without_ssh_terminal()
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    over_ssh.environ["HARNESS_TMUX_SOCKET"] = socket
    yield over_ssh
    tmux(over_ssh, "kill-server")


def tmux(ops: Program, *words: str) -> str:
    """Run a command of the target's tmux server and return its output."""
    argv = ["tmux", "-L", ops.environ["HARNESS_TMUX_SOCKET"], *words]
    return subprocess.run(argv, capture_output=True, text=True).stdout


def client_pid(child: Any) -> int:
    """The ssh process that has the terminal."""
    (pid,) = [pid for pid in children_of(child.pid) if _argv(pid)[:2] == ["ssh", "-t"]]
    return pid


def children_of(pid: int) -> list[int]:
    """The processes that a process with one thread has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _argv(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def test_it_creates_the_session_and_ends_when_the_operator_detaches(ops: Program) -> None:
    child = opened(ops)
    shows(child, 1)
    assert detached(child) == 0
    assert tmux(ops, "list-sessions", "-F", "#S").split() == ["harness"]


def test_it_ends_when_the_session_is_killed(ops: Program) -> None:
    child = opened(ops)
    shows(child, 1)
    tmux(ops, "kill-session", "-t", "=harness")
    assert ended(child) == 0


def kill_client(child: Any, ops: Program, sshd: SshServer, runtime: Path) -> None:
    os.kill(client_pid(child), signal.SIGKILL)


def kill_master(child: Any, ops: Program, sshd: SshServer, runtime: Path) -> None:
    (pid,) = master_pids(runtime)
    os.kill(pid, signal.SIGKILL)


def kill_connection(child: Any, ops: Program, sshd: SshServer, runtime: Path) -> None:
    for pid in sshd.session_pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_tmux_client(child: Any, ops: Program, sshd: SshServer, runtime: Path) -> None:
    lines = tmux(ops, "list-clients", "-F", "#{client_tty} #{client_pid}").splitlines()
    (pid,) = [int(line.split()[1]) for line in lines if line.startswith("/")]
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("cut", [kill_client, kill_master, kill_connection, kill_tmux_client])
def test_it_reconnects_to_the_same_shell(
    cut: Callable[[Any, Program, SshServer, Path], None], ops: Program, sshd: SshServer, ssh_runtime: Path
) -> None:
    child = opened(ops)
    child.send("here=$((6 * 7)); echo set$here\r")
    child.expect("set42")
    cut(child, ops, sshd, ssh_runtime)
    child.expect(RECONNECTED)
    child.send("echo still$here\r")
    child.expect("still42")
    assert detached(child) == 0


def test_it_waits_for_a_stopped_server_and_drops_what_is_typed_meanwhile(ops: Program, sshd: SshServer) -> None:
    child = opened(ops)
    shows(child, 1)
    sshd.stop()
    child.expect(r"127.0.0.1: connection lost, trying again in \d s \(Ctrl-C ends\)")
    child.expect("Connection refused")
    child.send("touch typed-while-away\r")
    sshd.start()
    child.expect(RECONNECTED)
    shows(child, 2)
    child.send("ls typed-while-away || echo no$((1 + 1))such\r")
    child.expect("no2such")
    assert detached(child) == 0
    assert "touch" not in tmux(ops, "capture-pane", "-p", "-t", "=harness:")


def test_a_frozen_connection_is_noticed(ops: Program, sshd: SshServer) -> None:
    child = opened(ops, HARNESS_KEEPALIVE_INTERVAL="1", HARNESS_KEEPALIVE_COUNT="2")
    shows(child, 1)
    frozen = sshd.session_pids()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        child.expect(RECONNECTED)
        shows(child, 2)
        assert detached(child) == 0
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_session_that_ended_meanwhile_is_reported_and_not_created_again(ops: Program, sshd: SshServer) -> None:
    child = opened(ops)
    shows(child, 1)
    sshd.stop()
    child.expect(LOST)
    tmux(ops, "kill-server")
    sshd.start()
    child.expect("the tmux session no longer exists")
    assert ended(child) == 125
    assert tmux(ops, "list-sessions") == ""


@pytest.mark.parametrize("control", ["auto", "never"])
def test_another_session_of_the_same_name_is_not_entered(ops: Program, sshd: SshServer, control: str) -> None:
    ops.environ["HARNESS_CONTROL_MODE"] = control
    child = opened(ops)
    shows(child, 1)
    sshd.stop()
    child.expect(LOST)
    tmux(ops, "kill-server")
    state = str(sshd.home / ".local/state")  # where sessions of the host find it
    done = replace(ops, always=()).run("sessions", "create", "harness", XDG_STATE_HOME=state)
    assert done.returncode == 0, done.stderr
    sshd.start()
    child.expect("the tmux session no longer exists")
    assert ended(child) == 125


def test_a_killed_tmux_server_is_reported(ops: Program) -> None:
    child = opened(ops)
    shows(child, 1)
    os.kill(int(tmux(ops, "display-message", "-p", "#{pid}")), signal.SIGKILL)
    child.expect("the tmux session no longer exists")
    assert ended(child) == 125


def test_ctrl_c_ends_the_wait_and_nothing_typed_reaches_the_shell(ops: Program, sshd: SshServer) -> None:
    words = shlex.join([ops.path, *ops.always, "shell"])
    script = f"stty -g >before; {words}; echo code=$?; stty -g >after; read -t 1 line; echo read=$line."
    environ: Any = ops.environ
    child = pexpect.spawn("bash", ["-c", script], env=environ, cwd=str(ops.home), timeout=40, dimensions=(50, 170))
    shows(child, 1)
    sshd.stop()
    child.expect("trying again in")
    child.send("touch leaked\r")
    child.sendcontrol("z")
    child.expect("trying again in [48] s")
    child.sendcontrol("c")
    child.expect("code=130")
    child.expect("read=\\.")
    child.expect(pexpect.EOF)
    assert (ops.home / "after").read_text() == (ops.home / "before").read_text()


def test_a_terminal_is_restored_after_a_cut(ops: Program, sshd: SshServer) -> None:
    outer = f"hx-{uuid.uuid4().hex[:8]}"
    here = ["tmux", "-L", outer, "-f", "/dev/null"]
    words = shlex.join([ops.path, *ops.always, "shell"])
    run = partial(subprocess.run, env=ops.environ, cwd=str(ops.home), capture_output=True, text=True)
    run([*here, "new-session", "-d", "-x", "120", "-y", "40", f"echo first; {words}; echo code=$?; sleep 100"])
    flags = "#{alternate_on} #{mouse_any_flag} #{cursor_flag} #{keypad_flag} #{keypad_cursor_flag}"
    try:
        tmux_shows(here, run, flags, "1 ")
        tmux(ops, "set-option", "-g", "mouse", "on")
        tmux_shows(here, run, flags, "1 1")
        sshd.stop()
        tmux_shows(here, run, flags, "0 0 1 0 0")
        screen = run([*here, "capture-pane", "-p"]).stdout.splitlines()
        assert screen[0] == "first"
        assert "connection lost" in screen[1]
        sshd.start()
        tmux_shows(here, run, flags, "1 1")
    finally:
        run([*here, "kill-server"])


def tmux_shows(here: list[str], run: Any, form: str, expected: str) -> None:
    deadline = time.monotonic() + 40
    while not (found := run([*here, "display-message", "-p", form]).stdout).startswith(expected):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)  # tmux sends no event for a pane's modes


def test_a_host_that_cannot_be_reached_at_first_is_an_error(ops: Program, sshd: SshServer) -> None:
    sshd.stop()
    child = opened(ops)
    child.expect("Connection refused")
    assert ended(child) == 125


def test_another_host_key_ends_it(ops: Program, sshd: SshServer) -> None:
    child = opened(ops)
    shows(child, 1)
    sshd.new_host_key()
    sshd.restart()
    child.expect("host key")
    assert ended(child) == 125


def test_without_a_terminal_it_is_an_error(ops: Program) -> None:
    done = ops.run("shell")
    assert done.returncode == 125
    assert b"needs a terminal" in done.stderr
    assert tmux(ops, "list-sessions") == ""


def test_a_terminal_that_tmux_cannot_use_ends_it(ops: Program) -> None:
    child = opened(ops, TERM="no-such-terminal")
    child.expect("tmux on the target fails whenever it is attached to")
    assert ended(child) == 125


def test_sigterm_ends_it_and_restores_the_terminal(ops: Program) -> None:
    child = opened(ops)
    shows(child, 1)
    os.kill(child.pid, signal.SIGTERM)
    child.expect_exact("\x1b[?1049l")
    assert ended(child) == 143


def test_a_read_only_client_stays_read_only(ops: Program, ssh_runtime: Path) -> None:
    first = opened(ops)
    shows(first, 1)
    child = opened(ops, "--read-only")
    child.expect("shown1x")
    os.kill(client_pid(child), signal.SIGKILL)
    child.expect(RECONNECTED)
    child.expect("shown1x")
    clients = tmux(ops, "list-clients", "-F", "#{client_tty} #{client_readonly}").splitlines()
    assert sorted(line.split()[1] for line in clients if line.startswith("/")) == ["0", "1"]
    assert detached(child) == 0
    assert detached(first) == 0


@pytest.mark.parametrize("command", ["shell", "attach"])
def test_a_terminal_that_takes_nothing_stops_no_other_command_on_the_host(ops: Program, command: str) -> None:
    first = opened(ops)
    shows(first, 1)
    first.send("clear; seq -s '' 2000; echo sh''own\r")
    wait_until(lambda: "\nshown\n" in tmux(ops, "capture-pane", "-p", "-t", "=harness:"))
    assert detached(first) == 0
    begun, go = ops.home / "begun", ops.home / "go"
    words = f"touch {begun}; until test -e {go}; do sleep 0.1; done; echo still here"
    with ops.start("run", "--", words, stdout=subprocess.PIPE) as other:
        wait_until(begun.exists)
        child = opened(ops, command=[command])
        child.expect("shown")
        (client,) = tmux(ops, "list-clients", "-F", "#{client_tty}").split()
        for _ in range(8):  # nobody reads these screens: more than the terminal takes
            tmux(ops, "refresh-client", "-t", client)
            time.sleep(0.1)
        go.touch()
        stdout, _ = other.communicate(timeout=30)
    assert (other.returncode, stdout) == (0, b"still here\n")
    assert detached(child) == 0


def test_the_size_of_the_terminal_follows(ops: Program) -> None:
    child = opened(ops)
    shows(child, 1)
    child.setwinsize(33, 101)
    wait_until(lambda: "101x33" in tmux(ops, "list-clients", "-F", "#{client_width}x#{client_height}"))
    os.kill(client_pid(child), signal.SIGKILL)
    child.expect(RECONNECTED)
    shows(child, 2)
    assert "101x33" in tmux(ops, "list-clients", "-F", "#{client_width}x#{client_height}")
    assert detached(child) == 0


def wait_until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 40
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # tmux sends no event to other programs


def test_without_tmux_on_the_target_it_says_what_to_do(
    needs_tmux: None, program: Program, make_sshd: MakeSshd, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in os.listdir("/usr/bin"):
        if name != "tmux":
            (tools / name).symlink_to(f"/usr/bin/{name}")
    server = make_sshd("Match All", f"  SetEnv PATH={tools} HOME={tmp_path}")
    program.always = options_of(server)
    child = opened(program)
    child.expect("tmux is not installed on the target")
    child.expect("install tmux there")
    assert ended(child) == 125


def with_password(ops: Program, make_sshd: MakeSshd, make_user: MakeUser) -> tuple[SshServer, Any]:
    """A server that asks for a password, and a shell that has given it."""
    user = make_user(shell="/bin/sh", password="open sesame")
    server = make_sshd("PasswordAuthentication yes", "AllowUsers *", "PubkeyAuthentication no")
    ops.always = ("--ssh", f"{user.name}@127.0.0.1:{server.port}", *options_of(server)[2:])
    child = opened(ops)
    child.expect("assword:")
    child.send("open sesame\r")
    shows(child, 1)
    return server, child


def test_a_password_is_asked_for_again_unless_questions_are_forbidden(
    ops: Program, make_sshd: MakeSshd, make_user: MakeUser, tmp_path: Path
) -> None:
    server, child = with_password(ops, make_sshd, make_user)
    server.restart()
    child.expect("connection lost")
    child.expect("assword:")
    child.send("open sesame\r")
    child.expect(RECONNECTED)
    shows(child, 2)
    batch = opened(ops, "--batch")
    shows(batch, 3)
    assert detached(child) == 0  # else it may be the first to log in, and the other one waits for it
    server.restart()
    batch.expect("connection lost")
    batch.expect("the login was refused|no password")
    assert ended(batch) == 125


def test_ctrl_c_at_the_question_for_a_password_ends_it(ops: Program, make_sshd: MakeSshd, make_user: MakeUser) -> None:
    server, child = with_password(ops, make_sshd, make_user)
    server.restart()
    child.expect("connection lost")
    child.expect("assword:")
    child.sendcontrol("c")
    assert ended(child) == 130


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_few_sessions_of_a_server_suffice(ops: Program, make_sshd: MakeSshd, sessions: int) -> None:
    server = make_sshd(f"MaxSessions {sessions}")
    ops.always = options_of(server)
    ops.environ["HARNESS_CONTROL_MODE"] = "auto" if sessions > 1 else "never"
    child = opened(ops)
    shows(child, 1)
    server.restart()
    child.expect(RECONNECTED)
    shows(child, 2)
    assert detached(child) == 0


def test_a_dedicated_connection_is_renewed(ops: Program, sshd: SshServer) -> None:
    child = opened(ops, "--dedicated-connection")
    shows(child, 1)
    sshd.restart()
    child.expect(RECONNECTED)
    shows(child, 2)
    assert detached(child) == 0


def test_it_reconnects_through_a_jump_host(ops: Program, sshd: SshServer, make_sshd: MakeSshd) -> None:
    jump = make_sshd()
    sshd.ssh_config.write_text(
        f"Host jump\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.identity}\n"
        f"  UserKnownHostsFile {jump.known_hosts}\n"
    )
    child = opened(ops, "-o", "ProxyJump=jump")
    shows(child, 1)
    jump.stop()
    child.expect("trying again in")
    jump.start()
    child.expect(RECONNECTED)
    shows(child, 2)
    assert detached(child) == 0


def test_the_escape_of_ssh_reconnects_at_once(ops: Program) -> None:
    child = opened(ops)
    shows(child, 1)
    child.send("\r~.")
    child.expect(RECONNECTED)
    shows(child, 2)
    assert detached(child) == 0


def test_two_at_once_do_not_disturb_each_other(ops: Program, sshd: SshServer) -> None:
    first, second = opened(ops), opened(ops)
    for child in (first, second):
        child.setwinsize(
            10, 60
        )  # ssh's master waits for a terminal that is not read: a screen must fit into its buffer
    shows(first, 1)
    shows(second, 2)
    sshd.restart()
    first.expect(RECONNECTED)
    second.expect(RECONNECTED)
    shows(first, 3)
    assert detached(first) == 0
    second.sendcontrol("u")  # a "d" that tmux took for text is in the line that both see
    shows(second, 4)
    assert detached(second) == 0


def test_ctrl_c_ends_a_login_that_does_not_finish(ops: Program, sshd: SshServer) -> None:
    child = opened(ops)
    shows(child, 1)
    port = sshd.port
    sshd.stop()
    with socket.create_server(("127.0.0.1", port)):
        child.expect("reconnecting")
        time.sleep(1)  # the login is under way, which nothing shows
        started = time.monotonic()
        child.sendcontrol("c")
        assert ended(child) == 130
        assert time.monotonic() - started < 10


def test_a_closed_terminal_window_leaves_no_process(ops: Program, sshd: SshServer) -> None:
    child = opened(ops)
    shows(child, 1)
    ssh = client_pid(child)
    child.close(force=False)
    wait_until(lambda: not child.isalive() and not Path(f"/proc/{ssh}").exists())
    child = opened(ops)
    shows(child, 2)
    sshd.stop()
    child.expect("trying again in")
    child.close(force=False)
    wait_until(lambda: not child.isalive())
    assert tmux(ops, "list-sessions", "-F", "#S").split() == ["harness"]


def test_a_killed_one_leaves_no_client(ops: Program) -> None:
    words = shlex.join([ops.path, *ops.always, "shell"])
    shell: Any = pexpect.spawn("sh", ["-ic", f"{words}; echo its code was $?; read -r _"], env=ops.environ, timeout=60)
    shows(shell, 1)
    (killed,) = children_of(shell.pid)
    left = children_of(killed)
    assert "/dev/pts/" in tmux(ops, "list-clients")
    os.kill(killed, signal.SIGKILL)
    shell.expect_exact("its code was 137")
    wait_until(lambda: not any(map(_argv, left)) and "/dev/pts/" not in tmux(ops, "list-clients"))
    shell.close()


def test_on_this_machine_it_creates_the_session_and_becomes_its_client(needs_tmux: None, program: Program) -> None:
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    program.environ |= {"HARNESS_TMUX_SOCKET": socket, "TMUX": "/tmp/tmux-0/other,1,0"}
    child = opened(program)
    try:
        shows(child, 1)
        assert tmux(program, "list-sessions", "-F", "#S").split() == ["harness"]
        assert _argv(child.pid)[0] == "tmux"
        assert detached(child) == 0
    finally:
        tmux(program, "kill-server")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image", "debian"), "a temporary container ends with the connection"),
        (("--ssh", "web1", "--ssh", "web2"), "--ssh was given 2 times"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_what_it_cannot_do_is_said_at_once(program: Program, words: tuple[str, ...], message: str) -> None:
    child = opened(program, *words)
    child.expect_exact(message)
    assert ended(child) == 125


def test_a_session_on_this_machine_for_a_host_is_refused(program: Program) -> None:
    child = opened(program, "--ssh", "web1", HARNESS_TMUX_HOST="local")
    child.expect("ends with the connection")
    assert ended(child) == 125
