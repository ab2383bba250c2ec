"""``harness run`` as a program: streams, exit codes, signals, time limits."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tests.support.program import Program

pytestmark = pytest.mark.real_starts


def wait_for(path: Path, seconds: float = 20.0) -> str:
    """The text of a file once it is there and ends a line."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text
        time.sleep(0.01)  # the other side is a shell: it cannot signal
    raise AssertionError(f"{path} did not appear")


def gone(pid: int, seconds: float = 10.0) -> bool:
    """True once no process has this id."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if ") Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_streams_and_exit_code_are_those_of_the_command(program: Program) -> None:
    done = program.run("run", "--", "printf 'out\\0\\377'; echo err >&2; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, b"out\0\xff", b"err\n")


def test_a_command_killed_by_a_signal_is_128_and_its_number(program: Program) -> None:
    assert program.run("run", "kill -9 $$").returncode == 137


def test_several_words_are_passed_on_exactly(program: Program) -> None:
    done = program.run("run", "printf", "[%s]", "a b", "$HOME", ";", "", "--json", "*")
    assert done.stdout == b"[a b][$HOME][;][][--json][*]"


def test_output_beyond_every_limit_arrives_whole(program: Program) -> None:
    done = program.run("run", "seq 1 400000; seq 1 300000 >&2")
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 400001))
    assert done.stderr == b"".join(b"%d\n" % number for number in range(1, 300001))


def test_both_streams_of_a_slow_command_arrive_whole(program: Program) -> None:
    done = program.run("run", "echo a; echo b >&2; sleep 0.7; echo c; echo d >&2; sleep 0.3; printf e; printf f >&2")
    assert (done.stdout, done.stderr) == (b"a\nc\ne", b"b\nd\nf")


def test_output_is_printed_while_the_command_runs(program: Program) -> None:
    go = program.home / "go"
    with program.start("run", f"echo early; while [ ! -e {go} ]; do sleep 0.05; done; echo late") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"early\n"
        go.touch()
        assert process.stdout.read() == b"late\n"
        assert process.wait(20) == 0


def test_options_hold_for_the_command(program: Program) -> None:
    done = program.run(
        "run", "--cwd", "/usr", "--env", "A=x y", "--env", "B=", "--stdin", 'pwd; echo "$A|$B"; cat', stdin=b"\0in"
    )
    assert done.stdout == b"/usr\nx y|\n\0in"


PEAK_OF = """
import resource, subprocess, sys

done = subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(done.returncode)
"""
"""Runs a program and says its peak in kilobytes. A child's peak begins with its parent's size, so this one is small."""


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("way", [(), ("--tmux",)])
def test_a_large_standard_input_is_passed_on_and_never_held_whole(program: Program, way: tuple[str, ...]) -> None:
    size = 300_000_000
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    argv = [sys.executable, "-c", PEAK_OF, program.path, *way, "run", "--stdin", "sha256sum"]
    environ = program.environ | {"HARNESS_TMUX_SOCKET": socket}
    with (program.home / "large").open("w+b") as file:
        file.truncate(size)
        try:
            done = subprocess.run(argv, stdin=file, cwd=program.home, env=environ, capture_output=True, timeout=100)
        finally:
            subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)
    digest = hashlib.sha256()
    for _ in range(size // 1_000_000):
        digest.update(bytes(1_000_000))
    assert (done.returncode, done.stdout.decode()) == (0, f"{digest.hexdigest()}  -\n")
    assert int(done.stderr.split()[-1]) < 120_000, "kilobytes"


def test_an_input_that_finds_no_space_here_is_an_error_and_nothing_runs(program: Program) -> None:
    ran = program.home / "ran"
    limited = ["sh", "-c", 'ulimit -f 4096; exec "$@"', "sh", program.path, "run", "--stdin", f"echo ran >{ran}"]
    done = subprocess.run(limited, input=bytes(8 << 20), env=program.environ, cwd=program.home, capture_output=True)
    assert done.returncode == 125, done
    assert b"cannot store standard input on this machine" in done.stderr
    assert not ran.exists()


def test_without_stdin_the_command_reads_nothing(program: Program) -> None:
    assert program.run("run", "cat; echo done", stdin=b"not for it").stdout == b"done\n"


def test_a_time_limit_ends_the_command_and_keeps_its_output(program: Program) -> None:
    done = program.run("run", "--timeout", "500ms", "echo $$; exec sleep 600")
    assert done.returncode == 124
    assert gone(int(done.stdout))
    assert b"stopped at its timeout of 0.5 s\n" in done.stderr


def test_a_time_limit_holds_also_while_nobody_reads_the_output(there: Program) -> None:
    pid_file = there.home / "pid"
    text = f"echo $$ > {pid_file}; seq 1 50000; exec sleep 600"
    with there.start("run", "--timeout", "2", text) as process:
        assert process.stdout is not None
        assert gone(int(wait_for(pid_file)))
        assert process.stdout.read() == b"".join(b"%d\n" % number for number in range(1, 50001))
        assert process.wait(20) == 124


def test_a_command_that_may_go_on_is_named_as_a_job(program: Program) -> None:
    go = program.home / "go"
    text = f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; echo ended; exit 9"
    done = program.run("run", "--timeout", "1", "--on-timeout", "keep", text)
    assert (done.returncode, done.stdout) == (124, b"begun\n")
    found = re.search(rb"still running as job (\d+)", done.stderr)
    assert found is not None
    go.touch()
    waited = program.run("jobs", "wait", found[1].decode())
    assert (waited.returncode, waited.stdout) == (9, b"begun\nended\n")


def test_the_settings_time_limit_never_ends_a_command(program: Program) -> None:
    done = program.run("run", "echo $$; exec sleep 600", HARNESS_TIMEOUT="500ms")
    pid = int(done.stdout)
    assert done.returncode == 124
    os.kill(pid, 0)
    found = re.search(rb"as job (\d+)", done.stderr)
    assert found is not None
    assert program.run("jobs", "kill", found[1].decode(), "--grace", "1").returncode == 0
    assert gone(pid)


def test_no_wait_prints_the_job_and_the_job_can_be_followed(program: Program) -> None:
    done = program.run("run", "--no-wait", "echo one; sleep 0.3; echo two; exit 5")
    assert done.returncode == 0
    job = done.stdout.decode().strip()
    assert program.run("jobs", "tail", "-f", job).stdout == b"one\ntwo\n"
    assert program.run("jobs", "wait", job).returncode == 5
    shown = json.loads(program.run("--json", "jobs", "show", job).stdout)
    assert (shown["status"], shown["exit_code"]) == ("completed", 5)
    assert job in program.run("jobs").stdout.decode().split()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_interrupts_the_command_and_waits_until_it_is_gone(
    program: Program, number: signal.Signals, code: int
) -> None:
    pid_file = program.home / "pid"
    with program.start("run", f"echo begun; echo $$ > {pid_file}; exec sleep 600") as process:
        pid = int(wait_for(pid_file))
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert b"Traceback" not in err
    assert gone(pid)


def test_a_reader_that_goes_away_ends_the_command_quietly(program: Program) -> None:
    pid_file = program.home / "pid"
    with program.start("run", f"echo $$ > {pid_file}; exec yes") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert gone(int(wait_for(pid_file)))


def test_a_full_disk_behind_our_stdout_is_an_error(program: Program) -> None:
    with open("/dev/full", "wb") as full:
        process = program.start("run", "echo lost", stdout=full)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 125
    assert b"no space left" in err


def test_json_is_one_document_with_the_exact_bytes(program: Program) -> None:
    done = program.run("run", "--json", "printf 'a\\377'; echo e >&2; exit 3")
    result = json.loads(done.stdout)
    assert done.returncode == result["exit_code"] == 3
    assert base64.b64decode(result["stdout_base64"]) == b"a\xff"
    assert (result["stderr"], result["status"], result["ok"]) == ("e\n", "completed", False)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "Missing argument"),
        (("run", "--nonsense", "x"), "--nonsense"),
        (("rnu", "x"), "did you mean 'run'?"),
        (("run", "--timeout", "soon", "x"), "not a duration"),
        (("run", "--env", "A", "x"), "not NAME=VALUE"),
        (("run", "--env", "A-B=1", "x"), "A-B"),
        (("run", "--cwd", "/none/such", "x"), "/none/such"),
        (("--target", "mars://app", "run", "x"), "no backend for 'mars' targets"),
        (("--target", "web1", "run", "x"), "no target is named 'web1'"),
        (("--ssh", "", "run", "x"), "empty name"),
        (("--pane", "p", "--config", "/none", "run", "x"), "no such file"),
    ],
)
def test_failures_are_one_line_and_125(program: Program, words: tuple[str, ...], said: str) -> None:
    done = program.run(*words)
    assert done.returncode == 125
    assert done.stdout == b""
    assert done.stderr.startswith(b"harness: ")
    assert done.stderr.count(b"\n") == 1
    assert said in done.stderr.decode()
    failed = program.run("--json", *words)
    error = json.loads(failed.stderr)["error"]
    assert failed.returncode == 125
    assert set(error) == {"type", "message", "target", "hint"}


def test_vvv_shows_the_traceback(program: Program) -> None:
    assert b"Traceback" in program.run("-vvv", "--target", "web1", "run", "x").stderr


def test_a_password_in_the_environment_appears_nowhere(program: Program) -> None:
    done = program.run("-vvv", "run", "--env", "TOKEN=hunter2", "true")
    assert done.returncode == 0
    assert b"hunter2" not in done.stderr + done.stdout
    kept = subprocess.run(["grep", "-r", "hunter2", str(program.home)], capture_output=True)
    assert kept.stdout == b""
