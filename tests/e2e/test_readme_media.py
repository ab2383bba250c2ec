"""The transcripts of the README and of the agent's tutorial are what happens today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("script", ["readme_media.py", "agent_media.py"])
def test_the_commands_of_the_documentation_do_what_it_shows(script: str, request: pytest.FixtureRequest) -> None:
    if script == "readme_media.py":
        request.getfixturevalue("needs_root")  # it reads all of /var/log
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), "--check"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
