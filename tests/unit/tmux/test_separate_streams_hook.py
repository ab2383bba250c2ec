"""``hooks/separate_streams.sh``, which runs a command with streams of its own in a pane."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.pane_shells import shell_path

import harness_backends.tmux

pytestmark = pytest.mark.usefixtures("needs_process")

APART = Path(harness_backends.tmux.__file__).parent / "hooks/separate_streams.sh"
SUBREAPER = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL).returncode
try:
    os.waitpid(-1, os.WNOHANG)
    print(code, "left something")
except ChildProcessError:
    print(code, "left nothing")
"""
"""What an orphan of the command would become a child of, as of the first process of a container."""


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
def test_it_leaves_no_process_for_others_to_wait_for(tmp_path: Path, shell: str) -> None:
    (tmp_path / "7.sh").write_text("echo out; sleep 0.5; exit 3\n")
    words = [shell_path(shell), *(["sh"] if shell == "busybox" else []), str(APART), str(tmp_path / "7")]
    done = subprocess.run([sys.executable, "-c", SUBREAPER, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "3 left nothing"
    assert (tmp_path / "7.out").read_text() == "out\n"
