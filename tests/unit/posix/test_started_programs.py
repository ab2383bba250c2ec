"""Which programs a target starts to be opened, and what it remembers of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest
from tests.support.job_targets import SYSTEM_PATH, ShellTransport

from harness.backend import Capabilities
from harness.config import Config
from harness_backends.composition import open_posix_backend

pytestmark = pytest.mark.usefixtures("needs_process")

TIME = 20.0
PROGRAMS = [
    "id",
    "ls",
    "mkdir",
    "mkfifo",
    "rm",
    "env",
    "getent",
    "grep",
    "uname",
    "date",
    "head",
    "dd",
    "setsid",
    "chmod",
    "sleep",
    "cat",
    "wc",
    "sed",
    "tail",
]


class RecordedPath:
    """A PATH whose programs tell that they were started."""

    def __init__(self, directory: Path, shell: str) -> None:
        self.directory = directory / "bin"
        self.home = directory / "home"
        self._log = directory / "log"
        self.directory.mkdir()
        self.home.mkdir()
        binary = shutil.which(shell, path=SYSTEM_PATH)
        assert binary
        (self.directory / "sh").symlink_to(binary)
        for name in PROGRAMS:
            real = shutil.which(name, path=SYSTEM_PATH)
            assert real, name
            self.put(name, f'exec {real} "$@"')

    def put(self, name: str, text: str) -> None:
        """Make a program, as a new file in the place of an old one."""
        new = self.directory / f".{name}"
        new.write_text(f"#!/bin/sh\necho {name} >>{self._log}\n{text}\n")
        new.chmod(0o755)
        new.rename(self.directory / name)

    async def open(self) -> tuple[list[str], Capabilities]:
        """Open the target; return the programs that were started for it, and what was found out."""
        self._log.write_text("")
        with anyio.fail_after(TIME):
            async with open_posix_backend(ShellTransport(str(self.directory), self.home), Config()) as backend:
                return self._log.read_text().split(), backend.capabilities


@pytest.fixture(params=("dash", "bash"))
def path(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedPath:
    return RecordedPath(tmp_path, request.param)


async def test_a_target_that_is_known_starts_one_program(path: RecordedPath) -> None:
    first, found = await path.open()
    again, known = await path.open()
    assert len(first) <= 8
    assert [name for name in again if name != "dd"] == ["ls"]  # dd reads the script where the shell reads bytes
    assert known == found


async def test_what_was_found_out_is_forgotten_when_a_program_changes(path: RecordedPath) -> None:
    await path.open()
    path.put("env", 'case $1 in --*) exit 125 ;; esac; exec /usr/bin/env "$@"')
    started, found = await path.open()
    assert "env" in started
    assert not found.has("env --default-signal")


async def test_the_version_of_a_tmux_that_is_a_script_is_asked_each_time(path: RecordedPath) -> None:
    for version in ("3.3", "3.4"):
        path.put("tmux", f"echo tmux {version}")
        os.utime(path.directory / "tmux", (1, 1))
        for _ in range(2):
            started, found = await path.open()
            assert "tmux" in started
            assert found.tmux_version == version


async def test_a_broken_file_of_what_was_found_out_is_ignored(path: RecordedPath) -> None:
    _, found = await path.open()
    facts = path.home / "state" / "harness" / "facts"
    text = facts.read_text()
    assert facts.stat().st_mode & 0o777 == 0o600
    for broken in ("", "\n", text[:-4], text.replace("\n", " "), text.partition("\n")[0]):
        facts.write_text(broken)
        _, again = await path.open()
        assert again == found
        assert facts.read_text().endswith("\nend\n")
