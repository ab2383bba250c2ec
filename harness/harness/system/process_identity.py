"""Which process wrote a record, and whether it still runs: by host, process id and the time that it was started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..account import account_name

__all__ = ["ProcessId", "ProcessState", "process_state", "this_process"]


class ProcessState(StrEnum):
    """Whether a process runs."""

    ALIVE = "alive"
    DEAD = "dead"
    ELSEWHERE = "elsewhere"
    """On another machine or in another container: it cannot be found out from here."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, never mistaken for a later one with the same number. ``space`` is its name space of numbers."""

    user: str
    host: str
    boot: str
    space: str
    pid: int
    started: str

    @property
    def owner(self) -> str:
        """``user@host:pid``, as jobs on a target name who started them."""
        return f"{self.user}@{self.host}:{self.pid}"

    def to_text(self) -> str:
        """As it is kept."""
        return json.dumps([self.user, self.host, self.boot, self.space, self.pid, self.started])

    @classmethod
    def from_text(cls, text: str) -> ProcessId:
        """From what :meth:`to_text` made."""
        return cls(*json.loads(text))


def this_process() -> ProcessId:
    """The process that runs this."""
    pid = os.getpid()
    boot = _read("/proc/sys/kernel/random/boot_id")
    return ProcessId(account_name(), socket.gethostname(), boot, _space(), pid, _started(pid))


def process_state(process: ProcessId, here: ProcessId) -> ProcessState:
    """Whether ``process`` runs, as seen from ``here``."""
    if process.host != here.host:
        return ProcessState.ELSEWHERE
    if process.boot != here.boot:
        return ProcessState.DEAD
    if process.space != here.space:
        return ProcessState.ELSEWHERE
    return ProcessState.ALIVE if _started(process.pid) == process.started else ProcessState.DEAD


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process was started, as its system says it; empty when it does not run."""
    if Path("/proc/self/stat").exists():
        words = _read(f"/proc/{pid}/stat").rpartition(") ")[2].split()
        return words[19] if len(words) > 19 and words[0] not in ("Z", "X") else ""
    argv = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
