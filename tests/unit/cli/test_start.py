"""A C-c ends the program without a word, whatever it is just doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import harness

pytestmark = pytest.mark.usefixtures("needs_process")

PROGRAM = """
import atexit, os, signal, sys
from importlib.metadata import EntryPoint

moment, *sys.argv[1:] = sys.argv[1:]

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)

class Interrupter:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            interrupt()

if moment == "exit":
    atexit.register(interrupt)
sys.meta_path.insert(0, Interrupter())
EntryPoint("harness", {entry!r}, "console_scripts").load()()
"""


def entry_point() -> str:
    """What the installed program calls."""
    lines = (Path(__file__).parents[3] / "pyproject.toml").read_text().splitlines()
    return lines[lines.index("[project.scripts]") + 1].partition(" = ")[2].strip('"')


@pytest.mark.parametrize(
    "moment",
    [
        "harness.cli.main",
        "harness.errors",
        "click",
        "harness.cli.commands.run",
        "harness.context",
        "anyio",
        "asyncio",
        "exit",
    ],
)
def test_an_interrupt_at_any_moment_ends_the_program_silently(tmp_path: Path, moment: str) -> None:
    script = PROGRAM.format(entry=entry_point())
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, moment, "run", "true"], env=environment, cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_ignored_interrupt_stays_ignored(tmp_path: Path) -> None:
    script = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{PROGRAM.format(entry=entry_point())}"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, "click", "run", "echo ran"], env=environment, cwd=tmp_path, capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done


def test_names_of_the_package_are_loaded_when_they_are_asked_for() -> None:
    script = "import sys, harness; print(len([n for n in sys.modules if n.startswith('harness')])); harness.connect"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "2\n"), done
    assert {*harness.__all__} <= {*dir(harness)}
    with pytest.raises(AttributeError, match="conect"):
        _ = harness.conect  # type: ignore[attr-defined]  # the error is the point
