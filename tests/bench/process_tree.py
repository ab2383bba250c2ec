"""What a program takes from exec to exit: wall time, processor time and peak memory, with all that it starts.

Processes are found by a variable of their environment, so that those which leave the tree (connections that stay open)
count as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Mark", "Measured", "measure"]

MARK = "HXB_MARK"
INTERVAL = 0.2
"""Seconds between two looks at the memory."""
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT = 90
"""Seconds after which a program counts as failed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds, seconds of processor time and MB of a program; ``output`` is its standard output."""

    wall: float
    cpu: float
    memory: float
    output: bytes


@dataclass
class Mark:
    """The processes that carry a value in their environment."""

    value: str = field(default_factory=lambda: secrets.token_hex(8))
    _known: dict[int, bool] = field(default_factory=dict)

    def pids(self) -> list[int]:
        """The processes that run now."""
        running = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._known = {pid: found for pid, found in self._known.items() if pid in running}
        for pid in running - self._known.keys():
            with contextlib.suppress(OSError):
                self._known[pid] = f"{MARK}={self.value}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return [pid for pid, found in self._known.items() if found]

    def memory(self) -> float:
        """MB of all of them; what they share is counted once."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += sum(int(kb) for kb in re.findall(r"^Pss:\s+(\d+) kB", text, re.M))
        return total / 1024

    def cpu(self) -> float:
        """Seconds of processor time that they and their ended children took."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(int(word) for word in words[11:15])
        return total / TICKS

    def end(self) -> None:
        """End what still runs."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        while self.pids():
            time.sleep(0.01)


def measure(argv: Sequence[str], variables: Mapping[str, str], mark: Mark, stdin: bytes = b"") -> Measured:
    """Run a program to its end.

    Args:
        argv: The program.
        variables: Its environment.
        mark: What the program and all that it starts carry; those from before count only in the memory.
        stdin: Its standard input.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        before = mark.cpu()
        began = time.perf_counter()
        environment = {**variables, MARK: mark.value}
        process = subprocess.Popen(argv, stdin=given, stdout=out, stderr=err, env=environment)
        ended = threading.Event()
        peaks = [0.0]
        watcher = threading.Thread(target=_watch, args=(mark, ended, peaks))
        watcher.start()
        with _killed_after(TIMEOUT, process):
            _, status, usage = os.wait4(process.pid, 0)
        wall = (time.perf_counter() - began) * 1e3
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watcher.join()
        cpu = usage.ru_utime + usage.ru_stime + mark.cpu() - before
        out.seek(0)
        err.seek(0)
        output = out.read()
        if wall > TIMEOUT * 1e3:
            raise RuntimeError(f"took longer than {TIMEOUT} s")
        if process.returncode != 0:
            said = (err.read() or output).decode(errors="replace")[-400:]
            raise RuntimeError(f"{Path(argv[0]).name} ended with {process.returncode}: {said}")
    return Measured(wall, cpu, max(peaks), output)


def _watch(mark: Mark, ended: threading.Event, peaks: list[float]) -> None:
    while not ended.wait(INTERVAL):
        peaks.append(mark.memory())


@contextlib.contextmanager
def _killed_after(seconds: float, process: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
