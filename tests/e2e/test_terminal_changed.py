"""The pane's shell was changed so that it runs nothing of ours: the reason that is told is not another one."""

from __future__ import annotations

import pytest
from tests.support.desk import OpenDesk, open_desk

from harness import Status

__all__ = ["open_desk"]

CHANGES = [
    ("/bin/dash", "readonly IFS PATH"),
    ("/bin/dash", "set -n"),
    ("/bin/dash", "stty raw"),
    ("/usr/bin/zsh", "readonly IFS PATH"),
    ("/bin/mksh", "ulimit -n 6"),
]


@pytest.mark.parametrize(("shell", "change"), CHANGES)
async def test_what_stands_in_the_way_is_shown_and_not_guessed(open_desk: OpenDesk, shell: str, change: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell(change, timeout=20)
    result = await desk.ctx.run_shell("echo late", timeout=20)
    assert (result.status, result.exit_code, result.stdout) == (Status.UNKNOWN, None, ""), result
    told = "\n".join(result.notices)
    assert "a function, alias, key binding or other change in that shell" in told
    assert "the screen shows:" in told
