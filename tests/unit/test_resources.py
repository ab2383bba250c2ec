"""The plugin that marks tests by what they take of the machine, in pytest processes of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.slow import FILE, slow_of

pytestmark = pytest.mark.usefixtures("needs_process")

ROOT = Path(__file__).parents[2]
SUITE = """
import os, subprocess
import pytest

@pytest.fixture
def tmux_server(needs_tmux): pass

@pytest.fixture(scope="session")
def engines(): pass

def test_pure(): pass
def test_unmarked(): subprocess.run(["true"])
def test_unmarked_fork(): os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
def test_process(needs_process): subprocess.run(["true"])
def test_tmux(tmux_server): subprocess.run(["tmux", "-V"])
def test_too_little(needs_process): subprocess.run(["tmux", "-V"])
def test_engines(engines): pass

@pytest.mark.parametrize("backend", ["local", "ssh-asyncssh+tmux", "docker-busybox+tmux", "podman-api"])
def test_backend(backend): pass

@pytest.mark.parametrize("shell", ["bash", "/usr/bin/zsh"])
def test_shell(needs_process, shell): pass
"""


def run_pytest(folder: Path, *options: str) -> tuple[int, str]:
    (folder / "test_suite.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.resources",
        "-c",
        "/dev/null",
        "-q",
        *options,
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def selected(folder: Path, expression: str) -> set[str]:
    _, output = run_pytest(folder, "--collect-only", "-m", expression)
    return {line.rpartition("::")[2].removeprefix("test_") for line in output.splitlines() if "::" in line}


def test_fixtures_and_parameters_set_the_marks(tmp_path: Path) -> None:
    assert selected(tmp_path, "pure") == {"pure", "unmarked", "unmarked_fork"}
    assert selected(tmp_path, "tmux") == {"tmux", "backend[ssh-asyncssh+tmux]", "backend[docker-busybox+tmux]"}
    assert selected(tmp_path, "ssh") == {"backend[ssh-asyncssh+tmux]"}
    assert selected(tmp_path, "docker") == {"engines", "backend[docker-busybox+tmux]"}
    assert selected(tmp_path, "podman") == {"engines", "backend[podman-api]"}
    assert selected(tmp_path, "shells") == {"shell[/usr/bin/zsh]"}


def test_a_test_that_takes_more_than_it_asked_for_fails(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "-rf")
    failed = {line.rpartition("::")[2].split()[0] for line in output.splitlines() if line.startswith("FAILED")}
    assert (code, failed) == (1, {"test_unmarked", "test_unmarked_fork", "test_too_little"})
    assert "ask for needs_tmux" in output


def test_a_resource_that_is_not_there_leaves_the_test_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _, output = run_pytest(tmp_path, "-rs", "-k", "test_tmux")
    assert "needs tmux: there is no tmux" in output


def test_slow_is_what_took_long_but_for_the_quickest_test_of_each_file() -> None:
    took = {"a.py::one": 0.1, "a.py::two": 9.0, "b.py::one[x::y]": 7.0, "b.py::two": 3.0, "c.py::one": 0.9}
    assert slow_of(took) == {"a.py::two", "b.py::one[x::y]"}


def test_the_table_of_slow_tests_names_tests_that_exist() -> None:
    names = {name.partition("[")[0] for name in FILE.read_text().splitlines()}
    texts = {path: (ROOT / path).read_text() for path in {name.split("::")[0] for name in names}}
    assert [name for name in sorted(names) if f"def {name.split('::')[-1]}(" not in texts[name.split("::")[0]]] == []
