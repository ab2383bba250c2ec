"""``harness shell`` in containers: of this machine, and of a host behind a real sshd."""

from __future__ import annotations

import os
import re
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.test_container_remote import session_environ
from tests.support.contained import MakeWay, Way, make_way
from tests.support.engines import Container, container
from tests.support.program import Program, options_of, program
from tests.support.reconnecting_shell import RECONNECTED, detached, ended, opened, shows
from tests.support.resources import skip_without_ssh_terminal
from tests.support.sshd import MakeSshd

__all__ = ["make_way", "program"]


@pytest.fixture(params=["docker", "podman-program"])
def way(request: pytest.FixtureRequest, make_way: MakeWay) -> Way:
    return make_way(request.param)


@pytest.fixture
def ops(way: Way, request: pytest.FixtureRequest) -> Program:
    """The program with the way's engine as the only one, and a tmux server of its own in containers."""
    program: Program = request.getfixturevalue("program")  # after the way, which changes the environment
    program.environ["HARNESS_TMUX_SOCKET"] = f"hx-{uuid.uuid4().hex[:8]}"
    return program


def kill_program(child: Any) -> None:
    """Kill the engine's program that has the terminal."""
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    (pid,) = (int(pid) for pid in children if os.getpgid(int(pid)) == child.pid)
    os.kill(pid, signal.SIGKILL)


def test_it_attaches_again_to_a_container_until_that_is_removed(way: Way, ops: Program) -> None:
    with container(way.engine, "debian") as one:
        ops.always = ("--container", one.name)
        child = opened(ops)
        shows(child, 1)
        kill_program(child)
        child.expect(RECONNECTED)
        shows(child, 2)
        kill_clients(one)
        child.expect(RECONNECTED)
        shows(child, 3)
        assert detached(child) == 0
        child = opened(ops)
        child.expect("shown3x")
        one.do("rm", "-f")
        child.expect("no container|is stopped|removed")
        assert ended(child) == 125


def kill_clients(one: Container) -> None:
    """Kill tmux's clients of operators in a container."""
    lines = one.run("ps", "-eo", "pid,args").splitlines()
    pids = [line.split()[0] for line in lines if re.match(r"\s*\d+ tmux -u -L \S+ if-shell .*attach-session", line)]
    assert pids, lines
    one.run("kill", "-9", *pids)


def test_a_container_that_was_restarted_has_no_session_any_more(way: Way, ops: Program) -> None:
    with container(way.engine, "debian") as one:
        ops.always = ("--container", one.name)
        child = opened(ops)
        shows(child, 1)
        one.do("restart", "-t", "0")
        child.expect("the tmux session no longer exists|is stopped")  # it depends on the moment of the question
        assert ended(child) == 125


def test_it_attaches_again_to_a_container_of_a_host(
    way: Way, ops: Program, make_sshd: MakeSshd, tmp_path: Path
) -> None:
    skip_without_ssh_terminal()
    host = make_sshd(*session_environ(tmp_path, **way.engine.environ(api=False)))
    ops.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_RUNTIME_DIR"]
    with container(way.engine, "debian") as one:
        ops.always = (*options_of(host), "--container", one.name)
        child = opened(ops)
        shows(child, 1)
        host.restart()
        child.expect(RECONNECTED)
        shows(child, 2)
        assert detached(child) == 0
