"""A fleet on the workers of Dask distributed, behind a real sshd: whatever is killed, no host runs a command twice."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from tests.support.dask_cluster import DaskCluster, MakeCluster
from tests.support.program import Program
from tests.support.sshd import SshServer

import harness
from harness.errors import AuthenticationError, ConfigError, ConnectError, UnsupportedOperation
from harness.fleets import DaskExecutor
from harness.fleets.dask_executor import connect_scheduler
from harness.results import Status

NAMES = [f"web{number}" for number in range(1, 7)]
CLOSED_PORT = 1


@pytest.fixture
def named(sshd: SshServer) -> SshServer:
    """The server under the names web1 to web6; ``down`` is a host that nothing listens on."""
    entries = [f"Host {name}\n  HostName 127.0.0.1\n  Port {sshd.port}\n" for name in NAMES]
    entries.append(f"Host down\n  HostName 127.0.0.1\n  Port {CLOSED_PORT}\n")
    sshd.ssh_config.write_text("".join(entries) + f"Host *\n  HostKeyAlias [127.0.0.1]:{sshd.port}\n")
    return sshd


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> DaskCluster:
    return make_cluster()


@pytest.fixture
def ops(named: SshServer, needs_dask: None, request: pytest.FixtureRequest) -> Program:
    """The program with the hosts as its ssh configuration."""
    program: Program = request.getfixturevalue("program")
    words = [word for option in named.client_options for word in ("-o", option)]
    program.always = ("-F", str(named.ssh_config), "-i", str(named.identity), *words)
    return program


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().split()) if path.exists() else []


def wait_for_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(lines(path)) < count:
        assert time.monotonic() < deadline, lines(path)
        time.sleep(0.02)  # the other side is a shell: it cannot signal


def blocking(home: Path) -> str:
    """A command that writes a line and waits for the file ``go``."""
    return f"echo line >> {home}/lines; until [ -e {home}/go ]; do sleep 0.1; done; echo said"


def objects(output: bytes) -> list[dict[str, Any]]:
    return [item for item in map(json.loads, output.splitlines()) if "host" in item]


# -- as a library


async def test_workers_run_the_command_of_each_host(named: SshServer, shared_cluster: DaskCluster) -> None:
    command = f"echo line >> {named.home}/lines; cat; exit 3"
    async with (
        connect_scheduler(shared_cluster.address, 15.0) as executor,
        harness.fleet("web[1-4],down", config=named.config(), executor=executor) as fleet,
    ):
        outcomes = await fleet.gather(command, stdin="input\n")
    results = [outcomes[name].result for name in ("web1", "web2", "web3", "web4")]
    assert [result and result.exit_code for result in results] == [3] * 4
    assert outcomes["web1"].result is not None
    assert outcomes["web1"].result.stdout == "input\n"
    assert isinstance(outcomes["down"].error, ConnectError)
    assert outcomes["down"].started is False
    assert lines(named.home / "lines") == ["line"] * 4


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"timeout": -1.0}, ValueError), ({"env": {"A=B": "c"}}, ValueError), ({"nonsense": 1}, TypeError)],
)
async def test_wrong_arguments_are_the_callers_error(
    named: SshServer, shared_cluster: DaskCluster, arguments: dict[str, Any], error: type[Exception]
) -> None:
    command = f"echo line >> {named.home}/lines"
    async with harness.fleet("web[1-2]", config=named.config()) as fleet:
        with pytest.raises(error) as here:
            await fleet.gather(command, **arguments)
    async with (
        connect_scheduler(shared_cluster.address, 15.0) as executor,
        harness.fleet("web[1-2]", config=named.config(), executor=executor) as fleet,
    ):
        with pytest.raises(error) as there:
            await fleet.gather(command, **arguments)
        assert str(there.value) == str(here.value)
        assert [one.result and one.result.stdout for one in (await fleet.gather("echo on")).values()] == ["on\n"] * 2
    assert lines(named.home / "lines") == []


async def test_one_worker_thread_runs_many_hosts_at_once(named: SshServer, shared_cluster: DaskCluster) -> None:
    names = [f"many{number}" for number in range(30)]
    entries = "".join(f"Host {name}\n  HostName 127.0.0.1\n  Port {named.port}\n" for name in names)
    named.ssh_config.write_text(entries + named.ssh_config.read_text())
    home = named.home
    async with (
        connect_scheduler(shared_cluster.address, 15.0) as executor,
        harness.fleet("many[0-29]", config=named.config(), executor=executor) as fleet,
        anyio.create_task_group() as tasks,
    ):

        async def release() -> None:
            await anyio.to_thread.run_sync(wait_for_lines, home / "lines", 30)
            (home / "go").touch()

        tasks.start_soon(release)
        with anyio.fail_after(120):
            outcomes = await fleet.gather(blocking(home), forks=30)
    assert [one.result and one.result.stdout for one in outcomes.values()] == ["said\n"] * 30


@pytest.fixture
def agent(named: SshServer, tmp_path: Path) -> Iterator[str]:
    """The socket of an agent that holds the client's key."""
    path = str(tmp_path / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # printed when the socket is there
        environment = {**os.environ, "SSH_AUTH_SOCK": path}
        subprocess.run(["ssh-add", "-q", str(named.identity)], env=environment, check=True)
        yield path
        process.terminate()


async def test_workers_log_in_with_their_own_agent(
    named: SshServer, agent: str, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    known = tuple(option for option in named.client_options if "KnownHosts" in option)
    config = named.config(identity="", ssh_options=known)
    cluster = make_cluster(1, SSH_AUTH_SOCK=agent)
    async with (
        connect_scheduler(cluster.address, 15.0) as executor,
        harness.fleet("web1", config=config, executor=executor) as fleet,
    ):
        there = (await fleet.gather("echo here"))["web1"]
    async with harness.fleet("web2", config=config) as fleet:
        here = (await fleet.gather("echo here"))["web2"]
    assert there.result is not None, there.error
    assert there.result.stdout == "here\n"
    assert isinstance(here.error, AuthenticationError)


async def test_a_synchronous_client_serves_too(named: SshServer, shared_cluster: DaskCluster) -> None:
    from distributed import Client

    client = await anyio.to_thread.run_sync(lambda: Client(shared_cluster.address, set_as_default=False))
    try:
        async with harness.fleet("web[1-2]", config=named.config(), executor=DaskExecutor(client)) as fleet:
            outcomes = await fleet.gather("echo said")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_interrupt_after, fleet, named.home / "lines", 2)
                ended = (await fleet.gather(f"echo line >> {named.home}/lines; exec sleep 300")).values()
    finally:
        await anyio.to_thread.run_sync(client.close)
    assert [outcome.result and outcome.result.stdout for outcome in outcomes.values()] == ["said\n"] * 2
    assert [outcome.result and outcome.result.status for outcome in ended] == [Status.INTERRUPTED] * 2


async def _interrupt_after(fleet: harness.fleets.Fleet, path: Path, count: int) -> None:
    await anyio.to_thread.run_sync(wait_for_lines, path, count)
    fleet.interrupt()


async def test_no_further_host_starts_after_too_many_failures(named: SshServer, shared_cluster: DaskCluster) -> None:
    async with (
        connect_scheduler(shared_cluster.address, 15.0) as executor,
        harness.fleet("web[1-6]", config=named.config(), executor=executor) as fleet,
    ):
        outcomes = await fleet.gather(f"echo x >> {named.home}/lines; false", forks=1, max_fail=2)
    assert [outcome.started for outcome in outcomes.values()] == [True, True, False, False, False, False]
    assert lines(named.home / "lines") == ["x", "x"]


async def test_leaving_early_ends_what_runs(named: SshServer, shared_cluster: DaskCluster) -> None:
    async with (
        connect_scheduler(shared_cluster.address, 15.0) as executor,
        harness.fleet("web[1-2]", config=named.config(), executor=executor) as fleet,
    ):
        command = f"mkdir {named.home}/first 2>/dev/null || {{ echo $$ >> {named.home}/lines; exec sleep 300; }}"
        async with aclosing(
            fleet.run_shell(f"{command}; while [ ! -e {named.home}/lines ]; do sleep 0.1; done")
        ) as all:
            async for _, outcome in all:
                assert outcome.result is not None
                break
    (pid,) = lines(named.home / "lines")
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]


