"""The program under odd circumstances: closed streams, full disks, foreign locales, wrong numbers, JSON everywhere."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.support.program import Program


def sh(program: Program, line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A line of shell in which ``$H`` is the program."""
    command = f"H={shlex.quote(program.path)}; {line}"
    environ = program.environ | variables
    return subprocess.run(["bash", "-c", command], cwd=program.home, env=environ, capture_output=True, timeout=60)


@pytest.mark.parametrize("words", [("tail",), ("tail", "-f"), ("wait",), ("show",), ("kill",)], ids=" ".join)
def test_an_unknown_job_is_125_whatever_is_asked_of_it(program: Program, words: tuple[str, ...]) -> None:
    done = program.run("jobs", *words, "99999")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"no job '99999'" in done.stderr
    as_json = program.run("--json", "jobs", *words, "99999")
    assert json.loads(as_json.stderr)["error"]["type"] == "JobNotFound"


@pytest.mark.parametrize("follow", [(), ("-f",)], ids=["so far", "followed"])
def test_tail_as_json_is_lines_of_whole_characters_and_the_end(program: Program, follow: tuple[str, ...]) -> None:
    job = program.run("run", "--no-wait", "printf 'a\\303'; sleep 0.3; printf '\\244\\377'; exit 4").stdout.decode()
    program.run("jobs", "wait", job.strip())
    lines = program.run("--json", "jobs", "tail", *follow, job.strip()).stdout.splitlines()
    *pieces, end = map(json.loads, lines)
    assert end == {"offset": 4, "status": "completed", "exit_code": 4}
    assert "".join(piece["text"] for piece in pieces) == "aä\ufffd"
    assert pieces[-1]["text_base64"] == "/w=="
    later = program.run("--json", "jobs", "tail", "--offset", "3", job.strip()).stdout.splitlines()
    assert json.loads(later[0])["offset"] == 3


def test_version_and_completion_have_json_and_demo_refuses_it(program: Program) -> None:
    for words in (("--json", "--version"), ("--version", "--json")):
        about = json.loads(program.run(*words).stdout)
        assert set(about) == {"version", "python", "executable", "extras", "ssh", "tmux"}
        assert about["extras"]["fleet"] is True
    assert program.run("--version").stdout.startswith(b"harness ")
    assert "_HARNESS_COMPLETE" in json.loads(program.run("completion", "--json", "bash").stdout)["code"]
    for words in ((), ("demo",)):
        refused = program.run("--json", *words)
        assert refused.returncode == 125
        assert json.loads(refused.stderr)["error"]["type"] == "UsageError"


def test_warnings_and_errors_as_json_are_a_document_in_each_line(program: Program) -> None:
    done = program.run("--json", "jobs", "show", "9", HARNESS_SESSON="x")
    warning, error = map(json.loads, done.stderr.splitlines())
    assert "did you mean 'session'?" in warning["warning"]["message"]
    assert error["error"]["type"] == "JobNotFound"


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e3", "400d", "", "99999999999999999999"])
def test_a_time_limit_that_is_none_is_refused(program: Program, value: str) -> None:
    for words in (("run", "--timeout", value, "touch ran"), ("jobs", "wait", "--timeout", value, "1")):
        done = program.run(*words)
        assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)
        assert b"--timeout" in done.stderr
        assert b"or none for no limit" in done.stderr
    assert not (program.home / "ran").exists()


def test_no_grace_is_none_and_not_for_ever(program: Program) -> None:
    job = program.run("run", "--no-wait", "trap '' TERM; sleep 600").stdout.decode().strip()
    assert program.run("jobs", "kill", "--grace", "0", job).returncode == 0
    assert program.run("jobs", "show", "--json", job).stdout.find(b"running") < 0


def test_a_wrong_variable_is_one_line(program: Program) -> None:
    done = program.run("run", "true", HARNESS_MAX_PANES="x")
    assert done.returncode == 125
    assert done.stderr == b"harness: HARNESS_MAX_PANES: 'x' is not a whole number from 1 to 1000\n"


def test_output_to_a_closed_stdout_is_an_error_and_never_lands_elsewhere(program: Program) -> None:
    for line in ("$H run -- echo hi >&-", "$H jobs >&-", "$H --json jobs >&-", "$H --help >&-"):
        done = sh(program, f"{line}; echo $?")
        assert done.stdout == b"125\n", line
        assert b"cannot write the output" in done.stderr
        assert b"Traceback" not in done.stderr
    assert sh(program, "$H run true >&-; echo $?").stdout == b"0\n"


