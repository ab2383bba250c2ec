"""The program with ``--tmux``, on this machine and on a host behind a real sshd; and what SSH alone adds."""

from __future__ import annotations

import json
import re
import shlex
import signal

import pexpect
import pytest
from tests.support.program import Program
from tests.support.resources import skip_without_ssh_terminal
from tests.support.sshd import SshServer


def test_the_panes_shell_keeps_its_state_between_runs(there: Program) -> None:
    first = there.run("--tmux", "run", "--", "cd /var/log && A='x y' && echo here")
    assert (first.returncode, first.stdout, first.stderr) == (0, b"here\n", b"")
    assert there.run("run", "--tmux", "--", "pwd").stdout == b"/var/log\n"
    assert there.run("--tmux", "run", 'printf %s "$A"; (exit 42)').returncode == 42


def test_output_in_a_pane_streams_and_arrives_whole(there: Program) -> None:
    done = there.run("--tmux", "run", "seq 1 100000")
    assert done.returncode == 0
    assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 100001))


def test_a_named_session_and_pane_are_used(there: Program) -> None:
    done = there.run("--tmux", "work", "--pane", "build", "run", "--json", "true")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "completed"
    listed = json.loads(there.run("--tmux=work", "--json", "panes").stdout)
    assert {pane["name"] for pane in listed} >= {"build"}
    assert {pane["session"] for pane in listed} == {"work"}


def test_screen_and_keys(there: Program) -> None:
    there.run("--tmux", "run", "echo on screen")
    assert b"on screen" in there.run("capture").stdout
    there.run("keys", "--text", "echo ty''ped; tmux wait-for -S typed-$TMUX_PANE", "--enter")
    assert b"typed" in there.run("capture", "--delay", "1s").stdout
    captured = json.loads(there.run("--json", "capture", "--start", "-").stdout)
    assert "on screen" in captured["text"]


def test_panes_are_created_listed_and_killed(there: Program) -> None:
    assert there.run("panes", "create", "build", "--cwd", "/usr").stdout.startswith(b"%")
    assert there.run("--pane", "build", "--tmux", "run", "pwd").stdout == b"/usr\n"
    assert b"build" in there.run("panes").stdout
    assert there.run("panes", "kill", "build").returncode == 0
    assert b"build" not in there.run("panes").stdout
    protected = there.run("panes", "kill", "main")
    assert protected.returncode == 1
    assert b"harness: " in protected.stderr


def test_a_time_limit_leaves_the_panes_command_running(there: Program) -> None:
    go = there.home / "go"
    done = there.run(
        "--tmux", "run", "--timeout", "1", f"until [ -e {go} ]; do sleep 0.05; done; echo through; (exit 7)"
    )
    assert done.returncode == 124
    found = re.search(rb"still running as job (\d+)", done.stderr)
    assert found is not None
    busy = there.run("--tmux", "run", "true")
    assert busy.returncode == 125
    assert b"is busy with job" in busy.stderr
    go.touch()
    waited = there.run("jobs", "wait", "--timeout", "20", found[1].decode())
    assert (waited.returncode, waited.stdout) == (7, b"through\n")


def test_ctrl_c_interrupts_the_panes_command_and_the_pane_stays_usable(there: Program) -> None:
    assert there.run("--tmux", "run", "cd /usr").returncode == 0
    with there.start("--tmux", "run", "echo begun; sleep 600") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert there.run("--tmux", "run", "pwd").stdout == b"/usr\n"


def test_a_password_typed_into_a_pane_stays_off_screen_and_arguments(there: Program) -> None:
    asked = there.run(
        "--tmux", "run", "--timeout", "1", "printf 'Secret: '; stty -echo; read -r x; stty echo; echo got ${#x}"
    )
    assert asked.returncode == 124
    found = re.search(rb"as job (\d+)", asked.stderr)
    assert found is not None
    assert there.run("keys", "--enter", "--stdin", stdin=b"hunter2").returncode == 0
    waited = there.run("jobs", "wait", "--timeout", "20", found[1].decode())
    assert b"got 7" in waited.stdout
    assert b"hunter2" not in there.run("capture", "--start", "-").stdout


@pytest.mark.parametrize("typed", ["touch hunter2\r", "touch hunter2"])
def test_what_is_typed_at_the_question_of_a_command_is_neither_shown_nor_run(there: Program, typed: str) -> None:
    child = shell_of_operator(there, "printf 'Password: '; sleep 2; exit 3")
    child.expect("\nPassword: ")
    child.send(typed)
    child.expect("code=3")
    assert "hunter2" not in (child.before or "")
    child.expect("ready> ")
    child.sendline("echo seen; ls; exit")
    child.expect("echo seen")
    child.expect(pexpect.EOF)
    assert "hunter2" not in (child.before or "")
    child.close()


