"""A pane's log, read again from some point on. Pure."""

from __future__ import annotations

import shlex

__all__ = ["NEWEST_LOG", "TAIL", "LogReader", "log_end_script", "start_mark", "take_up_script"]

TAIL = 1 << 16
NEWEST_LOG = 'k=0; for l in log.[0-9]*; do l=${l#log.}; [ "$l" -gt "$k" ] && k=$l; done 2>/dev/null;'
"""Sets ``k`` to the number of the newest log in the current directory. The oldest of them are removed in time."""


def start_mark(nonce: str, job: int) -> bytes:
    """What the shell writes when it starts a job."""
    return f"\x1b]133;C;{nonce};{job}\x07".encode()


def take_up_script(folder: str) -> str:
    """Print a pane's nonce, the number of its newest log, its shell's process id, and ``gone`` when there is no log.

    The log may come in a moment; the process id is 0 where the shell does not run, or only starts, and negative where
    ``hooks/pane.sh``, which started it, has ended: a person has put another program there.
    """
    pid = 'p=; { read -r p <pid; } 2>/dev/null; [ ! -e keeper ] || [ -e alive ] || p=${p:+-}$p; echo "${p:-0}"'
    waited = "[ -e log.$k ] || { sleep 0.3 2>/dev/null || sleep 1; [ -e log.$k ]; } || echo gone"
    return f"cd {shlex.quote(folder)} && cat nonce && {{ {NEWEST_LOG} echo $k; {pid}; {waited}; }}"


def log_end_script(path: str, start: int) -> str:
    """Print a log's size in a line, and then its end from byte ``start`` on, or from 64 KiB before its end."""
    log = shlex.quote(path)
    return (
        f"s=$(wc -c <{log}); s=$((s)); o={start}; [ $((s - o)) -le {TAIL} ] || o=$((s - {TAIL})); echo $s\n"
        f"tail -c +$((o + 1)) {log} | head -c {TAIL}"
    )


class LogReader:
    """A filter that drops a log's text before a job's start marker."""

    def __init__(self, mark: bytes, position: int) -> None:
        self.position = position
        """Where to read on."""
        self.found = False
        self._mark = mark
        self._tail = b""

    def feed(self, chunk: bytes) -> bytes:
        """The next bytes of the log; what of them belongs to the job, from its start mark on."""
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
