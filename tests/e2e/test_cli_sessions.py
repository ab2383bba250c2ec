"""Sessions and panes as the command line makes, refuses and ends them, here and over SSH, on a real tmux."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import replace

import pytest
from tests.support.program import Program

pytestmark = pytest.mark.usefixtures("needs_tmux")


def sessions_of(there: Program) -> list[str]:
    """What tmux itself says."""
    socket = there.environ["HARNESS_TMUX_SOCKET"]
    listed = subprocess.run(
        ["tmux", "-L", socket, "list-sessions", "-F", "#{session_name}"], capture_output=True, text=True
    )
    return listed.stdout.split()


LOOKING = [("capture",), ("keys", "Enter"), ("panes",), ("panes", "kill", "x"), ("attach", "--print")]


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_a_mistyped_session_is_not_made_by_what_only_looks(there: Program, words: tuple[str, ...]) -> None:
    refused = there.run(*words)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"tmux session 'harness' does not exist; there are none" in refused.stderr
    assert there.run("sessions", "create", "work").returncode == 0
    refused = there.run("--tmux=wrok", *words)
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"tmux session 'wrok' does not exist; there is work" in refused.stderr
    assert refused.stderr.count(b"\n") == 1
    assert sessions_of(there) == ["work"]


def test_a_command_in_another_session_keeps_to_the_limit(there: Program) -> None:
    assert there.run("--tmux", "run", "true").returncode == 0
    refused = there.run("--tmux=other", "run", "touch ran")
    assert (refused.returncode, refused.stdout) == (125, b"")
    assert b"max_sessions = 1" in refused.stderr
    assert b"there is harness" in refused.stderr
    assert there.run("sessions", "create", "third").returncode == 1
    assert sessions_of(there) == ["harness"]
    assert there.run("--tmux=other", "run", "true", HARNESS_MAX_SESSIONS="2").returncode == 0
    assert sorted(sessions_of(there)) == ["harness", "other"]
    assert there.run("--tmux=other", "run", "true").returncode == 0, "one that is there is used"


def test_a_session_of_somebody_else_does_not_count_and_is_not_touched(there: Program) -> None:
    socket = there.environ["HARNESS_TMUX_SOCKET"]
    subprocess.run(["tmux", "-L", socket, "-f", "/dev/null", "new-session", "-d", "-s", "mine"], check=True)
    assert there.run("--tmux", "run", "true").returncode == 0
    assert [one["name"] for one in json.loads(there.run("--json", "sessions").stdout)] == ["harness"]
    assert there.run("sessions", "kill", "mine").returncode == 1
    assert there.run("--tmux=mine", "capture").returncode == 1
    assert sorted(sessions_of(there)) == ["harness", "mine"]


def test_a_mistyped_pane_is_not_made_by_what_only_looks(there: Program) -> None:
    there.run("--tmux", "run", "true")
    for words in (("capture",), ("keys", "Enter")):
        refused = there.run("--pane", "mian", *words)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"pane 'mian' does not exist in session 'harness'; there is main" in refused.stderr
    assert [pane["name"] for pane in json.loads(there.run("--json", "panes").stdout)] == ["main"]
    assert there.run("--pane", "build", "run", "echo made").stdout == b"made\n"
    listed = json.loads(there.run("--json", "panes").stdout)
    assert [pane["name"] for pane in listed] == ["main", "build"]
    by_id = there.run("--pane", listed[1]["pane_id"], "run", "--json", "true")
    assert json.loads(by_id.stdout)["pane"] == "build"
    assert there.run("--pane", "%99", "run", "true").returncode == 125


def test_the_default_session_is_ended_without_attaching_to_it(there: Program) -> None:
    there.run("--tmux", "run", "true")
    assert there.run("sessions", "kill", "harness").returncode == 0
    assert sessions_of(there) == []
    again = there.run("sessions", "kill", "harness")
    assert again.returncode == 1
    assert b"tmux session 'harness' does not exist" in again.stderr
    assert json.loads(there.run("--json", "sessions").stdout) == []
    assert there.run("--tmux", "run", "echo fresh").stdout == b"fresh\n"


def test_the_default_pane_is_ended_when_that_is_insisted_on(there: Program) -> None:
    there.run("--tmux", "run", "X=1")
    there.run("panes", "create", "build")
    refused = there.run("panes", "kill", "main")
    assert refused.returncode == 1
    assert b"--force" in refused.stderr
    assert there.run("panes", "kill", "--force", "main").returncode == 0
    assert [pane["name"] for pane in json.loads(there.run("--json", "panes").stdout)] == ["build"]
    assert there.run("capture").returncode == 1, "what only looks makes no pane"
    assert there.run("--tmux", "run", "echo ${X-gone}").stdout == b"gone\n"
    assert there.run("panes", "kill", "build").returncode == 0
    assert there.run("panes", "kill", "--force", "main").returncode == 0
    assert sessions_of(there) == []


def test_a_session_is_made_alone(there: Program) -> None:
    assert there.run("sessions", "create", "work").stdout == b"work\n"
    assert sessions_of(there) == ["work"]
    taken = there.run("sessions", "create", "work")
    assert taken.returncode == 1
    assert b"already" in taken.stderr
    assert there.run("sessions", "create", "a b").returncode == 1


@pytest.mark.usefixtures("ssh_terminal")
def test_sessions_here_for_a_host_there_are_counted_and_named_by_themselves(over_ssh: Program) -> None:
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    over_ssh.environ |= {"HARNESS_TMUX_SOCKET": socket, "HARNESS_TMUX_AT": "here"}
    local = replace(over_ssh, always=())
    try:
        assert local.run("--tmux", "run", "true").returncode == 0
        made = over_ssh.run("--tmux", "run", "echo there")
        assert (made.returncode, made.stdout) == (0, b"there\n"), made.stderr
        assert len(sessions_of(over_ssh)) == 2
        refused = over_ssh.run("--tmux=more", "run", "true")
        assert b"max_sessions = 1" in refused.stderr
        assert [one["name"] for one in json.loads(local.run("--json", "sessions").stdout)] == ["harness"]
        assert over_ssh.run("sessions", "kill", "harness").returncode == 0
        assert sessions_of(over_ssh) == ["harness"]
        assert over_ssh.run("sessions", "create", "more").returncode == 0
        assert over_ssh.run("--tmux=more", "run", "true").returncode == 0
    finally:
        subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)
