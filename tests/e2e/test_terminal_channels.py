"""Both ways to send commands to tmux keep what ``CommandChannel`` promises."""

from __future__ import annotations

import os
import signal

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, open_desk, until

from harness import TerminalError
from harness_backends.tmux.channel.command_channel import CommandChannel, ResponseLost
from harness_backends.tmux.channel.control_connection import ControlConnection
from harness_backends.tmux.channel.single_commands import SingleCommands
from harness_backends.tmux.terminal import TmuxTerminal

__all__ = ["open_desk"]

CHANNELS = {"auto": ControlConnection, "never": SingleCommands}
TEXTS = ["plain", "a;", ";", "'\"$HOME`id`\\", "#{pane_id}", "{ }", "é " * 3000, "%s\t%if"]


@pytest.fixture(params=["auto", "never"])
async def desk(open_desk: OpenDesk, request: pytest.FixtureRequest) -> Desk:
    return await open_desk(control_mode=request.param)


def channel(desk: Desk) -> CommandChannel:
    terminal = desk.ctx._terminal
    assert isinstance(terminal, TmuxTerminal)
    assert type(terminal._link) is CHANNELS[desk.config.control_mode]
    return terminal._link


def shown(name: str) -> tuple[str, ...]:
    return "display-message", "-p", name


def set_to(value: str) -> tuple[str, ...]:
    return "set-option", "-g", "@y", value


async def test_each_command_has_its_answer_and_the_first_that_fails_ends_the_request(desk: Desk) -> None:
    link = channel(desk)
    first, none, last = await link.request(shown("one"), ("set-option", "-g", "@x", "a;"), shown("#{@x} two"))
    assert (first.text, none.text, last.text) == ("one", "", "a; two")
    with pytest.raises(TerminalError, match="nosuch"):
        await link.request(
            ("set-option", "-g", "@y", "1"), ("kill-session", "-t", "=nosuch"), ("set-option", "-g", "@y", "2")
        )
    assert [block.text for block in await link.ask(shown("#{@y}"))] == ["1"]


async def test_each_text_arrives_unchanged(desk: Desk) -> None:
    link = channel(desk)
    for text in TEXTS:
        await link.request(("set-buffer", "-b", "hxtext", "--", text))
        assert "\n".join(desk.tmux.cmd("show-buffer", "-b", "hxtext").stdout) == text


async def test_a_request_that_was_sent_when_the_connection_broke_may_have_run_and_the_next_one_runs(desk: Desk) -> None:
    link, raised = channel(desk), []
    shell = int((await link.shell.call("echo $$")).text)

    async def wait() -> None:
        with pytest.raises(ResponseLost) as caught:
            await link.request(("run-shell", "sleep 306.5"))
        raised.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await until(lambda: desk.processes("sleep 306.5"))
        if isinstance(link, ControlConnection):
            await link.client.aclose()
        else:
            os.kill(shell, signal.SIGKILL)
    assert len(raised) == 1
    for process in desk.processes("sleep 306.5"):
        os.kill(process, signal.SIGKILL)
    assert [block.text for block in await link.ask(shown("again"))] == ["again"]
    assert (await desk.ctx.run_shell("echo after")).stdout == "after\n"


async def test_a_session_that_has_ended_is_created_again_and_one_that_was_renamed_is_found(desk: Desk) -> None:
    assert (await desk.ctx.run_shell("echo first")).stdout == "first\n"
    desk.tmux.cmd("rename-session", "-t", "=harness", "elsewhere")
    renamed = await desk.ctx.run_shell("echo renamed")
    assert renamed.stdout == "renamed\n"
    assert any("elsewhere" in notice for notice in renamed.notices), renamed
    for ended in ("elsewhere", "harness", "harness", "harness"):  # the command is sent before or after the end is seen
        desk.tmux.cmd("kill-session", "-t", f"={ended}")
        fresh = await desk.ctx.run_shell("echo fresh")
        assert (fresh.stdout, fresh.exit_code) == ("fresh\n", 0), fresh
        assert any("new one" in notice for notice in fresh.notices), fresh
