"""Starting harnesses in processes of their own, and ending them in the middle of their work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.rig import Place, alive

PROGRAM = Path(__file__).with_name("child.py")


class Child:
    """A harness in a process of its own. What it says are JSON objects, one a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def give(self, command: str, tag: int = 0, **options: Any) -> None:
        """A command for it to run."""
        self._write(json.dumps({"command": command, "tag": tag, "options": options}))

    def go(self) -> None:
        """Let it run what it was given; returns when it is about to."""
        self._write("run")
        assert self.hear()["running"]

    def hear(self) -> dict[str, Any]:
        """What it says next."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the child ended with {self._process.wait()}"
        said: dict[str, Any] = json.loads(line)
        return said

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def kill(self) -> None:
        """SIGKILL, and it is gone."""
        if alive(self.pid):
            self._process.kill()
        self._process.wait(10)

    def rss(self) -> int:
        """Bytes of memory that it has now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def child(place: Place, *, tmux: bool = True, together: bool = False, **overrides: Any) -> Iterator[Child]:
    """A connected harness in another process; killed at the end if it still runs."""
    config = asdict(replace(place.config, tmux_socket=place.socket, **overrides))
    process = subprocess.Popen([sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    one = Child(process)
    try:
        one._write(json.dumps({"target": place.target, "tmux": tmux, "config": config, "together": together}))
        assert one.hear()["ready"]
        yield one
    finally:
        one.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.close()


def killed_after(process: subprocess.Popen[str], returned: int, seconds: float) -> list[int]:
    """Kill a program that long after it printed so many lines; returns the number of each line that it printed whole.

    The rest is read from the same file object: ``communicate`` would lose what that has read ahead.
    """
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(returned)]
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        pytest.fail("it ended by itself")
    process.kill()
    printed += process.stdout.readlines()
    return [int(line) for line in printed if line.endswith("\n")]