def test_a_closed_stderr_changes_nothing_else(program: Program) -> None:
    done = sh(program, "$H run 'echo out; echo err >&2; exit 3' 2>&-; echo $?")
    assert (done.stdout, done.stderr) == (b"out\n3\n", b"")
    assert sh(program, "$H jobs show 99 2>&-; echo $?").stdout == b"125\n"


def test_a_closed_stdin_is_not_an_empty_one(program: Program) -> None:
    file = program.home / "file"
    file.write_text("kept")
    for line in ("$H write file <&-", "$H run --stdin cat <&-"):
        done = sh(program, f"{line}; echo $?")
        assert done.stdout == b"125\n"
        assert b"standard input is closed" in done.stderr
    assert file.read_text() == "kept"
    assert sh(program, "$H run 'cat; echo on' <&-").stdout == b"on\n"


@pytest.mark.parametrize("words", ["jobs", "--json jobs", "--help", "config show"])
def test_a_full_disk_behind_stdout_is_one_line(program: Program, words: str) -> None:
    program.run("run", "true")
    done = sh(program, f"$H {words} >/dev/full; echo $?")
    assert done.stdout == b"125\n"
    assert done.stderr.count(b"\n") == 1
    assert b"no space left on device" in done.stderr


def test_a_full_disk_behind_both_outputs_is_no_exit_code_of_the_command(program: Program) -> None:
    for line in ("$H run 'echo e >&2' 2>/dev/full", "$H run 'echo o' >/dev/full 2>&1", "$H jobs wait 99 2>/dev/full"):
        assert sh(program, f"{line}; echo $?").stdout == b"125\n", line


def test_a_locale_without_utf8_changes_no_byte(program: Program) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = program.run("run", "printf 'é\\377'", **ascii_only)
    assert (done.returncode, done.stdout) == (0, "é".encode() + b"\xff")
    assert program.run("jobs", **ascii_only).returncode == 0
    assert "é" in json.loads(program.run("--json", "jobs", "show", "1", **ascii_only).stdout)["command"]


def test_arguments_that_are_no_text_reach_the_command_and_the_files(program: Program) -> None:
    odd = os.fsdecode(b"n\xff")
    assert program.run("run", "echo", odd).stdout == b"n\xff\n"
    assert program.run("run", "--env", f"A={odd}", 'printf %s "$A"').stdout == b"n\xff"
    assert program.run("write", odd, stdin=b"x").returncode == 0
    assert os.fsencode(program.home / odd) in [entry.path for entry in os.scandir(os.fsencode(program.home))]
    for words in (("read", f"{odd}{odd}"), ("jobs", "show", odd), ("--ssh", odd, "run", "true"), (odd,)):
        done = program.run(*words)
        assert done.returncode in (1, 125)
        assert done.stderr.count(b"\n") == 1
        assert b"Traceback" not in done.stderr


def test_a_job_is_shown_without_what_a_terminal_would_act_on(program: Program) -> None:
    program.run("run", "true '\x1b[2J'\necho \x07")
    shown = program.run("jobs", "show", "1").stdout
    assert b"\x1b" not in shown + program.run("jobs").stdout
    assert b"\\x1b[2J" in shown


def test_a_state_directory_that_is_not_ours_is_one_line_and_nothing_runs(program: Program, tmp_path: Path) -> None:
    (tmp_path / "harness").symlink_to("/tmp")
    for words in (("run", "touch ran"), ("--tmux", "run", "touch ran"), ("jobs",), ("sessions",)):
        done = program.run(*words, XDG_STATE_HOME=str(tmp_path))
        assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)
        assert b"is a symbolic link" in done.stderr
    assert not (program.home / "ran").exists()


def test_without_a_home_the_settings_are_the_defaults(program: Program) -> None:
    done = sh(program, "env -u HOME -u XDG_CONFIG_HOME $H run -- echo ok")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")


def test_what_is_made_with_an_open_umask_is_its_users_alone(program: Program) -> None:
    steps = (
        "$H init",
        "$H run -- true",
        "$H permissions add allow 'command:true'",
        '$H tools call run_shell \'{"command": "true"}\'',
        "$H run --no-wait -- true",
        "$H audit show",
    )
    line = f"unset XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME XDG_DATA_HOME; umask 000; {'; '.join(steps)}"
    done = sh(program, line)
    made = [path for path in program.home.rglob("*") if not path.is_symlink()]
    assert {".config", ".local"} <= {path.name for path in made}, done.stderr
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []
