"""``harness cp`` with real sshds: both directions, between hosts, many hosts, and after a cut."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.support.fleet_hosts import FleetHosts
from tests.support.program import Program, options_of
from tests.support.sshd import MakeSshd

from harness.cli.progress_bar import SHOW_AFTER

MANY = 100_000_000
"""Bytes of a file that takes long enough to be cut."""


def results(stdout: bytes) -> tuple[list[dict[str, Any]], dict[str, int]]:
    *files, summary = map(json.loads, stdout.splitlines())
    return files, summary["summary"]


@pytest.fixture
def tree(fleet_program: Program) -> Path:
    """A directory of this machine."""
    tree = fleet_program.home / "tree"
    (tree / "sub dir").mkdir(parents=True)
    (tree / "-f").write_text("one")
    (tree / "sub dir/run").write_bytes(os.urandom(300_000))
    (tree / "sub dir/run").chmod(0o750)
    return tree


def test_a_tree_goes_there_and_back(fleet_program: Program, fleet_hosts: FleetHosts, tree: Path) -> None:
    done = fleet_program.run("cp", "-r", "-p", "tree", "web1:")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    far = fleet_hosts.home("web1") / "tree"
    assert (far / "sub dir/run").read_bytes() == (tree / "sub dir/run").read_bytes()
    assert stat.S_IMODE((far / "sub dir/run").stat().st_mode) == 0o750
    assert int((far / "-f").stat().st_mtime) == int((tree / "-f").stat().st_mtime)
    done = fleet_program.run("--json", "cp", "-r", "web1:tree/*", "web1:~/tree", "back")
    assert (done.returncode, b"this machine" in done.stdout + done.stderr) == (1, True)  # several, and no directory
    (fleet_program.home / "back").mkdir()
    done = fleet_program.run("--json", "cp", "-r", "web1:tree/*", "web1:~/tree", "back")
    files, summary = results(done.stdout)
    assert (done.returncode, summary["copied"], summary["failed"]) == (0, 4, 0), done.stderr
    assert {item["source"] for item in files} >= {"web1:tree/-f", "web1:~/tree/sub dir/run"}
    assert (fleet_program.home / "back/tree/-f").read_text() == "one"
    assert (fleet_program.home / "back/sub dir/run").read_bytes() == (tree / "sub dir/run").read_bytes()


def test_a_file_that_fails_does_not_stop_the_others(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    home = fleet_hosts.home("web1")
    (home / "good").write_text("x")
    (home / "dangling").symlink_to("none")
    (fleet_program.home / "to").mkdir()
    done = fleet_program.run("cp", "web1:dangling", "web1:good", "web1:nothing*", "to")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"dangling: no such file" in done.stderr
    assert b"nothing*: nothing matches" in done.stderr
    assert (fleet_program.home / "to/good").read_text() == "x"
    done = fleet_program.run("cp", "down:x", "to")
    assert done.returncode == 125
    assert b"connect to host" in done.stderr


def test_from_host_to_host_nothing_is_stored_here(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    (fleet_hosts.home("web1") / "f").write_bytes(content := os.urandom(5_000_000))
    before = set(fleet_program.home.rglob("*"))
    done = fleet_program.run("cp", "web1:f", "web2:copy")
    assert done.returncode == 0, done.stderr
    assert (fleet_hosts.home("web2") / "copy").read_bytes() == content
    assert {path for path in set(fleet_program.home.rglob("*")) - before if path.stat().st_size > 1_000_000} == set()


def test_the_target_of_the_options_is_meant_by_a_colon(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    (fleet_program.home / "f").write_text("x")
    assert fleet_program.run("--ssh", "web1", "cp", "f", ":sub").returncode == 0
    assert (fleet_hosts.home("web1") / "sub").read_text() == "x"
    done = fleet_program.run("--ssh", "web1", "cp", "f", "g")
    assert (done.returncode, (fleet_program.home / "g").exists()) == (125, False)
    assert b"write it as :PATH" in done.stderr
    assert fleet_program.run("cp", "f", ":g").returncode == 125
    assert fleet_program.run("cp", "f", "ssh://web1/g").returncode == 125
    (fleet_program.home / "a:b").write_text("colon")
    assert fleet_program.run("cp", "./a:b", "ssh://web1:~/a:b").returncode == 0
    assert (fleet_hosts.home("web1") / "a:b").read_text() == "colon"


def test_many_hosts_get_one_tree_and_each_gives_its_own(
    fleet_program: Program, fleet_hosts: FleetHosts, tree: Path
) -> None:
    done = fleet_program.run("cp", "-r", "--hosts", "web[1-3]", "tree", ":")
    assert done.returncode == 0, done.stderr
    (fleet_hosts.home("web2") / "tree/-f").write_text("two")
    (fleet_hosts.home("web3") / "tree/-f").unlink()
    done = fleet_program.run("--json", "cp", "--hosts", "web[1-3]", ":tree/-f", "copies")
    hosts, summary = results(done.stdout)
    assert (done.returncode, summary["ok"], summary["failed"]) == (1, 2, 1)
    assert (fleet_program.home / "copies/web1/-f").read_text() == "one"
    assert (fleet_program.home / "copies/web2/-f").read_text() == "two"
    by_host = {item["host"]: item for item in hosts}
    assert by_host["web1"]["files"][0]["status"] == "copied"
    assert by_host["web3"]["files"][0]["error"]["type"] == "FileNotFound"
    done = fleet_program.run("cp", "--hosts", "web[1-2],down", "tree/-f", ":x")
    assert done.returncode == 125
    assert fleet_program.run("cp", "--hosts", "web[1-2]", "tree/-f", "x").returncode == 125


# -- cuts


def _wait_for_part(directory: Path, size: int) -> None:
    """Wait until a partial file in a directory has this size."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if any(path.stat().st_size >= size for path in directory.glob(".hx-tmp-*")):
            return
        time.sleep(0.005)
    raise AssertionError("no partial file")


