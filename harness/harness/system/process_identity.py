"""Identities of processes in records, by host, process ID and start time, and whether they still run."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from .account import account_name

__all__ = ["ProcessId", "ProcessState", "ancestors_of", "process_state", "this_process"]

MIN_STAT_WORDS = 20


class ProcessState(StrEnum):
    """The state of a process."""

    ALIVE = "alive"
    DEAD = "dead"
    ELSEWHERE = "elsewhere"
    """On another machine or in another container, so that its state is unknown here."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The identity of a process, which differs from later ones with the same ID; ``space`` is its PID namespace."""

    user: str
    host: str
    boot: str
    space: str
    pid: int
    started: str

    @property
    def owner(self) -> str:
        """``user@host:pid``, the owner in job records."""
        return f"{self.user}@{self.host}:{self.pid}"

    def to_text(self) -> str:
        """Return the stored form."""
        import json  # every command knows its process, and few store it

        return json.dumps([self.user, self.host, self.boot, self.space, self.pid, self.started])

    @classmethod
    def from_text(cls, text: str) -> ProcessId:
        """Return the identity from its stored form.

        Raises:
            ValueError: The text is not a stored identity.
        """
        import json

        match json.loads(text):
            case [str(user), str(host), str(boot), str(space), int(pid), str(started)]:
                return cls(user, host, boot, space, pid, started)
        raise ValueError("not the identity of a process")


def this_process() -> ProcessId:
    """Return the identity of this process."""
    pid = os.getpid()
    boot = _read("/proc/sys/kernel/random/boot_id")
    return ProcessId(account_name(), socket.gethostname(), boot, _space(), pid, _started(pid))


def process_state(process: ProcessId, here: ProcessId) -> ProcessState:
    """Return whether ``process`` runs, as seen from the process ``here``."""
    if process.host != here.host:
        return ProcessState.ELSEWHERE
    if process.boot != here.boot:
        return ProcessState.DEAD
    if process.space != here.space:
        return ProcessState.ELSEWHERE
    return ProcessState.ALIVE if _started(process.pid) == process.started else ProcessState.DEAD


def ancestors_of(pid: int) -> Iterator[tuple[int, str]]:
    """Yield a process and those above it, as process IDs and start times; nothing without ``/proc``.

    A process whose parent has ended belongs to another one, usually to the first process.
    """
    while pid > 0:
        words = _stat_words(pid)
        if len(words) < MIN_STAT_WORDS:
            return
        yield pid, words[19]
        pid = int(words[1])


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return the start time of a process in the system's format; empty if it does not run."""
    if Path("/proc/self/stat").exists():
        words = _stat_words(pid)
        return words[19] if len(words) >= MIN_STAT_WORDS and words[0] not in ("Z", "X") else ""
    argv = ["ps", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip()


def _stat_words(pid: int) -> list[str]:
    """Return the words of ``/proc/PID/stat`` after the program's name: state, parent, ..., as the 20th the start."""
    return _read(f"/proc/{pid}/stat").rpartition(") ")[2].split()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
