"""Jobs, screens and checks of many hosts behind real sshds: jobs, capture and doctor with --hosts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.support.fleet_hosts import FleetHosts
from tests.support.program import Program

HOSTS = ("--hosts", "web[1-3]")


def by_host(stdout: bytes) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    *hosts, summary = map(json.loads, stdout.splitlines())
    return {item["host"]: item for item in hosts}, summary["summary"]


# -- jobs


def test_one_table_has_the_running_jobs_of_all_hosts(fleet_program: Program) -> None:
    started = fleet_program.run("--ssh", "web2", "run", "--no-wait", "--", "sleep 300")
    job = started.stdout.decode().strip()
    try:
        fleet_program.run("--ssh", "web1", "run", "--", "true")
        done = fleet_program.run("jobs", "--hosts", "web[1-2],down")
        assert done.returncode == 125
        header, *rows = done.stdout.decode().splitlines()
        assert header.split() == ["HOST", "ID", "STATUS", "CODE", "STARTED", "PANE", "COMMAND"]
        assert [row.split()[:3] for row in rows] == [["web2", job, "running"]]
        assert b"harness: down (1): connect to host" in done.stderr
        recent = fleet_program.run("jobs", "list", *HOSTS, "--last", "1").stdout.decode().splitlines()[1:]
        assert [row.split()[0] for row in recent] == ["web1", "web2"]
        done = fleet_program.run("--json", "jobs", "--ssh", "web2", "--ssh", "web3")
        hosts, summary = by_host(done.stdout)
        assert [item["command"] for item in hosts["web2"]["jobs"]] == ["sleep 300"]
        assert (hosts["web3"]["jobs"], summary["ok"], done.returncode) == ([], 2, 0)
    finally:
        assert fleet_program.run("--ssh", "web2", "jobs", "kill", job).returncode == 0


# -- capture


def test_equal_screens_are_printed_once(fleet_program: Program) -> None:
    fleet_program.run("--tmux", "run", "--hosts", "web[1-2]", "--", "printf '\\033[H\\033[2J'; echo on screen")
    done = fleet_program.run("capture", *HOSTS, "--start", "0", "--end", "0")
    assert done.returncode == 1
    assert done.stdout.startswith(b"== web[1-2] (2)\n"), done.stderr
    assert b"web3 (1): " in done.stderr  # it has no session, and none is created
    assert b"3 hosts: 2 ok, 1 failed" in done.stderr
    hosts, _ = by_host(fleet_program.run("--json", "capture", *HOSTS).stdout)
    assert "on screen" in hosts["web1"]["text"]
    assert "error" in hosts["web3"]


# -- doctor


def test_equal_findings_are_one_line(fleet_program: Program) -> None:
    done = fleet_program.run("doctor", "--hosts", "web[1-3],down,down2")
    lines = done.stdout.decode().splitlines()
    connection = [line for line in lines if line.split()[1] == "connection"]
    assert len(connection) == 1
    assert "web[1-3] (3): HOST as" in connection[0]
    levels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert levels == sorted(levels, key=["fail", "warn", "ok"].index)
    assert b"down,down2 (2): connect to host" in done.stderr
    assert done.returncode == 125


def test_findings_as_json_and_their_exit_code(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    state = fleet_hosts.home("web2") / ".local/state/harness"
    done = fleet_program.run("--json", "doctor", *HOSTS)
    hosts, summary = by_host(done.stdout)
    assert {finding["check"] for finding in hosts["web1"]["findings"]} >= {"settings", "connection", "jobs"}
    good = all(item["ok"] for item in hosts.values())
    assert (done.returncode, summary["ok"]) == (0, 3) if good else done.returncode == 1
    assert state.exists()


# -- groups


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("jobs", "nope"), b"no such command: 'nope'"),
        (("jobs", "--nope"), b"No such option"),
        (("jobs", "show", "--hosts", "web1", "1"), b"No such option"),
        (("panes", "--hosts", "web1"), b"No such option"),
        (("jobs", "--forks", "2"), b"need --hosts"),
        (("--ssh", "web1", "jobs", "--hosts", "web2"), b"contradict"),
    ],
)
def test_mistakes_are_named(fleet_program: Program, words: tuple[str, ...], message: bytes) -> None:
    done = fleet_program.run(*words)
    assert done.returncode == 125
    assert message in done.stderr


def test_a_group_without_a_command_takes_the_options_of_its_default(program: Program) -> None:
    program.run("run", "--", "true")
    assert b"true" in program.run("jobs", "-n", "1").stdout
    assert b"kill" in program.run("jobs", "--help").stdout
    assert program.run("jobs", "--json").stdout.startswith(b"[")


def test_doctor_logs_in_to_each_host_once(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    done = fleet_program.run("doctor", "--hosts", "web[1-2]", HARNESS_SSH_ENGINE="asyncssh")
    assert re.search(rb"connection +web\[1-2\] \(2\)", done.stdout), done.stdout + done.stderr
    for name in ("web1", "web2"):
        assert sum("Accepted publickey" in line for line in fleet_hosts.servers[name].log) == 1


def test_a_hint_names_the_command_with_the_options_of_its_host(fleet_program: Program, fleet_hosts: FleetHosts) -> None:
    file = f"-F {fleet_hosts.directory / 'ssh_config'}"
    missing = fleet_program.run("jobs", "show", "999", "--ssh", "web1")
    assert f"list the stored jobs with: harness {file} --ssh web1 jobs)".encode() in missing.stderr
    document = json.loads(fleet_program.run("--json", "jobs", "show", "999", "--ssh", "web1").stderr)
    assert document["error"]["hint"] == f"list the stored jobs with: harness {file} --ssh web1 jobs"
    kept = fleet_program.run("run", "--ssh", "web2", "--timeout", "1", "--on-timeout", "keep", "--", "sleep 300")
    assert f"harness {file} --ssh web2 jobs wait ".encode() in kept.stderr
    job_id = kept.stderr.split(b"jobs wait ")[1].split(b")")[0].decode()
    assert fleet_program.run("jobs", "kill", job_id, "--ssh", "web2").returncode == 0
