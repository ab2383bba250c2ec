"""What a run on many hosts reports when it is interrupted, behind a real sshd."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.program import Program
from tests.support.sshd import SshServer

import harness
from harness.errors import ContextClosed
from harness.fleets import HostOutcome
from harness.results import ShellResult, Status
from harness_backends.posix.jobs.output import HeadTail

pytestmark = pytest.mark.real_starts

Outcomes = dict[str, HostOutcome[ShellResult]]
SIGNALS = [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP]]


@pytest.fixture
def make_host(make_sshd: Callable[..., SshServer]) -> Callable[..., SshServer]:
    """Start servers that trust one client key, each of them a host with processes of its own."""
    servers: list[SshServer] = []

    def make(*options: str) -> SshServer:
        server = make_sshd(*options)
        if servers:
            (server.directory / "authorized_keys").write_text((servers[0].directory / "authorized_keys").read_text())
            with servers[0].known_hosts.open("a") as known:
                known.write(server.known_hosts.read_text())
        servers.append(server)
        return server

    return make


def names_of(first: SshServer, hosts: dict[str, int]) -> None:
    """Write the client's configuration: names, and the port of each."""
    entries = (
        f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  HostKeyAlias [127.0.0.1]:{port}\n"
        for name, port in hosts.items()
    )
    first.ssh_config.write_text("".join(entries))


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def ops(make_host: Callable[..., SshServer], silent: int, request: pytest.FixtureRequest) -> Program:
    """The program, with the hosts web1 to web4, and ``silent``, which never answers a login."""
    server = make_host()
    names_of(server, {f"web{number}": server.port for number in range(1, 5)} | {"silent": silent})
    return program_for(server, request)


def program_for(server: SshServer, request: pytest.FixtureRequest) -> Program:
    program: Program = request.getfixturevalue("program")  # after sshd, which changes the environment
    options = [word for option in server.client_options for word in ("-o", option)]
    program.always = ("-F", str(server.ssh_config), "-i", str(server.identity), *options)
    return program


def only_first_runs(directory: Path) -> str:
    """A command that ends at once, but on the first host that starts it; ``pids`` has a line for each host."""
    last = f"echo result of the first; echo $$ >> {directory}/pids; exec sleep 300"
    return f"mkdir {directory}/first 2>/dev/null && {{ {last}; }}; echo result; echo x >> {directory}/pids"