async def test_what_only_this_process_can_do_is_refused(named: SshServer, shared_cluster: DaskCluster) -> None:
    async def work(context: harness.ExecutionContext) -> None: ...

    async with connect_scheduler(shared_cluster.address, 15.0) as executor:
        async with harness.fleet("web1", config=named.config(), executor=executor) as fleet:
            with pytest.raises(UnsupportedOperation, match="functions do not run on Dask workers"):
                await anext(fleet.map(work))
            with pytest.raises(UnsupportedOperation, match="connected by Dask workers"):
                await fleet.connected("web1")
            outcome = (await fleet.gather("cat", stdin=b"x" * ((1 << 20) + 1)))["web1"]
            assert "take at most 1,048,576 bytes of standard input" in str(outcome.error)
        for hosts, changes, why in (
            ("local:", {}, "another one for each Dask worker"),
            ("web1", {"image": "debian"}, "does not work on Dask workers"),
        ):
            with pytest.raises(ConfigError, match=why):
                async with harness.fleet(hosts, config=named.config(**changes), executor=executor):
                    pytest.fail("it opened")


# -- clusters that cannot be used


@pytest.mark.parametrize(
    ("customization", "message"),
    [
        (
            "import importlib.metadata as m; real = m.version\n"
            "m.version = lambda name: '0.0.1' if name == 'harness-ops' else real(name)",
            "has harness 0.0.1, and this is harness ",
        ),
        ("import sys; sys.modules['harness'] = None", "cannot import harness: "),
    ],
    ids=["another", "none"],
)
def test_another_version_of_harness_is_named_and_nothing_is_sent(
    named: SshServer, make_cluster: MakeCluster, request: pytest.FixtureRequest, customization: str, message: str
) -> None:
    program: Program = request.getfixturevalue("program")
    (program.home / "sitecustomize.py").write_text(customization)
    cluster = make_cluster(1)
    cluster.environ["PYTHONPATH"] = str(program.home)
    cluster.add_worker("other")
    program.always = ("-F", str(named.ssh_config))
    done = program.run("run", "--hosts", "web1", "--scheduler", cluster.address, "--", f"echo x >> {named.home}/lines")
    assert done.returncode == 125
    assert b"harness: the Dask worker tcp://127.0.0.1:" in done.stderr
    assert message.encode() in done.stderr
    assert not lines(named.home / "lines")


