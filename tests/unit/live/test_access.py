"""What protects the sockets: the token, the proof, the directory, and the processes that may act."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from harness.errors import ConfigError, HarnessError
from harness.live import sockets
from harness.live.access_token import is_proof, proof_for, read_token, token_path
from harness.live.announcement import announce
from harness.live.overview import open_overview
from harness.live.peers import Peer, acting_refusal
from harness.live.sockets import (
    DEAD,
    connect_to,
    directory_of,
    listed_processes,
    listening_socket,
    open_directory,
    remove_old_sockets,
    was_left,
)
from harness.system.directory_watch import watch_directory
from harness.system.process_identity import ancestors_of, this_process


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own, whose path is too long for a socket's address."""
    state = tmp_path / ("long" * 30)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state


def test_the_token_is_created_once_and_private() -> None:
    assert read_token(create=False) is None
    token = read_token(create=True)
    assert token is not None
    assert len(token) == 64
    assert read_token(create=True) == read_token(create=False) == token
    assert [stat.S_IMODE(path.stat().st_mode) for path in (token_path(), token_path().parent)] == [0o600, 0o700]


@pytest.mark.parametrize("change", ["open", "link", "short", "directory"])
def test_a_token_that_is_not_private_is_refused(change: str, tmp_path: Path) -> None:
    read_token(create=True)
    path = token_path()
    if change == "open":
        path.chmod(0o640)
    elif change == "short":
        path.write_text("1")
    else:
        path.unlink()
        path.mkdir() if change == "directory" else path.symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError):
        read_token(create=True)


def test_a_proof_is_good_for_one_challenge_one_process_and_one_name() -> None:
    token = b"t" * 64
    proof = proof_for(token, "challenge", 7, "anna")
    assert is_proof(proof, token, "challenge", 7, "anna")
    assert not is_proof(proof, token, "another", 7, "anna")
    assert not is_proof(proof, token, "challenge", 8, "anna")
    assert not is_proof(proof, token, "challenge", 7, "eve")
    assert not is_proof(proof, b"u" * 64, "challenge", 7, "anna")
    assert not is_proof("\udcff", token, "challenge", 7, "anna")


@pytest.mark.usefixtures("needs_process")
def test_processes_of_harness_and_what_they_start_may_not_act() -> None:
    us = next(ancestors_of(os.getpid()))
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert acting_refusal(Peer(child.pid, 0), set()) == ""
            assert "was started by the harness process" in acting_refusal(Peer(child.pid, 0), {us})
            assert acting_refusal(Peer(child.pid, 0), {(us[0], "another start")}) == ""  # the ID was used again
        finally:
            child.kill()
    for name in ("HX_DIR", "HARNESS_JOB"):
        shell = ["sh", "-c", "sleep 60 & echo $!; wait"]
        with subprocess.Popen(shell, env={**os.environ, name: "1"}, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            grandchild = int(parent.stdout.readline())
            assert "a pane or a job" in acting_refusal(Peer(grandchild, 0), set())
            os.kill(grandchild, 9)
    assert "not visible" in acting_refusal(Peer(0, 0), set())
    assert "does not report" in acting_refusal(None, set())


def test_a_socket_is_there_and_listens_until_it_is_closed() -> None:
    here = this_process()
    with listening_socket(here):
        ((path, process),) = listed_processes(here).items()
        assert process == here
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        connect_to(path).close()
    assert listed_processes(here) == {}
    with pytest.raises(OSError, match="No such file"):
        connect_to(path)


def test_only_what_dead_processes_left_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_process()
    directory = open_directory(here)
    with listening_socket(here):
        for name in (f"{here.pid}-1", "1-1", "notes", ".draft"):
            (directory / name).touch()
        elsewhere = directory_of(replace(here, host="another"))
        before = directory_of(replace(here, boot="an-earlier-boot"))
        for other in (elsewhere, before):
            other.mkdir(mode=0o700)
            (other / "77-1").touch()
        assert list(listed_processes(here).values()) == [here]
        assert [was_left(directory / name) for name in ("1-1", "2-2")] == [True, False]
        remove_old_sockets(here)
        dead = sorted(directory.glob(f"{DEAD}*"))
        assert dead == [directory / f"{DEAD}1-1", directory / f"{DEAD}{here.pid}-1"]
        monkeypatch.setattr(sockets, "MAX_DEAD_SECONDS", 0.0)
        remove_old_sockets(here)
        assert sorted(path.name for path in directory.iterdir()) == sorted(
            [".draft", f"{here.pid}-{here.started}", "notes"]
        )
        assert (elsewhere.exists(), before.exists()) == (True, False)


def test_an_open_directory_is_refused() -> None:
    here = this_process()
    open_directory(here).chmod(0o755)
    with pytest.raises(HarnessError, match="other users may look into it"):
        open_directory(here)


@pytest.mark.parametrize("by", ["inotify", "looking again"])
async def test_a_change_of_a_directory_is_noticed(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if by != "inotify":
        monkeypatch.setattr("harness.system.directory_watch.DirectoryWatch._open_inotify", lambda self: None)
        monkeypatch.setattr("harness.system.directory_watch.RESCAN_INTERVAL", 0.1)
    with watch_directory(tmp_path) as watch, anyio.fail_after(10):
        (tmp_path / "a").touch()
        await watch.wait_for_change()
        (tmp_path / "a").rename(tmp_path / "b")
        await watch.wait_for_change()
        (tmp_path / "b").unlink()
        await watch.wait_for_change()
        if by == "inotify":
            with anyio.move_on_after(0.3) as nothing:
                await watch.wait_for_change()
            assert nothing.cancelled_caught


@pytest.mark.usefixtures("needs_process")
async def test_a_dashboard_sees_processes_also_after_its_directory_was_removed() -> None:
    """As by another machine that shares the home directory, once it was empty for a day."""
    directory = directory_of(this_process())
    changed = [anyio.Event()]

    def noted() -> None:
        changed[0].set()

    async def until(condition: Callable[[], object]) -> None:
        while not condition():
            await changed[0].wait()
            changed[0] = anyio.Event()

    with anyio.fail_after(30):
        async with open_overview(noted) as overview:
            await overview.wait_complete()
            directory.rmdir()
            await until(directory.exists)
            async with announce("python"):
                await until(lambda: overview.processes)
