"""``harness demo --agent``: the loop of an agent without a model, the same each time, at a terminal and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pexpect
import pytest

DEMO = [str(Path(sys.executable).with_name("harness")), "demo", "--agent"]
LIMIT = 100
MAX_COLUMNS = 80
"""Of a terminal, and of a page of the documentation."""
MEDIA = Path(__file__).parents[2] / "docs" / "media"


@pytest.fixture
def scratch(needs_process: None) -> Iterator[Path]:
    """A home, and a place for temporary files and sockets; short, because socket paths are."""
    with TemporaryDirectory(prefix="hd-", dir="/tmp") as folder:
        (Path(folder) / "tmp").mkdir()
        yield Path(folder)


def environment(scratch: Path) -> dict[str, str]:
    here = {"HOME": str(scratch), "TMPDIR": str(scratch / "tmp"), "XDG_RUNTIME_DIR": str(scratch)}
    return here | {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"}


def test_it_tells_the_same_at_a_terminal_and_without_one_and_leaves_nothing(scratch: Path) -> None:
    env = environment(scratch)
    with (
        subprocess.Popen(DEMO, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as piped,
        pexpect.spawn(DEMO[0], DEMO[1:], env=env, encoding="utf-8", dimensions=(24, 80), timeout=LIMIT) as terminal,
    ):
        terminal.expect_exact(pexpect.EOF)
        shown = str(terminal.before).replace("\r\n", "\n")
        terminal.wait()
        output, errors = piped.communicate(timeout=LIMIT)
    assert (piped.returncode, errors, terminal.exitstatus) == (0, "", 0), output
    assert shown == output
    assert too_long(output) == []
    for text in (
        "The model is scripted",
        "model (scripted): I look at the sizes",
        "1504854 access.log",
        "> edit ~/logrotate.conf\n    asks: may it?",
        "    you: yes (the demo answers for you)",
        "+rotate daily",
        "harness tells the model: [harness: the background job",
        "    worker.log.gz",
        "Cleaned up",
    ):
        assert text in output
    left = [path.name for path in scratch.iterdir() if path.name != "tmp"]
    assert [name for name in left if name.startswith((".config", ".local"))] == []
    assert list((scratch / "tmp").iterdir()) == []
    end = time.monotonic() + 30  # the processes of a tmux server end after it, by the signal of their terminal
    while (running := processes_of(scratch)) and time.monotonic() < end:
        time.sleep(0.05)
    assert running == []


def test_no_transcript_of_the_documentation_is_wider_than_its_page() -> None:
    transcripts = {path.name: too_long(path.read_text()) for path in MEDIA.glob("*.txt")}
    assert transcripts == {"agent-demo.txt": [], "transcript.txt": []}


def too_long(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > MAX_COLUMNS]


def processes_of(scratch: Path) -> list[str]:
    every = subprocess.run(["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in every.splitlines() if str(scratch) in line]