def test_a_cluster_that_is_not_there_is_an_error(make_cluster: MakeCluster, program: Program) -> None:
    cluster = make_cluster(0)
    words = ("run", "--ssh", "ssh://a", "--ssh", "ssh://b", "--scheduler")
    empty = program.run(*words, cluster.address, "--", "true")
    assert (empty.returncode, b"the Dask scheduler has no workers" in empty.stderr) == (125, True), empty.stderr
    cluster.kill("scheduler")
    gone = program.run("--connect-timeout", "2", *words, cluster.address, "--", "true")
    assert gone.returncode == 125
    assert f"cannot reach the Dask scheduler {cluster.address}".encode() in gone.stderr
    wrong = program.run(*words, "nowhere://x", "--", "true")
    assert (wrong.returncode, b"the Dask scheduler nowhere://x" in wrong.stderr) == (125, True), wrong.stderr


def test_a_scheduler_with_tls_takes_the_certificates_of_dasks_configuration(
    ops: Program, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    prefix = "DASK_DISTRIBUTED__COMM__"
    variables = {f"{prefix}TLS__{role}__CERT": str(tmp_path / "own.pem") for role in ("SCHEDULER", "WORKER", "CLIENT")}
    variables |= {f"{prefix}TLS__CA_FILE": str(tmp_path / "ca.pem"), f"{prefix}DEFAULT_SCHEME": "tls"}
    address = make_cluster(1, **variables).address
    assert address.startswith("tls://")
    words = ("run", "--hosts", "web1", "--scheduler", address, "--", "echo said")
    refused = ops.run("--connect-timeout", "5", *words)
    assert (refused.returncode, b"the Dask scheduler tls://" in refused.stderr) == (125, True), refused.stderr
    assert b"Traceback" not in refused.stderr
    done = ops.run(*words, **variables)
    assert (done.returncode, done.stdout) == (0, b"== web1 (1)\nsaid\n"), done.stderr


# -- the program


def test_equal_outputs_are_printed_once_and_each_host_has_its_lines(ops: Program, shared_cluster: DaskCluster) -> None:
    words = ("run", "--hosts", "web[1-3]", "--scheduler", shared_cluster.address)
    done = ops.run(*words, "--", "echo same")
    assert (done.returncode, done.stdout) == (0, b"== web[1-3] (3)\nsame\n"), done.stderr
    each = ops.run(*words, "--each", "--max-output", "10", "--", "echo one; echo two >&2; echo 0123456789")
    assert each.returncode == 0
    assert each.stdout.splitlines()[0] in {f"{name}: one".encode() for name in NAMES}
    assert b"bytes in the middle of the output are not shown" in each.stderr


@pytest.mark.parametrize(
    ("engine", "number"),
    [("openssh", signal.SIGKILL), ("openssh", signal.SIGTERM), ("asyncssh", signal.SIGKILL)],
    ids=["openssh-kill", "openssh-term", "asyncssh-kill"],
)
def test_the_hosts_of_a_killed_worker_go_to_another_one(
    ops: Program, named: SshServer, cluster: DaskCluster, engine: str, number: signal.Signals
) -> None:
    ops.environ["HARNESS_SSH_ENGINE"] = engine
    with ops.start(
        "--json", "run", "--hosts", "web[1-4]", "--scheduler", cluster.address, "--", blocking(named.home)
    ) as running:
        wait_for_lines(named.home / "lines", 4)
        cluster.kill("worker0", number)
        (named.home / "go").touch()
        output, said = running.communicate(timeout=60)
    assert lines(named.home / "lines") == ["line"] * 4
    assert running.returncode == 0, said
    assert [(item["status"], item["stdout"]) for item in objects(output)] == [("completed", "said\n")] * 4
    assert any("which an earlier call started" in str(item["notices"]) for item in objects(output))


def test_the_hosts_of_a_worker_that_hangs_go_to_another_one(
    ops: Program, named: SshServer, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(2, DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="3s")
    words = ("--json", "run", "--hosts", "web[1-4]", "--scheduler", cluster.address)
    with ops.start(*words, "--", blocking(named.home)) as running:
        wait_for_lines(named.home / "lines", 4)
        cluster.processes["worker0"].send_signal(signal.SIGSTOP)
        (named.home / "go").touch()
        output, said = running.communicate(timeout=60)
    cluster.processes["worker0"].send_signal(signal.SIGCONT)
    assert running.returncode == 0, said
    assert [(item["status"], item["stdout"]) for item in objects(output)] == [("completed", "said\n")] * 4
    assert lines(named.home / "lines") == ["line"] * 4


@pytest.mark.parametrize("early", [False, True], ids=["running", "before"])
def test_a_stopped_worker_delays_a_run_by_half_a_minute_at_most(
    ops: Program, named: SshServer, cluster: DaskCluster, early: bool
) -> None:
    stopped = cluster.processes["worker0"]
    if early:
        stopped.send_signal(signal.SIGSTOP)
    with ops.start(
        "--json", "run", "--hosts", "web[1-4]", "--scheduler", cluster.address, "--", blocking(named.home)
    ) as running:
        if not early:
            wait_for_lines(named.home / "lines", 4)
            stopped.send_signal(signal.SIGSTOP)
        (named.home / "go").touch()
        output, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert [(item["status"], item["stdout"]) for item in objects(output)] == [("completed", "said\n")] * 4
    assert b"has not responded for 20 s" in said
    stopped.send_signal(signal.SIGCONT)  # it still has its tasks, and must run nothing again
    assert ops.run("run", "--hosts", "web[5-6]", "--scheduler", cluster.address, "--", "echo on").returncode == 0
    assert lines(named.home / "lines") == ["line"] * 4


def test_hosts_wait_for_a_new_worker_while_there_is_none(
    ops: Program, named: SshServer, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(1)
    words = ("run", "--hosts", "web[1-2]", "--scheduler", cluster.address)
    with ops.start(*words, "--", blocking(named.home)) as running:
        wait_for_lines(named.home / "lines", 2)
        cluster.kill("worker0")
        cluster.add_worker("worker1")
        (named.home / "go").touch()
        output, said = running.communicate(timeout=60)
    assert (running.returncode, output) == (0, b"== web[1-2] (2)\nsaid\n"), said
    assert lines(named.home / "lines") == ["line"] * 2


def test_a_host_whose_workers_are_all_lost_is_unknown(
    ops: Program, named: SshServer, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(1, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
    words = ("run", "--hosts", "web1", "--scheduler", cluster.address)
    with ops.start(*words, "--", blocking(named.home)) as running:
        wait_for_lines(named.home / "lines", 1)
        cluster.kill("worker0")
        _, said = running.communicate(timeout=60)
    assert (running.returncode, b"the Dask worker that ran it was lost; the command may have started" in said) == (
        125,
        True,
    ), said
    (named.home / "go").touch()
    assert ops.run("fleet", "resume", "1").stdout == b"== web1 (1)\nsaid\n"
    assert lines(named.home / "lines") == ["line"]


@pytest.mark.parametrize("again", ["workers", "here"])
def test_a_killed_scheduler_is_a_resume(
    ops: Program, named: SshServer, make_cluster: MakeCluster, cluster: DaskCluster, again: str
) -> None:
    words = ("run", "--hosts", "web[1-6]", "--forks", "4", "--scheduler", cluster.address)
    with ops.start(*words, "--", blocking(named.home)) as running:
        wait_for_lines(named.home / "lines", 4)
        cluster.kill("scheduler")
        _, said = running.communicate(timeout=60)
    assert running.returncode == 125
    assert b"the connection to the Dask scheduler was lost" in said
    assert b"4 unknown, 2 not started" in said
    assert b"Traceback" not in said, said.decode()
    assert b"to run it on the other hosts: harness fleet resume 1" in said
    (named.home / "go").touch()
    scheduler = ("--scheduler", make_cluster(1).address) if again == "workers" else ()
    resumed = ops.run("fleet", "resume", *scheduler, "1")
    assert (resumed.returncode, resumed.stdout) == (0, b"== web[1-6] (6)\nsaid\n"), resumed.stderr
    assert lines(named.home / "lines") == ["line"] * 6


@pytest.mark.parametrize("again", ["workers", "here"])
def test_a_killed_controller_is_a_resume(ops: Program, named: SshServer, cluster: DaskCluster, again: str) -> None:
    words = ("run", "--hosts", "web[1-6]", "--forks", "4", "--scheduler", cluster.address)
    with ops.start(*words, "--", blocking(named.home)) as running:
        wait_for_lines(named.home / "lines", 4)
        running.kill()
        running.communicate(timeout=60)
    (named.home / "go").touch()
    scheduler = ("--scheduler", cluster.address) if again == "workers" else ()
    resumed = ops.run("fleet", "resume", *scheduler, "1")
    assert (resumed.returncode, resumed.stdout) == (0, b"== web[1-6] (6)\nsaid\n"), resumed.stderr
    assert lines(named.home / "lines") == ["line"] * 6


def test_an_interrupt_ends_what_runs_on_workers(ops: Program, named: SshServer, shared_cluster: DaskCluster) -> None:
    words = ("--json", "run", "--hosts", "web[1-6]", "--forks", "4", "--scheduler", shared_cluster.address)
    with ops.start(*words, "--", f"echo said; {blocking(named.home)}") as running:
        wait_for_lines(named.home / "lines", 4)
        running.send_signal(signal.SIGTERM)
        output, said = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM, said
    found = objects(output)
    assert [item["stdout"] for item in found if item.get("status") == "interrupted"] == ["said\n"] * 4
    assert [item["error"]["type"] for item in found if "error" in item] == ["HostNotStarted"] * 2


def test_the_first_interrupt_ends_logins_of_workers_and_lets_commands_end(
    ops: Program, named: SshServer, shared_cluster: DaskCluster
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it never answers
        entry = f"Host silent\n  HostName 127.0.0.1\n  Port {silent.getsockname()[1]}\n"
        named.ssh_config.write_text(entry + named.ssh_config.read_text())
        words = ("--connect-timeout", "300", "run", "--hosts", "web1,silent", "--scheduler", shared_cluster.address)
        with ops.start(*words, "--", blocking(named.home)) as running:
            wait_for_lines(named.home / "lines", 1)
            accepted, _ = silent.accept()
            running.send_signal(signal.SIGINT)
            assert running.stderr is not None
            first = running.stderr.readline()
            (named.home / "go").touch()
            output, said = running.communicate(timeout=60)
            accepted.close()
    assert first.startswith(b"harness: nothing more starts; 2 hosts still run")
    assert (running.returncode, output) == (130, b"== web1 (1)\nsaid\n"), said
    assert b"silent (1): not started: interrupted" in said


def test_cancel_works_through_a_scheduler(ops: Program, named: SshServer, shared_cluster: DaskCluster) -> None:
    scheduler = ("--scheduler", shared_cluster.address)
    with ops.start("run", "--hosts", "web[1-3]", "--forks", "2", *scheduler, "--", blocking(named.home)) as running:
        wait_for_lines(named.home / "lines", 2)
        cancelled = ops.run("fleet", "cancel", *scheduler, "1")
        running.communicate(timeout=60)
    assert cancelled.returncode == 0, cancelled.stderr
    assert ops.run("fleet", "wait", *scheduler, "1").returncode != 0
    assert lines(named.home / "lines") == ["line"] * 2


KILLS = 12


@pytest.mark.timeout(900)
def test_whatever_is_killed_at_any_moment_nothing_runs_twice(
    needs_time: None, ops: Program, named: SshServer, make_cluster: MakeCluster
) -> None:
    chance = random.Random(5)
    cluster, workers, last = make_cluster(), 2, 0
    words = ("--json", "run", "--hosts", "web[1-6]", "--forks", "3", "--scheduler")
    moments = Counter[tuple[str, int]]()
    for number in range(KILLS):
        victim = ("worker", "scheduler", "controller")[number % 3]
        effects = named.home / f"effects-{number}"
        with ops.start(*words, cluster.address, "--", f"echo line >>{effects}; sleep 0.1") as process:
            wait_for_lines(effects, chance.randint(0, 6))
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.0, 0.3))
            moments[victim, len(lines(effects))] += 1
            if victim == "controller":
                process.kill()
            else:
                cluster.kill("scheduler" if victim == "scheduler" else f"worker{workers - 1}")
            output, said = process.communicate(timeout=120)
        if victim == "worker":
            assert process.returncode == 0, (number, said)
            cluster.add_worker(f"worker{workers}")
            workers += 1
        elif victim == "scheduler":
            cluster, workers = make_cluster(), 2
        runs = json.loads(ops.run("--json", "fleet", "list").stdout)
        if len(runs) == last:  # it was killed before the run was kept
            assert not lines(effects), (number, said)
            continue
        last = len(runs)
        resumed = ops.run("--json", "fleet", "resume", "--scheduler", cluster.address, str(runs[-1]["run"]))
        assert resumed.returncode == 0, (number, victim, output, said, resumed)
        assert lines(effects) == ["line"] * 6, (number, victim)
    assert len(moments) > 5, f"the kills came all too early or too late: {moments}"
