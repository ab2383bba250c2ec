"""Targets on this machine whose ``sh`` is a given shell, with a state directory of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.backend import Capabilities, Jobs
from harness.command import Command
from harness.config import Config
from harness.errors import ConnectError
from harness.results import ShellResult
from harness.target import Target
from harness.transport import Process
from harness_backends.composition import kill_pane_job, local_transport, user_changes_of
from harness_backends.local import LocalTransport
from harness_backends.posix import probe, state_directory
from harness_backends.posix.jobs import shell_jobs
from harness_backends.posix.jobs.shell_jobs import open_jobs
from harness_backends.posix.persistent_shell import PersistentShell, open_held_shell
from harness_backends.posix.state_directory import JobStore

SHELLS = ("dash", "bash", "busybox", "mksh")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


_PROGRAMS = tempfile.TemporaryDirectory(prefix="harness-shells-")


class ShellTransport(LocalTransport):
    """Starts processes with a given PATH and state directory. Counts them, and can refuse a second one."""

    def __init__(self, path: str, home: Path) -> None:
        super().__init__(Target.parse("local:"))
        self._env = [f"PATH={path}", f"HOME={home}", f"XDG_STATE_HOME={home}/state", "LANG=C.UTF-8"]
        self.opened: list[Process] = []
        self.single = False

    async def open_process(self, argv: Sequence[str]) -> Process:
        if self.single and self.opened:
            raise ConnectError("no more channels", target=self.target)
        env = shutil.which("env")
        assert env
        process = await super().open_process([env, "-i", *self._env, *argv])
        self.opened.append(process)
        return process


@dataclass
class JobTarget:
    """An open target and what is below it."""

    jobs: Jobs
    store: JobStore
    shell: PersistentShell
    transport: ShellTransport
    capabilities: Capabilities
    home: Path

    @property
    def state(self) -> Path:
        """The state directory, as this machine sees it."""
        return Path(self.store.root)

    async def run(self, text: str, timeout: float = 20.0, **options: object) -> ShellResult:
        """Run a command as the context would."""
        return await self.jobs.run(Command(text, timeout=timeout, **{"on_timeout": "kill", **options}))  # type: ignore[arg-type]  # options of many types

    async def run_to_limit(self, prints: str, rest: str, **options: object) -> ShellResult:
        """Run a command past its time limit: one that it has printed something by, however busy the machine is.

        Args:
            prints: the first part of the command, which prints.
            rest: the second part, which does not end.
        """
        for timeout in (0.3, 2.0, 12.0):
            printed, began = self.home / f"printed-{timeout:g}", time.time()
            result = await self.run(f"{prints}; : >{printed}; {rest}", timeout, **options)
            if result.stdout_bytes:
                break
            in_time = printed.exists() and printed.stat().st_mtime < began + timeout - 0.1
            assert not in_time, f"the output before the limit is lost: {result}"
            await self.jobs.kill(result.job_id or "")
        return result


def path_of(shell: str) -> str:
    """A PATH on which ``sh`` is the shell, readable for every user; for busybox there is nothing but its applets."""
    programs = Path(_PROGRAMS.name) / shell
    Path(_PROGRAMS.name).chmod(0o755)
    if not programs.exists():
        programs.mkdir(parents=True)
        binary = shutil.which(shell)
        assert binary, f"{shell} is not installed"
        (programs / "sh").symlink_to(binary)
        if shell == "busybox":
            for applet in subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout.split():
                if not (programs / applet).exists():
                    (programs / applet).symlink_to(binary)
    return str(programs) if shell == "busybox" else f"{programs}:{SYSTEM_PATH}"


@asynccontextmanager
async def open_job_target(shell: str, directory: Path, config: Config | None = None) -> AsyncIterator[JobTarget]:
    """Jobs through one held shell; opening the same directory again is another harness on the same target."""
    home = directory / "home"
    home.mkdir(exist_ok=True)
    transport = ShellTransport(path_of(shell), home)
    async with open_held_shell(transport) as held:
        held.define(state_directory.PROLOGUE)
        held.define(shell_jobs.PROLOGUE)
        text = (await held.call(state_directory.REPORT + probe.SCRIPT)).text
        report = state_directory.parse_report(text, transport.target)
        probed = probe.parse_probe(text, report.root)
        config = config or Config()
        async with state_directory.keep_job_store(held, report) as store:
            kill = partial(kill_pane_job, held, store, config.tmux_socket)
            changes = user_changes_of(transport, held, probed.capabilities, config)
            async with open_jobs(transport, config, held, store, probed, local_transport, kill, changes) as runner:
                yield JobTarget(runner, store, held, transport, probed.capabilities, home)


def processes_of(job_id: str, state_dir: Path) -> list[int]:
    """The processes that carry a job's mark in their environment, and so belong to it."""
    mark = f"HARNESS_JOB={job_id}\0".encode()
    place = f"XDG_STATE_HOME={state_dir.parent}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark in environment and place in environment:
            found.append(int(entry.name))
    return found


__all__ = ["SHELLS", "JobTarget", "ShellTransport", "open_job_target", "path_of", "processes_of"]
