"""Doctor's judgements, from what a target and ssh answer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.backend import Capabilities, Finding
from harness.operate.checks import (
    NEEDED_PROGRAMS,
    PROBE,
    judge_capabilities,
    judge_facts,
    judge_ssh_config,
    parse_facts,
    parse_ssh_config,
)
from harness.operate.doctor import judge_jobs
from harness.results import Job, Status

GOOD = {
    "now": "1000",
    "lang": "C.UTF-8",
    "charmap": "UTF-8",
    "utf8": "3",
    "state": "drwx------ 7",
    "disk": "9999999",
    "exec": "yes",
    "tmpdir": "/tmp",
    "control": "yes",
    "term": "yes",
    "sudo": "free",
    "end": "yes",
}


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.level for finding in findings}


def test_a_healthy_target_has_nothing_to_fix() -> None:
    findings = judge_facts(GOOD, uid=7, local_time=1000.0)
    assert {finding.level for finding in findings} == {"ok"}
    assert len(findings) == 7


@pytest.mark.parametrize("sudo", ["asks", "none"])
def test_another_user_needs_no_sudo_where_an_engine_starts_commands(sudo: str) -> None:
    facts = GOOD | {"sudo": sudo}
    said = {
        by_engine: finding.message
        for by_engine in (True, False)
        for finding in judge_facts(facts, uid=7, local_time=1000.0, by_engine=by_engine)
        if finding.check == "sudo"
    }
    assert {"asks": "sudo_password_command", "none": "--user does not work"}[sudo] in said[False]
    assert "the engine does --user" in said[True]


@pytest.mark.parametrize(
    ("facts", "check", "level"),
    [
        ({"lang": "", "charmap": "ANSI_X3.4-1968", "utf8": "0"}, "locale", "warn"),
        ({"lang": "C", "charmap": "ANSI_X3.4-1968", "utf8": "2"}, "locale", "ok"),
        ({"term": "no"}, "terminfo", "warn"),
        ({"exec": "no"}, "temporary files", "warn"),
        ({"exec": "unwritable"}, "temporary files", "fail"),
        ({"missing": "awk, xargs"}, "programs", "fail"),
        ({"state": "drwxr-xr-x 7"}, "state directory", "fail"),
        ({"state": "drwx------ 8"}, "state directory", "fail"),
        ({"state": "drwx------. 7"}, "state directory", "ok"),
        ({"disk": "100"}, "disk space", "fail"),
        ({"disk": "100000"}, "disk space", "warn"),
        ({"now": "1100"}, "clock", "warn"),
        ({"now": "996"}, "clock", "ok"),
        ({"control": "no"}, "tmux server", "fail"),
        ({"server": "protocol version mismatch (client 8, server 7)"}, "tmux server", "fail"),
        ({"sudo": "asks"}, "sudo", "ok"),
    ],
)
def test_each_trouble_on_the_target_is_found(facts: dict[str, str], check: str, level: str) -> None:
    findings = judge_facts(GOOD | facts, uid=7, local_time=1000.0)
    assert levels(findings)[check] == level
    assert all(finding.fix for finding in findings if finding.level != "ok")


def test_a_target_that_stops_answering_is_said_so() -> None:
    findings = judge_facts({"now": "1000"}, uid=7, local_time=1000.0)
    assert levels(findings) == {"clock": "ok", "probe": "warn"}


@pytest.mark.usefixtures("needs_process")
def test_the_probe_names_what_is_missing_and_not_the_temporary_directory(tmp_path: Path) -> None:
    needed = [name for name in NEEDED_PROGRAMS.split() if name not in {"awk", "xargs"}]
    for name in needed:
        (tmp_path / name).symlink_to(Path(shutil.which(name) or name).resolve())
    words = [shutil.which("sh") or "sh", "-c", PROBE, "sh", str(tmp_path), "", "harness-none"]
    done = subprocess.run(words, capture_output=True, env={"PATH": str(tmp_path)})
    facts = parse_facts(done.stdout.decode())
    assert facts["missing"] == "awk, xargs, cksum"
    assert facts["exec"] == "yes"


@pytest.mark.usefixtures("needs_process")
@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "busybox"])
def test_the_probe_runs_in_every_posix_shell(shell: str, tmp_path: object) -> None:
    path = shutil.which(shell)
    assert path is not None
    words = [path, "sh"] if shell == "busybox" else [path]
    done = subprocess.run([*words, "-c", PROBE, "sh", str(tmp_path), "xterm", "harness-none"], capture_output=True)
    facts = parse_facts(done.stdout.decode())
    assert done.stderr == b""
    assert {"now", "lang", "charmap", "state", "disk", "exec", "control", "term", "sudo", "end"} <= set(facts)
    assert facts["exec"] == "yes"
    assert facts["control"] == "yes"
    assert facts["disk"].isdigit()


@pytest.mark.parametrize(
    ("found", "wanted", "expected"),
    [
        (Capabilities(shell="/bin/bash", tmux_version="3.3a", tools=(("setsid", "/x"),)), True, ("ok", "ok", "ok")),
        (Capabilities(shell="/bin/csh", tmux_version="2.3"), True, ("warn", "fail", "warn")),
        (Capabilities(shell="/usr/sbin/nologin", tmux_version=""), False, ("fail", "warn", "warn")),
        (Capabilities(shell="/bin/sh", tmux_version="tmux next-3.8"), True, ("ok", "ok", "warn")),
    ],
)
def test_login_shell_and_tmux_are_judged(found: Capabilities, wanted: bool, expected: tuple[str, str, str]) -> None:
    assert tuple(finding.level for finding in judge_capabilities(found, tmux_wanted=wanted)) == expected


@pytest.mark.usefixtures("needs_process")
def test_traps_of_an_ssh_configuration_are_named_with_their_remedy(tmp_path: object) -> None:
    config = f"{tmp_path}/config"
    with open(config, "w") as file:
        file.write(
            "Host trap\n RemoteCommand tmux\n RequestTTY force\n ForwardX11 yes\n ForwardAgent yes\n"
            " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
        )
    dump = subprocess.run(["ssh", "-G", "-F", config, "trap"], capture_output=True, check=True, text=True).stdout
    findings = judge_ssh_config(parse_ssh_config(dump))
    said = " ".join(finding.message for finding in findings)
    for option in ("RemoteCommand", "RequestTTY", "ForwardX11", "ForwardAgent", "StrictHostKeyChecking"):
        assert option in said
    assert len(findings) == 6
    assert all(finding.level == "warn" and finding.fix for finding in findings)
    clean = subprocess.run(["ssh", "-G", "-F", "/dev/null", "x"], capture_output=True, check=True, text=True).stdout
    assert levels(judge_ssh_config(parse_ssh_config(clean))) == {"ssh config": "ok"}


def test_jobs_that_run_for_weeks_and_too_many_kept_ones_are_noticed() -> None:
    running = Job("1", "x", Status.RUNNING, started=0.0)
    ended = Job("2", "x", Status.COMPLETED, 0, started=0.0)
    assert judge_jobs([running, ended], now=10.0).level == "ok"
    assert judge_jobs([running], now=1e9).level == "warn"
    assert judge_jobs([ended] * 1001, now=10.0).level == "warn"
