"""Blocking functions that may outlive the program."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from harness.system.daemon_thread import run_in_daemon_thread

PROGRAM = """
import time, anyio
from harness.system.daemon_thread import run_in_daemon_thread
async def main():
    with anyio.move_on_after(0.1):
        await run_in_daemon_thread(lambda: time.sleep(300))
    print("left")
anyio.run(main)
"""


async def test_it_returns_the_result_or_raises_the_failure() -> None:
    assert await run_in_daemon_thread(lambda: 7) == 7
    with pytest.raises(OSError, match="No such file"):
        await run_in_daemon_thread(Path("/no/such/file").read_bytes)


async def test_a_result_after_the_cancellation_goes_nowhere() -> None:
    ended: list[int] = []

    def slow() -> None:
        time.sleep(0.3)
        ended.append(1)

    with anyio.move_on_after(0.05):
        await run_in_daemon_thread(slow)
    with anyio.fail_after(10):
        while not ended:  # noqa: ASYNC110  # of a thread
            await anyio.sleep(0.01)
    assert await run_in_daemon_thread(lambda: 7) == 7


def test_the_program_ends_without_it(needs_process: None) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("left\n", "", 0)
