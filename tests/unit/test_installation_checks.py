"""Doctor's judgements of the installation on this machine."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from harness.backend import Finding
from harness.extras import EXTRAS
from harness.operate import installation
from harness.operate.installation import (
    check_clock,
    check_completion,
    check_directories,
    check_disk,
    check_extras,
    check_program,
    check_python,
    check_ssh,
    extras_installed,
)

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, with the runtime directory in it."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "ZDOTDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    tmp_path.chmod(0o700)
    return tmp_path


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_every_extra_of_the_project_has_its_purpose() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    (everything,) = project["all"]
    assert set(EXTRAS) == set(everything.partition("[")[2].rstrip("]").split(","))
    found = extras_installed()
    assert found["fleet"].packages == ("clustershell", "pyyaml")


def test_missing_and_incomplete_extras_have_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_is_missing", {"pyyaml", "libtmux"}.__contains__)
    findings = list(check_extras())
    assert "fleet" not in findings[0].message
    assert "asyncssh" in findings[0].message
    texts = {finding.message: finding.fix for finding in findings[1:]}
    incomplete = "incomplete: fleet (many hosts with one command) lacks pyyaml"
    assert "[fleet]" in texts[incomplete]
    assert "[libtmux]" in texts["not installed: libtmux (scripts of tmux on a target)"]
    assert {finding.level for finding in findings} == {"ok"}


def test_directories_of_others_and_open_ones_fail(home: Path) -> None:
    found = by_check(list(check_directories()))
    assert {finding.level for finding in found.values()} == {"ok"}
    assert "not created yet" in found["state files"].message
    state = home / ".local/state/harness"
    state.mkdir(parents=True)
    state.chmod(0o750)
    settings = home / ".config/harness"
    settings.mkdir(parents=True)
    settings.chmod(0o775)
    found = by_check(list(check_directories()))
    assert (found["state files"].level, found["state files"].fix) == ("fail", f"chmod 700 {state}")
    assert (found["settings files"].level, found["settings files"].fix) == ("fail", f"chmod 755 {settings}")
    state.rmdir()
    state.touch()
    assert by_check(list(check_directories()))["state files"].message.endswith("not a directory")


def test_a_runtime_directory_is_not_required(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert by_check(list(check_directories()))["runtime files"].level == "ok"


@pytest.mark.parametrize(
    ("shell", "file", "text"),
    [
        ("bash", ".bashrc", 'eval "$(harness completion bash)"'),
        ("bash", ".local/share/bash-completion/completions/harness", "complete -F _harness_completion harness"),
        ("zsh", ".zshrc", 'eval "$(harness completion zsh)"'),
        ("fish", ".config/fish/completions/harness.fish", "function _harness_completion"),
    ],
)
def test_completion_is_found_where_it_was_installed(home: Path, shell: str, file: str, text: str) -> None:
    missing = check_completion(shell)
    assert "harness completion" in missing.fix
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {text}\n")
    if shell != "fish":
        assert check_completion(shell) == missing
    path.write_text(f"x=1\n{text}\n")
    assert check_completion(shell) == Finding("completion", "ok", f"{shell}: {path}")


def test_a_start_file_that_would_block_is_not_read(home: Path) -> None:
    os.mkfifo(home / ".bashrc")
    assert "not found" in check_completion("bash").message
    assert "not available" in check_completion("tcsh").message


def test_a_python_that_was_not_tested_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_python().level == "ok"
    monkeypatch.setattr("sys.version_info", (3, 99, 0))
    assert "not tested with 3.99" in check_python().message


def test_another_harness_on_the_path_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "harness"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert f"another one is first on PATH: {other}" in check_program().message
    other.unlink()
    assert "not on PATH" in check_program().message


def test_a_missing_ssh_is_a_warning_that_names_the_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert check_ssh() == Finding(
        "ssh",
        "warn",
        "not installed; asyncssh takes its place",
        "install openssh-client, to work on other machines",
    )


def test_a_clock_before_the_installation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "program_output", lambda *words: "")
    assert check_clock().level == "ok"
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert check_clock().level == "fail"
    monkeypatch.undo()
    monkeypatch.setattr(installation, "program_output", lambda *words: "no")
    assert check_clock().level == "warn"


def test_free_space_is_that_of_the_nearest_directory_that_exists(home: Path) -> None:
    finding = check_disk()
    assert finding.check == "free space"
    assert str(home / ".local/state/harness") in finding.message


def test_free_space_is_checked_where_a_state_directory_is_inaccessible(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ("x" * 300)))  # as one of another user, for any user
    assert "free for" in check_disk().message
