"""Reading of a pane's log from a position on. Pure."""

from __future__ import annotations

import shlex

__all__ = ["NEWEST_LOG", "TAIL", "LogReader", "log_end_script", "start_mark", "take_up_script"]

TAIL = 1 << 16
NEWEST_LOG = 'k=0; for l in log.[0-9]*; do l=${l#log.}; [ "$l" -gt "$k" ] && k=$l; done 2>/dev/null;'
"""A script that sets ``k`` to the number of the newest log in the current directory; old ones are deleted."""


def start_mark(nonce: str, job: int) -> bytes:
    """Return the marker that the shell writes when it starts a job."""
    return f"\x1b]133;C;{nonce};{job}\x07".encode()


def take_up_script(folder: str) -> str:
    """Return a script that prints a pane's nonce, its newest log's number, its shell's process id, and a missing log.

    It waits briefly for the log, and prints ``gone`` without one. The process id is 0 if the shell is not running or
    is starting, and negative if ``hooks/pane.sh``, which started it, has ended: an operator started another program.
    """
    pid = 'p=; { read -r p <pid; } 2>/dev/null; [ ! -e keeper ] || [ -e alive ] || p=${p:+-}$p; echo "${p:-0}"'
    waited = "[ -e log.$k ] || { sleep 0.3 2>/dev/null || sleep 1; [ -e log.$k ]; } || echo gone"
    return f"cd {shlex.quote(folder)} && cat nonce && {{ {NEWEST_LOG} echo $k; {pid}; {waited}; }}"


def log_end_script(path: str, start: int) -> str:
    """Return a script that prints a log's size, then its end from byte ``start`` on, at most the last 64 KiB."""
    log = shlex.quote(path)
    return (
        f"s=$(wc -c <{log}); s=$((s)); o={start}; [ $((s - o)) -le {TAIL} ] || o=$((s - {TAIL})); echo $s\n"
        f"tail -c +$((o + 1)) {log} | head -c {TAIL}"
    )


class LogReader:
    """A filter that drops a log's text before a job's start marker."""

    def __init__(self, mark: bytes, position: int) -> None:
        self.position = position
        """The position of the next read."""
        self.found = False
        self._mark = mark
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """Add the next bytes of the log, and return those from the job's start marker on."""
        self.position += len(chunk)
        if self.found:
            return chunk
        data = self._tail + chunk
        index = data.find(self._mark)
        if index < 0:
            self._tail = data[-len(self._mark) + 1 :]
            return b""
        self.found = True
        return data[index:]
