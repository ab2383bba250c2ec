"""The tmux sessions of many hosts side by side: harness attach --hosts, with a real tmux on both sides."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tests.support.fleet_hosts import FleetHosts
from tests.support.program import Program

from harness.cli import tiled_windows
from harness.cli.tiled_windows import TiledPane, show_tiled
from harness.errors import HarnessError


@pytest.fixture
def ops(needs_tmux: None, fleet_program: Program, fleet_hosts: FleetHosts) -> Iterator[Program]:
    """The program, with sessions on web1 and web2, and a directory for the sockets of tmux on this machine."""
    sockets = fleet_hosts.directory / "here"
    sockets.mkdir(mode=0o700)
    fleet_program.environ["TMUX_TMPDIR"] = str(sockets)
    command = 'printf "\\033[H\\033[2J"; echo on ${HOME##*/}'
    done = fleet_program.run("run", "--tmux", "--hosts", "web[1-2]", "--", command)
    assert done.returncode == 0, done.stderr
    yield fleet_program
    for path in sockets.glob("tmux-*/*"):
        subprocess.run(["tmux", "-S", str(path), "kill-server"], capture_output=True)


def attached(ops: Program, *words: str, size: tuple[int, int] = (50, 170)) -> pexpect.spawn[bytes]:
    argv: Any = [*ops.always, "attach", *words]
    environ: Any = ops.environ
    return pexpect.spawn(ops.path, argv, env=environ, cwd=str(ops.home), timeout=30, dimensions=size)


def here(ops: Program, socket: str, *words: str) -> str:
    """Run a command of a tmux server on this machine and return its output."""
    return subprocess.run(["tmux", "-L", socket, *words], env=ops.environ, capture_output=True, text=True).stdout


def wait_until(check: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # tmux shows a screen and cannot signal it


def screens(ops: Program, socket: str) -> dict[str, str]:
    """The screens of a server's panes by their titles."""
    lines = here(ops, socket, "list-panes", "-a", "-F", "#{pane_id} #{@harness_title}").splitlines()
    panes = dict(line.partition(" ")[::2] for line in lines)
    return {title: here(ops, socket, "capture-pane", "-p", "-t", pane) for pane, title in panes.items() if title}


def wait_for_screens(ops: Program, socket: str, **texts: str) -> None:
    """Wait until each pane, by its title, shows a text."""

    def shown() -> bool:
        found = screens(ops, socket)
        return all(text in " ".join(found.get(title, "").split()) for title, text in texts.items())

    wait_until(shown, f"not shown: {texts}")


BOTH = {"web1": "on web1", "web2": "on web2"}


def clients(hosts: FleetHosts, name: str) -> list[str]:
    """The read-only flag of each operator at a host; harness's own control client has no terminal."""
    lines = hosts.tmux(name, "list-clients", "-F", "#{client_tty} #{client_readonly}").splitlines()
    return [line.split()[1] for line in lines if line.startswith("/")]


def test_each_host_has_a_pane_with_its_session(ops: Program, fleet_hosts: FleetHosts) -> None:
    child = attached(ops, "--hosts", "web[1-3],down")
    socket = f"harness-attach-{child.pid}"
    errors = {"web3: error": "session", "down: error": "Connection refused"}
    wait_for_screens(ops, socket, **BOTH, **errors)
    assert set(screens(ops, socket)) == {*BOTH, *errors}
    assert len(set(here(ops, socket, "list-panes", "-a", "-F", "#{window_id}").split())) == 1
    child.sendcontrol("b")
    child.send("d")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 125  # a host was not reached
    assert here(ops, socket, "list-sessions") == ""
    wait_until(lambda: clients(fleet_hosts, "web1") == [], "a client is left on the host")
    assert "harness" in fleet_hosts.tmux("web1", "list-sessions")
    assert "on web2" in ops.run("--ssh", "web2", "capture").stdout.decode()


def test_keys_reach_the_hosts_and_a_pane_can_be_left(ops: Program, fleet_hosts: FleetHosts) -> None:
    child = attached(ops, "--hosts", "web[1-2]")
    socket = f"harness-attach-{child.pid}"
    wait_for_screens(ops, socket, **BOTH)
    child.send("\x02\x1b[A\x02\x1b[D")  # to the first pane
    child.sendline('echo "ty""ped on ${HOME##*/}"')
    wait_until(lambda: any("typed on" in text for text in screens(ops, socket).values()), "nothing was typed")
    child.send("\x02\x02d")  # the host's tmux detaches, and its pane closes
    wait_until(lambda: len(screens(ops, socket)) == 1, "the pane is left")
    child.send("\x02\x02d")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    for name in ("web1", "web2"):
        assert "harness" in fleet_hosts.tmux(name, "list-sessions")


def test_a_session_on_this_machine_is_shown_too(ops: Program) -> None:
    done = ops.run("run", "--tmux", "--hosts", "local:", "--", 'printf "\033[H\033[2J"; echo on this machine')
    assert done.returncode == 0, done.stderr
    child = attached(ops, "--hosts", "local:,web1")
    socket = f"harness-attach-{child.pid}"
    wait_for_screens(ops, socket, **{"local:": "on this machine", "web1": "on web1"})
    child.send("\x02d")
    child.expect(pexpect.EOF)
    child.close()
    assert "harness" in here(ops, ops.environ["HARNESS_TMUX_SOCKET"], "list-sessions")