def test_commands_that_were_typed_ahead_run_after_output_without_a_line_feed(there: Program) -> None:
    child = shell_of_operator(there, "printf 1; sleep 1; printf 2", "echo next=$((6 * 7))", "exit")
    child.expect("next=42")
    child.expect(pexpect.EOF)
    child.close()


def shell_of_operator(there: Program, command: str, *lines: str) -> pexpect.spawn[str]:
    """A shell on a terminal that runs a command with harness, and was given further lines at the same time."""
    words = shlex.join([there.path, *there.always, "--tmux", "run", command])
    child = pexpect.spawn(
        "/bin/sh", ["-i"], env=there.environ | {"PS1": "ready> "}, cwd=str(there.home), timeout=20, encoding="utf-8"
    )
    child.expect("ready> ")
    child.sendline("\r".join([f"{words}; echo code=$?", *lines]))
    return child


def test_attach_puts_the_operator_into_the_session(there: Program) -> None:
    if "--ssh" in there.always:
        skip_without_ssh_terminal()
    there.run("--tmux", "run", "echo for the operator")
    words = [*there.always, "attach"]
    child = pexpect.spawn(there.path, words, env=there.environ, cwd=str(there.home), dimensions=(50, 170), timeout=20)
    child.expect("for the operator")
    child.sendcontrol("b")
    child.send("d")
    child.expect("detached")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    printed = there.run("attach", "--print", "--read-only").stdout.decode()
    assert "attach" in printed


def test_attach_without_a_terminal_is_an_error(program: Program) -> None:
    done = program.run("attach")
    assert done.returncode == 125
    assert b"--print" in done.stderr


def test_streams_exit_codes_and_files_over_ssh(over_ssh: Program) -> None:
    done = over_ssh.run("run", "--", "printf 'out\\0'; echo err >&2; exit 42")
    assert (done.returncode, done.stdout, done.stderr) == (42, b"out\0", b"err\n")
    path = str(over_ssh.home / "there")
    assert over_ssh.run("write", path, stdin=b"\0\xff").returncode == 0
    assert over_ssh.run("read", path).stdout == b"\0\xff"


def test_connections_are_kept_listed_and_ended(over_ssh: Program, sshd: SshServer) -> None:
    over_ssh.run("run", "true")
    over_ssh.run("run", "true")
    assert sum("Accepted publickey" in line for line in sshd.log) == 1
    report = json.loads(over_ssh.run("--json", "doctor").stdout)
    checks = {finding["check"]: finding for finding in report["findings"]}
    assert "kept" in checks["connections"]["message"] or "dead" in checks["connections"]["message"]
    assert checks["connection"]["level"] == "ok"
    assert over_ssh.run("disconnect").stdout.count(b"\n") == 1
    assert over_ssh.run("disconnect").stdout == b""


def test_an_unknown_host_key_is_refused_in_one_line(over_ssh: Program) -> None:
    over_ssh.always = (*over_ssh.always, "-o", "StrictHostKeyChecking=ask")
    over_ssh.run("disconnect")
    known = next(word for word in over_ssh.always if word.startswith("UserKnownHostsFile=")).partition("=")[2]
    open(known, "w").close()
    done = over_ssh.run("--batch", "run", "true")
    assert done.returncode == 125
    assert done.stderr.count(b"\n") == 1
    error = json.loads(over_ssh.run("--batch", "--json", "run", "true").stderr)["error"]
    assert error["type"] == "HostKeyError"


def test_a_command_that_is_not_waited_for_prints_its_job_id_alone(there: Program) -> None:
    """A script stores what is printed; early output must not stand in it."""
    done = there.run("--tmux", "run", "--no-wait", "echo at once; sleep 0.2; echo later")
    assert done.stdout.decode().strip().isdecimal(), done


def test_a_shell_inside_the_panes_shell_serves_the_next_calls_too(there: Program) -> None:
    """Each call is a harness of its own: it finds a pane that another holds, and in it a shell without marks."""
    assert there.run("--tmux", "run", "--timeout", "2s", "--", "bash --norc").returncode == 124
    inside = there.run("--tmux", "run", "--", "echo inside; exit_code() { return 3; }; exit_code")
    assert (inside.returncode, inside.stdout) == (3, b"inside\n"), inside
    assert there.run("--tmux", "run", "--", "exit 5").returncode == 5
    listed = json.loads(there.run("--json", "jobs").stdout)
    assert [(job["status"], job["exit_code"]) for job in listed] == [
        ("completed", 5),
        ("completed", 3),
        ("shell_exited", 5),
    ]
