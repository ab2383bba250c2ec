"""What the target reports of a ``sudo`` that waits, and the user in its arguments."""

from __future__ import annotations

import shlex

import pytest

from harness_backends.tmux.pane.sudo_prompt import SudoPrompt, parse_sudo_prompt, reads_stdin, sudo_user


@pytest.mark.parametrize(
    ("command", "user"),
    [
        ("sudo id", "root"),
        ("sudo -u deploy id -u ann", "deploy"),
        ("sudo -udeploy id", "deploy"),
        ("sudo -iu deploy", "deploy"),
        ("sudo -g -u -n id", "root"),
        ("sudo --user deploy -- id", "deploy"),
        ("sudo --user=deploy id", "deploy"),
        ("sudo --group x --user deploy id", "deploy"),
        ("sudo -p -- -u deploy id", "deploy"),
        ("sudo A=1 -u deploy id", "deploy"),
        ("sudo --us deploy id", "deploy"),
        ("sudo --preserve-env=u -n id", "root"),
        ("sudo -u", ""),
        ("sudo", "root"),
    ],
)
def test_the_user_is_read_as_sudo_reads_it(command: str, user: str) -> None:
    assert sudo_user(tuple(shlex.split(command))) == user


def test_standard_input_is_noticed_as_sudo_reads_it() -> None:
    for command in (
        "sudo -S id",
        "sudo -nS id",
        "sudo --stdin id",
        "sudo --std id",
        "sudo -u x A=1 -S",
        "sudo -pS -S id",
    ):
        assert reads_stdin(tuple(shlex.split(command))), command
    for command in (
        "sudo id -S",
        "sudo -u -S id",
        "sudo -pS id",
        "sudo --prompt -S id",
        "sudo -- -S",
        "sudo -s",
        "sudo",
    ):
        assert not reads_stdin(tuple(shlex.split(command))), command


def test_a_report_without_a_sudo_is_nothing() -> None:
    assert parse_sudo_prompt("") is None
    assert parse_sudo_prompt("process=\nargv=\n") is None
    report = "process=12:345\nwhy=\naccount=ann\nclear=1\nprogram=/usr/bin/sudo\nargv=\nsudo\0process=1:1\0\0# x\ny\0"
    argv = ("sudo", "process=1:1", "", "# x\ny")
    assert parse_sudo_prompt(report) == SudoPrompt("12:345", "ann", argv, "/usr/bin/sudo", "", True)


def test_a_report_of_a_hostile_host_is_bounded() -> None:
    for process in ("x:1", "1:2; id", "1" * 11 + ":1", "1:2\u0661"):
        assert parse_sudo_prompt(f"process={process}\nwhy=\nargv=\nsudo\n") is None
    long = parse_sudo_prompt("process=1:2\nwhy=\nargv=\nsudo\0" + "x" * 5000)
    assert long is not None
    assert (long.obstacle, len("".join(long.argv))) == ("its arguments are too long to be shown", 1999)
    odd = parse_sudo_prompt("process=1:2\nwhy=a\x1b[31m\nargv=\nsudo\n")
    assert odd is not None
    assert odd.obstacle == "a[31m"
