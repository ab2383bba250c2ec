"""Slash commands about jobs in a session on many hosts, with hosts that each have their own jobs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.support.fleet_hosts import FleetHosts, fleet_hosts, fleet_program
from tests.support.own_home import here  # noqa: F401  # a fixture
from tests.support.seats import Seats, seats
from tests.support.slash import Desk, slash_desk

import harness
from harness.cli.named_commands import use_target_options
from harness.cli.prompt.commands import jobs_of_hosts
from harness.cli.prompt.commands.jobs_of_hosts import merge_jobs
from harness.cli.prompt.commands.table import completions
from harness.config import Config
from harness.fleets import Fleet, FleetContext
from harness.results import Job, Status

__all__ = ["fleet_hosts", "fleet_program", "seats"]


def fleet_of(desk: Desk) -> Fleet:
    execution = desk.context.execution
    assert isinstance(execution, FleetContext)
    return execution.fleet


@pytest.fixture
async def desk(fleet_hosts: FleetHosts) -> AsyncIterator[Desk]:
    """A session on web1 to web3 and a host that is down."""
    config = Config(ssh_config=fleet_hosts.options[1])
    async with (
        harness.fleet("web[1-3],down", config=config) as fleet,
        slash_desk(FleetContext(fleet)) as made,
    ):
        yield made


async def start(desk: Desk, command: str, *names: str) -> list[str]:
    """Start a command on hosts and return its job IDs."""
    found = []
    for name in names:
        context = await fleet_of(desk).connected(name)
        found.append((await context.run_shell(command, wait=False)).job_id or "")
    return found


async def test_jobs_of_all_hosts_are_listed_and_equal_ones_are_one_row(desk: Desk) -> None:
    assert await desk.type("/ps") == (
        "nothing is running\n4 hosts are not connected; /jobs connects to all hosts and lists their jobs"
    )
    await start(desk, "sleep 600", "web1", "web2")
    (other,) = await start(desk, "sleep 601", "web2")
    said = await desk.type("/ps")
    assert re.search(r"^job \| web\[1-2\]:1 \| running .* \| sleep 600$", said, re.MULTILINE), said
    assert re.search(rf"^job \| web2:{other} \| running .* \| sleep 601$", said, re.MULTILINE)
    assert said.endswith("2 hosts are not connected; /jobs connects to all hosts and lists their jobs")
    assert re.search(r"^jobs: +3 running on 2 connected hosts of 4 \(/ps\)$", await desk.type("/status"), re.MULTILINE)
    said = await desk.type("/jobs")
    assert re.search(r"^web\[1-2\]:1 \| running \|  \| .* \| sleep 600$", said, re.MULTILINE)
    assert re.search(r"^! down: .*Connection refused", said, re.MULTILINE)
    assert "not connected" not in await desk.type("/jobs web[1-3]")
    only = await desk.type("/jobs web1")
    assert "web1:1 | running" in only
    assert "sleep 601" not in only
    assert await desk.type("/jobs web3") == "there are no jobs on the hosts"


async def test_jobs_are_shown_and_killed_by_host_and_id(desk: Desk) -> None:
    use_target_options(" -F cfg")
    try:
        await start(desk, "echo same; sleep 600", "web1", "web2")
        with anyio.fail_after(30):
            said = ""
            while not (said.endswith("output:\nsame") and "(2 hosts)" in said):  # until both outputs have arrived
                said = await desk.type("/jobs web[1-2]:1")
        assert said.startswith("job:       web[1-2]:1 (2 hosts)\nstatus:    running\n")
        said = await desk.type("/jobs web1:1")
        assert said.startswith("job:       web1:1\n")
        assert "started:" in said
        said = await desk.type("/kill web1:1 web3:1 down:1 web9:1 1")
        assert re.search(r"^job web1:1: interrupted, ", said, re.MULTILINE), said
        assert "web3: unknown job '1'" in said
        assert "down: " in said
        assert "'web9' is not a host of this fleet (the hosts are down,web[1-3])" in said
        assert "job '1' needs its host: write HOST:ID, such as web1:1" in said
        assert "web1:1" not in await desk.type("/ps")
        said = await desk.type("/kill web[1-2]:1")
        assert "job web1:1 had already ended: interrupted, " in said
        assert "job web2:1: interrupted, " in said
        (done,) = await start(desk, "seq 3000", "web3")
        await (await fleet_of(desk).connected("web3")).wait(done)
        assert f"(harness -F cfg --ssh web3 jobs tail {done})" in await desk.type(f"/jobs web3:{done}")
    finally:
        use_target_options("")


async def test_an_unresponsive_host_delays_the_current_state_by_seconds_only(
    desk: Desk, fleet_hosts: FleetHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_of_hosts, "ANSWER_TIMEOUT", 3.0)
    await start(desk, "sleep 600", "web1", "web2")
    stopped = fleet_hosts.servers["web2"].session_pids()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        with anyio.fail_after(20):
            said = await desk.type("/ps")
            assert "web2: no answer within 3 s" in await desk.type("/status")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert "web1:1 | running" in said
    assert "! web2: no answer within 3 s" in said


async def test_a_job_on_a_host_gets_a_deadline(desk: Desk) -> None:
    await start(desk, "sleep 600", "web1", "web2")
    assert await desk.type("/timeout 1h web[1-2]:1") == "job web[1-2]:1 will be ended in 1 h"
    assert await desk.type("/timeout none web[1-2]:1") == "job web[1-2]:1 has no deadline any more"
    assert "web3: unknown job '1'" in await desk.type("/timeout 1h web[1-3]:1")
    await desk.type("/timeout 10ms web[1-2]:1")
    with anyio.fail_after(60):
        await desk.output.warned.wait()
    assert desk.output.warnings[0].startswith("deadline expired (/timeout): job web[1-2]:1: interrupted")
    assert "job web1:1 has ended" in await desk.type("/timeout 1h web1:1")


async def test_wrong_arguments_name_the_hosts(desk: Desk) -> None:
    for line in ("/jobs web9", "/jobs web9:1"):
        assert "the hosts are down,web[1-3]" in await desk.type(line)
    assert "one pattern" in await desk.type("/jobs web1 web2")
    assert "write HOST:ID, such as web1:7" in await desk.type("/jobs 7")
    assert "start harness with --tmux" in await desk.type("/attach")
    assert [one.text for one in completions("/jobs w", desk.context)] == ["web1", "web2", "web3"]
    assert [one.text for one in completions("/attach read-only web2", desk.context)] == ["web2"]


def test_times_of_equal_jobs_that_started_apart_are_not_shown_as_one() -> None:
    jobs = [(f"h{number}", Job("1", "x", Status.RUNNING, started=1000.0 + 50 * number)) for number in range(3)]
    near, far = merge_jobs(jobs[:2]), merge_jobs(jobs)
    assert [row.name for row in far] == ["h[0-2]:1"]
    assert "or later" not in near[0].started
    assert far[0].started.endswith("or later")
    many = merge_jobs([(f"host{number * 7}", jobs[0][1]) for number in range(40)])
    assert many[0].name.endswith("…(40 hosts):1")


async def test_attach_shows_the_sessions_of_hosts_side_by_side(
    seats: Seats, needs_tmux: None, fleet_hosts: FleetHosts
) -> None:
    seat = seats.take(*fleet_hosts.options, "--hosts", "web[1-2]", "--tmux", size=(160, 40))
    await seat.sees("harness on 2 hosts: web[1-2]")
    await seat.on_screen("»")
    seat.enter('!printf "\\033[H\\033[2J"; echo "on" ${HOME##*/}')
    await seat.sees("2 hosts: 2 exit code 0")
    seat.enter("/attach web2")
    await seat.on_screen("on web2", "0:main")
    seat.press("C-b", "d")
    await seat.on_screen("»", "fleet://web[1-2] · ")  # the line of the state is removed while another program runs
    seat.enter("/attach")
    await seat.on_screen("on web1", "on web2", "0:harness")
    seat.press("C-b", "d")
    await seat.on_screen("»", "fleet://web[1-2] · ")  # the line of the state is removed while another program runs
    seat.press("C-d")
    assert await seat.ended() == 0


@pytest.mark.parametrize(("command", "shown"), [("/attach", "0:harness"), ("/attach web2", "0:main")])
async def test_a_signal_ends_harness_while_hosts_are_attached(
    seats: Seats, needs_tmux: None, fleet_hosts: FleetHosts, command: str, shown: str
) -> None:
    seat = seats.take(*fleet_hosts.options, "--hosts", "web[1-2]", "--tmux", size=(160, 40))
    await seat.sees("harness on 2 hosts: web[1-2]")
    await seat.on_screen("»")
    seat.enter(command)
    await seat.on_screen(shown)
    assert bool(_running(f"harness-attach-{seat.pid}")) == (command == "/attach")
    seat.signal("SIGTERM")
    assert await seat.ended() == 128 + signal.SIGTERM
    if command == "/attach":
        assert shown not in seat.screen  # tmux has restored the terminal
    assert not _running(f"harness-attach-{seat.pid}")


def _running(word: str) -> list[str]:
    """The command lines that contain a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if word in line]
