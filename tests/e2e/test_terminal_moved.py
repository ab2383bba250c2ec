"""Panes and sessions that a person renames, moves, links and closes with tmux's own commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.support.desk import Desk, OpenDesk, desk, everywhere, open_desk, until

from harness import Status, TerminalError, connect

__all__ = ["desk", "open_desk"]

MODES = ["auto", "never"]


async def names(desk: Desk) -> list[str]:
    return sorted(pane.name for pane in await desk.ctx.list_panes())


@pytest.mark.parametrize("control_mode", MODES)
@pytest.mark.parametrize("where", ["local", "ssh"])
async def test_a_session_that_was_renamed_is_used_on_and_found_again(
    open_desk: OpenDesk, where: str, control_mode: str
) -> None:
    desk = await open_desk(where, control_mode=control_mode, max_sessions=2)
    await desk.ctx.run_shell("A=kept")
    desk.tmux.cmd("rename-session", "-t", "=harness", "prod")
    assert (await desk.ctx.create_pane("second")).session == "prod"
    result = await desk.ctx.run_shell("echo $A")
    assert result.stdout == "kept\n"
    assert any("'harness' was renamed to 'prod'" in notice for notice in result.notices), result.notices
    assert not (await desk.ctx.run_shell("true")).notices
    assert await names(desk) == ["main", "second"]
    await desk.ctx.kill_pane("second")
    assert [(found.name, found.default) for found in await desk.ctx.list_sessions()] == [("prod", True)]
    assert "=prod" in " ".join(desk.ctx.attach_command)
    with pytest.raises(TerminalError, match="protected"):
        await desk.ctx.kill_session("prod")
    with pytest.raises(TerminalError, match="renamed to 'prod'"):
        await desk.ctx.create_session("harness")
    async with connect(str(desk.ctx.target), tmux=True, config=desk.config) as other:
        found = await other.run_shell("echo $A")
    assert found.stdout == "kept\n"
    assert any("'harness' was renamed to 'prod'" in notice for notice in found.notices), found.notices


async def test_a_session_is_renamed_during_a_command_and_the_client_is_lost(desk: Desk) -> None:
    await desk.ctx.run_shell("mkfifo gate; A=kept")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_rename_and_cut, desk)
        result = await desk.ctx.run_shell("cat gate; echo $A", timeout=20)
    assert (result.status, result.stdout) == (Status.COMPLETED, "kept\n"), result
    assert [pane.session for pane in await desk.ctx.list_panes()] == ["prod"]


async def _rename_and_cut(desk: Desk) -> None:
    await until(lambda: desk.processes("cat gate"))
    desk.tmux.cmd("rename-session", "-t", "=harness", "prod")
    desk.tmux.cmd("detach-client", "-s", "=prod")
    await desk.open_gate()


def link_and_unlink(desk: Desk) -> None:
    desk.tmux.cmd("new-session", "-d", "-s", "other")
    desk.tmux.cmd("link-window", "-d", "-s", "=harness:main", "-t", "other:9")
    desk.tmux.cmd("unlink-window", "-t", "other:9")


def group_and_leave(desk: Desk) -> None:
    desk.tmux.cmd("new-session", "-d", "-s", "mine", "-t", "harness")
    desk.tmux.cmd("kill-session", "-t", "=mine")


def break_out(desk: Desk) -> None:
    desk.tmux.cmd("split-window", "-d", "-t", "=harness:main", "sleep 300")
    desk.tmux.cmd("break-pane", "-d", "-s", "=harness:main.0")


def swap(desk: Desk) -> None:
    desk.tmux.cmd("swap-pane", "-d", "-s", "=harness:main", "-t", "=harness:second")


def join(desk: Desk) -> None:
    desk.tmux.cmd("join-pane", "-d", "-s", "=harness:second", "-t", "=harness:main")


def take_clients_elsewhere(desk: Desk) -> None:
    desk.tmux.cmd("new-session", "-d", "-s", "other")
    for client in desk.tmux.cmd("list-clients", "-F", "#{client_name}").stdout:
        desk.tmux.cmd("switch-client", "-c", client, "-t", "other")


CHANGES = [link_and_unlink, group_and_leave, break_out, swap, join, take_clients_elsewhere]


@everywhere
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_command_goes_on_and_its_shell_is_kept_when_windows_are_rearranged(
    desk: Desk, change: Callable[[Desk], None]
) -> None:
    await desk.ctx.create_pane("second")
    await desk.ctx.run_shell("A=other", pane="second")
    await desk.ctx.run_shell("A=kept; mkfifo gate")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_change_and_open, desk, change)
        result = await desk.ctx.run_shell("cat gate; (exit 3)", timeout=20)
    assert (result.status, result.exit_code, result.notices) == (Status.COMPLETED, 3, ()), result
    after = await desk.ctx.run_shell("echo $A")
    assert (after.stdout, after.notices) == ("kept\n", ())
    assert (await desk.ctx.run_shell("echo $A", pane="second")).stdout == "other\n"
    assert await names(desk) == ["main", "second"]


async def _change_and_open(desk: Desk, change: Callable[[Desk], None]) -> None:
    await until(lambda: desk.processes("cat gate"))
    change(desk)
    await anyio.sleep(0.2)  # the news of it has come, and done what it does
    await desk.open_gate()


async def test_each_of_two_panes_in_one_window_is_held_by_its_own_command(desk: Desk) -> None:
    await desk.ctx.create_pane("second")
    await desk.ctx.run_shell("mkfifo gate")
    join(desk)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.ctx.run_shell, "cat gate")
        await until(lambda: desk.processes("cat gate"))
        beside = await desk.ctx.run_shell("echo beside", pane="second", timeout=10)
        await desk.open_gate()
    assert (beside.status, beside.stdout) == (Status.COMPLETED, "beside\n"), beside
    await desk.ctx.kill_pane("second")
    assert (await desk.ctx.run_shell("echo left")).stdout == "left\n"
    assert await names(desk) == ["main"]


async def test_a_pane_that_was_moved_to_another_session_is_let_go_and_its_command_runs_on(desk: Desk) -> None:
    await desk.ctx.run_shell("mkfifo gate")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_move_away, desk)
        result = await desk.ctx.run_shell("echo begun; cat gate; (exit 3)", timeout=20)
    assert (result.status, result.stdout) == (Status.UNKNOWN, "begun\n"), result
    assert any("removed from the session" in notice for notice in result.notices), result
    assert (await desk.ctx.run_shell("echo fresh")).stdout == "fresh\n"
    await desk.open_gate()
    done = await desk.ctx.wait(result.job_id, timeout=10)
    assert (done.status, done.exit_code) in ((Status.UNKNOWN, None), (Status.COMPLETED, 3)), done


async def _move_away(desk: Desk) -> None:
    await until(lambda: desk.processes("cat gate"))
    desk.tmux.cmd("new-session", "-d", "-s", "other")
    desk.tmux.cmd("move-window", "-s", "=harness:main", "-t", "other:9")


async def test_what_is_typed_while_a_window_closes_goes_to_the_next_one(desk: Desk) -> None:
    desk.tmux.cmd("new-window", "-d", "-t", "=harness:", "sleep 300")
    for _ in range(5):
        await desk.ctx.run_shell("A=1")
        desk.tmux.cmd("kill-window", "-t", "=harness:main")
        result = await desk.ctx.run_shell("echo fresh:$A", timeout=20)
        assert (result.status, result.stdout) == (Status.COMPLETED, "fresh:\n"), result


async def test_settings_of_people_for_all_windows_do_not_reach_ours(desk: Desk) -> None:
    for scope, option, value in (
        ("-wg", "remain-on-exit", "on"),
        ("-g", "default-command", "/bin/false"),
        ("-g", "default-shell", "/bin/false"),
        ("-g", "detach-on-destroy", "off"),
    ):
        desk.tmux.cmd("set-option", scope, option, value)
    await desk.ctx.run_shell("A=1")
    await desk.ctx.create_pane("second")
    assert (await desk.ctx.run_shell("echo made", pane="second")).stdout == "made\n"
    await desk.ctx.kill_pane("second")
    assert await names(desk) == ["main"]
    desk.tmux.cmd("new-session", "-d", "-s", "other", "sleep", "300")
    assert desk.tmux.cmd("show-options", "-v", "-t", "=harness:", "destroy-unattached").stdout == ["off"]
    desk.tmux.cmd("kill-session", "-t", "=harness")
    fresh = await desk.ctx.run_shell("echo fresh:$A", timeout=20)
    if fresh.status is Status.UNKNOWN:  # it was sent in the moment in which the session ended
        fresh = await desk.ctx.run_shell("echo fresh:$A", timeout=20)
    assert (fresh.status, fresh.stdout) == (Status.COMPLETED, "fresh:\n"), fresh


@everywhere
async def test_a_command_that_ends_in_the_moment_of_a_look_at_it_is_not_waited_for_longer(desk: Desk) -> None:
    for seconds in ("1", "1.005", "1.02"):
        with anyio.fail_after(4):
            result = await desk.ctx.run_shell(f"echo begun; sleep {seconds}")
        assert (result.exit_code, result.stdout) == (0, "begun\n")


async def test_of_a_pane_whose_program_was_replaced_nothing_wrong_is_said(desk: Desk) -> None:
    await desk.ctx.run_shell("true")
    desk.tmux.cmd("respawn-pane", "-k", "-t", "=harness:main", "bash --norc")
    result = await desk.ctx.run_shell("echo out")
    assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "out\n"), result
    assert any("respawn-pane" in notice for notice in result.notices), result
    assert not any(Path("/proc/cmdline").read_text()[:20] in notice for notice in result.notices), result
    await desk.ctx.kill_pane("main", force=True)
    assert (await desk.ctx.run_shell("echo fresh")).stdout == "fresh\n"
