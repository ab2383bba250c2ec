"""An operator puts another program into the place of an idle pane's shell, while harness holds the pane."""

from __future__ import annotations

import pytest
from tests.support.desk import Desk, OpenDesk, desk, open_desk, until

from harness import PaneBusy, Status

__all__ = ["desk", "open_desk"]

MODES = ["auto", "never"]
MAIN = ("-t", "=harness:main")
KEYS = "stty raw -echo; printf there; dd bs=1 2>/dev/null | od -An -c"
"""Shows every key that it gets."""


async def put_there(desk: Desk, program: str = KEYS) -> None:
    """As an operator does who needs a place for it."""
    desk.tmux.cmd("respawn-pane", "-k", *MAIN, program)
    await until(lambda: "there" in screen(desk))


def screen(desk: Desk) -> str:
    """What the pane shows."""
    return "\n".join(desk.tmux.cmd("capture-pane", "-p", *MAIN).stdout).strip()


@pytest.mark.parametrize("control_mode", MODES)
async def test_nothing_is_typed_into_a_program_that_took_the_place_of_the_shell(
    open_desk: OpenDesk, control_mode: str
) -> None:
    desk = await open_desk(control_mode=control_mode)
    await desk.ctx.run_shell("true")
    await put_there(desk)
    with pytest.raises(PaneBusy, match="a program with which an operator replaced its shell"):
        await desk.ctx.run_shell("echo late")
    assert screen(desk) == "there"
    desk.tmux.cmd("kill-pane", *MAIN)
    assert (await desk.ctx.run_shell("echo fresh")).stdout == "fresh\n"


async def test_an_unfinished_line_is_not_interrupted_in_a_program_that_took_its_place(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    await until(lambda: desk.show("#{pane_input_off}") == "0")
    desk.tmux.cmd("send-keys", *MAIN, "echo '", "Enter")
    await until(lambda: screen(desk).endswith(">"))
    await put_there(desk)
    with pytest.raises(PaneBusy, match="respawn-pane"):
        await desk.ctx.run_shell("echo late")
    assert screen(desk) == "there"


async def test_a_shell_that_took_its_place_is_used_and_told_of(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    await put_there(desk, "PS1='there$ ' exec dash")
    result = await desk.ctx.run_shell("echo $0; (exit 3)")
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 3, "dash\n"), result
    assert "not found" not in screen(desk)
    assert any("respawn-pane" in notice for notice in result.notices), result.notices
    assert (await desk.ctx.run_shell("echo again")).notices == ()
