"""The other commands as programs, on this machine without tmux: files, jobs, settings, doctor, completion."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time

import pytest
from tests.support.program import Program

pytestmark = pytest.mark.real_starts

EVERY_BYTE = bytes(range(256)) * 3


def test_a_file_is_written_and_read_byte_for_byte(program: Program) -> None:
    path = program.home / "new" / "a file"
    assert program.run("write", str(path), "--mode", "0640", stdin=EVERY_BYTE).returncode == 0
    assert path.read_bytes() == EVERY_BYTE
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert program.run("read", str(path)).stdout == EVERY_BYTE
    assert program.run("read", "--offset", "10", "--limit", "5", str(path)).stdout == EVERY_BYTE[10:15]


def test_write_appends_creates_and_expects(program: Program) -> None:
    path = str(program.home / "f")
    assert program.run("write", "--create", path, stdin=b"one\n").returncode == 0
    refused = program.run("write", "--create", path, stdin=b"x")
    assert refused.returncode == 1
    assert path in refused.stderr.decode()
    assert program.run("write", "--append", path, stdin=b"two\n").returncode == 0
    version = json.loads(program.run("--json", "read", path).stdout)["version"]
    assert program.run("write", "--expect", version, path, stdin=b"three\n").returncode == 0
    stale = program.run("--json", "write", "--expect", version, path, stdin=b"lost\n")
    assert stale.returncode == 1
    assert json.loads(stale.stderr)["error"]["type"] == "StaleFileError"
    assert program.run("read", path).stdout == b"three\n"
    assert program.run("write", "--expect", "none", path, stdin=b"x").returncode == 1


def test_a_missing_file_is_1_and_wrong_usage_125(program: Program) -> None:
    missing = program.run("read", "/none/such")
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert b"/none/such" in missing.stderr
    assert program.run("write", "--append", "--create", "x").returncode == 125
    assert program.run("write", "--mode", "9", "x").returncode == 125


@pytest.mark.parametrize("words", [("panes",), ("capture",), ("keys", "--text", "x")])
def test_a_target_without_a_backend_is_a_clear_error(program: Program, words: tuple[str, ...]) -> None:
    done = program.run("--target", "mars://app", *words)
    assert done.returncode == 125
    assert b"no backend for 'mars' targets" in done.stderr


def test_jobs_are_listed_shown_and_cleaned(program: Program) -> None:
    program.run("run", "echo kept")
    listed = json.loads(program.run("--json", "jobs").stdout)
    assert [job["command"] for job in listed] == ["echo kept"]
    number = listed[0]["job_id"]
    assert b"echo kept" in program.run("jobs", "show", number).stdout
    assert not listed[0]["helper"]
    assert program.run("jobs", "tail", number).stdout == b"kept\n"
    assert program.run("jobs", "clean").stdout == b"0 jobs removed\n"
    unknown = program.run("jobs", "wait", "99999")
    assert (unknown.returncode, unknown.stdout) == (125, b"")
    assert program.run("jobs", "show", "99999").returncode == 125


def test_what_tools_ran_for_their_own_work_is_listed_with_all(program: Program) -> None:
    assert program.run("tools", "call", "glob", '{"pattern": "*"}').returncode == 0
    assert json.loads(program.run("--json", "jobs").stdout) == []
    (helper,) = json.loads(program.run("--json", "jobs", "list", "--all").stdout)
    assert helper["helper"]
    assert b"the work of a tool" in program.run("jobs", "show", helper["job_id"]).stdout


def test_a_running_job_shows_what_it_has_written_so_far(program: Program) -> None:
    go = program.home / "go"
    job = (
        program.run("run", "--no-wait", f"echo so far; while [ ! -e {go} ]; do sleep 0.05; done")
        .stdout.decode()
        .strip()
    )
    deadline = time.monotonic() + 10
    while (seen := program.run("jobs", "tail", job).stdout) != b"so far\n" and time.monotonic() < deadline:
        assert seen == b""
    assert seen == b"so far\n"
    limited = program.run("jobs", "wait", "--timeout", "200ms", job)
    assert limited.returncode == 124
    go.touch()
    assert program.run("jobs", "wait", job).returncode == 0


def test_config_show_names_values_and_origins_but_no_secrets(program: Program) -> None:
    folder = program.home / "config" / "harness"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('width = 99\n[env]\nTOKEN = "hunter2"\n[targets.web1]\nssh = "deploy@web1"\n')
    shown = program.run("config", HARNESS_HEIGHT="33").stdout.decode()
    assert "hunter2" not in shown
    assert "ssh://deploy@web1" in shown
    document = json.loads(program.run("--json", "config", "show", "--tmux", HARNESS_HEIGHT="33").stdout)
    settings = document["settings"]
    assert settings["width"] == {"value": 99, "unit": "columns", "origin": str(folder / "config.toml")}
    assert settings["height"] == {"value": 33, "unit": "rows", "origin": "HARNESS_HEIGHT"}
    assert settings["tmux"] == {"value": True, "origin": "command line"}
    assert settings["env"]["value"] == {"TOKEN": "***"}
    assert document["targets"] == {"web1": "ssh://deploy@web1"}


def test_config_show_names_the_depth_of_agents_and_what_decided_it(program: Program) -> None:
    folder = program.home / "config" / "harness"
    folder.mkdir(parents=True)
    path = folder / "config.toml"
    for text, value, origin in (
        ("", 2, "default"),
        ('[tools]\ntool_profile = "hex"\n', 5, "profile hex"),
        ('[tools]\ntool_profile = "hex"\nmax_agent_depth = 1\n', 1, str(path)),
    ):
        path.write_text(text)
        document = json.loads(program.run("--json", "config", "show").stdout)
        assert document["settings"]["tools.max_agent_depth"] == {"value": value, "origin": origin}
        assert f"tools.max_agent_depth {value} " in " ".join(program.run("config", "show").stdout.decode().split())


def test_config_show_has_the_limits_of_the_cache_with_their_units(program: Program) -> None:
    folder = program.home / "config" / "harness"
    folder.mkdir(parents=True)
    path = folder / "config.toml"
    path.write_text('[tools]\ncache_max_age = "2m"\n')
    found = json.loads(program.run("--json", "config", "show").stdout)["settings"]
    assert found["tools.cache_max_age"] == {"value": 120.0, "unit": "s", "origin": str(path)}
    assert found["tools.cache_max_bytes"] == {"value": 16 << 20, "unit": "bytes", "origin": "default"}
    shown = " ".join(program.run("config", "show").stdout.decode().split())
    assert "tools.cache_max_age 2m " in shown
    assert "tools.cache_max_bytes 16MiB default" in shown
    assert "tools.cache_max_results 100 results default" in shown


def test_init_writes_private_settings_and_replaces_nothing(program: Program) -> None:
    done = program.run("init")
    path = program.home / "config" / "harness" / "config.toml"
    assert done.stdout.decode() == f"{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("width = 90\n")
    again = program.run("init")
    assert (again.returncode, path.read_text()) == (125, "width = 90\n")
    assert b"--force" in again.stderr
    assert program.run("init", "--force").returncode == 0
    assert program.run("init", "--project").returncode == 0
    assert program.run("config", "show").returncode == 0


def test_an_untrusted_project_file_stops_every_command(program: Program) -> None:
    (program.home / "harness.toml").write_text('ssh_options = ["ProxyCommand=touch pwned"]\n')
    done = program.run("run", "true")
    assert done.returncode == 125
    assert b"trusted" in done.stderr
    assert not (program.home / "pwned").exists()


def test_doctor_judges_this_machine(program: Program) -> None:
    done = program.run("--json", "doctor", "--clean")
    report = json.loads(done.stdout)
    checks = {finding["check"]: finding for finding in report["findings"]}
    assert report["target"] == "local:"
    assert {"settings", "connection", "login shell", "tmux", "tmux server", "state directory", "jobs"} <= set(checks)
    assert checks["state directory"]["level"] == "ok"
    assert checks["tmux server"]["level"] == "ok"
    assert done.returncode == (0 if report["ok"] else 1)
    assert all(finding["fix"] for finding in report["findings"] if finding["level"] != "ok")


INSTALLATION = {
    *("python", "harness", "extras", "ssh", "tmux", "settings files", "state files", "runtime files", "free space"),
    *("time", "completion", "manual", "keyring", "containers"),
}


def test_doctor_without_a_target_checks_the_installation_too(program: Program) -> None:
    report = json.loads(program.run("--json", "doctor").stdout)
    assert {finding["check"] for finding in report["installation"]} == INSTALLATION
    assert report["target"] == "local:"
    text = program.run("doctor").stdout.decode()
    assert text.startswith("Installation\n")
    assert "\nTarget local:\n" in text


def test_doctor_with_a_target_checks_only_the_target(program: Program) -> None:
    report = json.loads(program.run("--json", "--target", "local:", "doctor").stdout)
    assert "installation" not in report
    assert not program.run("--target", "local:", "doctor").stdout.startswith(b"Installation")


def test_doctor_checks_the_installation_while_the_settings_are_invalid(program: Program) -> None:
    folder = program.home / "config" / "harness"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("widht = 90\n")
    done = program.run("--json", "doctor")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["ok"], report["target"]) == (1, b"", False, None)
    checks = {finding["check"]: finding for finding in report["installation"]}
    assert checks["settings"]["level"] == "fail"
    assert "widht" in checks["settings"]["message"]
    assert set(checks) == INSTALLATION | {"settings"}
    assert b"fail  settings" in program.run("doctor").stdout


def test_doctor_fails_for_a_state_directory_that_others_can_read(program: Program) -> None:
    state = program.home / "state/harness"
    state.mkdir(parents=True)
    state.chmod(0o755)
    done = program.run("doctor")
    assert done.returncode == 1
    assert f"fix: chmod 700 {state}" in done.stdout.decode()


def test_doctor_reports_a_target_that_cannot_be_reached(program: Program) -> None:
    done = program.run("--ssh", "127.0.0.1:9", "--batch", "doctor")
    assert done.returncode == 1
    assert b"fail" in done.stdout
    assert b"connection" in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_code_is_accepted_by_its_shell(program: Program, shell: str) -> None:
    code = program.run("completion", shell).stdout
    assert b"_HARNESS_COMPLETE" in code
    flag = "--no-execute" if shell == "fish" else "-n"
    assert subprocess.run([shell, flag], input=code, capture_output=True).returncode == 0


def test_completion_offers_commands_options_and_target_names(program: Program) -> None:
    folder = program.home / "config" / "harness"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[targets.web1]\nssh = "web1"\n')

    def offered(words: str) -> list[str]:
        word = words.rpartition(" ")[2]
        done = program.run(_HARNESS_COMPLETE="bash_complete", COMP_LINE=words, COMP_WORD=word)
        return [line.partition(",")[2] for line in done.stdout.decode().splitlines()]

    assert offered("harness jo") == ["jobs"]
    assert offered("harness --tmux jo") == ["jobs"]
    assert offered("harness jobs wa") == ["wait"]
    assert offered("harness --target we") == ["web1"]
    assert "--timeout" in offered("harness run --ti")


def test_bare_harness_without_a_terminal_says_what_takes_a_prompt_from_a_pipe(program: Program) -> None:
    done = program.run(stdin=b"why is the disk full?\n")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"needs a terminal" in done.stderr
    assert b"harness exec" in done.stderr


def test_a_model_that_no_command_would_use_is_refused(program: Program) -> None:
    done = program.run("--model", "cheap", "run", "--", "echo ran")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"--model must come after run" in done.stderr


def test_results_that_nobody_reads_are_no_traceback(program: Program) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with program.start("--help", stdout=write_end) as process:
        os.close(write_end)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 141
    assert err == b""


def test_help_imports_nothing_heavy(program: Program) -> None:
    done = program.run("--help", PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert "harness.cli.main" in imported
    heavy = {"pydantic", "pydantic_core", "asyncssh", "pexpect", "anyio", "asyncio", "rich", "importlib.metadata"}
    assert not heavy & imported
