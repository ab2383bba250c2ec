"""A pane's log: reading from a position on, and rotation."""

from __future__ import annotations

import shlex

from ..channel.command_channel import CommandChannel
from .keyboard import BUSY, next_log, release
from .pane_state import Pane

__all__ = [
    "NEWEST_LOG",
    "PIECE",
    "TAIL",
    "LogReader",
    "begin_log",
    "due",
    "log_end_script",
    "rotate_log",
    "start_mark",
    "take_up_script",
]

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


# -- Rotation of the log, which bounds its growth and the time to search it.

PIECE = 16 << 20
"""Bytes after which a new piece is started between two commands, or a quarter of the limit if that is less."""


def due(pane: Pane, limit: int) -> bool:
    """Return whether the piece is long enough, and no job of this process is writing to it."""
    return pane.log_offset >= min(PIECE, limit // 4) and not pane.jobs and not pane.paused and not pane.gone


async def rotate_log(link: CommandChannel, pane: Pane) -> None:
    """Start a new piece, unless a command is running.

    Another attached harness would look for its jobs in the old piece, so a piece is then used up to three quarters of
    the limit.
    """
    limit = link.setup.config.job_log_max_bytes
    if await _watched(link) and pane.log_offset < limit * 3 // 4:
        return
    if not due(pane, limit):
        return
    newest, size = await _newest(link, pane)
    if newest > pane.log_number:  # begun by another harness, which had counted more of the pane's output
        pane.learn_log(newest, size)
        return
    await begin_log(link, pane)


async def _newest(link: CommandChannel, pane: Pane) -> tuple[int, int]:
    """Return the number and the size of the newest piece."""
    folder = shlex.quote(link.setup.log_dir(pane.uid))
    reply = await link.shell.call(f'cd {folder} && for f in log.*; do echo "${{f#log.}} $(wc -c <"$f")"; done')
    found = [line.split() for line in reply.text.splitlines()]
    return max(((int(words[0]), int(words[1])) for words in found if len(words) == 2), default=(0, 0))


async def begin_log(link: CommandChannel, pane: Pane) -> None:
    """Start a new piece, unless a command is running."""
    setup = link.setup
    number = max(pane.log_number, (await _newest(link, pane))[0]) + 1
    freed = release(pane.pane_id, pane.place, pane.held) if pane.held else []
    blocks = await link.ask(*freed, next_log(pane.pane_id, setup.log_command(pane.uid, number)))
    pane.held = ""
    if any(block.text.startswith(BUSY) for block in blocks):
        return
    pane.learn_log(number, 0)
    kept = max(2, setup.config.jobs_max_bytes // PIECE)
    if number >= kept:
        await link.shell.call(f"rm -f {shlex.quote(f'{setup.log_dir(pane.uid)}/log.{number - kept}')}")


async def _watched(link: CommandChannel) -> bool:
    """Return whether another harness is attached too."""
    clients = (await link.ask(("list-clients", "-F", "#{client_control_mode} #{client_flags}")))[-1].text
    return len([line for line in clients.splitlines() if line.startswith("1") and "no-output" not in line]) > 1
