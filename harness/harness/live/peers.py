"""The process at the other end of a Unix socket, and whether it may act on a session of harness.

A command that an agent runs on this machine is a process of the same user, and could connect like a dashboard. It is
refused if it descends from a harness process, or was started in a pane or as a job of harness. A process that hides
both is refused only by the token, which the policy denies to tools.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..system.process_identity import ancestors_of, this_process
from .sockets import listed_processes

__all__ = ["Peer", "acting_refusal", "own_refusal", "peer_of"]

MANAGED_VARIABLES = (b"HX_DIR=", b"HARNESS_JOB=")
"""Variables of the processes in managed panes and of jobs."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """A process and its user, as the kernel reports them; ``pid`` 0 is a process outside of this PID namespace."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer | None:
    """Return the process that connected, or that listens; None where the kernel does not report it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return Peer(pid, uid)


def acting_refusal(peer: Peer | None, harness_processes: Collection[tuple[int, str]]) -> str:
    """Return why a client may not act; empty if it may.

    Args:
        peer: The client.
        harness_processes: The process IDs and start times of harness processes, as in :func:`ancestors_of`.
    """
    if peer is None or not Path("/proc/self/stat").exists():
        return "this system does not report which process is connected"
    above = list(ancestors_of(peer.pid))
    if not above:
        return "the connected process is not visible here"
    for pid, started in above:
        if (pid, started) in harness_processes:
            return f"the connected process was started by the harness process {pid}"
        if _is_managed(pid):
            return "the connected process runs in a pane or a job of harness"
    return ""


def own_refusal() -> str:
    """Return why this process may not act as a dashboard, nor let others act; empty if it may. Blocks."""
    known = {(one.pid, one.started) for one in listed_processes(this_process()).values()}
    return acting_refusal(Peer(os.getpid(), os.geteuid()), known)


def _is_managed(pid: int) -> bool:
    """Return whether a process was started with the variables of a pane or a job; False if it may not be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(entry.startswith(MANAGED_VARIABLES) for entry in environment.split(b"\0"))
