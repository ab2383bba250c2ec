"""The README's transcript is what happens today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "readme_media.py"


def test_the_commands_of_the_readme_do_what_it_shows() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
