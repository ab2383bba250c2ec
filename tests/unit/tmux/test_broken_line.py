"""A C-c that reaches a pane's shell while it takes a command: what did not run is not told as completed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import anyio
import pytest
from tests.support.pane_shells import PANE_SHELLS, PaneShell, open_pane_shell

from harness import PaneBusy, ShellResult
from harness_backends.posix.persistent_shell import PersistentShell, ShellReply
from harness_backends.tmux.jobs.unstarted_commands import drop_slot, give_slot_back, take_slot

pytestmark = pytest.mark.usefixtures("needs_tmux")

FIRE = "if [ -e ~/fire ]; then command rm ~/fire; kill -INT $$; fi"
BEFORE = f'hxis() {{ {FIRE}; [ -e "$1" ]; }}'
"""A function of the hooks that is called when a job has been taken, and before its start mark is written."""
BEFORE_IN_FISH = (
    "functions -c hxy hxy2; function hxy; test -e ~/fire; and rm ~/fire; and kill -INT $fish_pid; hxy2; end"
)
AFTER = f'hxlet() {{ {FIRE}; return "$1"; }}'
"""One that is called after it, last."""


async def interrupted(pane: PaneShell, trap: str) -> tuple[ShellResult, bool]:
    """What is told of a command whose shell is interrupted in the middle of taking it, and whether it ran."""
    await pane.gives(trap, "")
    (pane.home / "fire").touch()
    result = await pane.run("touch ~/ran")
    ran = (pane.home / "ran").exists()
    assert not (pane.home / "fire").exists()
    await pane.gives("echo later", "later\n")
    return result, ran


@pytest.mark.parametrize("control", ["auto", "never"])
@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_before_its_start(shell: str, control: Literal["auto", "never"]) -> None:
    async with open_pane_shell(shell, control_mode=control) as pane:
        result, ran = await interrupted(pane, BEFORE_IN_FISH if shell == "fish" else BEFORE)
        assert not ran
        assert (result.status, result.exit_code, result.stdout.strip()) == ("interrupted", 130, ""), result
        assert control == "never" or "did not run" in " ".join(result.notices)
        kept = await pane.ctx.wait(result.job_id or "", timeout=5)
        assert (kept.status, kept.exit_code) == ("interrupted", 130)


@pytest.mark.parametrize("control", ["auto", "never"])
@pytest.mark.parametrize("shell", ["bash", "dash", "busybox"])  # mksh goes on, and runs it
async def test_an_error_before_its_start(shell: str, control: Literal["auto", "never"]) -> None:
    """The shell comes to its prompt by itself, with a status of its own."""
    async with open_pane_shell(shell, control_mode=control) as pane:
        result, ran = await interrupted(pane, BEFORE.replace("kill -INT $$", ': "${no_such_variable?is not set}"'))
        assert not ran
        assert (result.status, result.exit_code, result.stdout.strip()) == ("unknown", None, ""), result


@pytest.mark.parametrize("control", ["auto", "never"])
@pytest.mark.parametrize("shell", [shell for shell in PANE_SHELLS if shell != "fish"])
async def test_between_its_start_and_its_first_word(shell: str, control: Literal["auto", "never"]) -> None:
    async with open_pane_shell(shell, control_mode=control) as pane:
        result, ran = await interrupted(pane, AFTER)
        if result.status == "completed":  # the shell heeds a signal when it comes to it
            assert ran
        else:
            assert (result.status, result.exit_code, result.stdout.strip()) == ("interrupted", 130, ""), result


@pytest.mark.parametrize("control", ["auto", "never"])
@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_shell_that_has_not_read_a_command_is_not_ended_for_it(
    shell: str, control: Literal["auto", "never"]
) -> None:
    async with open_pane_shell(shell, control_mode=control) as pane:
        await pane.gives(f"cd {pane.home} && mkfifo fifo", "")
        before = (await pane.run("echo $fish_pid" if shell == "fish" else "echo $$")).stdout
        await pane.ctx.send_keys(literal_text="echo >fifo", enter=True)
        result = None
        with suppress(PaneBusy):  # where the shell had told in time that it runs something of a person's
            result = await pane.ctx.run_shell("touch ran", timeout=1, on_timeout="kill")
            assert (result.status, result.exit_code) == ("timed_out", None), result
            assert "did not run" in " ".join(result.notices)
        await anyio.to_thread.run_sync((pane.home / "fifo").read_text)
        await pane.gives("echo $fish_pid" if shell == "fish" else "echo $$", before)
        assert not (pane.home / "ran").exists()
        if result is not None:
            assert (await pane.ctx.wait(result.job_id or "", timeout=5)).status == "timed_out"


@pytest.mark.parametrize("shell", PANE_SHELLS)
async def test_a_line_that_finds_no_job_leaves_the_slot_to_the_next_one(shell: str) -> None:
    async with open_pane_shell(shell) as pane:
        await pane.gives("echo first", "first\n")
        (slot,) = pane.home.glob("state/harness/panes/*/next")
        for content in ("- 1\n", None):
            slot.unlink() if content is None else slot.write_text(content)
            line = " hxa; eval $hxf; hxd" if shell == "fish" else " hx"
            await pane.ctx.send_keys(literal_text=f"{line}; touch ~/taken", enter=True)
            with anyio.fail_after(20):
                while not (pane.home / "taken").exists():  # noqa: ASYNC110  # the pane's shell makes it
                    await anyio.sleep(0.02)
            (pane.home / "taken").unlink()
            assert (slot.read_text() if slot.exists() else None) == content


class Here:
    """Runs what a held shell would."""

    async def call(self, script: str) -> ShellReply:
        """One script in a ``sh`` of its own."""
        done = await anyio.run_process(["sh", "-c", script], check=False)
        return ShellReply(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("meanwhile", "wanted", "there"),
    [
        ("", True, "7 sh s\n"),
        ("- \n", True, "7 sh s\n"),
        ("- 7\n", True, "- 7\n"),
        ("", False, None),
        ("- \n", False, "- \n"),
    ],
)
async def test_a_slot_that_is_away_is_read_by_nobody(
    tmp_path: Path, meanwhile: str, wanted: bool, there: str | None
) -> None:
    slot, shell = tmp_path / "next", cast("PersistentShell", Here())
    slot.write_text("7 sh s\n")
    assert not await take_slot(shell, str(slot), "8")
    assert await take_slot(shell, str(slot), "7")
    assert not slot.exists()
    if meanwhile:
        slot.write_text(meanwhile)
    assert await give_slot_back(shell, str(slot), "7", wanted=wanted) == (there == "7 sh s\n")
    assert (slot.read_text() if slot.exists() else None) == there
    assert not (tmp_path / "next.away").exists()


@pytest.mark.parametrize(("meanwhile", "unread"), [("", True), ("- \n", True), ("- 7\n", False)])
async def test_a_job_that_was_read_while_its_slot_was_moved_counts_as_read(
    tmp_path: Path, meanwhile: str, unread: bool
) -> None:
    slot, shell = tmp_path / "next", cast("PersistentShell", Here())
    slot.write_text("7 sh s\n")
    assert await take_slot(shell, str(slot), "7")
    if meanwhile:
        slot.write_text(meanwhile)
    assert await drop_slot(shell, str(slot), "7") is unread
    assert not (tmp_path / "next.away").exists()
