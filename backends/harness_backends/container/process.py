"""A program in a container, with its exact exit status and a confirmed exit."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from harness.transport import Process

from ..posix.process_scripts import LIST, SEEK, SINCE

__all__ = [
    "ENDED",
    "ENDED_BEFORE",
    "REMAINS",
    "ContainerProcess",
    "GroupLeader",
    "StderrFilter",
    "kill_argv",
    "new_nonce",
    "wrapped_argv",
]


# -- The shell in the container that starts the program, and the script that kills it. Pure.
#
# An engine reports only its own process id of an exec, cannot kill it, and reports its exit after that of its last
# grandchild. So the exec runs a ``sh`` that prints its identity on standard error, starts the program, and prints the
# program's exit status::
#
#     RS NONCE PID STARTED LF      before the first byte of the program
#     RS NONCE STATUS LF           after its end
#
# The engine makes the ``sh`` the leader of its own session, so its process id is the program's group. A later process
# with the same id is distinguished by its start time.


SEPARATOR = b"\x1e"
NOISE_KEPT = 2000

# The nonce is split in two, so that a process list does not show it. The shell's own messages ("Killed") must not mix
# with the program's. A signal to the group ends the program; the shell remains to report it.
_WRAPPER = (
    SINCE
    + r"""
hx_since $$
exec 3>&2 2>/dev/null
printf '\036%s%s %s %s\n' __FIRST__ __SECOND__ $$ "${hx_began:--}" >&3 || exit 125
trap : HUP INT QUIT TERM
__DECODE__
(unset hx_stat hx_began hx_field; exec "$@" 2>&3 3>&-)
hx_code=$?
printf '\036%s%s %s\n' __FIRST__ __SECOND__ "$hx_code" >&3
exit "$hx_code"
"""
)

# $1 group, $2 start time of its leader, $3 whether to include all descendants (0; 1; 2: and to kill nothing if the
# leader has ended, as the program has), then signals, each with its grace period in tenths of a second. Zombies do not
# count: the first process of many containers never reaps them.
_KILL = (
    SINCE
    + LIST
    + SEEK
    + r"""
