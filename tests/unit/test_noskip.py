"""The plugin that makes a skip a failure, in pytest processes of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("needs_process")

ROOT = Path(__file__).parents[2]

SUITE = """
import pytest

def test_runs(): pass

def test_skips(): pytest.skip("no such thing here")

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail(): assert False
"""


def run(folder: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.noskip", "-c", "/dev/null", *options, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
    return done.returncode, done.stdout


def test_a_skip_is_a_skip_on_a_developers_machine(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    code, output = run(tmp_path)
    assert code == 0
    assert "1 passed, 1 skipped, 1 xfailed" in output


def test_a_skip_fails_the_run_in_ci_and_an_expected_failure_does_not(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    code, output = run(tmp_path, "--no-skips")
    assert code == 1
    assert "1 failed, 1 passed, 1 xfailed" in output
    assert "no such thing here" in output


@pytest.mark.parametrize(
    "line", ["pytest.importorskip('no_such_module')", "pytest.skip('why', allow_module_level=True)"]
)
def test_a_skipped_module_fails_the_run_in_ci(tmp_path: Path, line: str) -> None:
    (tmp_path / "test_suite.py").write_text(f"import pytest\n{line}\n")
    code, output = run(tmp_path, "--no-skips")
    assert code == 2
    assert "nothing may be skipped here" in output
