"""People at a session are noticed when they type or take it over, and see in the status line what the agent does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until

from harness import connect
from harness.terminal import OperatorActivity

__all__ = ["desk", "open_desk"]

LIMIT = 90.0


@dataclass
class Heard:
    """What a listener was told."""

    activities: deque[OperatorActivity] = field(default_factory=deque)
    more: anyio.Event = field(default_factory=anyio.Event)

    def __call__(self, activity: OperatorActivity) -> None:
        self.activities.append(activity)
        self.more.set()
        self.more = anyio.Event()

    async def first(self, kind: str) -> OperatorActivity:
        while not any(one.kind == kind for one in self.activities):
            await self.more.wait()
        return next(one for one in self.activities if one.kind == kind)


@everywhere
async def test_who_types_at_the_prompt_is_noticed_and_what_was_typed_can_be_read(desk: Desk) -> None:
    heard = Heard()
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with desk.ctx.operators(heard) as people:
            assert (await desk.ctx.run_shell("echo from the agent")).exit_code == 0
            mark = await people.mark()
            await _until_idle(desk)
            operator.type("echo by hand\n")
            assert (await heard.first("typing")).pane == "main"
            await operator.sees("by hand\n")
            await until(lambda: "\nby hand" in operator.screen)
            text = await people.text_since(mark)
    assert "echo by hand" in text
    assert "\nby hand" in text
    assert "from the agent" not in text


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/usr/bin/fish"])
async def test_a_half_typed_line_is_noticed_in_every_shell(open_desk: OpenDesk, shell: str) -> None:
    desk, heard = await open_desk(shell=shell), Heard()
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with desk.ctx.operators(heard):
            await desk.ctx.run_shell("true")
            await _until_idle(desk)
            while not heard.activities:
                operator.type("x")
                with anyio.move_on_after(1.5):
                    await heard.first("typing")


async def test_neither_the_agents_commands_nor_its_keys_count_as_a_person(desk: Desk) -> None:
    heard = Heard()
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with desk.ctx.operators(heard) as people:
            for number in range(10):
                operator.press("C-b", "t") if number == 0 else None  # somebody is there, and uses the keyboard
                await desk.ctx.run_shell(f"echo {number}")
            await desk.ctx.send_keys(literal_text="echo typed by the agent", enter=True)
            await until(lambda: desk.show("#{pane_mode}") == "clock-mode" and _wrote(desk, "\ntyped by the agent"))
            await people.mark()
    assert list(heard.activities) == []


@everywhere
async def test_the_key_takes_the_session_over_and_gives_it_back(desk: Desk) -> None:
    heard = Heard()
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with desk.ctx.operators(heard) as people:
            await people.set_status("thinking")
            await operator.sees("agent: thinking - F12 takes over")
            operator.press("F12")
            await heard.first("took")
            await operator.sees("PAUSED by operator")
            operator.press("F12")
            await heard.first("returned")
            await operator.sees("agent: thinking")
            await people.set_paused(paused=True)
            await operator.sees("PAUSED by operator")
        await until(lambda: "PAUSED" not in operator.screen and "agent:" not in operator.screen)
    assert [one.kind for one in heard.activities if one.kind != "typing"] == ["took", "returned"]


async def test_what_is_shown_is_text_and_no_format(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with desk.ctx.operators(Heard()) as people:
            await people.set_status("job 7 #(touch made) #{pid} %H")
            await operator.sees("agent: job 7 touch made pid H")
    assert not (desk.home / "made").exists()


async def test_the_agents_word_goes_with_its_client(desk: Desk) -> None:
    with anyio.fail_after(LIMIT):
        operator = await desk.operator(150, 42)
        async with connect("local:", tmux=True, config=desk.config) as other, other.operators(Heard()) as people:
            await people.set_status("thinking")
            await operator.sees("agent: thinking")
            pid = desk.show("#{@harness_agent_client}")
            desk.tmux.cmd("detach-client", "-t", f"client-{pid}")
            await until(lambda: desk.show("#{@harness_agent}") == "" or desk.show("#{@harness_agent_client}") != pid)
            await operator.sees("agent: thinking")  # it has come back, and says it again


def _wrote(desk: Desk, text: str) -> bool:
    """Whether a pane that is in a mode shows the text below it."""
    return text in "\n".join(desk.tmux.cmd("capture-pane", "-p", "-t", "=harness:main").stdout)


async def _until_idle(desk: Desk) -> None:
    await until(lambda: desk.show("#{@harness_busy}") == "")
    await anyio.sleep(0.3)  # a prompt that was just written may still be written on
