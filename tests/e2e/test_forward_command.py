"""``harness forward``: in the foreground and in the background, listed and ended by name, with a real sshd."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pexpect
import pytest
from tests.support.forwarding import DigestServer, connected, digest_server, exchange, listeners_of, until
from tests.support.program import Program, options_of, over_ssh, program
from tests.support.sshd import MakeSshd, MakeUser, SshServer, SystemUser, free_port, master_pids

__all__ = ["digest_server", "over_ssh", "program"]

LOCALHOST = "127.0.0.1"


def listed(program: Program) -> list[dict[str, Any]]:
    done = program.run("forward", "list", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def in_background(program: Program, *words: str) -> dict[str, Any]:
    done = program.run("forward", *words, "--background", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def log_of(program: Program, name: str) -> Path:
    return program.home / "state" / "harness" / "forwards" / f"{name}.log"


async def test_a_forward_in_the_background_is_listed_and_ended_by_name(
    over_ssh: Program, digest_server: DigestServer
) -> None:
    port, proxy = free_port(), free_port()
    words = (f"-L{port}:localhost:{digest_server.port}", "-R", f"0:localhost:{digest_server.port}", "-D", str(proxy))
    report = in_background(over_ssh, *words, "--name", "web-ui")
    there = int(report["forwards"][1]["listen"].rpartition(":")[2])
    assert await exchange((LOCALHOST, port))
    assert await exchange((LOCALHOST, there))
    (found,) = listed(over_ssh)
    assert (found["name"], found["state"], found["pid"]) == ("web-ui", "connected", report["pid"])
    assert [one["kind"] for one in found["forwards"]] == ["local", "remote", "dynamic"]
    assert f"web-ui: -L localhost:{port}" in over_ssh.run("top", "--once").stdout.decode()
    table = over_ssh.run("forward", "list").stdout.decode()
    assert f"-L localhost:{port} -> localhost:{digest_server.port}" in table
    assert log_of(over_ssh, "web-ui").stat().st_mode & 0o777 == 0o600
    assert os.readlink(f"/proc/{report['pid']}/fd/0") == "/dev/null"
    assert os.getsid(report["pid"]) == report["pid"]
    done = over_ssh.run("forward", "stop", "web-ui")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not Path(f"/proc/{report['pid']}").exists() or listed(over_ssh) == []
    assert not listeners_of(port)
    assert not listeners_of(proxy)
    await until(lambda: not listeners_of(there))
    assert "ended: stopped" in log_of(over_ssh, "web-ui").read_text()


async def test_a_killed_forward_leaves_nothing(
    over_ssh: Program, digest_server: DigestServer, ssh_runtime: Path
) -> None:
    port, there = free_port(), free_port()
    report = in_background(over_ssh, f"-L{port}:localhost:{digest_server.port}", f"-R{there}:localhost:1")
    assert listeners_of(there)
    os.kill(report["pid"], signal.SIGKILL)
    await until(lambda: not listeners_of(port) and not listeners_of(there))
    assert listed(over_ssh) == []
    await until(lambda: not list(ssh_runtime.glob("harness/forward-*")))
    again = in_background(over_ssh, f"-L{port}:localhost:{digest_server.port}", f"-R{there}:localhost:1")
    assert again["name"] == report["name"]
    assert await exchange((LOCALHOST, port))
    assert over_ssh.run("forward", "stop", "--all").returncode == 0


async def test_a_forward_in_the_background_survives_a_killed_master(
    over_ssh: Program, digest_server: DigestServer, ssh_runtime: Path
) -> None:
    port = free_port()
    report = in_background(over_ssh, f"-L{port}:localhost:{digest_server.port}")
    (pid,) = master_pids(ssh_runtime)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: "was lost" in log_of(over_ssh, report["name"]).read_text())
    assert await exchange((LOCALHOST, port))
    (found,) = listed(over_ssh)
    assert found["state"] == "connected"
    assert over_ssh.run("forward", "stop", report["name"]).returncode == 0


async def test_a_restarted_sshd_is_shown_and_waited_for(
    over_ssh: Program, digest_server: DigestServer, sshd: SshServer
) -> None:
    port = free_port()
    before = time.time()
    in_background(over_ssh, f"-L{port}:localhost:{digest_server.port}", "--name", "db")
    sshd.stop()
    await until(lambda: listed(over_ssh)[0]["state"] == "reconnecting")
    assert listed(over_ssh)[0]["since"] > before
    assert b"reconnecting since" in over_ssh.run("forward", "list").stdout
    sshd.start()
    assert await exchange((LOCALHOST, port))
    assert over_ssh.run("forward", "stop", "db").returncode == 0


async def test_missing_descriptors_refuse_connections_and_end_no_forward(
    over_ssh: Program, digest_server: DigestServer
) -> None:
    port = free_port()
    report = in_background(over_ssh, f"-L{port}:localhost:{digest_server.port}", "--name", "full")
    used = len(os.listdir(f"/proc/{report['pid']}/fd"))
    resource.prlimit(report["pid"], resource.RLIMIT_NOFILE, (used + 25, used + 25))
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connected((LOCALHOST, port)))
        await until(lambda: "Too many open files" in log_of(over_ssh, "full").read_text())

    async def works() -> bool:
        try:
            return await exchange((LOCALHOST, port), 1000)
        except OSError:  # until the connections above are closed
            return False

    with anyio.fail_after(30):
        while not await works():
            pass
    assert over_ssh.run("forward", "stop", "full").returncode == 0


def test_a_process_that_does_not_answer_is_named(over_ssh: Program) -> None:
    report = in_background(over_ssh, "-R0:localhost:1", "--name", "stopped")
    os.kill(report["pid"], signal.SIGSTOP)
    try:
        done = over_ssh.run("forward", "list")
        assert f"process {report['pid']} does not answer" in done.stderr.decode()
    finally:
        os.kill(report["pid"], signal.SIGCONT)
    assert over_ssh.run("forward", "stop", "stopped").returncode == 0


def test_a_program_of_an_agent_ends_no_forward(over_ssh: Program) -> None:
    in_background(over_ssh, "-R0:localhost:1", "--name", "mine")
    done = over_ssh.run("forward", "stop", "mine", HARNESS_JOB="1")
    assert done.returncode == 125
    assert b"the forward mine is not ended: this client may not act" in done.stderr
    done = over_ssh.run("disconnect", HARNESS_JOB="1")
    assert b"the forward mine is not ended, and reconnects" in done.stderr
    assert [one["name"] for one in listed(over_ssh)] == ["mine"]
    assert over_ssh.run("forward", "stop", "mine").returncode == 0


async def test_a_refused_login_ends_the_line_and_the_forward(over_ssh: Program, sshd: SshServer) -> None:
    port = free_port()
    words = [*over_ssh.always, "--batch", "forward", "-D", str(port)]
    with pexpect.spawn(over_ssh.path, words, env=over_ssh.environ, timeout=30, dimensions=(24, 150)) as terminal:  # type: ignore[arg-type]  # its stubs know only os.environ
        terminal.expect_exact("; 0 open")
        (sshd.directory / "authorized_keys").write_text("")
        sshd.restart()
        terminal.expect_exact("\r\nharness: ")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 125
    assert not listeners_of(port)


async def test_disconnect_ends_the_forwards_of_its_target(
    over_ssh: Program, digest_server: DigestServer, ssh_runtime: Path
) -> None:
    port = free_port()
    in_background(over_ssh, f"-L{port}:localhost:{digest_server.port}", "--name", "db")
    other = Program(over_ssh.path, over_ssh.home, over_ssh.environ)
    assert other.run("disconnect", "--ssh", "nowhere").stdout == b""
    assert len(listed(over_ssh)) == 1
    done = over_ssh.run("disconnect", "--json")
    assert json.loads(done.stdout)["forwards"] == ["db"]
    assert listed(over_ssh) == []
    assert master_pids(ssh_runtime) == []
    assert not listeners_of(port)


def test_names_are_unique_and_default_ones_are_numbered(over_ssh: Program) -> None:
    first = in_background(over_ssh, "-R0:localhost:1", "--name", "same")
    done = over_ssh.run("forward", "-R0:localhost:1", "--name", "same")
    assert done.returncode == 125
    assert b"a forward with the name same is running" in done.stderr
    names = [in_background(over_ssh, "-R0:localhost:1")["name"] for _ in range(2)]
    assert names == ["127.0.0.1-0", "127.0.0.1-0-2"]
    assert {one["name"] for one in listed(over_ssh)} == {"same", *names}
    assert first["name"] == "same"
    assert over_ssh.run("forward", "stop", "--all").returncode == 0
    assert listed(over_ssh) == []


@pytest.mark.parametrize("background", [False, True])
def test_a_port_in_use_is_one_line_and_no_forward(
    over_ssh: Program, digest_server: DigestServer, background: bool
) -> None:
    words = ["--background"] if background else []
    done = over_ssh.run("forward", f"-L{digest_server.port}:localhost:1", *words)
    assert done.returncode == 125
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"harness: cannot listen on localhost:{digest_server.port}: address already in use")
    assert listed(over_ssh) == []


def test_a_terminal_shows_one_line_that_changes(
    over_ssh: Program, digest_server: DigestServer, sshd: SshServer
) -> None:
    port = free_port()
    words = [*over_ssh.always, "forward", "-L", f"{port}:localhost:{digest_server.port}", "--name", "ui"]
    with pexpect.spawn(over_ssh.path, words, env=over_ssh.environ, timeout=30, dimensions=(24, 150)) as terminal:  # type: ignore[arg-type]  # its stubs know only os.environ
        terminal.expect_exact(f"-L localhost:{port} -> localhost:{digest_server.port}\r\n")
        terminal.expect_exact(f"ui: connected to {sshd.target}; 0 open")
        sshd.stop()
        terminal.expect(r"\r\x1b\[Kui: reconnecting since \d\d:\d\d:\d\d to ")
        sshd.start()
        terminal.expect_exact(f"\r\x1b[Kui: connected to {sshd.target}; 0 open")
        terminal.sendintr()
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
    assert not listeners_of(port)


def test_without_a_terminal_each_change_is_a_line(over_ssh: Program, sshd: SshServer) -> None:
    port = free_port()
    process = over_ssh.start("forward", "-D", str(port), "--json")
    assert process.stdout is not None
    try:
        states = [json.loads(process.stdout.readline())["state"]]
        sshd.restart()
        states += [json.loads(process.stdout.readline())["state"] for _ in range(2)]
        assert states == ["connected", "reconnecting", "connected"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_an_address_for_others_is_warned_of(over_ssh: Program) -> None:
    port = free_port()
    process = over_ssh.start("forward", "-D", f"0.0.0.0:{port}", "-D", str(free_port()))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"-D 0.0.0.0:{port} -> SOCKS\n".encode()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        (line,) = stderr.decode().splitlines()
        assert f"0.0.0.0:{port} is not loopback: everyone who can reach this address" in line
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("forward",), "nothing to forward"),
        (("forward", "-L", "8080"), "the destination is missing"),
        (("forward", "-D", "1080", "--name", "../x"), "is not a name of a forward"),
        (("forward", "-D", "1080"), "only a host behind SSH"),
        (("--container", "app", "forward", "-D", "1080"), "only a host behind SSH"),
        (("forward", "stop"), "give the names of forwards"),
        (("forward", "stop", "nope"), "no forward is named nope"),
    ],
)
def test_what_cannot_work_is_one_line(program: Program, words: tuple[str, ...], why: str) -> None:
    done = program.run(*words)
    assert done.returncode == 125
    (line,) = done.stderr.decode().splitlines()
    assert why in line


def test_a_process_that_could_not_be_found_does_not_start(over_ssh: Program) -> None:
    done = over_ssh.run("forward", "-R0:localhost:1", "--background", HARNESS_ANNOUNCE="false")
    assert done.returncode == 125
    assert b"announce = false" in done.stderr


def test_a_failed_login_is_reported_before_the_terminal_is_left(sshd: SshServer, program: Program) -> None:
    words = [word for word in options_of(sshd) if word != str(sshd.identity)]
    words.insert(words.index("-i") + 1, "/nowhere")
    done = program.run(*words, "--batch", "forward", "-R0:localhost:1", "--background")
    assert done.returncode == 125
    assert len(done.stderr.decode().splitlines()) == 1
    assert done.stdout == b""


PASSWORD_ONLY = ("PasswordAuthentication yes", "PubkeyAuthentication no")


def at_password_prompt(program: Program, server: SshServer, user: SystemUser, *words: str) -> pexpect.spawn[bytes]:
    server.user = user.name
    argv = [*options_of(server), "forward", *words]
    terminal = pexpect.spawn(program.path, argv, env=program.environ, timeout=30, dimensions=(24, 150))  # type: ignore[arg-type]  # its stubs know only os.environ
    terminal.expect("password: ")
    return terminal


async def test_a_password_is_asked_for_before_the_terminal_is_left_and_never_again(
    make_sshd: MakeSshd, make_user: MakeUser, program: Program, ssh_runtime: Path, digest_server: DigestServer
) -> None:
    server, user = make_sshd(*PASSWORD_ONLY), make_user(password="secret words")
    port = free_port()
    words = ("-L", f"{port}:localhost:{digest_server.port}", "--background", "--name", "pw")
    with at_password_prompt(program, server, user, *words) as terminal:
        terminal.sendline("secret words")
        terminal.expect("harness forward stop pw")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 0
    assert await exchange((LOCALHOST, port))
    (pid,) = master_pids(ssh_runtime)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: listed(program) == [])
    log = log_of(program, "pw").read_text()
    assert "ended: " in log
    assert "secret" not in log
    assert not listeners_of(port)


def test_an_interrupt_at_the_password_prompt_leaves_nothing(
    make_sshd: MakeSshd, make_user: MakeUser, program: Program
) -> None:
    server, user = make_sshd(*PASSWORD_ONLY), make_user(password="secret words")
    port = free_port()
    for more in ([], ["--background"]):
        with at_password_prompt(program, server, user, "-D", str(port), *more) as terminal:
            assert listeners_of(port)
            terminal.sendintr()
            terminal.expect(pexpect.EOF)
            terminal.wait()
            assert terminal.exitstatus == 130
        anyio.run(until, lambda: not listeners_of(port))
    assert listed(program) == []


def test_the_caller_of_a_background_forward_gets_the_end_of_its_output(over_ssh: Program) -> None:
    process = subprocess.run(
        [over_ssh.path, *over_ssh.always, "forward", "-R0:localhost:1", "--background", "--name", "b"],
        env=over_ssh.environ,
        cwd=over_ssh.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
    )
    assert process.returncode == 0
    assert b"harness forward stop b" in process.stdout
    assert over_ssh.run("forward", "stop", "b").returncode == 0


def test_a_forward_in_the_background_keeps_nothing_of_its_caller_open(over_ssh: Program) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as reports:
        try:
            words = [over_ssh.path, *over_ssh.always, "forward", "-R0:localhost:1", "--background", "--name", "b"]
            process = subprocess.run(words, env=over_ssh.environ, pass_fds=[writing], capture_output=True, timeout=30)
        finally:
            os.close(writing)
        assert process.returncode == 0
        os.set_blocking(reading, False)
        assert reports.read() == b""  # None while another process has it open
    assert over_ssh.run("forward", "stop", "b").returncode == 0


def test_disconnect_from_a_container_ends_the_forwards_of_its_host(over_ssh: Program) -> None:
    in_background(over_ssh, "-R0:localhost:1", "--name", "db")
    done = over_ssh.run("disconnect", "--container", "app", "--json")
    assert json.loads(done.stdout)["forwards"] == ["db"]
    assert listed(over_ssh) == []
