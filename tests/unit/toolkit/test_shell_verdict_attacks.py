"""The attack list: nothing on it is read-only, real shells do what it says, and everyday commands are understood."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.toolkit.permissions.shell.classification import classify_command

LIST = tomllib.loads((Path(__file__).parents[2] / "data" / "shell_attacks.toml").read_text())
ATTACKS: list[dict[str, Any]] = LIST["attack"]
BENIGN: list[dict[str, Any]] = LIST["benign"]
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-c"],
    "zsh": ["zsh", "-f", "-c"],
    "dash": ["dash", "-c"],
    "ash": ["busybox", "ash", "-c"],
    "mksh": ["mksh", "-c"],
    "fish": ["fish", "--no-config", "-c"],
}
AT_A_PROMPT = {"zsh": ["zsh", "-f", "-i"]}
LIMIT = 60.0
FILES = {"x": "a\nb\n", "y": "c\n", "list": "marker\n", "script": "touch marker\n"}
HERE = [name for name in SHELLS if shutil.which(SHELLS[name][0])]
GROUPS = sorted({case["group"] for case in ATTACKS})


def of(group: str) -> list[dict[str, Any]]:
    return [case for case in ATTACKS if case["group"] == group]


def test_the_list_is_as_long_as_it_is_said_to_be() -> None:
    assert len(ATTACKS) >= 700
    assert len({case["command"] for case in ATTACKS}) == len(ATTACKS)
    assert len([case for case in ATTACKS if "touches" in case]) >= 250
    assert len([case for case in BENIGN if case["read_only"]]) >= 150


@pytest.mark.parametrize("group", GROUPS)
def test_no_attack_is_read_only_nor_any_of_its_parts_without_a_reason(group: str) -> None:
    wrong = []
    for case in of(group):
        judged = classify_command(case["command"])
        if judged.read_only or not judged.reason:
            wrong.append(case["command"])
        if judged.parsed and judged.commands and all(command.read_only for command in judged.commands):
            wrong.append(case["command"])  # who looks at the parts alone must not be deceived either
    assert wrong == []


@pytest.mark.parametrize("group", GROUPS)
def test_the_program_of_an_attack_is_named_for_rules_that_deny_it(group: str) -> None:
    wrong = []
    for case in of(group):
        judged = classify_command(case["command"])
        names = {Path(command.argv[0]).name for command in judged.commands if command.argv}
        if "finds" in case and judged.parsed and case["finds"] not in names:
            wrong.append((case["command"], names))
    assert wrong == []


def test_an_everyday_command_is_understood() -> None:
    for case in BENIGN:
        judged = classify_command(case["command"])
        assert judged.parsed, judged.reason
        assert judged.read_only is case["read_only"], judged.reason
        assert judged.commands


def run(command: str, shell: str, place: Path, *, prompt: bool) -> bool:
    """Run a command in a directory of its own; says whether it made the marker."""
    for name, text in FILES.items():
        (place / name).write_text(text)
    with tarfile.open(place / "x.tar", "w") as archive:
        archive.add(place / "x", "x")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "TERM": "dumb", "LANG": "C.UTF-8"}
    if "git" in command:
        script = "git init -q . && git add x && git -c user.name=a -c user.email=a@b commit -qm x && echo z >>x"
        subprocess.run(["sh", "-c", script], cwd=place, env=environment, check=True, timeout=20)
    argv = AT_A_PROMPT[shell] if prompt else [*SHELLS[shell], command]
    process = subprocess.Popen(
        argv,
        cwd=place,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin as typed:
        typed.write(f"{command}\nexit\n".encode() if prompt else b"")
    process.stdin = None
    marker, end = place / "marker", time.monotonic() + LIMIT
    while process.returncode is None and not marker.exists() and time.monotonic() < end:
        with suppress(subprocess.TimeoutExpired):  # it ends when nobody holds its streams, nor what it left running
            process.communicate(timeout=0.02)
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return marker.exists()


PROVED = [case for case in ATTACKS if "touches" in case]


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("group", sorted({case["group"] for case in PROVED}))
def test_an_attack_does_in_a_real_shell_what_the_list_says(group: str, tmp_path: Path) -> None:
    """One shell for each command: the first that the list names and this machine has."""
    proved, wrong = 0, []
    for number, case in enumerate(case for case in PROVED if case["group"] == group):
        shell = next((name for name in case["touches"] if name in HERE), None)
        if shell is None:
            continue
        place = tmp_path / str(number)
        place.mkdir()
        proved += 1
        if not run(case["command"], shell, place, prompt=case.get("interactive", False)):
            wrong.append((shell, case["command"]))
    assert proved
    assert wrong == []


PAGE = (Path(__file__).parents[3] / "docs" / "shell-policy.md").read_text()
LIST = (Path(__file__).parents[2] / "data" / "program_reviews" / "README.md").read_text()
ROWS = re.findall(r"^\| `(.+)` \| (reads|asks|not understood) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("command", "answer"), ROWS)
def test_the_page_says_what_the_judge_says(command: str, answer: str) -> None:
    judged = classify_command(command.replace("\\|", "|"))
    assert ("reads" if judged.read_only else "asks" if judged.parsed else "not understood") == answer


def test_the_numbers_of_the_description_are_those_of_the_list() -> None:
    assert len(ROWS) >= 10
    for number in (len(ATTACKS), len(GROUPS), len(BENIGN), len([case for case in ATTACKS if "touches" in case])):
        assert f"{number} " in LIST.replace("\n", " ")


def test_the_example_on_the_page_says_what_it_should() -> None:
    judged = classify_command("sudo -u deploy sh -c 'cd /srv && rm -r build'")
    assert [command.argv[0] for command in judged.commands] == ["sudo", "sh", "cd", "rm"]
    assert all(command.privileged and not command.read_only for command in judged.commands)
