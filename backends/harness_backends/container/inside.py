"""What runs inside a container beside the program: the shell that starts it, and the script that ends it. Pure text.

An engine tells only its own process id of an exec, cannot end it, and reports its end after its last grandchild's. So
the exec runs a ``sh`` that says on standard error who it is, starts the program, and says the program's exit status::

    RS NONCE PID STARTED LF      before the first byte of the program
    RS NONCE STATUS LF           after its end

The ``sh`` is the leader of a session of its own (engines see to that), so its process id is the program's group.
Another process that gets the same id later is told by its start time.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..posix.jobend import LIST, SEEK, SINCE

__all__ = ["ENDED", "REMAINS", "Leader", "StderrFilter", "kill_argv", "new_nonce", "wrapped_argv"]

SEPARATOR = b"\x1e"
NOISE_KEPT = 2000

# The nonce is in two halves, so that a list of processes does not show it. The shell's own words ("Killed") must not
# mix with the program's. A signal to the group ends the program; the shell stays to report it.
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

# $1 group, $2 start time of its leader, $3 whether all that descends from it is meant (0 or 1), then signals, each
# with the tenths of a second that it may take. Zombies that their new parent is slow to reap are nothing: the first
# process of many containers never reaps.
_KILL = (
    SINCE
    + LIST
    + SEEK
    + r"""
hx_left_over() {
  hx_tree=$(hx_seek "$hx_leader" "$hx_tree")
  hx_live=${hx_tree%% *}; hx_tree=${hx_tree#* }
  hx_tree=${hx_tree#?}
  [ "$hx_whole" = 1 ] || hx_tree=
  [ "$hx_live" = 1 ] || [ -n "$hx_tree" ]
}
hx_nap() { sleep 0.1 2>/dev/null || sleep 1 2>/dev/null || :; }
hx_since "$1"
[ -z "$hx_began" ] || [ "$2" = - ] || [ "$hx_began" = "$2" ] || exit 0
hx_leader=$1 hx_whole=$3 hx_tree=
shift 3
while [ "$#" -ge 2 ]; do
  hx_left_over || exit 0
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

ENDED, REMAINS = 0, 7
"""Exit codes of the script that :func:`kill_argv` runs."""


def new_nonce() -> str:
    """A word that nobody else can know."""
    return secrets.token_hex(12)


def wrapped_argv(argv: Sequence[str], nonce: str) -> list[str]:
    """The words to execute in a container for ``argv``.

    Engines take words as UTF-8 only; where one holds other bytes, all are decoded inside.

    Raises:
        ValueError: an argument holds a NUL byte, or there is none.
    """
    if not argv or not argv[0]:
        raise ValueError("there is no program to start")
    if any("\0" in word for word in argv):
        raise ValueError("an argument cannot hold a NUL byte")
    half = len(nonce) // 2
    script = _WRAPPER.replace("__FIRST__", nonce[:half]).replace("__SECOND__", nonce[half:])
    if all(_is_utf8(word) for word in argv):
        return ["sh", "-c", script.replace("__DECODE__", ""), "sh", *argv]
    return ["sh", "-c", script.replace("__DECODE__", _decode(argv)), "sh"]


def _is_utf8(word: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _decode(argv: Sequence[str]) -> str:
    """Shell text that sets the positional parameters; the ``;:`` keeps ``$(...)`` from eating a last line end."""
    text = f"set -- {shlex.join(argv)} ;:".encode("utf-8", "surrogateescape")
    return "eval \"$(printf '" + "".join(f"\\{byte:03o}" for byte in text) + "')\""


@dataclass(frozen=True, slots=True)
class Leader:
    """The shell beside a program: its process id in the container, which is that of the group, and its start time."""

    pid: int
    started: str


def kill_argv(leader: Leader, ladder: Sequence[tuple[str, float]], *, tree: bool) -> list[str]:
    """The words to execute in the container that end the group: signals, each with the seconds that it may take.

    With ``tree``, what descends from the group ends too, in whatever session it is.
    """
    steps = [word for signal, grace in ladder for word in (signal, str(max(1, round(grace * 10))))]
    return ["sh", "-c", _KILL, "sh", str(leader.pid), leader.started, str(int(tree)), *steps]


class StderrFilter:
    """Takes the two lines out of a standard error; what comes before the first is noise of the engine's.

    Nothing of the program's is held back but what could be the beginning of the second line.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = SEPARATOR + nonce.encode() + b" "
        self._held = b""
        self.leader: Leader | None = None
        self.status: int | None = None

    @property
    def noise(self) -> str:
        """What was said instead of the program's start, as one line."""
        return " ".join(self._held.decode("utf-8", "replace").split()) if self.leader is None else ""

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the stream; return those that the program wrote."""
        if self.status is not None:
            return data
        self._held += data
        if self.leader is None and not self._take_leader():
            return b""
        return self._take_output()

    def finish(self) -> bytes:
        """What was held back when the stream ended."""
        held, self._held = self._held, b""
        if self.leader is None:
            self._held = held  # it stays to be quoted
            return b""
        return held

    def _line(self) -> tuple[bytes, list[bytes], bytes] | None:
        """What is before the next line of ours, its words, and what is after it; None when it is not here yet."""
        before, mark, rest = self._held.partition(self._mark)
        words, end, after = rest.partition(b"\n")
        return (before, words.split(), after) if mark and end else None

    def _take_leader(self) -> bool:
        found = self._line()
        if found is None:
            self._held = self._held[-(NOISE_KEPT + len(self._mark)) :]
            return False
        _, words, self._held = found
        self.leader = Leader(int(words[0]), words[1].decode())
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
        """How many bytes at the end may belong to a line of ours that is still on its way."""
        start = self._held.rfind(SEPARATOR)
        tail = self._held[start:] if start >= 0 else b""
        if tail.startswith(self._mark) or self._mark.startswith(tail):
            return len(tail)
        return 0