def _wait_for_exit(pid: int) -> None:
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def big(fleet_program: Program) -> Path:
    """A file of 100 MB."""
    big = fleet_program.home / "big"
    with big.open("wb") as file:
        for _ in range(10):
            file.write(os.urandom(MANY // 10))
    return big


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_upload_is_resumed(
    fleet_program: Program, fleet_hosts: FleetHosts, big: Path, number: signal.Signals
) -> None:
    home = fleet_hosts.home("web1")
    with fleet_program.start("cp", "big", "web1:copy") as copying:
        _wait_for_part(home, 10_000_000)
        copying.send_signal(number)
        _, stderr = copying.communicate(timeout=30)
    if number == signal.SIGINT:
        assert (copying.returncode, b"run the same command again" in stderr) == (130, True), stderr
    assert not (home / "copy").exists()
    done = fleet_program.run("--json", "cp", "big", "web1:copy")
    (copied,), summary = results(done.stdout)
    assert (done.returncode, copied["status"]) == (0, "copied"), done.stderr
    assert copied["resumed_at"] >= 10_000_000
    assert summary["transferred"] == MANY - copied["resumed_at"]
    assert (home / "copy").read_bytes() == big.read_bytes()
    assert [path.name for path in home.iterdir() if path.name.startswith(".hx-tmp")] == []


def test_a_killed_download_is_resumed(fleet_program: Program, fleet_hosts: FleetHosts, big: Path) -> None:
    big.rename(far := fleet_hosts.home("web1") / "big")
    (to := fleet_program.home / "to").mkdir()
    with fleet_program.start("cp", "web1:big", "to") as copying:
        _wait_for_part(to, 10_000_000)
        copying.kill()
    (part,) = to.iterdir()  # its writer, which outlives the program while the disk is slow, keeps it
    _wait_for_exit(int(part.suffix.removeprefix(".")))
    done = fleet_program.run("--json", "cp", "web1:big", "to")
    (copied,), _ = results(done.stdout)
    assert (done.returncode, copied["resumed_at"] >= 10_000_000) == (0, True), (copied, done.stderr)
    assert (to / "big").read_bytes() == far.read_bytes()
    assert os.listdir(to) == ["big"]


def test_a_killed_harness_upload_leaves_nothing(fleet_program: Program, fleet_hosts: FleetHosts, big: Path) -> None:
    home = fleet_hosts.home("web1")
    with fleet_program.start("--ssh", "web1", "upload", "big", "new/copy") as uploading:
        _wait_for_part(home / "new", 1_000_000)
        uploading.kill()
    end = time.monotonic() + 30
    while (home / "new").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert fleet_program.run("--ssh", "web1", "upload", "big", "new/copy").returncode == 0
    assert os.listdir(home / "new") == ["copy"]
    assert (home / "new/copy").read_bytes() == big.read_bytes()


@pytest.mark.parametrize("far", [True, False], ids=["to the host", "from the host"])
def test_a_killed_copy_of_many_small_files_is_resumed(
    fleet_program: Program, fleet_hosts: FleetHosts, far: bool
) -> None:
    home, here = fleet_hosts.home("web1"), fleet_program.home
    source, copy = (here / "many", home / "copy") if far else (home / "many", here / "copy")
    for number in range(2000):
        path = source / f"d{number % 7}/f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(2000))
    words = ("cp", "-r", "many/.", "web1:copy") if far else ("cp", "-r", "web1:many/.", "copy")
    with fleet_program.start(*words) as copying:
        end = time.monotonic() + 30
        while not list(copy.glob("d?/f*")):
            assert time.monotonic() < end
        copying.kill()
    while list(copy.glob("d?/.hx-tmp-*")):
        assert time.monotonic() < end
    there = list(copy.glob("d?/f*"))
    for path in there:
        assert path.read_bytes() == (source / path.relative_to(copy)).read_bytes()
    done = fleet_program.run("--json", *words)
    _, summary = results(done.stdout)
    assert (summary["copied"], summary["unchanged"]) == (2000 - len(there), len(there))
    assert 0 < len(there) < 2000
    for path in source.glob("d?/f*"):
        assert path.read_bytes() == (copy / path.relative_to(source)).read_bytes()


@pytest.mark.parametrize("upload", [True, False])
def test_a_cut_connection_is_made_again_during_the_run(
    fleet_program: Program, fleet_hosts: FleetHosts, big: Path, upload: bool
) -> None:
    home, to = fleet_hosts.home("web1"), fleet_program.home / "to"
    to.mkdir()
    if not upload:
        big.rename(home / "big")
    words = ("big", "web1:copy") if upload else ("web1:big", "to/copy")
    with fleet_program.start("--json", "cp", *words) as copying:
        _wait_for_part(home if upload else to, 10_000_000)
        fleet_hosts.servers["web1"].restart()
        stdout, stderr = copying.communicate(timeout=60)
    (copied,), _ = results(stdout)
    assert (copying.returncode, b"reconnecting" in stderr) == (0, True), stderr
    assert copied["resumed_at"] >= 10_000_000
    copy, source = (home / "copy", big) if upload else (to / "copy", home / "big")
    assert copy.read_bytes() == source.read_bytes()


def test_two_copies_at_once_both_succeed(fleet_program: Program, fleet_hosts: FleetHosts, big: Path) -> None:
    home = fleet_hosts.home("web1")
    with fleet_program.start("cp", "big", "web1:copy") as first:
        _wait_for_part(home, 1_000_000)
        assert fleet_program.run("cp", "big", "web1:copy").returncode == 0
        assert first.wait(60) == 0
    assert (home / "copy").read_bytes() == big.read_bytes()
    assert [path.name for path in home.iterdir() if path.name.startswith(".hx-tmp")] == []


def test_a_host_with_one_session_gets_its_files_through_it(make_sshd: MakeSshd, request: pytest.FixtureRequest) -> None:
    server = make_sshd("MaxSessions 1")
    program: Program = request.getfixturevalue("program")  # after the server, which changes the environment
    program.always = options_of(server)
    (program.home / "f").write_bytes(content := os.urandom(1_500_000))
    done = program.run("cp", "f", ":copy")
    assert (done.returncode, (server.home / "copy").read_bytes()) == (0, content), done.stderr
    assert [path.name for path in server.home.iterdir() if path.name.startswith(".hx-tmp")] == []
    done = program.run("cp", ":copy", "back")
    assert (done.returncode, (program.home / "back").read_bytes()) == (0, content), done.stderr


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_files_within_a_host_do_not_wait_for_each_others_sessions(
    make_sshd: MakeSshd, request: pytest.FixtureRequest, sessions: int
) -> None:
    server = make_sshd(f"MaxSessions {sessions}")
    program: Program = request.getfixturevalue("program")  # after the server, which changes the environment
    program.always = options_of(server)
    (server.home / "t").mkdir()
    for number in range(6):
        (server.home / "t" / str(number)).write_bytes(os.urandom(1_500_000))
    with program.start("cp", "-r", ":t", ":copy") as copying:
        _, stderr = copying.communicate(timeout=30)
    assert (copying.returncode, stderr) == (0, b"")
    for number in range(6):
        assert (server.home / "copy" / str(number)).read_bytes() == (server.home / "t" / str(number)).read_bytes()


# -- the terminal


def test_a_bar_is_shown_on_a_terminal_only(fleet_program: Program, fleet_hosts: FleetHosts, big: Path) -> None:
    argv = [*fleet_program.always, "cp", "big", "web1:copy"]
    environ = {**fleet_program.environ, "COLUMNS": "100"}
    shown = pexpect.spawn(fleet_program.path, argv, cwd=str(fleet_program.home), env=environ, timeout=60)  # type: ignore[arg-type]  # its types want os._Environ
    _wait_for_part(fleet_hosts.home("web1"), 10_000_000)
    shown.kill(signal.SIGSTOP)  # a fast copy would end before its bar is shown
    time.sleep(SHOW_AFTER)
    shown.kill(signal.SIGCONT)
    shown.expect("big.*MB/s.*1 copied, 100.0 MB in ")
    shown.expect(pexpect.EOF)
    shown.close()
    assert shown.exitstatus == 0
    done = fleet_program.run("cp", "big", "web1:copy2")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_output_that_is_not_read_ends_the_copy(fleet_program: Program, fleet_hosts: FleetHosts, tree: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with fleet_program.start("--json", "cp", "-r", "tree", "web1:", stdout=write, stderr=subprocess.PIPE) as copying:
        os.close(write)
        assert copying.wait(30) == 141
