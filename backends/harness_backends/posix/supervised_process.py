"""A program behind another one that only starts it, with its exact exit status and a confirmed exit.

``docker exec``, ``kubectl exec`` or ``chroot`` start a program somewhere else. What they report of its end is not
exact, and their own end does not end it. So they start a shell that reports both, and that another start can kill.
"""

from __future__ import annotations

import logging
import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

import anyio
import anyio.lowlevel

from harness.errors import ConnectionLost, HarnessError
from harness.target import Target
from harness.transport import Process

from .output_noise import NoiseFilter
from .process_scripts import LIST, SEEK, SINCE

__all__ = [
    "ENDED",
    "ENDED_BEFORE",
    "LOCATED_ARGV",
    "REMAINS",
    "TERMINAL_BETWEEN",
    "GroupLeader",
    "StartReport",
    "StderrFilter",
    "SupervisedProcess",
    "finish_start",
    "kill_argv",
    "kill_group",
    "located_order",
    "new_nonce",
    "wait_for_start",
    "wrapped_argv",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")


# -- The shell that starts the program, and the script that kills it. Pure.
#
# An engine reports only its own process id of an exec, cannot kill it, and reports its exit after that of its last
# grandchild. So the exec runs a ``sh`` that prints its identity on standard error, starts the program, and prints the
# program's exit status::
#
#     RS NONCE PID STARTED [VERDICT INSTANCE] LF      before the first byte of the program
#     RS NONCE STATUS LF                              after its end
#
# The ``sh`` is the leader of its own session, so its process id is the program's group: an engine makes it that, and
# :func:`located_order` uses ``setsid`` where the program that starts it does not. A later process with the same id is
# distinguished by its start time.


SEPARATOR = b"\x1e"
NOISE_KEPT = 2000
MAX_DIGITS = 20

# The nonce is split in two, so that a process list does not show it. The shell's own messages ("Killed") must not mix
# with the program's. A signal to the group ends the program; the shell remains to report it.
_WRAPPER = (
    SINCE
    + r"""
hx_since $$
exec 3>&2 2>/dev/null
__REPORT__
trap : HUP INT QUIT TERM
__DECODE__
(unset hx_stat hx_began hx_field; exec "$@" 2>&3 3>&-)
hx_code=$?
printf '\036%s%s %s\n' __FIRST__ __SECOND__ "$hx_code" >&3
exit __EXIT__
"""
)

_REPORT = r"""
printf '\036%s%s %s %s\n' __FIRST__ __SECOND__ $$ "${hx_began:--}" >&3 || exit 125
"""

# Where it is: the kernel's boot, the start of the first process (in hundredths of a second), the device and the inode
# of the root directory, namespaces; parts that cannot be read are empty. In another place than the expected one
# nothing runs, nor where /proc shows other processes than those of its own namespace: a kill would end the wrong ones.
# The line on standard output ends what a login shell there may have written before. The shell itself exits with 0, as
# some programs report any other exit on standard error.
_REPORT_LOCATION = r"""
hx_leader=${hx_began:--} hx_boot= hx_device= hx_verdict=started
{ read -r hx_boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
hx_since 1
{
  while read -r hx_a hx_b hx_c hx_d hx_e hx_f; do
    [ "$hx_e" != / ] || { hx_device=$hx_c; break; }
  done </proc/self/mountinfo
} 2>/dev/null
hx_inode=$(ls -di / 2>/dev/null)
hx_inode=${hx_inode% /}
hx_instance=$hx_boot/$hx_began/$hx_device/${hx_inode##* }
for hx_a in __NAMESPACES__; do hx_instance=$hx_instance/$(readlink "/proc/self/ns/$hx_a" 2>/dev/null); done
[ -z __EXPECTED__ ] || [ "$hx_instance" = __EXPECTED__ ] || hx_verdict=moved
hx_a= hx_b=
{ read -r hx_a hx_b </proc/self/stat; } 2>/dev/null
[ "$hx_a" = $$ ] || { [ -z "$hx_a" ] && [ ! -e /proc/1/stat ]; } || hx_verdict=foreign
printf '\036%s%s %s %s %s %s\n' __FIRST__ __SECOND__ $$ "$hx_leader" "$hx_verdict" "$hx_instance" >&3 || exit 125
[ "$hx_verdict" = started ] || exit 125
printf '%s%so\n' __FIRST__ __SECOND__ || exit 125
unset hx_leader hx_boot hx_device hx_inode hx_verdict hx_instance hx_a hx_b hx_c hx_d hx_e hx_f
"""

TERMINAL_BETWEEN = "a terminal is between, which changes bytes and loses exit codes"
"""What the shell of :data:`LOCATED_ARGV` says of a terminal."""

# The shell that takes an order: not as an argument, as Kubernetes puts arguments into a URL, other programs bound their
# length, and everyone sees them. A terminal between would change the order, too.
LOCATED_ARGV = (
    "sh",
    "-c",
    f'if [ -t 0 ] || [ -t 1 ] || [ -t 2 ]; then echo "{TERMINAL_BETWEEN}" >&2; exit 125; fi; '
    'hx_nl=$(printf "\\nx"); hx_nl=${hx_nl%x}; '
    'IFS= read -r hx_line || { echo "no standard input arrives" >&2; exit 125; }; eval "$hx_line"',
)
"""The argv of a shell that reads its order from the first line of its input: :func:`located_order`."""

# setsid makes the shell the leader of a group where it is not one yet: no group has its process id. Without /proc, too.
_LEAD = r"""
unset hx_nl hx_line
kill -0 "-$$" 2>/dev/null || ! command -v setsid >/dev/null || exec setsid sh -c "$hx_text" sh "$@"
eval "$hx_text"
"""

# $1 group, $2 start time of its leader, $3 whether to include all descendants (0; 1; 2: and to kill nothing if the
# leader has ended, as the program has), then signals, each with its grace period in tenths of a second. Zombies do not
# count: the first process of many containers never reaps them. Where processes cannot be listed, a group that accepts
# signals is alive.
_KILL = (
    SINCE
    + LIST
    + SEEK
    + r"""
hx_left_over() {
  hx_tree=$(hx_seek "$hx_leader" "$hx_tree")
  hx_live=${hx_tree%% *}; hx_tree=${hx_tree#* }
  hx_dead=${hx_tree%% *}; hx_tree=${hx_tree#?}
  [ "$hx_live$hx_dead" != 00 ] || ! kill -0 "-$hx_leader" 2>/dev/null || hx_live=1
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
  kill "-$1" "-$hx_leader" 2>/dev/null || kill "-$1" "$hx_leader" 2>/dev/null
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
    _check(argv)
    script = _script(nonce, _REPORT, '"$hx_code"')
    if all(_is_utf8(word) for word in argv):
        return ["sh", "-c", script.replace("__DECODE__", ""), "sh", *argv]
    return ["sh", "-c", script.replace("__DECODE__", _decode(argv)), "sh"]


def located_order(
    argv: Sequence[str], nonce: str, expected: str = "", *, namespaces: Sequence[str] = ("pid",)
) -> bytes:
    """Return the order by which a shell of :data:`LOCATED_ARGV` reports where it is and starts ``argv``.

    Args:
        argv: What the shell starts.
        nonce: The word that marks the shell's lines.
        expected: The :attr:`StartReport.instance` in which alone it starts it; empty for any.
        namespaces: The kinds of namespaces that belong to the instance, as in ``/proc/self/ns``.

    Raises:
        ValueError: an argument contains a NUL byte, or ``argv`` is empty.
    """
    _check(argv)
    report = _REPORT_LOCATION.replace("__EXPECTED__", shlex.quote(expected))
    report = report.replace("__NAMESPACES__", " ".join(namespaces))
    script = _script(nonce, report, "0").replace("__DECODE__", "")
    text = f"hx_text={shlex.quote(script)}; set -- {shlex.join(argv)}; eval {shlex.quote(_LEAD)}"
    line = text.replace("\n", "'\"$hx_nl\"'")  # a newline is always between single quotes here
    return line.encode("utf-8", "surrogateescape") + b"\n"


def _check(argv: Sequence[str]) -> None:
    if not argv or not argv[0]:
        raise ValueError("no program to start")
    if any("\0" in word for word in argv):
        raise ValueError("an argument cannot contain a NUL byte")


def _script(nonce: str, report: str, code: str) -> str:
    half = len(nonce) // 2
    script = _WRAPPER.replace("__REPORT__", report).replace("__EXIT__", code)
    return script.replace("__FIRST__", nonce[:half]).replace("__SECOND__", nonce[half:])


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


@dataclass(frozen=True, slots=True)
class StartReport:
    """What the shell of :data:`LOCATED_ARGV` reports before it starts its program.

    ``verdict`` is ``started``; or it starts nothing: ``moved``, in another place than expected, or ``foreign``, where
    ``/proc`` is that of another namespace.
    """

    verdict: str = "started"
    instance: str = ""
    """Where it is; empty if that cannot be told."""


class StderrFilter:
    """A filter that removes the shell's two lines from standard error; text before the first is the engine's.

    Output of the program is buffered only if it could be the start of the second line.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = SEPARATOR + nonce.encode() + b" "
        self._held = b""
        self.leader: GroupLeader | None = None
        self.report = StartReport()
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
        if len(words) < 2 or not words[0].isdigit() or len(words[0]) > MAX_DIGITS:
            return False  # not the shell that was asked for
        self.leader = GroupLeader(int(words[0]), words[1].decode("utf-8", "replace"))
        if len(words) > 3:
            instance = words[3].decode("utf-8", "replace")
            self.report = StartReport(words[2].decode("utf-8", "replace"), instance if instance.strip("/") else "")
        return True

    def _take_output(self) -> bytes:
        found = self._line()
        if found is None:
            keep = self._possible_mark()
            output, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
            return output
        before, words, after = found
        self._held = b""
        if len(words) != 1 or not words[0].isdigit() or len(words[0]) > MAX_DIGITS:
            return before + after
        self.status = int(words[0])
        return before + after

    def _possible_mark(self) -> int:
        """Return how many bytes at the end may belong to an incomplete line of the shell."""
        start = self._held.rfind(SEPARATOR)
        tail = self._held[start:] if start >= 0 else b""
        if (tail.startswith(self._mark) and len(tail) <= len(self._mark) + MAX_DIGITS) or self._mark.startswith(tail):
            return len(tail)
        return 0


# -- The program, with its exact exit status and a confirmed exit.


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


STDERR_DELAY = 5.0
"""Seconds by which standard error may arrive after standard output, which was written later."""

START_TIMEOUT = 20.0
ABANDONED_START_TIMEOUT = 3.0
"""Seconds that a start may still take after its caller was cancelled."""

KILL_ATTEMPTS = 5
KILL_PAUSE = 0.2


class SupervisedProcess(Process):
    """A program started by an engine's exec of :func:`wrapped_argv`, or by any program with :data:`LOCATED_ARGV`.

    Args:
        raw: the exec; the process closes it.
        nonce: the word that marks the shell's lines.
        kill: kills a group in the container, optionally with all descendants unless the program has ended; returns
            :data:`ENDED`, :data:`ENDED_BEFORE` or :data:`REMAINS`.
        verdict: returns the status of an exec without a status line: its shell was killed, or the connection lost.
        located: whether it was started with :data:`LOCATED_ARGV`.
    """

    def __init__(self, raw: Process, nonce: str, kill: Kill, verdict: Verdict, *, located: bool = False) -> None:
        self._raw = raw
        self._mark = nonce.encode()
        self._noise = NoiseFilter(nonce, "stdout") if located else None
        self._output = b""
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
        """Wait until the program has started; return False if the exec ended first.

        With ``located``, also if the lines of its shell arrive changed: see :attr:`fault`.
        """
        if self._noise is None:
            await self._wait_for_leader()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._wait_for_leader)  # unread messages on standard error may block what starts it
                await self._skip_noise(self._noise)
                delay = STDERR_DELAY if self.fault in ("", "lost") else 0
                tasks.cancel_scope.deadline = anyio.current_time() + delay
        return self._filter.leader is not None

    async def _wait_for_leader(self) -> None:
        while self._filter.leader is None and not self._ended:
            await self._read()

    async def _skip_noise(self, noise: NoiseFilter) -> None:
        while not (noise.passed or self.fault) and (data := await self._raw.receive()):
            self._output += noise.feed(data)

    @property
    def fault(self) -> Literal["", "mixed", "changed", "lost"]:
        """How the shell's lines arrived: those of standard error on standard output or not at all, or changed."""
        if self._noise is None:
            return ""
        if SEPARATOR + self._mark in self._noise.noise:
            return "mixed"
        if self._noise.passed:
            return "lost" if self._filter.leader is None else ""
        return "changed" if self._noise.noise.partition(self._mark + b"o")[2] else ""

    @property
    def report(self) -> StartReport:
        """What the shell of :data:`LOCATED_ARGV` reported."""
        return self._filter.report

    async def last_words(self) -> str:
        """Return the engine's output instead of the program's start, on standard output (Docker) or error (Podman)."""
        words = self._noise.noise if self._noise is not None else b""
        while len(words) < MAX_STDERR_BYTES and (data := await self._raw.receive()):
            words += data
        return " ".join([*words.decode("utf-8", "replace").split(), self._filter.noise]).strip()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._closed:
            return b""
        if self._output:
            await anyio.lowlevel.checkpoint()
            data, self._output = self._output[:max_bytes], self._output[max_bytes:]
            return data
        return await self._raw.receive(max_bytes)

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
        if self._filter.status is None and not self._is_lost:
            await self.end(ENDING, tree=False)

    @property
    def _is_lost(self) -> bool:
        """True if what started a located program ended first: as behind SSH, jobs and their keepers go on then."""
        return self._noise is not None and self._ended

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


# -- Starts that are completed, and kills that are repeated.


async def finish_start(start: Callable[[], Awaitable[T]], target: Target, close: Callable[[T], Awaitable[None]]) -> T:
    """Complete ``start()`` even if this is cancelled, as an aborted start would leave a program behind.

    After a cancellation it has a few seconds, in case the other side is unresponsive; its result is then closed.

    Raises:
        ConnectionLost: it was not completed in that time.
    """
    results: list[T] = []
    faults: list[Exception] = []

    async def watch(scope: anyio.CancelScope) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            scope.deadline = anyio.current_time() + ABANDONED_START_TIMEOUT

    try:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope(shield=True) as scope:
                tasks.start_soon(watch, scope)
                try:
                    results.append(await start())
                except Exception as error:  # raised outside of the task group, to avoid an exception group
                    faults.append(error)
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()
    except BaseException:
        for result in results:
            await close(result)
        raise
    if faults:
        raise faults[0]
    if not results:
        await anyio.lowlevel.checkpoint()  # cancelled, and timed out
        raise ConnectionLost("the start of a process was abandoned", target=target)
    return results[0]


async def wait_for_start(process: SupervisedProcess, starter: str, target: Target, order: bytes = b"") -> str | None:
    """Wait until a program has started; otherwise close it.

    Args:
        process: The program.
        starter: What starts it, for messages.
        target: For messages.
        order: What its shell reads first.

    Returns:
        None if it has started, else the words of what should have started it.

    Raises:
        ConnectionLost: it did not start in time.
    """
    try:
        with anyio.fail_after(START_TIMEOUT):
            if order:
                with suppress(BrokenPipeError):  # it has ended, and says why
                    await process.send(order)
            if await process.wait_for_start():
                return None
            said = "" if process.fault else await process.last_words()
    except TimeoutError:
        await process.aclose()
        raise ConnectionLost(f"{starter} did not start the process within {START_TIMEOUT:g} s", target=target) from None
    except BaseException:
        await process.aclose()
        raise
    await process.aclose()
    return said


async def kill_group(
    execute: Callable[[list[str]], Awaitable[Process]],
    leader: GroupLeader,
    ladder: Sequence[tuple[str, float]],
    target: Target,
    *,
    tree: bool,
) -> int:
    """Kill a group by :func:`kill_argv`, repeatedly if processes remain.

    Args:
        execute: starts an argv where the group is; raises :class:`HarnessError`.
        leader: the group.
        ladder: signals and their grace periods in seconds.
        target: for messages.
        tree: also kill all descendants, unless the program has ended.

    Returns:
        :data:`ENDED`, :data:`ENDED_BEFORE` or :data:`REMAINS`.
    """
    for attempt in range(KILL_ATTEMPTS):
        argv = kill_argv(leader, ladder[-1:] if attempt else ladder, tree=tree, unless_ended=not attempt)
        code: int | None = None
        try:
            async with await execute(argv) as process:
                await process.send_eof()
                code = await process.wait()
        except HarnessError as error:
            logger.info("%s: group %d could not be killed: %s", target, leader.pid, error)
        if code != REMAINS:
            return code if code in (ENDED, ENDED_BEFORE) else REMAINS
        await anyio.sleep(KILL_PAUSE)  # in an image without sleep the script cannot wait for the exit
    logger.warning("%s: processes of group %d survived its signals", target, leader.pid)
    return REMAINS
