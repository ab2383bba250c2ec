"""The command of programs that attach again: it enters the session that was found, and no later one of its name."""

from __future__ import annotations

import subprocess
from typing import Any

import pexpect
import pytest
from tests.support.pane_shells import PaneShell, open_pane_shell

from harness.terminal import CLIENT_STATUS

pytestmark = pytest.mark.usefixtures("needs_tmux")


def tmux(pane: PaneShell, *words: str) -> bool:
    """Run a command of tmux; returns whether it succeeded."""
    argv = ["tmux", "-L", pane.socket, "-f", "/dev/null", *words]
    return subprocess.run(argv, capture_output=True, timeout=20).returncode == 0


def attached(words: list[str]) -> Any:
    argv: Any = words
    return pexpect.spawn(argv[0], argv[1:], timeout=20, dimensions=(30, 80))


def end_of(client: Any) -> int:
    client.expect(pexpect.EOF)
    client.close()
    return int(client.exitstatus)


@pytest.mark.parametrize("control", ["auto", "never"])
async def test_a_client_tells_that_it_was_detached(control: Any) -> None:
    async with open_pane_shell("bash", control_mode=control) as pane:
        client = attached(pane.ctx.supervised_attach_command())
        client.expect_exact("\x1b[?1049h")
        client.send("\x02d")
        assert end_of(client) == CLIENT_STATUS


@pytest.mark.parametrize("control", ["auto", "never"])
async def test_a_client_enters_no_other_session_of_the_name(control: Any) -> None:
    async with open_pane_shell("bash", control_mode=control) as pane:
        words = pane.ctx.supervised_attach_command()
        assert tmux(pane, "kill-server")
        while not tmux(pane, "has-session", "-t", "=harness"):  # the old server ends first, or harness was quicker
            tmux(pane, "new-session", "-d", "-s", "harness")
        client = attached(words)
        assert end_of(client) not in (CLIENT_STATUS, CLIENT_STATUS + 1)
        assert b"\x1b[?1049h" not in client.before
