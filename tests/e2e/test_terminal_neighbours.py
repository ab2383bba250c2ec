"""Several harnesses on one tmux server, each in a session of its own, at the same time."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.support.plain_tmux import plain_tmux

from harness import Config, ExecutionContext, connect
from harness.errors import TerminalError
from harness_backends.tmux.naming import PaneRow
from harness_backends.tmux.pane.pane_state import Pane
from harness_backends.tmux.pane.pane_table import PaneTable
from harness_backends.tmux.sources.stream_gaps import StreamGaps

pytestmark = pytest.mark.usefixtures("needs_tmux")

CONTEXTS = 4
COMMANDS = 25


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """A tmux server of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TMUX", raising=False)
    socket = f"hx-{uuid.uuid4().hex[:8]}"
    yield Config(tmux_socket=socket, shell="/bin/sh", max_sessions=CONTEXTS)
    subprocess.run(["tmux", "-L", socket, "kill-server"], capture_output=True)


async def test_commands_sent_at_the_same_moment_stay_with_their_own_panes(config: Config) -> None:
    wrong: list[tuple[str, str]] = []

    async def talk(ctx: ExecutionContext, name: str) -> None:
        for number in range(COMMANDS):
            said = f"{name} {number}\n"
            result = await ctx.run_shell(f"echo {said}")
            if result.stdout != said:
                wrong.append((said, result.stdout))

    with anyio.fail_after(90):
        async with AsyncExitStack() as stack:
            names = [f"s{number}" for number in range(CONTEXTS)]
            contexts = [await stack.enter_async_context(connect("local:", tmux=name, config=config)) for name in names]
            async with anyio.create_task_group() as tasks:
                for ctx, name in zip(contexts, names, strict=True):
                    tasks.start_soon(talk, ctx, name)
    assert wrong == []


@pytest.mark.parametrize("control_mode", ["auto", "never"])
async def test_harnesses_that_make_panes_at_the_same_moment_stay_within_the_limit(
    config: Config, control_mode: Literal["auto", "never"]
) -> None:
    config = replace(config, control_mode=control_mode)
    made: list[str] = []

    async def make(ctx: ExecutionContext, name: str) -> None:
        with suppress(TerminalError):
            made.append((await ctx.create_pane(name)).name)

    with anyio.fail_after(90):
        async with AsyncExitStack() as stack:
            contexts = [await stack.enter_async_context(connect("local:", tmux="s", config=config)) for _ in range(3)]
            async with anyio.create_task_group() as tasks:
                for number, ctx in enumerate(contexts):
                    for name in ("same", f"own-{number}", f"more-{number}"):
                        tasks.start_soon(make, ctx, name)
            names = [pane.name for pane in await contexts[0].list_panes()]
            assert len(names) <= config.max_panes
            assert sorted(names) == sorted({"main", *made})
            assert len(made) == len(set(made))


@pytest.mark.parametrize("control", [True, False])
async def test_the_session_of_a_harness_with_another_state_directory_is_called_that(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: bool
) -> None:
    async with connect("local:", tmux=True, config=config) as theirs:
        await theirs.run_shell("A=theirs")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
        if not control:
            monkeypatch.setenv("PATH", str(plain_tmux(tmp_path / "plain", logs=True)), prepend=":")
        with pytest.raises(TerminalError, match="belongs to another harness of this account") as caught:
            async with connect("local:", tmux=True, config=config) as ours:
                await ours.run_shell("A=ours")
        assert f"{tmp_path}/state/harness" in str(caught.value)
        assert f"{tmp_path}/other/harness" in str(caught.value)
        assert "kill" not in str(caught.value)
        assert "--tmux NAME" in caught.value.hint
        assert (await theirs.run_shell("echo $A")).stdout == "theirs\n"
        async with connect("local:", tmux="mine", config=config) as ours:
            assert (await ours.run_shell("echo beside")).stdout == "beside\n"


@pytest.mark.parametrize("control_mode", ["auto", "never"])
async def test_a_pane_of_another_harness_is_added_once_by_those_who_use_it_at_the_same_moment(
    config: Config, control_mode: Literal["auto", "never"], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, control_mode=control_mode)
    attach, attached = PaneTable._attach, list[str]()

    async def late_for_later_ones(table: PaneTable, row: PaneRow, kind: str) -> None:
        attached.append(row.name)
        await anyio.sleep(0.3 * (attached.count(row.name) - 1))
        await attach(table, row, kind)

    results: list[tuple[str, int | None]] = []

    async def use(ctx: ExecutionContext, word: str) -> None:
        result = await ctx.run_shell(f"sleep 0.6; echo {word}", pane="theirs")
        results.append((result.stdout, result.exit_code))

    with anyio.fail_after(60):
        async with (
            connect("local:", tmux=True, config=config) as theirs,
            connect("local:", tmux=True, config=config) as ours,
        ):
            monkeypatch.setattr(PaneTable, "_attach", late_for_later_ones)
            await theirs.create_pane("theirs")
            async with anyio.create_task_group() as tasks:
                for word in ("a", "b"):
                    tasks.start_soon(use, ours, word)
    assert sorted(results) == [("a\n", 0), ("b\n", 0)]


async def test_a_pane_is_added_again_whose_first_user_was_cancelled(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    reattach, started = StreamGaps.reattach, anyio.Event()

    async def hang_once(gaps: StreamGaps, pane: Pane) -> None:
        if pane.name == "theirs" and not started.is_set():
            started.set()
            await anyio.sleep_forever()
        await reattach(gaps, pane)

    monkeypatch.setattr(StreamGaps, "reattach", hang_once)
    with anyio.fail_after(10):
        async with (
            connect("local:", tmux=True, config=config) as theirs,
            connect("local:", tmux=True, config=config) as ours,
        ):
            await theirs.create_pane("theirs")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(ours.capture_pane, pane="theirs"))
                await started.wait()
                tasks.cancel_scope.cancel()
            result = await ours.run_shell("echo here", pane="theirs")
    assert (result.stdout, result.exit_code) == ("here\n", 0)
