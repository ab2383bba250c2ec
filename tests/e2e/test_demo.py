"""``scripts/demo`` and ``harness demo``: the story is told, true, and cleaned up after, however it ends."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pexpect
import pytest

from harness.operate.demo import run_demo

pytestmark = pytest.mark.usefixtures("needs_process")

DEMO = [str(Path(sys.executable).with_name("harness")), "demo"]
DETACH = "\x02d"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A home, and a place for temporary files and sockets; short, because socket paths are."""
    with TemporaryDirectory(prefix="hd-", dir="/tmp") as folder:
        (Path(folder) / "tmp").mkdir()
        yield Path(folder)


def environment(scratch: Path) -> dict[str, str]:
    here = {"HOME": str(scratch), "TMPDIR": str(scratch / "tmp"), "XDG_RUNTIME_DIR": str(scratch)}
    return here | {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"}


def start(scratch: Path, *options: str) -> subprocess.Popen[str]:
    env = environment(scratch)
    return subprocess.Popen([*DEMO, *options], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_until(stream: Iterator[str], text: str) -> list[str]:
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError(f"{text!r} is not in:\n" + "\n".join(lines))


def survivors(scratch: Path) -> list[str]:
    """Processes that still use the demo's files, a while after its end: a pane's own end with their terminal."""
    due = time.monotonic() + 30
    while True:
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        left = [line for line in listing.splitlines() if str(scratch) in line]
        if not left or time.monotonic() > due:
            return left
        time.sleep(0.05)  # of other processes' ends there is no event


@pytest.mark.usefixtures("needs_tmux")
async def test_the_demo_tells_what_happens(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(scratch))
    lines: list[str] = []
    await run_demo(say=lines.append)
    story = "\n".join(lines)
    sizes = re.findall(r"^ +(\d+)\t(\w+\.log)$", story, re.MULTILINE)
    assert [name for _, name in sizes] == ["access.log", "worker.log", "app.log"]
    assert "[completed, exit code 1," in story
    assert re.search(r"job \d+ ended: completed, exit code 0", story)
    assert "rotate daily" in story
    assert lines[-1].startswith("Cleaned up")


def test_the_command_leaves_nothing_behind(scratch: Path) -> None:
    with start(scratch) as demo:
        output, errors = demo.communicate(timeout=60)
    assert (demo.returncode, errors) == (0, ""), output
    assert "Cleaned up" in output
    assert survivors(scratch) == []
    assert list((scratch / "tmp").iterdir()) == []
    assert not Path(f"/tmp/tmux-{os.getuid()}/harness-demo-{demo.pid}").exists()


def test_with_keep_the_printed_command_attaches_to_the_session(scratch: Path) -> None:
    with start(scratch, "--keep-running") as demo:
        assert demo.stdout is not None
        story = read_until(demo.stdout, "until you press C-c")
        command = next(line for line in story if line.startswith("    ") and "attach" in line)
        attached = attach(shlex.split(command), environment(scratch), "cat ~/logrotate.conf")
        demo.send_signal(signal.SIGINT)
        output, errors = demo.communicate(timeout=30)
    assert attached == 0
    assert (demo.returncode, errors) == (0, "")
    assert "Cleaned up" in output
    assert survivors(scratch) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_cleans_up(scratch: Path, number: signal.Signals) -> None:
    with start(scratch) as demo:
        assert demo.stdout is not None
        read_until(demo.stdout, "2. Pack them")
        demo.send_signal(number)
        demo.communicate(timeout=30)
    assert demo.returncode != 0
    assert survivors(scratch) == []
    assert list((scratch / "tmp").iterdir()) == []


def attach(command: list[str], env: dict[str, str], expected: str) -> int:
    """Run a command in a terminal until the screen shows a text, detach, and return the exit code."""
    size = (50, 160)
    with pexpect.spawn(command[0], command[1:], env=env, encoding="utf-8", dimensions=size, timeout=20) as terminal:
        terminal.expect_exact(expected)
        terminal.send(DETACH)
        terminal.expect_exact(pexpect.EOF)
        terminal.wait()
    return terminal.exitstatus
