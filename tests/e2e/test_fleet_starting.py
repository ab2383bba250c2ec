"""How a fleet's call starts its hosts, behind a real sshd: waves, limits, further logins, and the end of starting."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.sshd import SshServer

import harness
from harness.errors import AuthenticationError, ConnectError
from harness.fleets import HostOutcome
from harness.results import ShellResult, Status

Outcomes = dict[str, HostOutcome[ShellResult]]


@pytest.fixture
def named(sshd: SshServer) -> SshServer:
    """The server under the names web1 to web6; ``refused`` has a user that does not exist."""
    entries = [f"Host web{number}\n  HostName 127.0.0.1\n  Port {sshd.port}\n" for number in range(1, 7)]
    entries.append(f"Host refused\n  HostName 127.0.0.1\n  Port {sshd.port}\n  User no-such-user\n")
    sshd.ssh_config.write_text("".join(entries) + f"Host *\n  HostKeyAlias [127.0.0.1]:{sshd.port}\n")
    return sshd


@pytest.fixture
def silent() -> Iterator[str]:
    """A host that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"ssh://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def on_log(text: str, call: Callable[[], object]) -> Iterator[None]:
    """Call once when a fleet logs a message with this text."""

    class Handler(logging.Handler):
        called = False

        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage() and not self.called:
                self.called = True
                call()

    logger = logging.getLogger("harness.fleets")
    handler, level = Handler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def started(outcomes: Outcomes) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome.started]


# -- waves


async def test_a_wave_starts_when_the_one_before_has_ended(named: SshServer) -> None:
    events: list[str] = []

    async def note_wave(names: Sequence[str]) -> None:
        events.append(f"wave {','.join(names)}")

    def note_start(name: str) -> None:
        events.append(f"start {name}")

    async with harness.fleet("web[1-5]", config=named.config()) as fleet:
        async for name, outcome in fleet.run_shell("true", rolling=2, on_start=note_start, on_wave=note_wave):
            assert outcome.result is not None
            events.append(f"end {name}")
    first, second = events.index("wave web3,web4"), events.index("wave web5")
    assert sorted(events[:first]) == ["end web1", "end web2", "start web1", "start web2"]
    assert sorted(events[first + 1 : second]) == ["end web3", "end web4", "start web3", "start web4"]
    assert events[second + 1 :] == ["start web5", "end web5"]


async def test_a_failure_in_a_wave_stops_before_the_next_one(named: SshServer, tmp_path: Path) -> None:
    second = f"echo x >> {tmp_path}/x; [ $(wc -l < {tmp_path}/x) -ne 3 ]"
    async with harness.fleet("web[1-6]", config=named.config()) as fleet:
        outcomes = await fleet.gather(second, rolling=[2, 1])
    assert started(outcomes) == ["web1", "web2", "web3"]
    assert str(outcomes["web4"].error) == "not started: the limit of failed hosts (max_fail 1) was reached"
    assert (tmp_path / "x").read_text() == "x\n" * 3


async def test_waves_may_have_failures_below_the_limit(named: SshServer) -> None:
    async with harness.fleet("web[1-6]", config=named.config()) as fleet:
        outcomes = await fleet.gather("false", rolling="34%", max_fail="50%", forks=1)
        assert started(outcomes) == ["web1", "web2", "web3"]
        for wrong in ({"max_fail": 0}, {"rolling": "0%"}, {"rolling": []}, {"retry_unreachable": -1}, {"forks": 0}):
            with pytest.raises(ValueError, match=r"at least|number of hosts|size of a wave"):
                await fleet.gather("true", **wrong)


async def test_a_cancelled_call_starts_no_further_wave(named: SshServer) -> None:
    async with harness.fleet("web[1-3]", config=named.config()) as fleet:
        ended = []
        async for name, _ in fleet.run_shell("true", rolling=1):
            ended.append(name)
            fleet.cancel()
    assert ended == ["web1"]


async def test_a_host_that_still_logs_in_at_the_limit_is_not_started(named: SshServer, silent: str) -> None:
    with anyio.fail_after(30):
        async with harness.fleet(["web1", silent], config=named.config(connect_timeout=300)) as fleet:
            outcomes = await fleet.gather("false", max_fail=1)
    assert started(outcomes) == ["web1"]


# -- the end of starting


async def test_what_runs_ends_and_nothing_more_starts(named: SshServer, silent: str, tmp_path: Path) -> None:
    outcomes: Outcomes = {}
    running: set[str] = set()
    command = f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo down"
    with anyio.fail_after(30):
        async with harness.fleet([silent, "web[1-4]"], config=named.config(connect_timeout=300)) as fleet:

            def seen(name: str, data: bytes) -> None:
                running.add(name)
                if len(running) == 2 and not (tmp_path / "go").exists():
                    assert fleet.stop_starting("closed for today") == 2
                    (tmp_path / "go").touch()

            async with aclosing(fleet.run_shell(command, forks=3, on_output=seen)) as calls:
                async for name, outcome in calls:
                    outcomes[name] = outcome
            assert fleet.stop_starting() == 0
            assert (await fleet.gather("true", hosts=["web4"]))["web4"].started
    assert len(outcomes) == 5
    assert set(started(outcomes)) == running
    assert all(outcomes[name].result is not None for name in running)
    assert str(outcomes["web4"].error) == "not started: closed for today"


async def test_starting_may_be_stopped_between_waves(named: SshServer) -> None:
    async with harness.fleet("web[1-4]", config=named.config()) as fleet:

        async def refuse(names: Sequence[str]) -> None:
            fleet.stop_starting(f"no {' '.join(names)}")

        outcomes = await fleet.gather("true", rolling=1, on_wave=refuse)
    assert started(outcomes) == ["web1"]
    assert {str(outcomes[name].error) for name in ("web2", "web3", "web4")} == {"not started: no web2"}


async def test_leaving_a_fleet_does_not_wait_for_a_login(named: SshServer, silent: str) -> None:
    with anyio.fail_after(30):
        async with (
            harness.fleet(["web1", silent], config=named.config(connect_timeout=300)) as fleet,
            aclosing(fleet.run_shell("true")) as outcomes,
        ):
            assert (await anext(outcomes))[0] == "web1"


# -- hosts that are not reached at first


@pytest.mark.parametrize("engine", ["openssh", "asyncssh"])
async def test_an_unreachable_host_is_tried_again(named: SshServer, tmp_path: Path, engine: Any) -> None:
    named.stop()
    with on_log("next try", named.start):
        async with harness.fleet("web1", config=named.config(ssh_engine=engine)) as fleet:
            outcomes = await fleet.gather(f"echo x >> {tmp_path}/x", retry_unreachable=3)
    assert outcomes["web1"].result is not None
    assert (tmp_path / "x").read_text() == "x\n"


async def test_the_last_try_is_the_outcome(named: SshServer) -> None:
    named.stop()
    tries = 0

    def count() -> None:
        nonlocal tries
        tries += 1

    with on_log("next try in 0.", count), on_log("next try in 1.", count):
        async with harness.fleet("web1", config=named.config()) as fleet:
            outcomes = await fleet.gather("true", retry_unreachable=1)
    assert isinstance(outcomes["web1"].error, ConnectError)
    assert tries == 1


async def test_a_refused_login_is_not_tried_again(named: SshServer) -> None:
    with on_log("next try", lambda: pytest.fail("it was tried again")):
        async with harness.fleet("refused", config=named.config()) as fleet:
            outcomes = await fleet.gather("true", retry_unreachable=3)
    assert isinstance(outcomes["refused"].error, AuthenticationError)


async def test_a_command_whose_connection_is_lost_is_not_run_again(named: SshServer, tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with harness.fleet("web1", config=named.config()) as fleet:
            command = f"echo x >> {tmp_path}/x; echo up; exec sleep 300"

            def seen(name: str, data: bytes) -> None:
                named.stop()

            outcomes = await fleet.gather(command, retry_unreachable=3, timeout=20, on_output=seen)
    result = outcomes["web1"].result
    assert outcomes["web1"].error is not None or (result is not None and result.status is Status.UNKNOWN)
    assert (tmp_path / "x").read_text() == "x\n"


async def test_a_pause_ends_when_nothing_more_starts(named: SshServer) -> None:
    named.stop()
    async with harness.fleet("web1", config=named.config()) as fleet:
        with anyio.fail_after(20), on_log("next try", fleet.stop_starting):
            outcomes = await fleet.gather("true", retry_unreachable=9)
    assert isinstance(outcomes["web1"].error, ConnectError)
