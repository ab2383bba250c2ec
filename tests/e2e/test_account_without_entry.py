"""A user id without an entry in the list of users, as is usual in containers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("needs_process")

NO_ENTRY = 48123


AS_NOBODY_LISTED = ("unshare", "-U", f"--map-user={NO_ENTRY}", f"--map-group={NO_ENTRY}")
"""In a user namespace our own files stay ours, under that id."""


def harness(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as that user id, with this environment alone."""
    return subprocess.run(
        [*AS_NOBODY_LISTED, sys.executable, "-c", "from harness.cli.start import main; main()", *words],
        env={"PATH": os.environ["PATH"], **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("options", [[], ["--tmux"]], ids=["plain", "tmux"])
def test_commands_run(tmp_path: Path, options: list[str]) -> None:
    places = {"HOME": str(tmp_path), "TMUX_TMPDIR": str(tmp_path)}
    try:
        done = harness(
            *options, "run", "--", "echo out; exit 3" if not options else "echo out; sh -c 'exit 3'", **places
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "")
        listed = harness("--json", "jobs", **places)
        assert f'"owner": "{NO_ENTRY}@' in listed.stdout
    finally:
        subprocess.run(
            ["tmux", "-L", "harness", "kill-server"], env={**os.environ, "TMUX_TMPDIR": str(tmp_path)}, check=False
        )


def test_without_a_home_a_message_says_what_to_set() -> None:
    done = harness("config", "show")
    assert done.returncode == 125
    assert f"user ID {NO_ENTRY} is not in the user database" in done.stderr
    assert "set HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_home_in_a_path_is_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = harness("--config", "~no-such-user/file", "config", "show", HOME=str(tmp_path))
    assert done.returncode == 125
    assert "~no-such-user/file" in done.stderr
    assert "Traceback" not in done.stderr
