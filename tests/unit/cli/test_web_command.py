"""``harness web`` before it serves: what it needs, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.commands import web as module
from harness.cli.options import Invocation
from harness.errors import ConfigError, HarnessError
from harness.web.logins import LoginStore, login_directory

URL = "http://127.0.0.1:8642/"


def run(*words: str) -> BaseException | None:
    return CliRunner().invoke(module.web, list(words), obj=Invocation()).exception


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MODULES", ("no_such_module",))
    failure = run("--no-open")
    assert isinstance(failure, ConfigError)
    assert "the extra view" in failure.message
    assert "[view]" in (failure.hint or "")


def test_nobody_is_invited_before_the_first_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    failure = run("invite", "vera")
    assert isinstance(failure, HarnessError)
    assert "never started" in failure.message


@pytest.mark.usefixtures("needs_process")
def test_an_invitation_says_that_the_server_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    script = f"from harness.web.logins import *; LoginStore(login_directory()).set_url({URL!r})"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    ended = CliRunner().invoke(module.web, ["invite", "vera"], obj=Invocation())
    LoginStore(login_directory()).set_url(URL)
    runs = CliRunner().invoke(module.web, ["invite", "vera"], obj=Invocation())
    assert (ended.exit_code, ended.stdout.startswith(URL)) == (0, True)
    assert f"the dashboard at {URL} does not run" in ended.stderr
    assert (runs.exit_code, runs.stdout.startswith(URL), runs.stderr) == (0, True, "")


@pytest.mark.parametrize("words", [("--host", "0.0.0.0"), ("--host", "::", "--tls-cert", "x"), ("--name", "a\nb")])
def test_it_refuses_what_is_not_safe(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert isinstance(run("--no-open", *words), ConfigError)
    assert not (tmp_path / "harness").exists()
