"""The progress of transfers, on a real terminal and without one."""

from __future__ import annotations

import os
import subprocess
import sys

import pexpect
import pytest

from harness.cli.progress_bar import progress_text

PROGRAM = """
import sys, time
sys.modules.update(dict.fromkeys(sys.argv[1:]))  # an import of these fails
from harness.cli import progress_bar
progress_bar.SHOW_AFTER = 0.0
with progress_bar.transfer_progress("big [x].log") as update:
    if update is None:
        sys.exit("no terminal")
    update(30_000_000, 120_000_000)
    time.sleep(2 * progress_bar.MIN_INTERVAL)
    update(60_000_000, 120_000_000)
    time.sleep(2 * progress_bar.MIN_INTERVAL)
    update(120_000_000, 120_000_000)
print("the end")
"""


@pytest.mark.parametrize(
    ("done", "whole", "seconds", "text"),
    [
        (30_000_000, 120_000_000, 3.0, "f 30.0 of 120.0 MB, 10.0 MB/s, 0:09 left"),
        (0, 120_000_000, 3.0, "f 0.0 of 120.0 MB, 0.0 MB/s"),
        (1_000_000, 700_000_000, 10.0, "f 1.0 of 700.0 MB, 0.1 MB/s, 116:30 left"),
        (30_000_000, None, 3.0, "f 30.0 MB, 10.0 MB/s"),
        (0, 0, 0.0, "f 0.0 MB, 0.0 MB/s"),
    ],
)
def test_a_line_says_how_much_how_fast_and_how_long(done: int, whole: int | None, seconds: float, text: str) -> None:
    assert progress_text("f", done, whole, seconds) == text


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("missing", [[], ["rich"]], ids=["rich", "without rich"])
def test_a_terminal_sees_the_rate_and_the_end(missing: list[str]) -> None:
    with pexpect.spawn(
        sys.executable, ["-c", PROGRAM, *missing], env={**os.environ, "NO_COLOR": "1"}, timeout=20, dimensions=(24, 120)
    ) as terminal:
        terminal.expect_exact("big [x].log")
        terminal.expect("120.0( of |/)120.0 MB")
        terminal.expect("MB/s")
        terminal.expect_exact("the end\r\n")


@pytest.mark.usefixtures("needs_process")
def test_nothing_is_shown_where_stderr_is_no_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no terminal\n")
