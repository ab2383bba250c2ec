"""One command on many hosts, behind a real sshd: results, errors of single hosts, limits, and the program."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pexpect
import pytest
from tests.support.program import Program
from tests.support.sshd import SshServer

import harness
from harness.errors import ConnectError, ContextClosed
from harness.results import Status

CLOSED_PORT = 1
"""Nothing listens there."""


@pytest.fixture
def named(sshd: SshServer) -> SshServer:
    """The server under the names web1 to web6; ``down`` is a host that nothing listens on."""
    entries = [f"Host web{number}\n  HostName 127.0.0.1\n  Port {sshd.port}\n" for number in range(1, 7)]
    entries.append(f"Host down down2\n  HostName 127.0.0.1\n  Port {CLOSED_PORT}\n")
    checks = f"Host *\n  HostKeyAlias [127.0.0.1]:{sshd.port}\n"
    sshd.ssh_config.write_text("".join(entries) + checks)
    return sshd


# -- as a library


async def test_each_host_runs_the_command_once(named: SshServer, tmp_path: Path) -> None:
    async with harness.fleet("web[1-3]", config=named.config()) as fleet:
        outcomes = await fleet.gather(f"echo line >> {tmp_path}/lines; echo done")
    assert list(outcomes) == ["web1", "web2", "web3"]
    assert all(outcome.result is not None and outcome.result.stdout == "done\n" for outcome in outcomes.values())
    assert (tmp_path / "lines").read_text() == "line\n" * 3


async def test_a_host_that_is_down_is_its_own_outcome(named: SshServer) -> None:
    async with harness.fleet("web1,down", config=named.config()) as fleet:
        outcomes = {host: outcome async for host, outcome in fleet.run_shell("exit 3")}
        assert isinstance(outcomes["down"].error, ConnectError)
        assert outcomes["web1"].result is not None
        assert outcomes["web1"].result.exit_code == 3
        assert {name for name, outcome in outcomes.items() if outcome.failed} == {"web1", "down"}
        assert (await fleet["web1"].run_shell("true")).ok
        with pytest.raises(ContextClosed, match="down is not connected"):
            fleet["down"]
        with pytest.raises(KeyError):
            fleet["other"]


async def test_a_connection_is_used_again(named: SshServer) -> None:
    async with harness.fleet("web[1-2]", config=named.config()) as fleet:
        first = await fleet.connected("web1")
        await fleet.gather("true")
        assert fleet["web1"] is first


async def test_a_function_is_called_with_each_context(named: SshServer, tmp_path: Path) -> None:
    async def write(context: harness.ExecutionContext) -> str:
        return (await context.write_file(str(tmp_path / str(context.target.last.host)), "x")).version

    async with harness.fleet("web[1-3]", config=named.config()) as fleet:
        found = {host: outcome.result async for host, outcome in fleet.map(write, hosts=["web1", "web3"])}
    assert sorted(found) == sorted(path.name for path in tmp_path.iterdir()) == ["web1", "web3"]


async def test_a_function_gets_the_name_of_the_host_too(named: SshServer) -> None:
    async def describe(name: str, context: harness.ExecutionContext) -> str:
        return f"{name} is {context.target}"

    async with harness.fleet("web[1-2],down", config=named.config()) as fleet:
        found = {host: outcome.result async for host, outcome in fleet.map_named(describe)}
    assert found == {"web1": "web1 is ssh://web1", "web2": "web2 is ssh://web2", "down": None}


async def test_no_more_than_forks_work_at_a_time(named: SshServer) -> None:
    working, most, two = 0, 0, anyio.Event()

    async def work(context: harness.ExecutionContext) -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == 2:
            two.set()
        await two.wait()
        await context.run_shell("true")
        working -= 1

    async with harness.fleet("web[1-6]", config=named.config()) as fleet:
        assert len([host async for host, _ in fleet.map(work, forks=2)]) == 6
    assert most == 2


async def test_nothing_starts_after_too_many_failures(named: SshServer, tmp_path: Path) -> None:
    async with harness.fleet("web[1-6]", config=named.config()) as fleet:
        outcomes = await fleet.gather(f"echo x >> {tmp_path}/x; false", forks=1, max_fail=2)
    assert [outcome.started for outcome in outcomes.values()] == [True, True, False, False, False, False]
    assert (tmp_path / "x").read_text() == "x\n" * 2


async def test_leaving_early_ends_what_runs(named: SshServer, tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with harness.fleet("web[1-2]", config=named.config()) as fleet:
            command = f"[ -e {tmp_path}/first ] || {{ : > {tmp_path}/first; exit 0; }}; exec sleep 300"
            async with aclosing(fleet.run_shell(command, forks=1)) as outcomes:
                assert (await anext(outcomes))[1].result is not None
            again = await fleet["web1"].run_shell("echo usable")
    assert again.stdout == "usable\n"


async def test_a_cancelled_fleet_ends_its_commands(named: SshServer, tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with harness.fleet("web[1-2]", config=named.config()) as fleet:
            with anyio.CancelScope() as scope:
                started = 0

                def seen(host: str, data: bytes) -> None:
                    nonlocal started
                    started += 1
                    if started == 2:
                        scope.cancel()

                async for _ in fleet.run_shell("echo up; exec sleep 300", timeout=200, on_output=seen):
                    pytest.fail("it ended")
            jobs = await fleet["web1"].jobs()
    assert started == 2
    assert [job.status for job in jobs if job.status is Status.RUNNING] == []


async def test_an_error_inside_arrives_as_it_is_and_ends_what_runs(named: SshServer, tmp_path: Path) -> None:
    async def failing() -> None:
        async with harness.fleet("web[1-2]", config=named.config()) as fleet:
            async for _ in fleet.run_shell(f"mkdir {tmp_path}/first || exec sleep 300", timeout=200):
                raise ZeroDivisionError

    with anyio.fail_after(30), pytest.raises(ZeroDivisionError):
        await failing()


async def test_an_error_of_the_function_is_raised_by_the_loop(named: SshServer) -> None:
    async def divide(context: harness.ExecutionContext) -> float:
        return 1 / 0

    async with harness.fleet("web[1-2]", config=named.config()) as fleet:
        with pytest.raises(ZeroDivisionError):
            await anext(fleet.map(divide))
        assert (await (await fleet.connected("web1")).run_shell("true")).ok


async def test_a_fleet_that_was_left_connects_no_host(named: SshServer) -> None:
    async with harness.fleet("web1", config=named.config()) as fleet:
        pass
    with pytest.raises(ContextClosed, match="the fleet has been left"):
        await fleet.connected("web1")


async def test_a_loop_that_is_broken_off_does_not_hold_the_end_up(named: SshServer, tmp_path: Path) -> None:
    first = f"mkdir {tmp_path}/first || exec sleep 300"
    with anyio.fail_after(30):
        async with harness.fleet("web[1-2]", config=named.config()) as fleet:
            outcomes = fleet.run_shell(first, timeout=200)
            async for _ in outcomes:
                break


# -- the program


def options(server: SshServer) -> tuple[str, ...]:
    more = [word for option in server.client_options for word in ("-o", option)]
    return ("-F", str(server.ssh_config), "-i", str(server.identity), *more)


@pytest.fixture
def ops(named: SshServer, request: pytest.FixtureRequest) -> Program:
    program: Program = request.getfixturevalue("program")  # after sshd, which changes the environment
    program.always = options(named)
    return program


def test_equal_outputs_are_printed_once(ops: Program) -> None:
    done = ops.run("run", "--hosts", "web[1-3]", "--", "echo same")
    assert (done.returncode, done.stdout) == (0, b"== web[1-3] (3)\nsame\n")
    assert b"3 hosts: 3 ok" in done.stderr


def test_failures_and_hosts_that_are_down(ops: Program, tmp_path: Path) -> None:
    once = f"if mkdir {tmp_path}/once 2>/dev/null; then echo other; exit 4; else echo same; fi"
    done = ops.run("run", "--hosts", "web[1-4]", "--forks", "1", "--", once)
    assert done.returncode == 1
    assert done.stdout == b"== web[2-4] (3)\nsame\n== web1 (1): exit code 4\nother\n"
    done = ops.run("run", "--hosts", "web1,down,down2", "--", "echo up")
    assert (done.returncode, done.stdout) == (125, b"== web1 (1)\nup\n")
    assert b"harness: down,down2 (2): connect to host" in done.stderr
    assert b"3 hosts: 1 ok, 2 unreachable" in done.stderr


def test_lines_with_the_names_of_their_hosts(ops: Program) -> None:
    done = ops.run("run", "--hosts", "web[1-2]", "--each", "--", "echo a; printf b; echo e >&2; exit 2")
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == [b"web1: a", b"web1: b", b"web2: a", b"web2: b"]
    assert b"web1: e\n" in done.stderr
    assert b"web1: exit code 2" in done.stderr


def test_json_is_one_object_per_host_and_a_summary(ops: Program) -> None:
    done = ops.run("--json", "run", "--hosts", "web1,down", "--", "echo up")
    *hosts, summary = map(json.loads, done.stdout.splitlines())
    by_name = {item["host"]: item for item in hosts}
    assert by_name["web1"]["stdout"] == "up\n"
    assert by_name["down"]["error"]["type"] == "ConnectError"
    others = dict.fromkeys(("failed", "error", "unknown", "not_started", "interrupted"), 0)
    assert summary["summary"] == {"run": 1, "hosts": 2, "ok": 1, "unreachable": 1, **others}
    assert done.returncode == 125


@pytest.mark.parametrize("each", [("--each",), ()])
def test_a_run_that_cannot_be_stored_runs_with_a_warning(ops: Program, tmp_path: Path, each: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    words = ("run", "--stdin", "--hosts", "web1", *each, "--", "cat; echo e >&2; exit 3")
    done = ops.run(*words, stdin=b"in\n", XDG_STATE_HOME=str(tmp_path / "file"))
    assert done.returncode == 1
    assert done.stdout == (b"web1: in\n" if each else b"== web1 (1): exit code 3\nin\n")
    warning, *others = done.stderr.splitlines()
    assert warning.startswith(b"harness: this run cannot be resumed: ")
    assert b"web1: e" in others
    assert others[-1].startswith(b"harness: 1 host: 1 failed, ")


def test_answers_that_cannot_be_stored_are_one_warning(ops: Program, tmp_path: Path) -> None:
    file = f"{ops.environ['XDG_STATE_HOME']}/harness/fleets/1/outcomes.jsonl"
    command = f"rm -f {file}; ln -s {tmp_path}/missing/file {file}; echo up"
    done = ops.run("run", "--hosts", "web[1-3]", "--forks", "1", "--", command)
    assert (done.returncode, done.stdout) == (0, b"== web[1-3] (3)\nup\n")
    warnings = [line for line in done.stderr.splitlines() if b"cannot be stored" in line]
    assert warnings == [b"harness: run 1: what the hosts answered cannot be stored: No such file or directory"]


def test_several_ssh_options_are_many_hosts(ops: Program, named: SshServer) -> None:
    done = ops.run("--ssh", "web1", "run", "--ssh", "web2", "--ssh", "web1", "--", "echo up")
    assert (done.returncode, done.stdout) == (0, b"== web[1-2] (2)\nup\n"), done.stderr
    user = f"{named.user}@web1"
    done = ops.run("run", "--ssh", user, "--ssh", "down", "--each", "--", "echo up")
    assert (done.returncode, done.stdout) == (125, f"{user}: up\n".encode())
    done = ops.run("--json", "run", "--ssh", "web1", "--ssh", "web2", "--forks", "1", "--", "true")
    assert [json.loads(line).get("host") for line in done.stdout.splitlines()] == ["web1", "web2", None]


def test_each_container_of_each_host_is_a_target(ops: Program) -> None:
    words = ("--ssh", "web1", "--ssh", "web2", "--container", "no-a", "--container", "no-b", "--engine", "docker")
    done = ops.run("--json", "run", *words, "--forks", "1", "--", "true")
    hosts = [json.loads(line).get("host") for line in done.stdout.splitlines()]
    names = [f"ssh://{host}+docker://{name}" for host in ("web1", "web2") for name in ("no-a", "no-b")]
    assert (done.returncode, hosts) == (125, [*names, None])


def test_each_host_gets_the_whole_standard_input(ops: Program) -> None:
    for size in (3, 3_000_000):
        done = ops.run("run", "--stdin", "--hosts", "web[1-2]", "--", "wc -c", stdin=b"x" * size)
        assert done.stdout.split(b"\n")[:2] == [b"== web[1-2] (2)", str(size).encode()]


def test_output_that_is_not_shown_is_counted(ops: Program) -> None:
    done = ops.run("run", "--hosts", "web[1-2]", "--max-output", "20", "--", "seq 1 1000")
    assert done.stdout.startswith(b"== web[1-2] (2)\n1\n")
    assert done.stdout.endswith(b"\n5\n[... 3,873 bytes are not shown ...]\n\n999\n1000\n")
    assert b"web[1-2] (2): 3,873 bytes in the middle of the output are not shown\n" in done.stderr
    as_json = ops.run("--json", "run", "--hosts", "web1", "--max-output", "20", "--", "seq 1 1000; seq 1 100 >&2")
    result = json.loads(as_json.stdout.splitlines()[0])
    assert (result["stdout_gap"], result["stderr_gap"]) == ([10, 3873], [10, 272])
    assert result["truncated"] == 3873 + 272
    whole = ops.run("run", "--hosts", "web1", "--max-output", "20", "--each", "--", "seq 1 1000")
    assert whole.stdout == b"".join(b"web1: %d\n" % number for number in range(1, 1001))
    assert b"not shown" not in whole.stderr


@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM]])
def test_a_second_interrupt_ends_what_runs(ops: Program, tmp_path: Path, signals: list[signal.Signals]) -> None:
    command = f"echo $$ >> {tmp_path}/pids; exec sleep 300"
    with ops.start("run", "--hosts", "web[1-3]", "--forks", "2", "--", command) as process:
        assert process.stderr is not None
        pids = wait_for_lines(tmp_path / "pids", 2)
        *first, last = signals
        for number in first:
            process.send_signal(number)
            line = process.stderr.readline()
            assert line == b"harness: nothing more starts; 2 hosts still run (Ctrl-C again to interrupt them)\n"
        process.send_signal(last)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + last
    assert re.fullmatch(rb"== web\[1-2\] \(2\): interrupted \(web1: job \d+, web2: job \d+\)\n", stdout)
    assert b"web3 (1): not started" in stderr
    assert b"3 hosts: 1 not started, 2 interrupted" in stderr
    assert len((tmp_path / "pids").read_text().split()) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.parametrize(
    ("hosts", "code", "ends"), [("web[1-3]", 130, b"2 ok, 1 not started"), ("web[1-2]", 0, b"2 ok")]
)
def test_the_first_interrupt_starts_nothing_more(
    ops: Program, tmp_path: Path, hosts: str, code: int, ends: bytes
) -> None:
    command = f"echo x >> {tmp_path}/x; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done"
    with ops.start("run", "--hosts", hosts, "--forks", "2", "--", command) as process:
        assert process.stderr is not None
        wait_for_lines(tmp_path / "x", 2)
        process.send_signal(signal.SIGINT)
        assert b"2 hosts still run" in process.stderr.readline()
        (tmp_path / "go").touch()
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (code, b"== web[1-2] (2)\ndone\n")
    assert ends in stderr
    assert (b"web3 (1): not started: interrupted" in stderr) == (code == 130)


def wait_for_lines(path: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 30
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline, "the commands did not start"
        time.sleep(0.01)  # the other side is a shell: it cannot signal
    return path.read_text().split()


def test_commands_in_panes(ops: Program) -> None:
    ops.environ["HARNESS_TMUX_SOCKET"] = f"hx-{uuid.uuid4().hex[:8]}"  # the default one may have sessions of others
    done = ops.run("--tmux=fleet-test", "run", "--hosts", "web1", "--", "tty >/dev/null && echo terminal")
    assert (done.returncode, done.stdout) == (0, b"== web1 (1)\nterminal\n"), done.stderr
    assert ops.run("--ssh", "web1", "sessions", "kill", "fleet-test").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ssh", "web1", "run", "--hosts", "web1", "--", "true"), b"contradict"),
        (("--ssh", "web1", "run", "--ssh", "web2", "--hosts", "web3", "--", "true"), b"contradict"),
        (
            ("--ssh", "web1", "--ssh", "web2", "keys", "x"),
            b"one target at a time; commands with --hosts, such as 'run', take several --ssh",
        ),
        (("--ssh", "web1", "--ssh", "web2", "panes"), b"one target at a time"),
        (("--ssh", "web1", "--ssh", "web2"), b"the prompt needs a terminal"),
        (("run", "--ssh", "web1", "--ssh", "", "--", "true"), b"empty name"),
        (("run", "--ssh", "web1", "--ssh", "web2", "--image", "x", "--", "true"), b"--image works on one target"),
        (("run", "--target", "ssh://web1", "--target", "ssh://web2", "--", "true"), b"one target at a time"),
        (("run", "--ssh", "web1", "--ssh", "web2", "--target", "local:", "--", "true"), b"contradict"),
        (("run", "--forks", "2", "--", "true"), b"need --hosts"),
        (("run", "--hosts", "web1", "--rolling", "0", "--", "true"), b"not a number of hosts"),
        (("run", "--hosts", "web1", "--max-fail", "0%", "--", "true"), b"not a number of hosts"),
        (("run", "--no-wait", "--hosts", "web1", "--", "true"), b"--no-wait"),
        (("run", "--hosts", "", "--", "true"), b"empty"),
        (("run", "--hosts", "nope*", "--", "true"), b"no host matches"),
    ],
)
def test_mistakes_run_nothing(ops: Program, words: tuple[str, ...], message: bytes) -> None:
    done = ops.run(*words)
    assert done.returncode in {2, 125}
    assert message in done.stderr


def test_waves_stop_after_a_failure(ops: Program, tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/x; [ $(wc -l < {tmp_path}/x) -lt 3 ]"
    done = ops.run("run", "--hosts", "web[1-6]", "--rolling", "34%", "--forks", "1", "--", command)
    assert done.returncode == 1
    assert b"web[4-6] (3): not started: the limit of failed hosts (max_fail 1) was reached" in done.stderr
    assert b"6 hosts: 2 ok, 1 failed, 3 not started" in done.stderr
    done = ops.run("run", "--hosts", "web[1-6]", "--rolling", "2", "--max-fail", "50%", "--forks", "1", "--", "false")
    assert b"6 hosts: 3 failed, 3 not started" in done.stderr


def test_an_unreachable_host_is_tried_again(ops: Program, named: SshServer) -> None:
    named.stop()
    words = ("-v", "run", "--hosts", "web1", "--retry-unreachable", "5", "--", "echo up")
    with ops.start(*words) as process:
        assert process.stderr is not None
        assert any(b"next try" in line for line in process.stderr)
        named.start()
        stdout, _ = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (0, b"== web1 (1)\nup\n")


def test_a_login_without_an_answer_ends_at_the_connect_timeout(ops: Program) -> None:
    ops.environ["HARNESS_CONNECT_TIMEOUT"] = "300"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"ssh://127.0.0.1:{silent.getsockname()[1]}"
        for words in (("--hosts", name), ("--ssh", name)):
            begun = time.monotonic()
            done = ops.run("run", "--connect-timeout", "1s", *words, "--", "true")
            assert done.returncode == 125
            assert time.monotonic() - begun < 60  # the setting says 300 s


# -- at a terminal


def at_terminal(program: Program, *words: str, term: str = "dumb") -> pexpect.spawn[bytes]:
    """Run a command at a terminal; other than a dumb one has a line with counts."""
    arguments = [*program.always, "run", *words]
    environ: Any = program.environ | {"TERM": term}
    return pexpect.spawn(program.path, arguments, env=environ, cwd=str(program.home), timeout=30, dimensions=(24, 200))


def ended(child: pexpect.spawn[bytes]) -> tuple[int | None, bytes]:
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus, child.before or b""


@pytest.mark.parametrize(
    ("answer", "code", "ends"),
    [
        ("y\n", 0, b"== web[3-4] (2)\r\nup\r\nharness: run 1, 4 hosts: 4 ok, "),
        (
            "n\n",
            1,
            b"web[3-4] (2): not started: declined at the terminal\r\nharness: run 1, 4 hosts: 2 ok, 2 not started, ",
        ),
        ("\x04", 1, b"not started: declined at the terminal"),
        ("\x03", 130, b"not started: interrupted"),
    ],
)
def test_the_operator_is_asked_after_the_first_hosts(ops: Program, answer: str, code: int, ends: bytes) -> None:
    child = at_terminal(ops, "--hosts", "web[1-4]", "--first", "2", "--", "echo up")
    child.expect_exact("== web[1-2] (2)\r\nup\r\n")
    child.expect_exact("continue on the other 2 hosts? [y/N] ")
    child.send(answer)
    status, text = ended(child)
    assert status == code
    assert ends in text


def test_a_failure_of_the_first_hosts_is_the_operators_to_judge(ops: Program) -> None:
    child = at_terminal(ops, "--hosts", "down,web[1-2]", "--first", "2", "--", "false")
    child.expect_exact("harness: down (1): connect to host")
    child.expect_exact("continue on the other 1 host? [y/N] ")
    child.send("y\n")
    status, text = ended(child)
    assert status == 125
    assert b"3 hosts: 2 failed, 1 unreachable" in text


def test_an_interrupt_at_a_terminal_removes_the_line_with_counts(ops: Program, tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/x; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    child = at_terminal(ops, "--hosts", "web[1-2]", "--forks", "1", "--", command, term="xterm")
    wait_for_lines(tmp_path / "x", 1)
    child.sendintr()
    child.expect_exact("\r\x1b[Kharness: nothing more starts; 1 host still runs (Ctrl-C again to interrupt it)\r\n")
    (tmp_path / "go").touch()
    status, text = ended(child)
    assert status == 130
    assert b"2 hosts: 1 ok, 1 not started" in text
    assert b"1/2 done, 0 failed, 0 running" in text
    assert b"1 failed" not in text  # the host that was not started has not failed


def test_the_limit_of_failed_hosts_holds_for_the_first_ones(ops: Program) -> None:
    child = at_terminal(ops, "--hosts", "web[1-4]", "--first", "2", "--max-fail", "1", "--forks", "1", "--", "false")
    status, text = ended(child)
    assert status == 1
    assert b"continue" not in text
    assert b"4 hosts: 1 failed, 3 not started" in text


@pytest.mark.parametrize("words", [("run",), ("--json", "run"), ("--batch", "run")])
def test_nothing_runs_where_the_operator_cannot_be_asked(ops: Program, words: tuple[str, ...], tmp_path: Path) -> None:
    done = ops.run(*words, "--hosts", "web[1-4]", "--first", "2", "--", f"touch {tmp_path}/x")
    assert done.returncode == 125
    assert b"--rolling N --max-fail N" in done.stdout + done.stderr
    assert not (tmp_path / "x").exists()
    assert ops.run("--json", "fleet", "list").stdout == b"[]\n"  # and nothing is to be resumed


@pytest.mark.parametrize("each", [("--each",), ()])
def test_a_terminal_gets_no_control_characters_of_a_host(ops: Program, each: tuple[str, ...]) -> None:
    command = r"printf 'a\033]0;title\007\tb\r\n\377c\n'; printf '\033[2Je\n' >&2"
    status, text = ended(at_terminal(ops, "--hosts", "web1", *each, "--", command))
    assert status == 0
    assert rb"a\x1b]0;title\x07" + b"\tb\r\n" in text
    assert rb"\xffc" in text
    assert rb"web1: \x1b[2Je" in text
    assert b"\x1b" not in text
    assert b"\x07" not in text
    piped = ops.run("run", "--hosts", "web1", *each, "--", command)
    assert b"a\033]0;title\007\tb\r\n" in piped.stdout
    assert b"\033[2Je\n" in piped.stderr


def test_this_machine_is_named_without_a_second_colon(ops: Program) -> None:
    done = ops.run("run", "--hosts", "local:", "--each", "--", "echo a; echo b >&2; exit 3")
    assert (done.returncode, done.stdout) == (1, b"local: a\n")
    assert b"local: b\n" in done.stderr
    assert b"harness: local: exit code 3\n" in done.stderr
    assert b"::" not in ops.run("run", "--hosts", "local:", "--", "echo b >&2").stderr


def test_hosts_start_in_the_order_in_which_they_are_named(ops: Program, tmp_path: Path) -> None:
    command = f"echo x >> {tmp_path}/x; wc -l < {tmp_path}/x"
    done = ops.run("run", "--hosts", "web3,web[1-2]", "--hosts", "!web1", "--forks", "1", "--each", "--", command)
    assert done.stdout == b"web3: 1\nweb2: 2\n"


def test_an_inventory_decides_which_port_is_reached(ops: Program, tmp_path: Path, named: SshServer) -> None:
    """Of two groups of the same depth, Ansible takes the one whose name comes later."""
    file = tmp_path / "hosts.ini"
    good, bad = f"ansible_host=127.0.0.1\nansible_port={named.port}\n", f"ansible_port={CLOSED_PORT}\n"
    file.write_text(f"[web]\nh1\n[db]\nh1\n[web:vars]\n{good}[db:vars]\n{bad}")
    done = ops.run("run", "--inventory", str(file), "--hosts", f"{named.user}@h1", "--each", "--", "echo up")
    assert (done.returncode, done.stdout) == (0, f"{named.user}@h1: up\n".encode()), done.stderr


def test_who_the_command_runs_as_is_asked_for(ops: Program, tmp_path: Path, named: SshServer) -> None:
    file = tmp_path / "hosts.ini"
    file.write_text("web1 ansible_become=true\n")
    done = ops.run("run", "--inventory", str(file), "--", f"touch {tmp_path}/x")
    assert done.returncode == 125
    assert b"hosts.ini, line 1: web1 has ansible_become" in done.stderr
    assert not (tmp_path / "x").exists()
    done = ops.run("run", "--inventory", str(file), "--user", named.user, "--", "echo up")
    assert (done.returncode, done.stdout) == (0, b"== web1 (1)\nup\n"), done.stderr
    assert ops.run("hosts", "--inventory", str(file)).stdout.split()[-1] == b"ssh://web1"


def test_a_target_of_the_settings_is_used_or_refused(ops: Program, tmp_path: Path, named: SshServer) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[targets.lab]\nssh = "web1"\n[targets.web2]\nssh = "web3"\ntmux = true\n')
    done = ops.run("--config", str(file), "run", "--hosts", "lab", "--", "echo up")
    assert (done.returncode, done.stdout) == (0, b"== lab (1)\nup\n"), done.stderr
    done = ops.run("--config", str(file), "run", "--hosts", "web[1-2]", "--", f"touch {tmp_path}/x")
    assert done.returncode == 125
    assert b"web2 is a target with settings of its own (tmux)" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_password_in_a_target_is_refused_and_not_shown(ops: Program) -> None:
    for words in (
        ("hosts", "ssh://root:secret@web1"),
        ("run", "--hosts", "root:secret@web1", "--", "true"),
        ("--target", "ssh://root:secret@web1", "run", "--", "true"),
        ("--ssh", "root:secret@web1", "run", "--", "true"),
        ("--ssh", "root:secret@web1", "run", "--ssh", "web2", "--", "true"),
        ("--ssh", "root:secret@web1", "--ssh", "web2", "read", "/etc/hosts"),
    ):
        done = ops.run(*words)
        assert done.returncode in {2, 125}
        assert b"root:***@web1" in done.stderr
        assert b"secret" not in done.stdout + done.stderr


def test_hosts_lists_what_a_pattern_means(ops: Program) -> None:
    assert ops.run("hosts", "web[1-2],deploy@db1:22").stdout.decode().split() == [
        *("HOST", "TARGET", "web1", "ssh://web1", "web2", "ssh://web2", "deploy@db1:22", "ssh://deploy@db1:22"),
    ]
    assert ops.run("hosts", "--fold").stdout == b"down,down2,web[1-6]\n"
    assert json.loads(ops.run("--json", "hosts", "web1").stdout) == [{"host": "web1", "target": "ssh://web1"}]
