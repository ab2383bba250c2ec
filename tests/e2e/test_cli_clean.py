"""``doctor --clean`` beside a real tmux: what a pane that lives needs is never removed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.program import Program

pytestmark = pytest.mark.usefixtures("needs_tmux")

LONG_AGO = (1, 1)


@pytest.fixture
def here(program: Program) -> Iterator[Program]:
    """The program with two tmux servers of its own; the second is in SECOND."""
    sockets = [f"hx-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    program.environ |= {"HARNESS_TMUX_SOCKET": sockets[0], "SECOND": sockets[1]}
    yield program
    for socket in sockets:
        subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)


def panes_of(program: Program) -> dict[str, Path]:
    return {path.name: path for path in (program.home / "state/harness/panes").iterdir()}


def age(program: Program) -> None:
    """Everything that is kept is from long ago."""
    for folder, _, names in os.walk(program.home / "state/harness"):
        for name in names:
            os.utime(Path(folder, name), LONG_AGO)
        os.utime(folder, LONG_AGO)


def test_logs_of_panes_that_are_gone_go_with_their_jobs(here: Program) -> None:
    assert here.run("--pane", "gone", "run", "echo in the log").returncode == 0
    assert len(panes_of(here)) == 2
    assert here.run("panes", "kill", "gone").returncode == 0
    for path in panes_of(here).values():
        os.utime(path, LONG_AGO)
    cleaned = here.run("doctor", "--clean")
    assert cleaned.returncode == 0, cleaned.stdout.decode()
    assert here.run("jobs", "tail", "1").stdout == b"in the log\n", "its job is kept"
    age(here)
    assert b"1 ended jobs removed" in here.run("doctor", "--clean").stdout
    assert here.run("--tmux", "run", "echo on").stdout == b"on\n"
    assert len(panes_of(here)) == 1


def test_panes_that_live_on_any_server_keep_what_they_need(here: Program) -> None:
    second = {"HARNESS_TMUX_SOCKET": here.environ["SECOND"]}
    assert here.run("--tmux", "run", "cd /usr").returncode == 0
    assert here.run("--tmux", "run", "cd /var", **second).returncode == 0
    age(here)
    assert b"2 ended jobs removed" in here.run("doctor", "--clean").stdout
    assert here.run("--tmux", "run", "pwd; exit_code() { return 4; }; exit_code").stdout == b"/usr\n"
    assert here.run("--tmux", "run", "pwd", **second).stdout == b"/var\n"
    assert len(panes_of(here)) == 2
    for path in panes_of(here).values():
        assert (path / "log.0").exists()
    listed = json.loads(here.run("--json", "jobs").stdout)
    assert [job["exit_code"] for job in listed] == [4, 0]


def test_a_pane_whose_server_cannot_be_asked_is_not_cleaned_away(here: Program) -> None:
    assert here.run("--tmux", "run", "cd /usr").returncode == 0
    age(here)
    with tempfile.TemporaryDirectory(dir="/tmp") as elsewhere:  # the name of a socket must be short
        cleaned = here.run("doctor", "--clean", TMUX_TMPDIR=elsewhere)
    assert cleaned.returncode == 0, cleaned.stdout.decode()
    assert here.run("--tmux", "run", "pwd").stdout == b"/usr\n"