def test_read_only_types_nothing(ops: Program, fleet_hosts: FleetHosts) -> None:
    child = attached(ops, "--hosts", "web[1-2]", "--read-only")
    socket = f"harness-attach-{child.pid}"
    wait_for_screens(ops, socket, **BOTH)
    assert clients(fleet_hosts, "web1") == ["1"]
    child.close(force=True)  # the terminal is closed
    wait_until(lambda: here(ops, socket, "list-sessions") == "", "the server is left")
    assert "harness" in fleet_hosts.tmux("web1", "list-sessions")


def test_a_lost_connection_is_shown_in_its_pane(ops: Program, fleet_hosts: FleetHosts) -> None:
    child = attached(ops, "--hosts", "web[1-2]")
    socket = f"harness-attach-{child.pid}"
    wait_for_screens(ops, socket, **BOTH)
    fleet_hosts.servers["web1"].stop()
    text = "attaching ended with exit code 255; Enter closes this pane"
    wait_until(lambda: text in " ".join(screens(ops, socket).get("web1", "").split()), "no error is shown")
    assert "on web2" in screens(ops, socket)["web2"]
    child.send("\x02d")
    child.expect(pexpect.EOF)
    child.close()


def test_inside_tmux_the_windows_are_added_to_the_current_session(ops: Program) -> None:
    done = ops.home / "done"
    words = [ops.path, *ops.always, "attach", "--hosts", "web[1-2]"]
    subprocess.run(
        ["tmux", "-L", "mine", "new-session", "-d", "-s", "work", "-n", "shell", "-x", "170", "-y", "50"],
        env=ops.environ,
        check=True,
    )
    script = 'file=$1; shift; "$@"; echo $? >"$file"; exec sleep 300'
    here(ops, "mine", "respawn-pane", "-k", "-t", "work", "sh", "-c", script, "sh", str(done), *words)
    wait_until(done.exists, "the command does not end")
    wait_for_screens(ops, "mine", **BOTH)
    windows = here(ops, "mine", "list-windows", "-t", "work", "-F", "#{window_name} #{window_panes} #{window_active}")
    assert (windows.splitlines(), done.read_text()) == (["shell 1 0", "harness 2 1"], "0\n")


def test_commands_are_printed_and_nothing_is_shown(ops: Program) -> None:
    done = ops.run("attach", "--print", "--hosts", "web[1-2],down")
    assert done.returncode == 125
    lines = done.stdout.decode().splitlines()
    assert [line.rpartition("  # ")[2] for line in lines] == ["web1", "web2"]
    assert all(line.startswith("ssh ") and "attach-session" in line for line in lines)
    done = ops.run("--json", "attach", "--read-only", "--ssh", "web1", "--ssh", "web3")
    *hosts, summary = map(json.loads, done.stdout.splitlines())
    found = {item["host"]: item for item in hosts}
    assert "attach-session" in " ".join(found["web1"]["argv"])
    assert (found["web3"]["error"]["type"], summary["summary"]["failed"], done.returncode) == ("PaneGone", 1, 1)


def test_without_a_host_that_is_reached_no_window_is_opened(ops: Program) -> None:
    child = attached(ops, "--hosts", "down,down2")
    child.expect("down,down2 \\(2\\): connect to host")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 125


def test_attaching_without_a_terminal_is_an_error(ops: Program) -> None:
    done = ops.run("attach", "--hosts", "web1")
    assert done.returncode == 125
    assert b"--print" in done.stderr


# -- the windows


@pytest.fixture
def inside(needs_tmux: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """A session of a tmux server that this process seems to run in; yields a function that runs its commands."""
    directory = tempfile.mkdtemp(prefix="hx-tiled-", dir="/tmp")  # short, for the path of the socket

    def run(*words: str) -> list[str]:
        argv = ["tmux", "-S", f"{directory}/socket", "-f", "/dev/null", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()

    run("new-session", "-d", "-x", "160", "-y", "48", "sleep", "300")
    monkeypatch.setenv("TMUX", ",".join(run("display-message", "-p", "#{socket_path},#{pid},0")))
    monkeypatch.delenv("TMUX_PANE", raising=False)
    yield run
    run("kill-server")
    shutil.rmtree(directory)


def sleeping(count: int) -> list[TiledPane]:
    return [TiledPane(f"host{number};", ["sh", "-c", "exec sleep 300;"]) for number in range(count)]


def panes_by_window(run: Callable[..., list[str]]) -> list[list[str]]:
    lines = run("list-panes", "-s", "-F", "#{window_index} #{@harness_title}")
    found: dict[str, list[str]] = {}
    for line in lines:
        window, _, title = line.partition(" ")
        found.setdefault(window, []).append(title)
    return [titles for titles in found.values() if titles != [""]]


def test_a_window_has_at_most_16_panes(inside: Callable[..., list[str]]) -> None:
    show_tiled(sleeping(35), "many")
    windows = panes_by_window(inside)
    assert [len(titles) for titles in windows] == [16, 16, 3]
    assert sorted(title for titles in windows for title in titles) == sorted(f"host{number};" for number in range(35))


def test_a_small_window_has_fewer_panes(inside: Callable[..., list[str]]) -> None:
    inside("set-option", "default-size", "20x8")
    show_tiled(sleeping(16), "small")
    windows = panes_by_window(inside)
    assert len(windows) > 1
    assert sum(map(len, windows)) == 16


def test_a_missing_tmux_is_named(needs_tmux: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)
    with pytest.raises(HarnessError, match="needs tmux on this machine"):
        show_tiled(sleeping(1), "none")
    assert tiled_windows.MAX_PANES == 16
