"""A host of a fleet whose disk is full, behind a real sshd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.disks import small_disk
from tests.support.fleet_hosts import FleetHosts, fleet_hosts, fleet_program
from tests.support.program import Program

__all__ = ["fleet_hosts", "fleet_program"]

pytestmark = pytest.mark.usefixtures("needs_root")


@contextmanager
def full_disk(hosts: FleetHosts, name: str) -> Iterator[None]:
    """Let the state directory of a host be on a disk that is full."""
    state = hosts.home(name) / ".local/state"
    with small_disk(state) as full:
        for folder in ("jobs", "panes", "run"):
            (state / "harness" / folder).mkdir(parents=True, mode=0o700)
        (state / "harness").chmod(0o700)
        with full():
            yield


@pytest.mark.parametrize("engine", ["asyncssh", "openssh"])
def test_a_command_runs_on_a_host_whose_disk_is_full(
    fleet_program: Program, fleet_hosts: FleetHosts, engine: str
) -> None:
    with full_disk(fleet_hosts, "web2"):
        done = fleet_program.run("run", "--ssh", "web2", "--", "echo out; exit 3", HARNESS_SSH_ENGINE=engine)
        assert (done.returncode, done.stdout) == (3, b"out\n"), done.stderr
        assert b"the target's disk is full: the job's record and output are in its memory" in done.stderr
        kept = fleet_program.run("jobs", "--hosts", "web[1-2]", "--all", HARNESS_SSH_ENGINE=engine)
        assert b"echo out; exit 3" in kept.stdout


def test_a_run_on_a_fleet_reaches_that_host_and_its_resume_runs_nothing_twice(
    fleet_program: Program, fleet_hosts: FleetHosts
) -> None:
    with full_disk(fleet_hosts, "web2"):
        done = fleet_program.run("run", "--hosts", "web[1-3]", "--", "echo ran >> ~/ran; echo out; exit 3")
        assert (done.returncode, done.stdout) == (1, b"== web[1-3] (3): exit code 3\nout\n"), done.stderr
        assert b"web2 (1): the target's disk is full: the job's record and output are in its memory" in done.stderr
        waited = fleet_program.run("fleet", "wait", "1")
        assert b"== web[1-3] (3): exit code 3\nout\n" in waited.stdout
        assert fleet_program.run("fleet", "resume", "1").returncode == 1
    for name in fleet_hosts.servers:
        assert (fleet_hosts.home(name) / "ran").read_text() == "ran\n"
