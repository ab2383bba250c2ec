"""A hundred hosts behind several real sshd, of which some are broken in every way: each is its own host's result."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.disks import small_disk
from tests.support.many_hosts import ManyHosts, start_many_hosts
from tests.support.program import Program

CONNECT_TIMEOUT = "10"
"""Seconds; hosts that hang take them, the others must not on a busy machine."""
KEEPS = int(os.getuid() == 0)
"""Whether a disk can be filled: only root mounts one."""
COUNTS = {"web": 70 - 4 * KEEPS, "down": 10, "hang": 3, "refused": 3, "bare": 4, "full": 4 * KEEPS, "changed": 10}
"""How many hosts there are of each kind; those whose key changes fill the last server."""
HEALTHY = COUNTS["web"] + COUNTS["bare"]
SOCKET = "hx-hundred"


class Hundred:
    """A hundred hosts, and what is broken about them until :meth:`repair`."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        names = [f"{kind}{number}" for kind, count in COUNTS.items() for number in range(1, count + 1)]
        path = f"PATH={_programs_without_tmux(directory / 'bin')}"
        without_tmux = {name: path for name in names if name.startswith("bare")}
        self.hosts: ManyHosts = start_many_hosts(stack, directory, names, variables=without_tmux)
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # the kernel accepts, and no banner comes
        self.hosts.add_entry("down*", "Port 1")
        self.hosts.add_entry("hang*", f"Port {silent.getsockname()[1]}")
        self.hosts.add_entry("refused*", "User nobody-here")
        self._disks = ExitStack()
        for name in names:
            if name.startswith("full"):
                shutil.rmtree(self.hosts.home(name))
                fill = stack.enter_context(small_disk(self.hosts.home(name)))
                self._disks.enter_context(fill())
        stack.enter_context(self._disks)  # before the disks
        server = self.hosts.servers[-1]
        server.new_host_key()
        server.restart()

    def repair(self) -> None:
        """Make every host a healthy one."""
        self.hosts.write_client_files()
        self._disks.close()

    def end_tmux(self) -> None:
        for directory in (*map(self.hosts.home, self.hosts.names), None):
            places = {} if directory is None else {"TMUX_TMPDIR": str(directory)}
            subprocess.run(["tmux", "-L", SOCKET, "kill-server"], env=os.environ | places, capture_output=True)


def _programs_without_tmux(directory: Path) -> Path:
    directory.mkdir()
    for place in ("/usr/bin", "/bin"):
        for file in Path(place).iterdir():
            if file.name != "tmux" and not (directory / file.name).is_symlink():
                (directory / file.name).symlink_to(file)
    return directory


@pytest.fixture
def hundred(needs_ssh: None, ssh_runtime: Path) -> Iterator[Hundred]:
    directory = Path(tempfile.mkdtemp(prefix="hxf", dir="/tmp"))  # short, for the paths of sockets
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        yield Hundred(stack, directory)


@pytest.fixture
def ops(hundred: Hundred, request: pytest.FixtureRequest) -> Program:
    program: Program = request.getfixturevalue("program")  # after the servers, which change the environment
    program.always = ("-F", str(hundred.hosts.ssh_config), "--connect-timeout", CONNECT_TIMEOUT)
    return program


PATTERN = ",".join(f"{kind}[1-{count}]" for kind, count in COUNTS.items() if count)
FULL = COUNTS["full"]
UNREACHABLE = COUNTS["down"] + COUNTS["hang"] + COUNTS["refused"] + COUNTS["changed"]


def check_lines(lines: list[str], expected: dict[str, str]) -> None:
    """Check that each kind of failure is one line, and that there is no other."""
    for kind, text in expected.items():
        if COUNTS[kind]:
            found = [line for line in lines if re.search(rf"\b{kind}", line.partition(":")[2].partition(":")[0])]
            assert len(found) == 1, (kind, lines)
            start = f"harness: {kind}[1-{COUNTS[kind]}] ({COUNTS[kind]}): "
            assert re.match(re.escape(start) + text, found[0]), found
    assert len(lines) == sum(COUNTS[kind] > 0 for kind in expected) + 2, lines


def test_each_broken_host_is_its_own_result_until_it_is_repaired(ops: Program, hundred: Hundred) -> None:
    done = ops.run("run", "--hosts", PATTERN, "--", "echo up >> ~/ran; echo up", HARNESS_SSH_ENGINE="openssh")
    assert done.returncode == 125
    full = f"== full[1-{FULL}] ({FULL})\nup\n" if FULL else ""
    assert done.stdout.decode() == f"== bare[1-4],web[1-{COUNTS['web']}] ({HEALTHY})\nup\n{full}"
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("harness: ")]
    expected = {
        "down": r"connect to host 127\.0\.0\.1 port 1: Connection refused \(no server listens on that port",
        "hang": r"Connection timed out during banner exchange \(",
        "refused": r"the login was refused: nobody-here@127\.0\.0\.1: Permission denied \(publickey\)",
        "changed": "the host key does NOT match the recorded one",
        "full": "the target's disk is full: the job's record and output are in its memory",
    }
    check_lines(lines, expected)
    assert lines[-2].startswith(f"harness: run 1, 100 hosts: {HEALTHY + FULL} ok, {UNREACHABLE} unreachable, ")
    hundred.repair()
    resumed = ops.run("fleet", "resume", "1")
    assert resumed.returncode == 0, resumed.stderr
    ended = f"harness: run 1: the command has ended on {HEALTHY + FULL} of 100 hosts\n"
    resumed_on = f"harness: run 1, {UNREACHABLE} hosts: {UNREACHABLE} ok, "
    assert resumed.stderr.decode().startswith(ended + resumed_on), resumed.stderr
    for name in hundred.hosts.names:
        if not name.startswith("full"):  # there the command ran, but its file had no space
            assert (hundred.hosts.home(name) / "ran").read_text() == "up\n", name


@pytest.mark.usefixtures("needs_tmux", "ssh_terminal")
def test_each_broken_host_is_its_own_result_in_tmux(ops: Program, hundred: Hundred) -> None:
    engine = {"HARNESS_SSH_ENGINE": "asyncssh", "HARNESS_TMUX_SOCKET": SOCKET}
    try:
        done = ops.run("--tmux", "run", "--hosts", PATTERN, "--", "echo up", **engine)
    finally:
        hundred.end_tmux()
    assert done.returncode == 125
    assert done.stdout.decode() == f"== bare[1-4],web[1-{COUNTS['web']}] ({HEALTHY})\nup\n"
    lines = done.stderr.decode().splitlines()
    expected = {
        "down": r"connect to host \S+ port \d+: Connection refused \(no server listens on that port",
        "hang": r"the login did not finish in time \(",
        "refused": r"the login was refused: Permission denied for user nobody-here",
        "changed": "the host key does NOT match the recorded one: ssh-ed25519 ",
        "full": r"tmux could not start a session: no space for its files in ",
        "bare": "tmux is not installed on the target: the session is on this machine",
    }
    check_lines(lines, expected)
    full = f", {COUNTS['full']} error" if KEEPS else ""
    assert lines[-2].startswith(f"harness: run 1, 100 hosts: {HEALTHY} ok, {UNREACHABLE} unreachable{full}, ")
