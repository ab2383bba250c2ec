"""Shells of which nothing was heard at their prompt, and programs that a shell became: each is told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.desk import Desk, OpenDesk, desk, open_desk, until

from harness import PaneBusy, ShellResult, Status, connect

__all__ = ["desk", "open_desk"]

BECAME = {
    "bash, by exec": ("/bin/bash", "exec bash -l"),
    "bash, by exec of the same": ("/bin/bash", "exec bash --norc -i"),
    "bash, by exec of another": ("/bin/bash", "exec zsh -f"),
    "zsh": ("/usr/bin/zsh", "exec zsh -i -l"),
    "dash": ("/bin/dash", "exec dash -i"),
    "mksh": ("/bin/mksh", "exec mksh"),
    "fish": ("/usr/bin/fish", "exec fish --no-config"),
    "busybox": ("busybox", "exec busybox ash -i"),
}


@pytest.mark.parametrize(("shell", "command"), BECAME.values(), ids=BECAME.keys())
async def test_the_shell_that_a_shell_became_runs_the_next_commands(
    open_desk: OpenDesk, shell: str, command: str
) -> None:
    desk = await open_desk(shell=shell)
    first = await desk.ctx.run_shell(command, timeout=10)
    assert (first.status, first.exit_code) == (Status.RUNNING, None), first
    for number in (4, 0):
        result = await desk.ctx.run_shell(f"echo inside; sh -c 'exit {number}'", timeout=20)
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, number, "inside\n"), result
    async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:
        assert (await other.run_shell("echo from another", timeout=20)).stdout == "from another\n"
    left = await desk.ctx.run_shell("exit 5", timeout=20)
    assert (left.status, left.exit_code) == (Status.SHELL_EXITED, 5), left
    done = await desk.ctx.wait(first.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.SHELL_EXITED, 5), done
    assert (await desk.ctx.run_shell("echo after")).stdout == "after\n"


async def test_a_shell_inside_that_becomes_another_is_taught_again(desk: Desk) -> None:
    await desk.ctx.run_shell("bash --norc", timeout=2)
    assert (await desk.ctx.run_shell("echo one", timeout=20)).stdout == "one\n"
    first = await desk.ctx.run_shell("exec bash --norc", timeout=3)
    assert first.status is Status.RUNNING, first
    assert (await desk.ctx.run_shell("echo two", timeout=20)).stdout == "two\n"
    await desk.ctx.run_shell("exit", timeout=20)
    assert (await desk.ctx.run_shell("echo three", timeout=20)).stdout == "three\n"


@pytest.mark.parametrize("control_mode", ["auto", "never"])
async def test_a_command_that_asks_with_a_line_editor_is_not_taken_for_a_prompt(
    open_desk: OpenDesk, control_mode: str
) -> None:
    desk = await open_desk(control_mode=control_mode)
    asked = await desk.ctx.run_shell("read -e -p 'name? ' x; echo \"got:$x\"", timeout=3)
    assert asked.status is Status.RUNNING
    with pytest.raises(PaneBusy, match=f"job {asked.job_id}"):
        await desk.ctx.run_shell("echo never", timeout=10)
    await desk.ctx.send_keys(literal_text="me", enter=True)
    done = await desk.ctx.wait(asked.job_id or "", timeout=10)
    assert (done.status, done.exit_code) == (Status.COMPLETED, 0), done
    assert done.stdout.endswith("got:me\n")


async def test_without_control_mode_a_shell_that_became_another_is_named(open_desk: OpenDesk) -> None:
    desk = await open_desk(control_mode="never")
    first = await desk.ctx.run_shell("exec bash -l", timeout=3)
    assert first.status is Status.RUNNING
    with pytest.raises(PaneBusy):
        await desk.ctx.run_shell("touch ran", timeout=20)
    assert not (desk.home / "ran").exists()
    killed = await desk.ctx.kill(first.job_id or "")
    assert killed.status is not Status.RUNNING, killed
    assert (await desk.ctx.run_shell("echo after", timeout=20)).stdout == "after\n"


RESET = {
    "bash": ("/bin/bash", "PS1='> '; unset PROMPT_COMMAND"),
    "zsh": ("/usr/bin/zsh", "precmd_functions=(); PROMPT='> '"),
    "dash": ("/bin/dash", "PS1='> '"),
    "mksh": ("/bin/mksh", "PS1='> '"),
    "fish": ("/usr/bin/fish", "functions -e fish_prompt"),
}


@pytest.mark.parametrize(("shell", "typed"), RESET.values(), ids=RESET.keys())
async def test_a_person_who_sets_the_prompt_anew_holds_nothing(open_desk: OpenDesk, shell: str, typed: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.run_shell("true")
    operator = await desk.operator()
    await until(lambda: desk.show("#{pane_input_off}") == "0")
    operator.type(f"{typed}; touch typed")
    operator.press("Enter")
    await until((desk.home / "typed").exists)
    for word in ("one", "two"):
        result = await desk.ctx.run_shell(f"echo {word}; sh -c 'exit 3'", timeout=20)
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 3, f"{word}\n"), result
    async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:
        assert (await other.run_shell("echo three", timeout=20)).stdout == "three\n"


async def test_a_question_that_takes_one_key_is_not_answered(open_desk: OpenDesk) -> None:
    desk = await open_desk(shell="/usr/bin/zsh")
    await desk.ctx.run_shell("true")
    operator = await desk.operator()
    await until(lambda: desk.show("#{pane_input_off}") == "0")
    operator.type("read -q 'x?Su''re? '; echo \"<$x>\"")
    operator.press("Enter")
    await operator.sees("Sure?")
    await until(lambda: "operator" in desk.ctx.describe())
    with pytest.raises(PaneBusy, match="operator"):
        await desk.ctx.run_shell("echo never", timeout=10)
    operator.type("y")
    await operator.sees("<y>")


@pytest.mark.parametrize("shell", ["/bin/bash", "/usr/bin/zsh", "/bin/dash", "/bin/mksh", "/usr/bin/fish"])
async def test_a_pane_whose_first_prompt_was_missed_is_used_as_it_is(open_desk: OpenDesk, shell: str) -> None:
    desk = await open_desk(shell=shell)
    await desk.ctx.create_pane("missed")
    log = _log_of(desk, "missed")
    await until(lambda: log.exists() and b"133;A;" in log.read_bytes())
    log.write_bytes(b"")
    async with connect(
        str(desk.ctx.target), tmux=True, pane="missed", config=replace(desk.config, prompt_timeout=2.0)
    ) as other:
        result = await other.run_shell("echo a; sh -c 'exit 3'", timeout=20)
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 3, "a\n"), result
        assert "hxin" not in await other.capture_pane(start="-")
        assert (await other.run_shell("echo b")).stdout == "b\n"


def _log_of(desk: Desk, name: str) -> Path:
    uid = desk.show("#{@harness_uid}", f"=harness:{name}")
    return desk.state / "panes" / uid / "log.0"


QUESTIONS = {
    "where the cursor is": r"\033[6n",
    "what it is": r"\033[c",
    "its version": r"\033[>q",
    "its state": r"\033[5n",
}


@pytest.mark.parametrize("control_mode", ["auto", "never"])
async def test_an_answer_of_the_terminal_in_the_output_is_told(open_desk: OpenDesk, control_mode: str) -> None:
    desk = await open_desk(control_mode=control_mode)
    await desk.ctx.run_shell("true")
    for question in QUESTIONS:
        asked = await desk.ctx.run_shell(f"printf '{question}'; sleep 0.5")
        told = [notice for notice in asked.notices if "queried the terminal" in notice]
        assert bool(told) == ("^[" in asked.stdout), asked
        kept = await _again(desk, asked.job_id or "")
        assert [notice for notice in kept.notices if "queried the terminal" in notice] == told, kept
    plain = await desk.ctx.run_shell("echo '^[[1;1R'; printf '\\033[31mred\\033[0m'")
    assert not plain.notices, plain


async def _again(desk: Desk, job_id: str) -> ShellResult:
    async with connect(str(desk.ctx.target), tmux=False, config=desk.config) as other:
        return await other.wait(job_id, timeout=10)
