"""Namespaces of a process, which programs enter."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["namespaces"]


@contextmanager
def namespaces() -> Iterator[int]:
    """The process id of a process that keeps namespaces of its own, among them that of process ids."""
    words = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--kill-child"]
    holder = subprocess.Popen([*words, "sleep", "1000000"])
    try:
        yield child_of(holder.pid)
    finally:
        holder.kill()
        holder.wait()


def child_of(pid: int) -> int:
    """The child of a process, once it has replaced itself by another program."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep":
            return int(children[0])
        time.sleep(0.01)
    raise AssertionError("unshare started nothing")
