"""``ExecutionContext.libtmux``: the real libtmux on the tmux server of a target."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import libtmux
import pytest
from anyio import to_thread
from tests.support.desk import OpenDesk, open_desk, until

from harness import PaneGone, UnsupportedOperation, connect

__all__ = ["open_desk"]

ways = pytest.mark.parametrize(
    ("where", "settings"),
    [
        ("local", {}),
        ("ssh", {}),
        ("ssh", {"ssh_engine": "asyncssh"}),
        ("ssh", {"control_mode": "off"}),
    ],
    ids=["local", "openssh", "asyncssh", "without control mode"],
)


@ways
async def test_a_program_scripts_the_session_with_libtmux(
    open_desk: OpenDesk, where: str, settings: dict[str, Any]
) -> None:
    desk = await open_desk(where, **settings)
    await desk.ctx.run_shell("printf 'caf\\303\\251\\n'")
    async with desk.ctx.libtmux() as session:
        assert isinstance(session, libtmux.Session)
        assert session.session_name == "harness"
        window = await to_thread.run_sync(lambda: session.new_window("logs", window_shell="sleep 60"))
        assert window.window_name == "logs"
        listed = await to_thread.run_sync(lambda: session.cmd("list-windows", "-F", "#{window_name}"))
        assert "logs" in listed.stdout
        text = "one 'two' \"three\" $HOME `id` \\ ; é"
        await to_thread.run_sync(lambda: session.cmd("set-option", "@text", text))
        shown = await to_thread.run_sync(lambda: session.cmd("show-options", "-v", "@text"))
        assert shown.stdout == [text]
        refused = await to_thread.run_sync(lambda: session.cmd("no-such-command"))
        assert (refused.returncode, bool(refused.stderr)) == (1, True)
        await to_thread.run_sync(window.kill)
    again = await desk.ctx.run_shell("echo still; (exit 5)")
    assert (again.stdout, again.exit_code) == ("still\n", 5), again


@ways
async def test_a_managed_pane_is_a_libtmux_pane(open_desk: OpenDesk, where: str, settings: dict[str, Any]) -> None:
    desk = await open_desk(where, **settings)
    await desk.ctx.create_pane("build")
    await desk.ctx.run_shell("printf 'caf\\303\\251\\n'", pane="build")
    async with desk.ctx.libtmux("build") as pane:
        assert isinstance(pane, libtmux.Pane)
        assert "café" in await to_thread.run_sync(pane.capture_pane)
        assert pane.pane_id == next(one.pane_id for one in await desk.ctx.list_panes() if one.name == "build")
    with pytest.raises(PaneGone, match="nothing"):
        async with desk.ctx.libtmux("nothing"):
            pass


async def test_the_program_for_another_machine_is_private_and_goes_with_the_context(
    open_desk: OpenDesk, needs_ssh: None
) -> None:
    desk = await open_desk("ssh")
    async with desk.ctx.libtmux() as session:
        server = session.server
        program = Path(str(server.tmux_bin))
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (program.parent, program, program.parent / "s")]
        assert modes == [0o700, 0o700, 0o600]
        async with anyio.create_task_group() as tasks:  # more than run at a time
            for number in range(8):
                tasks.start_soon(to_thread.run_sync, lambda n=number: session.cmd("set-option", f"@n{n}", str(n)))
        shown = await to_thread.run_sync(lambda: session.cmd("show-options"))
        assert [line for line in shown.stdout if line.startswith("@n")] == [f"@n{n} {n}" for n in range(8)]
    assert not program.parent.exists()


async def test_a_command_that_waits_ends_with_the_context(open_desk: OpenDesk, needs_ssh: None) -> None:
    desk = await open_desk("ssh")
    codes: list[int] = []

    started = desk.home / "started"

    async def wait(session: libtmux.Session) -> None:
        command = f"touch {started}; exec sleep 60"
        found = await to_thread.run_sync(lambda: session.cmd("run-shell", command))
        codes.append(found.returncode)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, desk.ctx.libtmux() as session:
            tasks.start_soon(wait, session)
            await until(started.exists)
    assert codes == [1]


async def test_a_command_whose_program_was_killed_is_ended(open_desk: OpenDesk, needs_ssh: None) -> None:
    desk = await open_desk("ssh")
    async with desk.ctx.libtmux() as session:
        program = [str(session.server.tmux_bin), "-L", desk.config.tmux_socket]
        for number in range(6):  # more than run at a time
            started = desk.home / f"started{number}"
            async with await anyio.open_process([*program, "run-shell", f"touch {started}; exec sleep 60"]) as waiting:
                await until(started.exists)
                waiting.kill()
        with anyio.fail_after(30):
            shown = await to_thread.run_sync(lambda: session.cmd("display-message", "-p", "still here"))
        assert shown.stdout == ["still here"]
        async with await anyio.open_process([*program, "-V"]) as gone:
            gone.kill()  # before, while or after it asks
        assert (await to_thread.run_sync(lambda: session.cmd("list-panes"))).returncode == 0


async def test_without_libtmux_the_error_says_how_to_install_it(
    open_desk: OpenDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await open_desk("local")
    monkeypatch.setitem(sys.modules, "libtmux", None)
    with pytest.raises(UnsupportedOperation, match="libtmux is not installed") as caught:
        async with desk.ctx.libtmux():
            pass
    assert "libtmux" in caught.value.hint


async def test_a_context_without_a_terminal_has_no_libtmux(needs_process: None) -> None:
    async with connect("local:") as ctx:
        with pytest.raises(UnsupportedOperation, match="needs a terminal"):
            ctx.libtmux()
