"""The transcripts of the README and of the agent's tutorial are what happens today."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.desk import until

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("script", ["readme_media.py", "agent_media.py"])
def test_the_commands_of_the_documentation_do_what_it_shows(script: str, request: pytest.FixtureRequest) -> None:
    if script == "readme_media.py":
        request.getfixturevalue("needs_root")  # it reads all of /var/log
    with start(script) as child:
        try:
            _, errors = child.communicate(timeout=100)
        finally:
            child.send_signal(signal.SIGINT)  # it ends what it started, which a kill would leave
    assert child.returncode == 0, errors


def start(script: str) -> subprocess.Popen[str]:
    argv = [sys.executable, str(SCRIPTS / script), "--check"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def command_lines(words: str) -> list[str]:
    """The command lines of this machine's processes in which the words stand."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if words in line]


@pytest.mark.usefixtures("needs_tmux")
async def test_a_recording_that_is_broken_off_leaves_no_server() -> None:
    with start("agent_media.py") as child:
        try:
            children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
            await until(lambda: children.read_text().split(), timeout=30)
            server = f"harness-demo-{children.read_text().split()[0]}"
            await until(lambda: any("no-output" in line for line in command_lines(server)), timeout=30)
        finally:
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=30)
    await until(lambda: not command_lines(server))
