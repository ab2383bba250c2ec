"""``harness fleet``: runs that outlive their controller, behind a real sshd; no command of a run runs twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.program import Program
from tests.support.sshd import SshServer

from harness.errors import ConfigError, HarnessError
from harness.fleets import Host, HostOutcome
from harness.fleets.kept_runs import RunStore
from harness.results import ShellResult, Status
from harness.target import Target

CLOSED_PORT = 1
KILLS = 40
NAMES = [f"web{number}" for number in range(1, 7)]


@pytest.fixture
def named(sshd: SshServer) -> SshServer:
    """The server under the names web1 to web6; ``down`` is a host that nothing listens on."""
    entries = [f"Host {name}\n  HostName 127.0.0.1\n  Port {sshd.port}\n" for name in NAMES]
    entries.append(f"Host down\n  HostName 127.0.0.1\n  Port {CLOSED_PORT}\n")
    sshd.ssh_config.write_text("".join(entries) + f"Host *\n  HostKeyAlias [127.0.0.1]:{sshd.port}\n")
    return sshd


@pytest.fixture
def fleet_program(named: SshServer, request: pytest.FixtureRequest) -> Program:
    """The program with the hosts as its ssh configuration."""
    program: Program = request.getfixturevalue("program")
    words = [word for option in named.client_options for word in ("-o", option)]
    program.always = ("-F", str(named.ssh_config), "-i", str(named.identity), *words)
    return program


def objects(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_until(path: Path, count: int) -> None:
    end = time.monotonic() + 30
    while len(lines(path)) < count:
        assert time.monotonic() < end, lines(path)
        time.sleep(0.02)


def test_a_run_is_kept_with_its_outcomes(fleet_program: Program) -> None:
    done = fleet_program.run("run", "--hosts", "web[1-2],down", "--", "echo said; exit 3")
    assert done.returncode == 125
    assert b"harness: run 1, 3 hosts: 2 failed, 1 unreachable" in done.stderr
    assert b"harness: to run it on the other hosts: harness fleet resume 1\n" in done.stderr
    listed = fleet_program.run("fleet")
    assert b"unfinished" in listed.stdout
    assert b"2 failed, 1 unreachable" in listed.stdout
    shown = json.loads(fleet_program.run("--json", "fleet", "show", "1").stdout)
    assert {(host["host"], host["outcome"], host.get("exit_code")) for host in shown["outcomes"]} == {
        ("web1", "failed", 3),
        ("web2", "failed", 3),
        ("down", "unreachable", None),
    }
    assert fleet_program.run("fleet", "show", "2").returncode == 125


def test_the_outputs_are_read_again_from_the_hosts(fleet_program: Program) -> None:
    fleet_program.run("run", "--hosts", "web[1-3]", "--", "echo said; echo line >> ~/lines")
    again = fleet_program.run("fleet", "wait", "1")
    assert again.returncode == 0
    assert again.stdout == b"== web[1-3] (3)\nsaid\n"


def test_only_the_hosts_that_did_not_answer_are_asked_again(fleet_program: Program, named: SshServer) -> None:
    first = fleet_program.run("run", "--hosts", "web1,down", "--", f"echo line >> {named.home}/lines")
    assert first.returncode == 125
    text = named.ssh_config.read_text().replace(f"Port {CLOSED_PORT}\n", f"Port {named.port}\n")
    named.ssh_config.write_text(text)
    resumed = fleet_program.run("fleet", "resume", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert b"the command has ended on 1 of 2 hosts" in resumed.stderr
    assert lines(named.home / "lines") == ["line"] * 2
    assert fleet_program.run("fleet", "resume", "1").returncode == 0
    assert lines(named.home / "lines") == ["line"] * 2


def test_a_host_that_has_no_job_of_the_run_is_waited_for_as_not_started(
    fleet_program: Program, named: SshServer
) -> None:
    fleet_program.run("run", "--hosts", "web1,down", "--", "true")
    text = named.ssh_config.read_text().replace(f"Port {CLOSED_PORT}\n", f"Port {named.port}\n")
    named.ssh_config.write_text(text)
    waited = fleet_program.run("fleet", "wait", "1")
    assert waited.returncode == 125
    assert b"down (1): not started: the host has no job of this run" in waited.stderr
    assert b"2 hosts: 1 ok, 1 not started" in waited.stderr


def test_standard_input_and_options_are_kept_for_hosts_that_start_later(
    fleet_program: Program, named: SshServer
) -> None:
    words = ("run", "--hosts", "down", "--stdin", "--env", "WORD=given", "--cwd", "/", "--", "cat; echo $WORD; pwd")
    assert fleet_program.run(*words, stdin=b"some\x00input\n").returncode == 125
    text = named.ssh_config.read_text().replace(f"Port {CLOSED_PORT}\n", f"Port {named.port}\n")
    named.ssh_config.write_text(text)
    resumed = fleet_program.run("fleet", "resume", "1")
    assert resumed.stdout == b"== down (1)\nsome\x00input\ngiven\n/\n"
    state = Path(fleet_program.environ["XDG_STATE_HOME"]) / "harness/fleets"
    assert {oct(path.stat().st_mode & 0o777) for path in (state, state / "1")} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in (state / "1").iterdir()} == {"0o600"}


def test_retry_runs_again_where_the_command_failed_and_nowhere_else(fleet_program: Program, named: SshServer) -> None:
    marks = named.home / "marks"
    marks.mkdir()
    command = f"mkdir {marks}/first 2>/dev/null && exit 5; echo $$ >>{marks}/others"
    assert fleet_program.run("run", "--hosts", "web[1-3],down", "--forks", "1", "--", command).returncode == 125
    again = fleet_program.run("--json", "fleet", "retry", "--failed", "1")
    assert again.returncode == 0
    assert [item["host"] for item in objects(again) if "host" in item] == ["web1"]
    assert len(lines(marks / "others")) == 3
    nothing = fleet_program.run("fleet", "retry", "--failed", "2")
    assert (nothing.returncode, b"no host has a failed command" in nothing.stderr) == (0, True)


def test_a_run_that_goes_on_is_not_resumed_but_can_be_waited_for(fleet_program: Program, named: SshServer) -> None:
    command = f"echo line >>{named.home}/lines; until [ -e {named.home}/go ]; do sleep 0.1; done; echo said"
    with fleet_program.start("run", "--hosts", "web[1-2]", "--", command) as running:
        wait_until(named.home / "lines", 2)
        refused = fleet_program.run("fleet", "resume", "1")
        assert (refused.returncode, b"is still going on, in process" in refused.stderr) == (125, True)
        with fleet_program.start("fleet", "wait", "1") as waiting:
            time.sleep(0.5)
            (named.home / "go").touch()
            output, _ = waiting.communicate(timeout=30)
            assert (waiting.returncode, output) == (0, b"== web[1-2] (2)\nsaid\n")
        assert running.wait(30) == 0
    assert lines(named.home / "lines") == ["line"] * 2


def test_cancel_ends_what_runs_and_lets_nothing_more_start(fleet_program: Program, named: SshServer) -> None:
    command = f"echo line >>{named.home}/lines; sleep 300"
    with fleet_program.start("run", "--hosts", "web[1-4]", "--forks", "2", "--", command) as running:
        wait_until(named.home / "lines", 2)
        cancelled = fleet_program.run("fleet", "cancel", "1")
        assert cancelled.returncode == 0, cancelled.stderr
        _, said = running.communicate(timeout=30)
        assert running.returncode != 0
        assert b"not started" in said
    assert lines(named.home / "lines") == ["line"] * 2
    assert fleet_program.run("fleet", "resume", "1").returncode != 0
    assert lines(named.home / "lines") == ["line"] * 2
    states = {
        item["outcome"] for item in json.loads(fleet_program.run("--json", "fleet", "show", "1").stdout)["outcomes"]
    }
    assert states == {"interrupted", "cancelled"}


def test_a_key_of_another_command_is_said_to_be_one_and_its_job_is_not_cancelled(
    fleet_program: Program, named: SshServer
) -> None:
    command = f"echo line >>{named.home}/lines; until [ -e {named.home}/go ]; do sleep 0.1; done"
    with fleet_program.start("run", "--hosts", "web1", "--key", "k", "--", command) as other:
        wait_until(named.home / "lines", 1)
        refused = fleet_program.run("run", "--hosts", "web1", "--key", "k", "--", "echo mine")
        assert refused.returncode == 125
        assert b"the key 'k' was used for another command" in refused.stderr
        cancelled = fleet_program.run("fleet", "cancel", "2")
        assert (cancelled.returncode, b"was used for another command" in cancelled.stderr) == (125, True)
        assert other.poll() is None
        (named.home / "go").touch()
        assert other.wait(30) == 0


def test_what_a_host_answered_is_not_lost_when_it_is_down_later(fleet_program: Program, named: SshServer) -> None:
    assert fleet_program.run("run", "--hosts", "web1", "--stdin", "--", "cat; exit 4", stdin=b"x").returncode == 1
    up = named.ssh_config.read_text()
    named.ssh_config.write_text(up.replace(f"Port {named.port}\n", f"Port {CLOSED_PORT}\n"))
    assert b"unreachable" in fleet_program.run("fleet", "wait", "1").stderr
    named.ssh_config.write_text(up)
    again = fleet_program.run("fleet", "retry", "--failed", "1")
    assert (again.returncode, again.stdout) == (1, b"== web1 (1): exit code 4\nx\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_controller_that_is_killed_at_any_moment_is_resumed_and_nothing_runs_twice(
    fleet_program: Program, named: SshServer
) -> None:
    chance = random.Random(11)
    assert fleet_program.run("run", "--hosts", "web[1-6]", "--", "true").returncode == 0
    began = time.monotonic()
    assert fleet_program.run("run", "--hosts", "web[1-6]", "--", "true").returncode == 0
    whole = time.monotonic() - began
    moments = Counter[int]()
    last = 2
    for number in range(KILLS):
        effects = named.home / f"effects-{number}"
        words = ("--json", "run", "--hosts", "web[1-6]", "--forks", "3", "--", f"echo line >>{effects}; sleep 0.05")
        process = fleet_program.start(*words, start_new_session=True)
        try:
            process.wait(chance.uniform(0.2, 1.1) * whole)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
        moments[len(lines(effects))] += 1
        listed = json.loads(fleet_program.run("--json", "fleet", "list").stdout)
        if listed[-1]["run"] == last:  # the number may be lost all the same: its directory was created
            assert not lines(effects), "something ran before the run was kept"
            last = json.loads(fleet_program.run(*words).stdout.splitlines()[-1])["summary"]["run"]
            continue
        last = listed[-1]["run"]
        resumed = fleet_program.run("--json", "fleet", "resume", str(last))
        answers = [item for item in objects(resumed) if "host" in item]
        unknown = [item for item in answers if item.get("status") == "unknown"]
        assert len(lines(effects)) <= len(NAMES), (number, resumed)
        assert len(lines(effects)) >= len(NAMES) - len(unknown), (number, resumed)
        assert resumed.returncode == (125 if unknown else 0), (number, resumed)
    assert len(moments) > 2, f"the kills came all too early or too late: {moments}"


# -- the store


HOSTS = (Host("web1", Target.parse("ssh://web1")), Host("container", Target.parse("ssh://a+docker://b")))


def test_a_stored_run_is_read_back(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    made = store.create(
        "echo '\udcff'", HOSTS, call={"timeout": 3.0, "env": {"A": "b"}}, tmux="other", stdin=b"x", key="k"
    )
    read = store.open(made.number)
    assert read == made
    assert read.stdin is not None
    assert read.stdin.read_bytes() == b"x"
    assert (read.key("web1"), [run.number for run in store.runs()]) == ("k", [1])
    assert store.create("true", HOSTS).key("web1") != store.create("true", HOSTS).key("web1")


def test_the_copy_of_the_input_goes_when_every_host_ended_with_0(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create("cat", HOSTS, stdin=b"secret")
    for host, code in (("web1", 0), ("container", 3), ("container", 0)):
        with run.held():
            run.record(HostOutcome(host, "", ShellResult("cat", Status.COMPLETED, code)))
        assert (run.stdin is None) == (not run.unfinished() and code == 0)


def test_to_look_whether_a_run_goes_on_is_not_to_hold_it(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create("true", HOSTS)
    assert not run.controlled
    with run.held():
        assert run.controlled
        with pytest.raises(HarnessError, match=f"in process {os.getpid()}"), run.held():
            raise AssertionError
    assert not run.controlled


def test_a_host_with_a_long_name_has_a_key_of_its_own(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create("true", HOSTS)
    first, second = run.key("a" * 300), run.key("a" * 299 + "b")
    assert first != second
    assert max(len(first), len(second)) <= 200


def test_what_a_crash_left_is_passed_over(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create("true", HOSTS)
    (run.directory / "outcomes.jsonl").write_text(
        '{"host": "web1", "status": "completed", "exit_code": 0}\nnonsense\n{"host": "container", "sta'
    )
    assert [host.name for host in run.unfinished()] == ["container"]
    (tmp_path / "7").mkdir()
    assert [found.number for found in store.runs()] == [1]
    with pytest.raises(ConfigError, match="no run 7"):
        store.open(7)
    assert store.create("true", HOSTS).number == 8


def test_answers_that_cannot_be_read_are_an_error_with_their_path(tmp_path: Path) -> None:
    run = RunStore(tmp_path).create("true", [Host("web1", Target.parse("ssh://web1"))])
    (run.directory / "outcomes.jsonl").mkdir()
    with pytest.raises(HarnessError, match=r"outcomes\.jsonl"):
        run.answers()


def test_a_run_that_hosts_may_have_forgotten_is_not_resumed(tmp_path: Path) -> None:
    store = RunStore(tmp_path, keep=100.0)
    run = store.create("true", HOSTS)
    store.check_fresh(run)
    document = json.loads((run.directory / "run.json").read_text())
    (run.directory / "run.json").write_text(json.dumps(document | {"created": time.time() - 101}))
    with pytest.raises(HarnessError, match="may have forgotten its job"):
        store.check_fresh(store.open(run.number))


def test_old_runs_are_removed_and_numbers_are_not_used_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path, keep=100.0)
    for _ in range(3):
        store.create("true", HOSTS)
    for number in ("1", "3"):
        os.utime(tmp_path / number, (time.time() - 1000, time.time() - 1000))
    assert store.create("true", HOSTS).number == 4
    assert [run.number for run in store.runs()] == [2, 3, 4]
