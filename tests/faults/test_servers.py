"""What stands between the harness and a command is killed: server, session, window, shell, reader, client."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from tests.faults.rig import Place, alive, feed, kill, lines, opened, until, usable, within

from harness import ShellResult, Status
from harness.errors import ConnectionLost


def kill_server(place: Place) -> None:
    kill(place.server_pid())


def end_server(place: Place) -> None:
    place.tmux("kill-server")


def end_session(place: Place) -> None:
    place.tmux("kill-session", "-t", "=harness")


def end_window(place: Place) -> None:
    place.tmux("kill-window", "-t", "=harness:")


def end_window_beside_another(place: Place) -> None:
    place.tmux("new-window", "-d", "-t", "=harness:", "cat")
    place.tmux("kill-window", "-t", place.tmux("list-windows", "-t", "=harness", "-F", "#{window_id}").split()[0])


def kill_shell(place: Place) -> None:
    (shell,) = (int(path.read_text()) for path in place.state.glob("panes/*/pid"))
    kill(shell)


def kill_pane_process(place: Place) -> None:
    kill(int(place.tmux("display-message", "-p", "-t", "=harness:", "#{pane_pid}")))


FAULTS = [
    kill_server,
    end_server,
    end_session,
    end_window,
    end_window_beside_another,
    kill_shell,
    kill_pane_process,
]


@pytest.mark.parametrize("fault", FAULTS)
async def test_before_a_command_it_is_made_anew(here: Place, fault: Callable[[Place], None]) -> None:
    async with opened(here) as ctx:
        await usable(ctx)
        fault(here)
        first = await within(45, ctx.run_shell("echo first", timeout=40))  # may be typed before the loss is known
        assert first.status in (Status.UNKNOWN, Status.SHELL_EXITED) or first.stdout == "first\n", first
        await usable(ctx)
        assert len(here.drainers()) == 1
        assert len(here.clients()) == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_during_a_command_its_outcome_is_honest_and_the_next_one_works(
    here: Place, fault: Callable[[Place], None]
) -> None:
    runs = here.path("runs")
    results: list[ShellResult] = []
    seen = bytearray()
    async with opened(here) as ctx:
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                command = f"echo begin; echo once >>{runs}; sleep 300"
                results.append(await within(45, ctx.run_shell(command, timeout=40, on_output=seen.extend)))

            tasks.start_soon(run)
            await until(lambda: bool(lines(runs)) and b"begin" in seen, "the command runs, and its output is here")
            fault(here)
        (result,) = results
        if (result.status, result.exit_code) != (Status.COMPLETED, 129):  # the hangup was reported before the end
            assert result.status in (Status.UNKNOWN, Status.SHELL_EXITED), result
            assert result.exit_code in (None, 137), result
            assert result.notices, result
        assert result.duration < 10, result
        assert "begin" in result.stdout, result
        await usable(ctx)
        assert lines(runs) == ["once"]


def other_reader(place: Place, old: int) -> bool:
    return place.drainers() not in ([], [old])


def says(path: Path, text: str) -> bool:
    return lines(path) == [text]


async def test_the_always_attached_reader_comes_back_when_it_is_killed(here: Place) -> None:
    async with opened(here) as ctx:
        for _ in range(3):
            (reader,) = here.drainers()
            kill(reader)
            await until(partial(other_reader, here, reader), "another reader", 3)
        await usable(ctx)
    (reader,) = here.drainers()
    kill(reader)
    await until(lambda: here.drainers() == [], "it has gone")
    async with opened(here) as ctx:
        assert len(here.drainers()) == 1


async def test_a_control_client_that_is_killed_during_a_command_costs_nothing(here: Place) -> None:
    gate, runs = here.path("gate"), here.path("runs")
    os.mkfifo(gate)
    async with opened(here) as ctx:
        for number in range(5):
            results: list[ShellResult] = []
            async with anyio.create_task_group() as tasks:

                async def run(to: list[ShellResult] = results, n: int = number) -> None:
                    command = f"seq 1 500; echo {n} >{runs}; cat {gate}; (exit {n})"
                    to.append(await within(45, ctx.run_shell(command, timeout=40)))

                tasks.start_soon(run)
                await until(partial(says, runs, str(number)), "it runs")
                (client,) = here.clients()
                kill(client)
                await feed(gate, b"more\n")
            (result,) = results
            assert (result.status, result.exit_code) == (Status.COMPLETED, number), result
            assert result.stdout == "".join(f"{n}\n" for n in range(1, 501)) + "more\n", result
            assert not alive(client)
            await usable(ctx)


async def test_clients_that_are_killed_while_commands_are_typed_never_run_one_twice(here: Place) -> None:
    runs = here.path("runs")
    done = 0
    async with opened(here, bound=110) as ctx:
        async with anyio.create_task_group() as tasks:

            async def killer() -> None:
                """Twice for each command, and no more: on a slow machine a client is longer in coming than that."""
                for _ in range(2):
                    await anyio.sleep(random.uniform(0, 0.15))
                    for client in here.clients():
                        kill(client)

            for number in range(40):
                tasks.start_soon(killer)
                try:
                    result = await within(60, ctx.run_shell(f"echo {number} >>{runs}; echo out {number}", timeout=50))
                except ConnectionLost:
                    assert str(number) not in lines(runs)  # an exception says that nothing was run
                    continue
                if result.status is Status.COMPLETED:
                    done += 1
                    assert (result.exit_code, result.stdout) == (0, f"out {number}\n"), result
                else:
                    assert result.status is Status.UNKNOWN, result
            tasks.cancel_scope.cancel()
        ran = lines(runs)
        assert len(ran) == len(set(ran))
        assert len(ran) >= done >= 30, (done, ran)
        await usable(ctx)


FREE, HELD, TYPED = "#{?@harness_busy,,1}", "#{@harness_busy}", "#{==:#{@harness_typed},#{@harness_busy}}"


@pytest.mark.parametrize(
    ("hook", "test"),
    [
        ("after-set-buffer", FREE),
        ("after-save-buffer", FREE),
        ("after-set-buffer", HELD),
        ("after-save-buffer", HELD),
        ("after-set-buffer", TYPED),  # the pane names the job by then, and its keys are not there
    ],
)
async def test_a_client_that_is_killed_before_the_keys_costs_a_moment_and_nothing_runs_twice(
    here: Place, hook: str, test: str
) -> None:
    """tmux carries out what it has read of a request up to the moment at which the client goes."""
    runs = here.path("runs")
    async with opened(here) as ctx:
        await usable(ctx)
        (client,) = here.clients()
        here.tmux(
            "set-hook",
            "-g",
            hook,
            f"if-shell -F -t =harness: '{test}' 'run-shell \"kill -9 {client} 2>/dev/null; sleep 0.3\"'",
        )
        result = await within(45, ctx.run_shell(f"echo once >>{runs}; echo out", timeout=40))
        await until(lambda: not alive(client), "the client has gone")
        assert (result.status, result.exit_code, result.stdout) == (Status.COMPLETED, 0, "out\n"), result
        assert result.duration < 8, result
        assert lines(runs) == ["once"]
        here.tmux("set-hook", "-gu", hook)
        await usable(ctx)
        assert [job.status for job in await ctx.jobs() if job.status is not Status.COMPLETED] == []


async def test_a_command_whose_log_and_end_are_lost_is_given_up_in_time(here: Place) -> None:
    started = here.path("started")
    results: list[ShellResult] = []
    async with opened(here) as ctx:
        await usable(ctx)
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                command = f"echo yes >{started}; sleep 300"
                results.append(await within(30, ctx.run_shell(command, timeout=3, on_timeout="kill")))

            tasks.start_soon(run)
            await until(lambda: says(started, "yes"), "it runs")
            (here.state / f"jobs/{(await ctx.jobs())[-1].job_id}.exit").mkdir()
            for log in here.state.glob("panes/*/log.*"):
                log.unlink()
            (client,) = here.clients()
            kill(client)
        (result,) = results
        assert (result.status, result.exit_code) == (Status.UNKNOWN, None), result
        assert len(await within(5, ctx.jobs())) > 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "mksh"])
async def test_a_shell_that_loops_ends_with_its_window(here: Place, shell: str) -> None:
    """Its terminal goes while a program of its own is in the foreground: only its parent and that program are told."""
    async with here.connect(shell=f"/usr/bin/{shell}") as ctx:
        looping = await ctx.run_shell(f"while :; do echo >{here.path('alive')}; sleep 0.05; done", timeout=0.5)
        assert looping.status is Status.RUNNING, looping
        (pid,) = (int(path.read_text()) for path in here.state.glob("panes/*/pid"))
        end_window(here)
        await until(lambda: not alive(pid), "the shell has ended")
        await usable(ctx)
