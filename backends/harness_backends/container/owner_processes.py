"""Identities of this process and other processes, for the labels of temporary containers."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path

from .temporary_container import OwnerProcess

__all__ = ["running_processes", "this_machine", "this_process"]


def this_machine() -> tuple[str, str]:
    """Return a unique id of this machine, and the id of its current boot."""
    identity = _read("/etc/machine-id") or socket.gethostname()
    machine = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return machine, _read("/proc/sys/kernel/random/boot_id") or "-"


def this_process() -> OwnerProcess:
    """Return this process's identity as the owner of temporary containers."""
    machine, boot = this_machine()
    return OwnerProcess(machine, boot, os.getpid(), _since(os.getpid()) or "-")


def running_processes() -> dict[int, str]:
    """Return the running processes of this machine, with their start times."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return {pid: since for pid in pids if (since := _since(pid))}


def _since(pid: int) -> str:
    """Return a process's start time: field 22 of the stat file, the 20th after the name, which may contain blanks."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace").strip()
    return ""
