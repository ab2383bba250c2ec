"""The ages of processes as ``ps -o etime=`` prints them, on targets without ``/proc``."""

from __future__ import annotations

import subprocess

import pytest

from harness_backends.tmux.jobs.kill_script import SIGNAL_PROCESSES

pytestmark = pytest.mark.usefixtures("needs_process")

FUNCTION = "lasts() {" + SIGNAL_PROCESSES.partition("\nlasts() {")[2].partition("\n}\n")[0] + "\n}\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:05", 5),
        ("08:09", 489),
        ("01:08:09", 4089),
        ("2-00:00:09", 172809),
        ("08-09:08:09", 724089),  # macOS
        ("1234-23:59:59", 106703999),
    ],
)
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_an_age_is_read(shell: str, text: str, seconds: int) -> None:
    done = subprocess.run(
        [shell, "-c", f'{FUNCTION}lasts {text}; echo "$seconds"'], capture_output=True, text=True, timeout=20
    )
    assert (done.stdout, done.stderr) == (f"{seconds}\n", "")
