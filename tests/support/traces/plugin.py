"""A pytest plugin: ``--record-traces FOLDER`` keeps what happens to every pane while the tests run.

With ``--trace-shell zsh`` the panes of tests that ask for no shell, or for bash, run that one. A test may then fail for
what it says of bash; what happened to its panes is recorded all the same.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.backend import Capabilities

__all__ = ["pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-traces", metavar="FOLDER", help="record what happens to panes there")
    parser.addoption("--trace-shell", metavar="SHELL", default="", help="what panes run while they are recorded")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--record-traces")
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if folder and runs_tests:
        config.pluginmanager.register(_Recording(Path(folder), config.getoption("--trace-shell")))


class _Recording:
    def __init__(self, folder: Path, shell: str) -> None:
        from .notes import noting
        from .recorder import Recorder, recording

        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{shell or 'own'}-{os.getpid()}.jsonl").open("w")
        self._recorder = Recorder(self._write)
        self._patches = [recording(self._recorder), noting(self._recorder), _running(shell)]
        for patch in self._patches:
            patch.__enter__()

    def _write(self, trace: object) -> None:
        kept = ("shell", "test", "events", "unseen")
        self._file.write(json.dumps({name: getattr(trace, name) for name in kept}) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._recorder.test = nodeid

    def pytest_sessionfinish(self) -> None:
        self._recorder.end_all()
        self._file.close()
        for patch in reversed(self._patches):
            patch.__exit__(None, None, None)


@contextmanager
def _running(shell: str) -> Iterator[None]:
    """Panes that would run bash run another shell."""
    from harness_backends.tmux import sessions, setup, terminal

    path = shutil.which(shell) if shell else ""
    assert path is not None, f"{shell} is not installed"
    chosen = setup.pane_shell

    def pane_shell(configured: str, capabilities: Capabilities) -> str:
        found = chosen(configured, capabilities)
        return path if path and found.endswith("/bash") else found

    with pytest.MonkeyPatch.context() as patch:
        for module in (sessions, terminal):
            patch.setattr(module, "pane_shell", pane_shell)
        yield
