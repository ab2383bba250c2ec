"""``harness sync``: rsync of both sides over the connection of harness, to a real sshd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.support.fleet_hosts import FleetHosts
from tests.support.program import Program
from tests.support.resources import skip_without


@pytest.fixture
def sync(fleet_program: Program, fleet_hosts: FleetHosts) -> Program:
    """The program, with a tree of odd names in its home."""
    skip_without("rsync", "rsync")
    tree = fleet_program.home / "tree"
    (tree / "sub dir").mkdir(parents=True)
    for name in ("-f", "sub dir/$(touch evil)", "new\nline", "a:b"):
        (tree / name).write_text(name)
    (tree / "link").symlink_to("-f")
    return fleet_program


def names(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_a_directory_becomes_equal_there_and_here(sync: Program, fleet_hosts: FleetHosts) -> None:
    tree, far = sync.home / "tree", fleet_hosts.home("web1") / "copy of it"
    (short := fleet_hosts.directory / "a b").mkdir()
    (long := sync.home / "long" / ("x" * 100)).mkdir(parents=True)
    for own in (long, short):
        done = sync.run("sync", "--dry-run", "tree/", "web1:copy of it", TMPDIR=str(own))
        assert (done.returncode, list(own.iterdir())) == (0, []), done.stderr
    done = sync.run("sync", "tree/", "web1:copy of it")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert names(far) == names(tree)
    (far / "more").write_text("x")
    (far / "-f").write_text("changed there")
    done = sync.run("--json", "sync", "--delete", "tree/", "web1:~/copy of it")
    changes = {item["path"]: item["change"] for item in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, set(changes) >= {"-f", "more"}, names(far)) == (0, True, names(tree)), done
    assert sync.run("sync", "web1:copy of it/", "back").returncode == 0
    assert names(sync.home / "back") == names(tree)
    done = sync.run("sync", "--dry-run", "tree", "web1:")
    assert (done.returncode, (fleet_hosts.home("web1") / "tree").exists()) == (0, False)
    assert b"link -> -f" in done.stdout


def test_a_target_without_ssh_takes_and_gives_a_directory(sync: Program, needs_root: None) -> None:
    far = sync.home / "far"
    place = f"nsenter://{os.getpid()}:{far}"
    assert sync.run("sync", "tree/", f"{place}/").returncode == 0
    assert names(far) == names(sync.home / "tree")
    assert sync.run("sync", f"{place}/", "back").returncode == 0
    assert names(sync.home / "back") == names(far)


def test_what_cannot_be_done_is_said(sync: Program, fleet_hosts: FleetHosts) -> None:
    done = sync.run("sync", "none", "web1:")
    assert (done.returncode, b"No such file" in done.stderr) == (1, True)
    done = sync.run("sync", "web1:a", "web2:b")
    assert (done.returncode, b"use 'harness cp' between two targets" in done.stderr) == (125, True)
    assert sync.run("sync", "tree", "copy").returncode == 125
    for option in ("--", "-", "long", ""):  # rsync would read it as a path, and what follows, too
        done = sync.run("sync", f"--rsync-option={option}", "tree", "web1:")
        assert (done.returncode, b"--rsync-option takes an option" in done.stderr) == (125, True)
    assert sync.run("sync", "tree", "down:").returncode == 125
    programs = sync.home / "bin"
    programs.mkdir()
    for name in ("ssh", "sh", "env"):
        (programs / name).symlink_to(shutil.which(name) or "/missing")
    done = sync.run("sync", "tree", "web1:", PATH=str(programs))
    assert (done.returncode, b"this machine: rsync is not installed" in done.stderr) == (125, True), done.stderr


def test_a_cut_connection_is_made_again_and_an_interrupt_ends_both_sides(
    sync: Program, fleet_hosts: FleetHosts
) -> None:
    home = fleet_hosts.home("web1")
    (sync.home / "big").write_bytes(content := os.urandom(100_000_000))
    with sync.start("sync", "big", "web1:") as copying:
        _wait_for(home, 10_000_000)
        fleet_hosts.servers["web1"].restart()
        _, stderr = copying.communicate(timeout=60)
    assert (copying.returncode, b"reconnecting" in stderr) == (0, True), stderr
    assert (home / "big").read_bytes() == content
    with sync.start("sync", "--rsync-option=--bwlimit=1000", "big", "web2:") as copying:
        _wait_for(fleet_hosts.home("web2"), 100_000)
        copying.send_signal(signal.SIGINT)
        assert copying.wait(30) == 130
    assert not (fleet_hosts.home("web2") / "big").exists()


def test_an_older_rsync_knows_the_options(sync: Program, fleet_hosts: FleetHosts) -> None:
    programs = sync.home / "bin"
    programs.mkdir()
    (programs / "rsync").write_text(
        '#!/bin/sh\nfor word; do [ "$word" != --secluded-args ] || exit 1; done\n'  # which came with 3.2.6
        f'exec {shutil.which("rsync")} "$@"\n'
    )
    (programs / "rsync").chmod(0o755)
    done = sync.run("sync", "tree/", "web1:old", PATH=f"{programs}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (0, b"")
    assert names(fleet_hosts.home("web1") / "old") == names(sync.home / "tree")


def _wait_for(directory: Path, size: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if any(path.stat().st_size >= size for path in [*directory.glob(".big*"), *directory.glob(".rsync-partial/*")]):
            return
        time.sleep(0.005)
    raise AssertionError("nothing was transferred")