hx_left_over() {
  hx_tree=$(hx_seek "$hx_leader" "$hx_tree")
  hx_live=${hx_tree%% *}; hx_tree=${hx_tree#* }
  hx_tree=${hx_tree#?}
  [ "$hx_whole" != 0 ] || hx_tree=
  [ "$hx_live" = 1 ] || [ -n "$hx_tree" ]
}
hx_nap() { sleep 0.1 2>/dev/null || sleep 1 2>/dev/null || :; }
hx_unless_ended() {
  [ "$hx_whole" = 2 ] && [ "$hx_start" != - ] || return 0
  hx_since "$hx_leader"
  [ "$hx_began" = "$hx_start" ] || exit 6
  case ${hx_stat##*) } in [ZX]*) exit 6 ;; esac
}
hx_leader=$1 hx_start=$2 hx_whole=$3 hx_tree=
hx_unless_ended
hx_since "$1"
[ -z "$hx_began" ] || [ "$2" = - ] || [ "$hx_began" = "$2" ] || exit 0
shift 3
while [ "$#" -ge 2 ]; do
  hx_left_over || exit 0
  hx_unless_ended
  [ "$hx_whole" != 2 ] || hx_whole=1
  kill "-$1" "-$hx_leader" 2>/dev/null
  for hx_p in $hx_tree; do kill "-$1" "${hx_p%%:*}" 2>/dev/null; done
  hx_left=$2
  while hx_left_over || exit 0; [ "$hx_left" -gt 0 ]; do
    hx_left=$((hx_left - 1))
    hx_nap
  done
  shift 2
done
exit 7
"""
)

ENDED, ENDED_BEFORE, REMAINS = 0, 6, 7
"""Exit codes of the script that :func:`kill_argv` runs."""


def new_nonce() -> str:
    """Return an unguessable word."""
    return secrets.token_hex(12)


def wrapped_argv(argv: Sequence[str], nonce: str) -> list[str]:
    """Return the argv to execute in a container for ``argv``.

    Engines accept arguments in UTF-8 only; if one contains other bytes, all are decoded inside.

    Raises:
        ValueError: an argument contains a NUL byte, or ``argv`` is empty.
    """
    if not argv or not argv[0]:
        raise ValueError("no program to start")
    if any("\0" in word for word in argv):
        raise ValueError("an argument cannot contain a NUL byte")
    half = len(nonce) // 2
    script = _WRAPPER.replace("__FIRST__", nonce[:half]).replace("__SECOND__", nonce[half:])
    if all(_is_utf8(word) for word in argv):
        return ["sh", "-c", script.replace("__DECODE__", ""), "sh", *argv]
    return ["sh", "-c", script.replace("__DECODE__", _decode(argv)), "sh"]


def _is_utf8(word: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _decode(argv: Sequence[str]) -> str:
    """Return shell code that sets the positional parameters; ``;:`` keeps ``$(...)`` from stripping a final newline."""
    text = f"set -- {shlex.join(argv)} ;:".encode("utf-8", "surrogateescape")
    return "eval \"$(printf '" + "".join(f"\\{byte:03o}" for byte in text) + "')\""


@dataclass(frozen=True, slots=True)
class GroupLeader:
    """The shell of a program: its process id in the container, which is also the group's, and its start time."""

    pid: int
    started: str


def kill_argv(
    leader: GroupLeader, ladder: Sequence[tuple[str, float]], *, tree: bool, unless_ended: bool = False
) -> list[str]:
    """Return the argv that kills the group in the container, with signals and their grace periods in seconds.

    With ``tree``, all descendants of the group are killed too, in any session; with ``unless_ended`` as well nothing is
    killed if the program has ended, and the exit code is :data:`ENDED_BEFORE`.
    """
    steps = [word for signal, grace in ladder for word in (signal, str(max(1, round(grace * 10))))]
    return [
        "sh",
        "-c",
        _KILL,
        "sh",
        str(leader.pid),
        leader.started,
        str(int(tree) + int(tree and unless_ended)),
        *steps,
    ]


class StderrFilter:
    """A filter that removes the shell's two lines from standard error; text before the first is the engine's.

    Output of the program is buffered only if it could be the start of the second line.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = SEPARATOR + nonce.encode() + b" "
        self._held = b""
        self.leader: GroupLeader | None = None
        self.status: int | None = None

    @property
    def noise(self) -> str:
        """The output instead of the program's start, as one line."""
        return " ".join(self._held.decode("utf-8", "replace").split()) if self.leader is None else ""

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the stream and return those that the program wrote."""
        if self.status is not None:
            return data
        self._held += data
        if self.leader is None and not self._take_leader():
            return b""
        return self._take_output()

    def finish(self) -> bytes:
        """Return the buffered rest at the end of the stream."""
        held, self._held = self._held, b""
        if self.leader is None:
            self._held = held  # kept for messages
            return b""
        return held

    def _line(self) -> tuple[bytes, list[bytes], bytes] | None:
        """Split the buffer at the next line of the shell: before, its words, after; None if it is not there yet."""
        before, mark, rest = self._held.partition(self._mark)
        words, end, after = rest.partition(b"\n")
        return (before, words.split(), after) if mark and end else None

    def _take_leader(self) -> bool:
        found = self._line()
        if found is None:
            self._held = self._held[-(NOISE_KEPT + len(self._mark)) :]
            return False
        _, words, self._held = found
        self.leader = GroupLeader(int(words[0]), words[1].decode())
        return True

    def _take_output(self) -> bytes:
        found = self._line()
        if found is None:
            keep = self._possible_mark()
            output, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
            return output
        before, words, after = found
        self.status = int(words[0])
        self._held = b""
        return before + after

    def _possible_mark(self) -> int:
        """Return how many bytes at the end may belong to an incomplete line of the shell."""
        start = self._held.rfind(SEPARATOR)
        tail = self._held[start:] if start >= 0 else b""
        if tail.startswith(self._mark) or self._mark.startswith(tail):
            return len(tail)
        return 0


# -- A program in a container, with its exact exit status and a confirmed exit.


MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes of standard error that are buffered while the exit status is awaited."""

MAX_STDERR_BYTES = 4096

STDIN_CLOSE_GRACE = 0.05
"""Seconds that a program may take to exit once its input is closed; killing it costs another exec."""

KILL_TIMEOUT = 5.0
"""Seconds that the exec that kills a group may take in addition to the grace periods."""

ENDING = (("TERM", 1.0), ("KILL", 2.0))
"""Signals, and their grace periods in seconds."""

Kill = Callable[[GroupLeader, Sequence[tuple[str, float]], bool], Awaitable[int]]
Verdict = Callable[[Process], Awaitable[int]]


class ContainerProcess(Process):
    """A program started by an engine's exec of :func:`wrapped_argv`.

    Args:
        raw: the exec; the process closes it.
        nonce: the word that marks the shell's lines.
        kill: kills a group in the container, optionally with all descendants unless the program has ended; returns
            :data:`ENDED`, :data:`ENDED_BEFORE` or :data:`REMAINS`.
        verdict: returns the status of an exec without a status line: its shell was killed, or the connection lost.
    """

    def __init__(self, raw: Process, nonce: str, kill: Kill, verdict: Verdict) -> None:
        self._raw = raw
        self._filter = StderrFilter(nonce)
        self._kill = kill
        self._verdict = verdict
        self._stderr = b""
        self._taken = anyio.Event()
        self._ended = False
        self._closed = False
        self._reads = 0
        self._turn = anyio.Lock()

    async def wait_for_start(self) -> bool:
        """Wait until the program has started; return False if the exec ended first."""
        while self._filter.leader is None and not self._ended:
            await self._read()
        return self._filter.leader is not None

    async def last_words(self) -> str:
        """Return the engine's output instead of the program's start, on standard output (Docker) or error (Podman)."""
        words = b""
        while len(words) < MAX_STDERR_BYTES and (data := await self._raw.receive()):
            words += data
        return " ".join([*words.decode("utf-8", "replace").split(), self._filter.noise]).strip()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return b"" if self._closed else await self._raw.receive(max_bytes)

    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._stderr and not self._ended:
            await self._read()
        data, self._stderr = self._stderr[:max_bytes], self._stderr[max_bytes:]
        taken, self._taken = self._taken, anyio.Event()
        taken.set()
        return data

    async def _read(self) -> None:
        """Read standard error once, unless another task has done so meanwhile."""
        seen = self._reads
        async with self._turn:
            if self._reads == seen and not self._ended:
                data = await self._raw.receive_stderr()
                self._stderr += self._filter.feed(data) if data else self._filter.finish()
                self._ended = not data
                self._reads += 1

    async def send(self, data: bytes) -> None:
        if self._closed or self._filter.status is not None:
            raise BrokenPipeError("the program has exited")
        await self._raw.send(data)

    async def send_eof(self) -> None:
        await self._raw.send_eof()

    async def wait(self) -> int:
        await anyio.lowlevel.checkpoint()
        while self._filter.status is None and not self._ended:
            if len(self._stderr) < MAX_BUFFERED_BYTES:
                await self._read()
            else:
                await self._taken.wait()
        if self._filter.status is not None:
            return self._filter.status
        return await self._verdict(self._raw)

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                await self._raw.send_eof()
                await self._end()
            finally:
                await self._raw.aclose()

    async def _end(self) -> None:
        with anyio.move_on_after(STDIN_CLOSE_GRACE):
            while self._filter.status is None and not self._ended:
                await self._read()
        if self._filter.status is None:
            await self.end(ENDING, tree=False)

    async def end(self, ladder: Sequence[tuple[str, float]], *, tree: bool) -> int:
        """Send signals to the group until no process is left; return :data:`ENDED` if that is confirmed.

        With ``tree``, also to descendants in other sessions, e.g. the jobs of a persistent shell; but nothing is sent
        if the program has ended, for :data:`ENDED_BEFORE`: its status is on the way.
        """
        if self._filter.leader is None:
            return REMAINS
        with anyio.move_on_after(KILL_TIMEOUT + sum(grace for _, grace in ladder)):
            return await self._kill(self._filter.leader, ladder, tree)
        return REMAINS
