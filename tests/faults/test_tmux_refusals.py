"""tmux makes a window and then refuses to start its log: nothing half-made stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, open_desk

from harness.errors import TerminalError

__all__ = ["open_desk"]

TIME = 120.0


@contextmanager
def refusing(desk: Desk, command: str) -> Iterator[None]:
    """tmux takes a command for another one, which it refuses once it is carried out."""
    desk.tmux.cmd("set-option", "-s", "command-alias[90]", f"{command}=respawn-pane")
    try:
        yield
    finally:
        desk.tmux.cmd("set-option", "-s", "-u", "command-alias[90]")


def windows(desk: Desk) -> list[str]:
    """Every window of the server: its session, its mark, and whether its pane has a log."""
    return desk.tmux.cmd("list-panes", "-a", "-F", "#{session_name} #{@harness_pane} #{pane_pipe}").stdout


@pytest.mark.parametrize("mode", ["auto", "never"])
async def test_what_could_not_get_its_log_is_removed_and_told(open_desk: OpenDesk, mode: str) -> None:
    desk = await open_desk(control_mode=mode, max_sessions=2)
    with anyio.fail_after(TIME):
        before = windows(desk)
        with refusing(desk, "pipe-pane"):
            with pytest.raises(TerminalError, match="still active"):
                await desk.ctx.create_pane("one")
            with pytest.raises(TerminalError, match="still active"):
                await desk.ctx.create_session("two")
        assert windows(desk) == before == ["harness main 1"]
        assert (await desk.ctx.run_shell("echo still", pane="main")).stdout == "still\n"
        await desk.ctx.create_pane("one")
        await desk.ctx.create_session("two")
        assert sorted(windows(desk)) == ["harness main 1", "harness one 1", "two main 1"]
        assert (await desk.ctx.run_shell("echo fine", pane="one")).stdout == "fine\n"
