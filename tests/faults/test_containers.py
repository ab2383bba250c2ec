"""What can happen to a container, before and during a command: the outcome is bounded, honest, and of this one.

With tmux inside, above all; without it, ``tests/e2e/test_container_life.py`` has more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.faults.rig import until, usable, within
from tests.support.berths import BERTHS, entered
from tests.support.engines import Container, Engines, container, private_engine

from harness import ExecutionContext, ShellResult, Status, connect
from harness.config import Config
from harness.errors import ConnectError, ConnectionLost, HarnessError

BOUND = 40.0
ANSWER = 9.0
"""Seconds for a command of two: the target has five to answer."""
PATIENCE = 8.0
"""Seconds that commands may take; a terminal waits so long for its link to come back."""


@dataclass
class Ship:
    """A container to sink, and the way into it."""

    container: Container
    api: bool
    terminal: bool

    def lines(self, path: str) -> list[str]:
        """The lines of a file in it; none when there is no file or it does not run."""
        return self.container.engine.cli("exec", self.container.name, "cat", path, check=False).splitlines()

    @asynccontextmanager
    async def opened(self, control_mode: Literal["auto", "never"] = "auto") -> AsyncIterator[ExecutionContext]:
        with entered(self.container, api=self.api), anyio.fail_after(3 * BOUND):
            config = Config(connect_timeout=5, control_mode=control_mode)
            async with connect(self.container.target, tmux=self.terminal, config=config) as ctx:
                yield ctx


@pytest.fixture
def ship(engines: Engines, home: Path, place: str) -> Iterator[Ship]:
    name, _, terminal = place.partition("+")
    berth = BERTHS[name]
    with container(engines.get(berth.engine), berth.image) as one:
        yield Ship(one, berth.api, bool(terminal))


in_tmux = pytest.mark.parametrize("place", ["docker+tmux"])
everywhere = pytest.mark.parametrize("place", ["docker-busybox", "podman-busybox", "docker+tmux"])


def kill(ship: Ship) -> None:
    ship.container.do("kill")


def restart(ship: Ship) -> None:
    ship.container.do("restart")


def remove(ship: Ship) -> None:
    ship.container.do("rm")


def recreate(ship: Ship) -> None:
    """Another container of the same name and image."""
    engine, old = ship.container.engine, ship.container
    image = engine.cli("inspect", "--format", "{{.Config.Image}}", old.name)
    old.do("rm")
    engine.cli("run", "-d", "--name", old.name, "--network", "none", "--stop-signal", "KILL", image, "sleep", "1000000")


@in_tmux
@pytest.mark.parametrize(("fault", "said"), [(kill, "is stopped"), (remove, "was removed"), (recreate, "was replaced")])
async def test_a_container_that_has_gone_is_not_waited_for(
    ship: Ship, fault: Callable[[Ship], None], said: str
) -> None:
    async with ship.opened() as ctx:
        await usable(ctx)
        fault(ship)
        with suppress(ConnectError, ConnectionLost):  # it may be sent before the news of the end comes
            result = await within(ANSWER, ctx.run_shell("echo no", timeout=BOUND))
            assert (result.status, result.stdout) == (Status.UNKNOWN, ""), result
        with pytest.raises((ConnectError, ConnectionLost), match=said):
            await within(ANSWER, ctx.run_shell("echo no", timeout=BOUND))
        if fault is kill:
            ship.container.do("start")
            await usable(ctx, ANSWER)


@in_tmux
@pytest.mark.parametrize("fault", [restart, recreate])
async def test_before_a_command_nothing_runs_or_it_runs_in_this_container(
    ship: Ship, fault: Callable[[Ship], None]
) -> None:
    async with ship.opened() as ctx:
        await usable(ctx)
        fault(ship)
        result, said = None, ship.container.name
        try:
            result = await within(BOUND, ctx.run_shell("echo first; echo once >>/runs", timeout=PATIENCE))
        except HarnessError as error:
            said = str(error)
        assert ship.container.name in said
        ran = ship.lines("/runs")
        if result is not None and result.status is Status.COMPLETED:
            assert fault is restart, "no other command can have run"
            assert (result.exit_code, result.stdout, ran) == (0, "first\n", ["once"]), result
        else:
            assert result is None or result.status in (Status.UNKNOWN, Status.SHELL_EXITED), result
            assert len(ran) <= (1 if fault is restart else 0), ran
        if fault is restart:
            await usable(ctx)


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        ("docker+tmux", kill),
        ("docker+tmux", restart),
        ("docker+tmux", recreate),
        ("docker-busybox", kill),
        ("podman-busybox", recreate),
    ],
)
async def test_during_a_command_the_outcome_is_unknown_and_it_ran_once(
    ship: Ship, fault: Callable[[Ship], None]
) -> None:
    results: list[ShellResult | HarnessError] = []
    async with ship.opened() as ctx:
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                try:
                    command = "echo begin; echo once >>/runs; sleep 300"
                    results.append(await within(BOUND, ctx.run_shell(command, timeout=PATIENCE)))
                except HarnessError as error:
                    results.append(error)

            tasks.start_soon(run)
            await until(lambda: ship.lines("/runs") == ["once"], "the command runs")
            fault(ship)
        (result,) = results
        assert isinstance(result, ShellResult), "it was sent: its end is a result"
        assert result.status in (Status.UNKNOWN, Status.SHELL_EXITED), result
        assert result.exit_code is None or result.status is Status.SHELL_EXITED, result
        assert result.notices, result
        assert result.duration < PATIENCE + 2, result
        if fault is restart:
            await usable(ctx)
        assert ship.lines("/runs") == (["once"] if fault is restart else [])


@pytest.mark.parametrize(
    ("place", "control_mode", "fault", "said"),
    [
        ("docker+tmux", "auto", kill, "is stopped (exit code 137)"),
        ("docker+tmux", "auto", remove, "was removed"),
        ("docker+tmux", "auto", recreate, "was replaced"),
        ("docker+tmux", "never", kill, "is stopped (exit code 137)"),
        ("docker-busybox+tmux", "auto", remove, ""),
    ],
)
@pytest.mark.parametrize("wait", [True, False])
async def test_a_command_ends_with_its_container_and_says_what_became_of_that(
    ship: Ship, control_mode: Literal["auto", "never"], fault: Callable[[Ship], None], said: str, wait: bool
) -> None:
    results: list[ShellResult] = []
    async with ship.opened(control_mode=control_mode) as ctx:

        async def run() -> None:
            result = await ctx.run_shell("echo begin; echo once >>/runs; sleep 300", wait=wait, timeout=BOUND)
            results.append(result if wait else await ctx.wait(result.job_id or "", timeout=BOUND))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: ship.lines("/runs") == ["once"], "the command runs")
            fault(ship)
            await until(lambda: bool(results), "the command's outcome", ANSWER)
        (result,) = results
        assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
        assert any(said in notice for notice in result.notices), result


@everywhere
async def test_a_paused_container_is_refused_and_a_command_waits_for_its_return(ship: Ship) -> None:
    async with ship.opened() as ctx:
        async with anyio.create_task_group() as tasks:
            results: list[ShellResult] = []

            async def run() -> None:
                command = "echo begin; echo once >>/runs; until [ -e /go ]; do sleep 0.1; done; echo end; (exit 6)"
                results.append(await within(BOUND, ctx.run_shell(command, timeout=25)))

            tasks.start_soon(run)
            await until(lambda: ship.lines("/runs") == ["once"], "the command runs")
            ship.container.do("pause")
            try:
                with pytest.raises(ConnectError, match="is paused"):
                    async with ship.opened():
                        pass
            finally:
                ship.container.do("unpause")
            ship.container.run("touch", "/go")
        (result,) = results
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 6, "begin\nend\n"), result


@in_tmux
async def test_the_timeout_of_a_command_holds_in_a_paused_container(ship: Ship) -> None:
    async with ship.opened() as ctx:
        await usable(ctx)
        ship.container.do("pause")
        try:
            result = await within(ANSWER, ctx.run_shell("echo late; echo once >>/runs", timeout=2))
            assert result.status in (Status.RUNNING, Status.UNKNOWN), result
            with pytest.raises((ConnectError, ConnectionLost), match="no connection to tmux"):
                await within(ANSWER, ctx.run_shell("echo no", timeout=2))
        finally:
            ship.container.do("unpause")
        await usable(ctx)
        assert ship.lines("/runs") in ([], ["once"])


TREE = "sleep 4301 & (sleep 4302 & sleep 4303) & (trap '' TERM HUP INT; sleep 4304) & sleep 4305"


def sleepers(one: Container) -> list[str]:
    """The long sleeps in a container."""
    return sorted(command.split()[-1] for _, command in one.processes() if "sleep 43" in command)


EVERY = [f"430{number}" for number in range(1, 6)]


@everywhere
async def test_a_command_that_is_killed_for_its_time_leaves_nothing_of_its_tree(ship: Ship) -> None:
    async with ship.opened() as ctx:
        killed = TREE
        result = await within(BOUND, ctx.run_shell(killed, timeout=2, on_timeout="kill"))
        assert result.status is Status.TIMED_OUT, result
        await until(lambda: sleepers(ship.container) == [], f"all have ended: {sleepers(ship.container)}", 3)
        await usable(ctx)


@everywhere
async def test_a_command_that_is_cancelled_leaves_nothing_of_its_tree(ship: Ship) -> None:
    async with ship.opened() as ctx:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ctx.run_shell, TREE)
            await until(lambda: _last_words(ship.container) == EVERY, "all of them run")
            tasks.cancel_scope.cancel()
        await until(lambda: sleepers(ship.container) == [], f"all have ended: {sleepers(ship.container)}", 3)
        await usable(ctx)


def _last_words(one: Container) -> list[str]:
    return sorted({*sleepers(one)} & {*EVERY})


@everywhere
async def test_a_job_that_is_killed_leaves_nothing_of_its_tree(ship: Ship) -> None:
    async with ship.opened() as ctx:
        started = await ctx.run_shell(TREE, wait=False)
        await until(lambda: _last_words(ship.container) == EVERY, "all of them run")
        job = await ctx.kill(started.job_id or "")
        assert job.status is not Status.RUNNING, job
        await until(lambda: sleepers(ship.container) == [], f"all have ended: {sleepers(ship.container)}", 3)
        await usable(ctx)


@everywhere
@pytest.mark.parametrize("command", ["(setsid sleep 4301; :) & sleep 4302", "sh -c 'setsid sleep 4301 & sleep 4302'"])
async def test_what_a_killed_command_put_into_a_session_of_its_own_ends(ship: Ship, command: str) -> None:
    async with ship.opened() as ctx:
        result = await within(BOUND, ctx.run_shell(command, timeout=1, on_timeout="kill"))
        assert result.status is Status.TIMED_OUT, result
        assert sleepers(ship.container) == []


@everywhere
async def test_a_service_that_a_killed_command_has_restarted_lives_on(ship: Ship) -> None:
    async with ship.opened() as ctx:
        service = "setsid sh -c 'echo up; exec sleep 4301'"
        for timeout in (1.0, 5.0, 20.0):  # the first is too short for it to start when the machine is busy
            command = ctx.run_shell(f"({service} &); sleep 4302", timeout=timeout, on_timeout="kill")
            result = await within(BOUND, command)
            assert result.status is Status.TIMED_OUT, result
            if "up" in result.stdout:
                break
        assert sleepers(ship.container) == ["4301"]


@pytest.fixture(params=["docker", "podman-api"])
def fragile(
    home: Path, engines: Engines, request: pytest.FixtureRequest
) -> Iterator[tuple[Ship, Callable[[], None], Callable[[], None]]]:
    """A container of an engine that can be killed: the way in, what kills the engine, and what brings it back."""
    berth = BERTHS[request.param]
    engines.get(berth.engine)  # or skip
    with private_engine(berth.engine) as (engine, daemon), container(engine, "busybox") as one:
        yield Ship(one, berth.api, terminal=False), daemon.kill, daemon.start


async def test_an_engine_that_dies_during_a_command_makes_its_end_unknown(
    fragile: tuple[Ship, Callable[[], None], Callable[[], None]],
) -> None:
    ship, kill_engine, start_engine = fragile
    async with ship.opened() as ctx:
        results: list[ShellResult] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                command = "echo begin; echo once >>/runs; sleep 300"
                results.append(await within(BOUND, ctx.run_shell(command, timeout=25)))

            tasks.start_soon(run)
            await until(lambda: ship.lines("/runs") == ["once"], "the command runs")
            kill_engine()
        (result,) = results
        assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
        assert result.duration < 20, result
        with pytest.raises((ConnectError, ConnectionLost)):
            await within(BOUND, ctx.run_shell("echo no", timeout=10))
        start_engine()
        ship.container.engine.cli("start", ship.container.name)
    async with ship.opened() as again:
        await usable(again)
        assert ship.lines("/runs") == ["once"]
