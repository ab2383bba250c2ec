"""Nothing of a test's engine stays behind: processes, mounts, control groups and files, each found by its name."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["adopt_orphans", "leftovers", "mounts_below", "processes_about", "sweep", "unmount_below"]

PATIENCE = 10.0
CGROUPS = Path("/sys/fs/cgroup")
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def sweep(directory: Path, cgroup: str) -> None:
    """End, unmount and remove everything that is named after a directory or runs in a control group."""
    deadline = time.monotonic() + PATIENCE
    while (pids := {*processes_about(directory), *_members(cgroup)}) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.02)  # processes of others cannot be waited for
    unmount_below(directory)
    shutil.rmtree(directory, ignore_errors=True)
    for group in _groups(cgroup):
        with contextlib.suppress(OSError):
            group.rmdir()


def leftovers(directory: Path, cgroup: str) -> list[str]:
    """What is there still, in words; empty when nothing is."""
    return [
        *(f"process {pid}" for pid in {*processes_about(directory), *_members(cgroup)}),
        *(f"mount {path}" for path in mounts_below(directory)),
        *(f"control group {path}" for path in _groups(cgroup)),
        *([f"directory {directory}"] if directory.exists() else []),
    ]


def processes_about(directory: Path) -> list[int]:
    """The processes, but ours, that have the directory in their command line."""
    word = os.fsencode(f"{directory}/")
    return [pid for pid, line in _command_lines() if word in line and pid != os.getpid()]


def _command_lines() -> Iterator[tuple[int, bytes]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(entry.name), (entry / "cmdline").read_bytes()


def mounts_below(directory: Path) -> list[Path]:
    """Mount points in a directory, the deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    below = [point for point in points if point.startswith(f"{directory}/")]
    return [Path(point) for point in sorted(below, key=len, reverse=True)]


def unmount_below(directory: Path) -> None:
    """Unmount all of them, busy or not."""
    for point in mounts_below(directory):
        LIBC.umount2(os.fsencode(point), MNT_DETACH)


def _groups(cgroup: str) -> list[Path]:
    """The control groups of that name in each hierarchy, with what is in them, the deepest first."""
    roots = [path for path in (CGROUPS / cgroup, *CGROUPS.glob(f"*/{cgroup}")) if path.is_dir()]
    found = {folder: None for root in roots for folder in (root, *root.rglob("*")) if folder.is_dir()}
    return sorted(found, key=lambda folder: len(folder.parts), reverse=True)


def _members(cgroup: str) -> list[int]:
    members: list[int] = []
    for group in _groups(cgroup):
        with contextlib.suppress(OSError):
            members += [int(word) for word in (group / "cgroup.procs").read_text().split()]
    return members


def adopt_orphans() -> None:
    """Make this process the parent of the orphans below it, so that :func:`sweep` can bury them."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