def wait_for_lines(path: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 30
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline, "the commands did not start"
        time.sleep(0.01)  # the other side is a shell: it cannot signal
    return path.read_text().split()


def interrupt(process: subprocess.Popen[bytes], signals: list[signal.Signals]) -> tuple[bytes, bytes]:
    """Send the signals, each when the one before was noticed; return the outputs."""
    assert process.stderr is not None
    *first, last = signals
    noticed = b""
    for number in first:
        process.send_signal(number)
        noticed += process.stderr.readline()
    process.send_signal(last)
    stdout, stderr = process.communicate(timeout=30)
    return stdout, noticed + stderr


@pytest.mark.parametrize("signals", SIGNALS)
def test_results_are_printed_after_an_interrupt(ops: Program, tmp_path: Path, signals: list[signal.Signals]) -> None:
    command = only_first_runs(tmp_path)
    with ops.start("run", "--hosts", "web[1-4],silent", "--", command) as process:
        wait_for_lines(tmp_path / "pids", 4)
        stdout, stderr = interrupt(process, signals)
    assert process.returncode == 128 + signals[-1]
    assert re.fullmatch(
        rb"== web\[[\d,-]+\] \(3\)\nresult\n== web\d \(1\): interrupted \(job \d+\)\nresult of the first\n", stdout
    )
    assert b"harness: silent (1): not started: interrupted\n" in stderr
    assert b" 5 hosts: 3 ok, 1 not started, 1 interrupted, " in stderr
    assert b"3 ok, 1 interrupted, 1 not started" in ops.run("fleet").stdout


@pytest.mark.parametrize("signals", SIGNALS)
def test_each_host_has_a_json_object_after_an_interrupt(
    ops: Program, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    command = only_first_runs(tmp_path)
    with ops.start("--json", "run", "--hosts", "web[1-4],silent", "--", command) as process:
        wait_for_lines(tmp_path / "pids", 4)
        stdout, _ = interrupt(process, signals)
    *hosts, summary = map(json.loads, stdout.splitlines())
    by_status = {item["host"]: item.get("status") for item in hosts}
    assert sorted(by_status) == ["silent", "web1", "web2", "web3", "web4"]
    (ended,) = (item for item in hosts if item.get("status") == "interrupted")
    assert (ended["stdout"], ended["started"], ended["job_id"].isdecimal()) == ("result of the first\n", True, True)
    assert list(by_status.values()).count("completed") == 3
    (left,) = (item for item in hosts if item["host"] == "silent")
    assert (left["started"], left["error"]["type"]) == (False, "HostNotStarted")
    assert (summary["summary"]["ok"], summary["summary"]["interrupted"]) == (3, 1)


@pytest.mark.parametrize("engine", ["openssh", "asyncssh"])
def test_an_interrupt_does_not_wait_for_a_login_shell(
    make_host: Callable[..., SshServer], request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    server, hanging = make_host(), make_host(f"ForceCommand echo x >> {tmp_path}/hanging; exec sleep 300")
    names_of(server, {"web1": server.port, "hangs": hanging.port})
    program = program_for(server, request)
    program.environ["HARNESS_SSH_ENGINE"] = engine
    program.environ["HARNESS_CONNECT_TIMEOUT"] = program.environ["HARNESS_LOGIN_TIMEOUT"] = "300"
    words = ("run", "--hosts", "web1,hangs", "--", f"echo up; echo x >> {tmp_path}/pids")
    with program.start(*words) as process:
        wait_for_lines(tmp_path / "pids", 1)
        wait_for_lines(tmp_path / "hanging", 1)
        begun = time.monotonic()
        stdout, stderr = interrupt(process, [signal.SIGTERM])
    assert time.monotonic() - begun < 60  # the login may take 300 s
    assert stdout == b"== web1 (1)\nup\n"
    assert b"harness: hangs (1): not started: interrupted\n" in stderr


@contextlib.contextmanager
def frozen(server: SshServer) -> Iterator[None]:
    """Stop the server's sessions, so that nothing answers."""
    pids = server.session_pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.fixture
def frozen_run(
    make_host: Callable[..., SshServer], request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A run on web1, which has answered, and on db1, whose command runs and whose sessions are frozen."""
    server, other = make_host(), make_host()
    names_of(server, {"web1": server.port, "db1": other.port})
    program = program_for(server, request)
    command = f"[ $SSH_CONNECTION_PORT_ = {other.port} ]".replace("$SSH_CONNECTION_PORT_", "${SSH_CONNECTION##* }")
    text = f"{command} || {{ echo up; echo x >> {tmp_path}/pids; exit; }}; echo $$ >> {tmp_path}/pids; exec sleep 300"
    with program.start("run", "--hosts", "web1,db1", "--", text) as process:
        pids = wait_for_lines(tmp_path / "pids", 2)
        with frozen(other):
            yield process
        for pid in pids:
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def test_a_host_that_does_not_answer_an_interrupt_is_unknown(frozen_run: subprocess.Popen[bytes]) -> None:
    words = list(map(os.fsdecode, frozen_run.args)) if isinstance(frozen_run.args, list) else []
    options = shlex.join(words[1 : words.index("run")])
    stdout, stderr = interrupt(frozen_run, [signal.SIGTERM])
    assert re.fullmatch(rb"== web1 \(1\)\nup\n== db1 \(1\): unknown \(job \d+\)\n", stdout), stdout
    assert b"harness: interrupting " in stderr
    assert re.search(
        rb"harness: db1 \(1\): interrupted, but the end of the command is not confirmed;"
        rb" check it with: harness " + re.escape(options.encode()) + rb" --ssh db1 jobs show \d+\n",
        stderr,
    )
    assert b" 2 hosts: 1 ok, 1 unknown, " in stderr
    assert b"harness_backends" not in stderr


def test_a_further_signal_names_what_may_be_running(frozen_run: subprocess.Popen[bytes]) -> None:
    assert frozen_run.stderr is not None
    frozen_run.send_signal(signal.SIGTERM)
    assert frozen_run.stderr.readline().startswith(b"harness: interrupting ")
    frozen_run.send_signal(signal.SIGTERM)
    _, stderr = frozen_run.communicate(timeout=30)
    assert frozen_run.returncode == -signal.SIGTERM
    assert re.fullmatch(
        rb"\nharness: may still be running: (?:web1: job \d+, )?db1: job \d+(?:, web1: job \d+)?\n", stderr
    )


# -- hints of logins


def test_hints_say_that_a_fleet_never_asks_and_which_configuration_it_uses(
    make_host: Callable[..., SshServer], request: pytest.FixtureRequest
) -> None:
    server = make_host()
    names_of(server, {"refused": server.port})
    with server.ssh_config.open("a") as config:
        config.write("  User no-such-user\n")
        config.write(f"Host other\n  HostName 127.0.0.1\n  Port {server.port}\n  HostKeyAlias not-recorded\n")
    stderr = program_for(server, request).run("run", "--hosts", "other,refused", "--", "true").stderr
    assert f"connect once with ssh -F {server.ssh_config} to record it".encode() in stderr
    assert b"logins to many hosts, and with --batch, ask for no password or passphrase" in stderr
    assert b"no terminal" not in stderr


# -- outputs that cannot be written


@pytest.mark.parametrize("words", [("--json", "run"), ("run",), ("run", "--each")])
def test_a_full_output_is_one_line_and_ends_the_run(ops: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    *before, name = words if words[-1] == "run" else words[:1]
    each = words[1:] if words[0] == "run" else ()
    command = f"echo up; mkdir {tmp_path}/first 2>/dev/null || exec sleep 300"
    hosts = "web[1-3]" if words != ("run",) else "web1"  # merged outputs are written when all hosts have ended
    with Path("/dev/full").open("wb") as full:
        process = ops.start(*before, name, "--hosts", hosts, *each, "--", command, stdout=full)
        with process:
            _, stderr = process.communicate(timeout=30)
    assert process.returncode == 125
    assert b"cannot write the output: no space left on device" in stderr.splitlines()[-1]
    assert b"Traceback" not in stderr
    assert b"asyncio" not in stderr


@pytest.mark.parametrize("words", [("--json", "run"), ("run", "--each")])
def test_a_closed_output_ends_the_run(ops: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    command = f"echo up; mkdir {tmp_path}/first 2>/dev/null && exit; echo $$ >> {tmp_path}/pids; exec sleep 300"
    *before, name = words if words[-1] == "run" else words[:1]
    each = words[1:] if words[0] == "run" else ()
    with ops.start(*before, name, "--hosts", "web[1-3]", *each, "--", command) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        stderr = process.stderr.read()
        assert process.wait(30) == 141
    assert b"Traceback" not in stderr
    assert stderr == b"" or b"--json" not in words
    for pid in (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else ():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.parametrize("words", [("--json", "run"), ("run",), ("--verbose", "run", "--each")])
def test_a_full_or_closed_standard_error_changes_nothing(ops: Program, words: tuple[str, ...]) -> None:
    argv = [*ops.always, *words[: words.index("run") + 1], "--hosts", "web[1-2]", *words[words.index("run") + 1 :]]
    text = shlex.join([ops.path, *argv, "--", "echo up"])
    for redirection in ("2>/dev/full", "2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{text} {redirection}"], capture_output=True, env=ops.environ, cwd=ops.home, timeout=60
        )
        assert (done.returncode, b"up" in done.stdout) == (0, True), redirection


# -- as a library


async def test_an_interrupted_call_has_an_outcome_of_every_host(sshd: SshServer, tmp_path: Path) -> None:
    names_of(sshd, {f"web{number}": sshd.port for number in range(1, 5)})
    found: Outcomes = {}
    seen: set[str] = set()
    with anyio.fail_after(30):
        async with harness.fleet("web[1-4]", config=sshd.config()) as fleet:

            def interrupt_when_two_run(name: str, data: bytes) -> None:
                seen.add(name)
                if len(seen) == 2:
                    assert set(fleet.running) == seen
                    assert all(fleet.running.values())
                    fleet.interrupt()

            call = fleet.run_shell("echo up; sleep 300", forks=2, timeout=200, on_output=interrupt_when_two_run)
            async for name, outcome in call:
                found[name] = outcome
            again = await fleet.gather("echo again", hosts=["web1"])
    assert len(found) == 4
    for name, outcome in found.items():
        result = outcome.result
        assert outcome.started == outcome.interrupted == (not outcome.left_out) == (name in seen)
        assert (result.status, result.stdout) == (Status.INTERRUPTED, "up\n") if result else name not in seen
    assert again["web1"].result is not None


async def test_an_interrupted_function_has_no_result(sshd: SshServer) -> None:
    names_of(sshd, {"web1": sshd.port})
    with anyio.fail_after(30):
        async with harness.fleet("web1", config=sshd.config()) as fleet:

            async def work(context: Any) -> None:
                fleet.interrupt()
                await anyio.sleep_forever()

            outcomes = [outcome async for _, outcome in fleet.map(work)]
    assert [(str(outcome.error), outcome.started, outcome.interrupted) for outcome in outcomes] == [
        ("interrupted", True, True)
    ]


async def test_a_host_that_was_not_reached_was_not_started(sshd: SshServer) -> None:
    names_of(sshd, {"web1": sshd.port, "down": 1})
    async with harness.fleet("web1,down", config=sshd.config()) as fleet:
        outcomes = await fleet.gather("true")
    assert [(name, outcome.started, outcome.left_out) for name, outcome in outcomes.items()] == [
        ("web1", True, False),
        ("down", False, False),
    ]


async def test_a_fleet_that_was_left_calls_no_host(sshd: SshServer) -> None:
    names_of(sshd, {"web1": sshd.port})
    async with harness.fleet("web1", config=sshd.config()) as fleet:
        pass
    with pytest.raises(ContextClosed, match="the fleet has been left"):
        await fleet.gather("true")


@pytest.mark.parametrize("engine", ["openssh", "asyncssh"])
async def test_output_received_before_the_connection_was_lost_is_in_the_result(
    sshd: SshServer, monkeypatch: pytest.MonkeyPatch, engine: Any
) -> None:
    names_of(sshd, {"web1": sshd.port})
    feed, fed = HeadTail.feed, 0

    def feed_and_lose(self: HeadTail, data: bytes) -> None:
        nonlocal fed
        feed(self, data)
        fed += len(data)
        if fed == len("out\nerr\n"):
            sshd.stop()

    monkeypatch.setattr(HeadTail, "feed", feed_and_lose)
    with anyio.fail_after(60):
        async with harness.fleet("web1", config=sshd.config(ssh_engine=engine)) as fleet:
            outcomes = await fleet.gather("echo out; echo err >&2; exec sleep 300", timeout=40)
    result = outcomes["web1"].result
    assert result is not None
    assert (result.status, result.stdout, result.stderr) == (Status.UNKNOWN, "out\n", "err\n")
    assert "there may be more" in result.notices[-1]


async def test_no_more_is_received_early_than_is_kept(sshd: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    names_of(sshd, {"web1": sshd.port})
    feed, fed = HeadTail.feed, 0

    def count(self: HeadTail, data: bytes) -> None:
        nonlocal fed
        feed(self, data)
        fed += len(data)

    monkeypatch.setattr(HeadTail, "feed", count)
    async with harness.fleet("web1", config=sshd.config()) as fleet:
        outcomes = await fleet.gather("head -c 20000000 /dev/zero; sleep 2; echo end", max_output=1000)
    result = outcomes["web1"].result
    assert result is not None
    assert (result.ok, result.stdout[-4:], result.truncated) == (True, "end\n", 20_000_004 - 1000)
    assert 0 < fed < 2_000_000
