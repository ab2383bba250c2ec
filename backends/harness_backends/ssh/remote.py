"""What is sent to an SSH server as the command, and how the noise of start-up files is told from the output. Pure.

sshd gives the command to the user's login shell as ``SHELL -c COMMAND``, whatever that shell is. So the command uses
only what means the same in sh, bash, zsh, fish and csh: the word ``exec``, and one single-quoted string without quotes,
backslashes that could escape, ``!`` or line ends. Everything else in it is written in octal and decoded by ``printf``
in the ``sh`` that it starts.

Before the program, that ``sh`` prints a random line on each stream; what comes earlier was written by start-up files.
It stays as the program's parent, because OpenSSH's client cannot report a death by signal, and ``exit $?`` can.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Literal

from harness.errors import UnsupportedOperation

__all__ = ["MAX_COMMAND", "NoiseFilter", "interactive_command", "new_nonce", "remote_command"]

MAX_COMMAND = 128_000
"""Linux takes 131,072 bytes in one argument, and sshd passes the whole command as one."""

NOISE_KEPT = 400

# The nonce is in two halves, so that a shell that shows what it runs (`set -v`) cannot imitate it. If the line cannot
# be written, the caller has gone: a start-up file was so slow that it gave up. Then nothing must run.
_START = 'echo {first}"{second}e" >&2;echo {first}"{second}o"||exit 125;{decode};'
# The shell's own words ("Killed") must not mix with the program's; hence its own standard error goes nowhere.
_RUN = 'exec 3>&2 2>/dev/null;(exec "$@" 2>&3 3>&-);exit $?'

_PLAIN = re.compile(r"[A-Za-z0-9_@+:,./-]+")
_LITERAL = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\!\"$`%")


def new_nonce() -> str:
    """A word that nobody else can know, for :func:`remote_command` and :class:`NoiseFilter`."""
    return os.urandom(12).hex()


def remote_command(argv: Sequence[str], nonce: str) -> str:
    """The command for an exec request that starts ``argv`` with three pipes and prints the nonce first.

    Raises:
        UnsupportedOperation: it is longer than a command can be.
        ValueError: an argument holds a NUL byte, or there is none.
    """
    half = len(nonce) // 2
    script = _START.format(first=nonce[:half], second=nonce[half:], decode=_decode(argv)) + _RUN
    return _bounded(f"exec sh -c '{script}'")


def interactive_command(argv: Sequence[str]) -> str:
    """The command for a session with a terminal that becomes ``argv``: readable where the arguments allow it.

    Raises:
        UnsupportedOperation: it is longer than a command can be.
        ValueError: an argument holds a NUL byte, or there is none.
    """
    _check(argv)
    if all(_PLAIN.fullmatch(word.removeprefix("=")) for word in argv):
        # zsh would look for a program of that name; a backslash before = means the same in every shell
        return _bounded(" ".join(["exec", *(f"\\{word}" if word.startswith("=") else word for word in argv)]))
    script = f'{_decode(argv)};exec "$@"'
    return _bounded(f"exec sh -c '{script}'")


def _decode(argv: Sequence[str]) -> str:
    """Shell text that sets the positional parameters; the ``;:`` keeps ``$(...)`` from eating a last line end."""
    _check(argv)
    text = f"set -- {shlex.join(argv)} ;:".encode("utf-8", "surrogateescape")
    return f'eval "$(printf "{_octal(text)}")"'


def _octal(text: bytes) -> str:
    return "".join(chr(byte) if byte in _LITERAL else f"\\{byte:03o}" for byte in text)


def _check(argv: Sequence[str]) -> None:
    if not argv or not argv[0]:
        raise ValueError("there is no program to start")
    if any("\0" in word for word in argv):
        raise ValueError("an argument cannot hold a NUL byte")


def _bounded(command: str) -> str:
    if len(command) > MAX_COMMAND:
        raise UnsupportedOperation(
            f"a command line of {len(command)} bytes is more than SSH servers take ({MAX_COMMAND})",
            hint="send it on standard input, or in a file",
        )
    return command


class NoiseFilter:
    """Drops the bytes of a stream up to and including the nonce's line. Pure; memory is bounded."""

    def __init__(self, nonce: str, stream: Literal["stdout", "stderr"]) -> None:
        self._mark = f"{nonce}{'o' if stream == 'stdout' else 'e'}\n".encode()
        self._kept = b""
        self.passed = False
        """True once the nonce was seen: the program is being started."""

    def feed(self, data: bytes) -> bytes:
        """Add bytes of the stream; return those that the program wrote."""
        if self.passed:
            return data
        self._kept += data
        before, mark, after = self._kept.partition(self._mark)
        if not mark:
            self._kept = self._kept[-(NOISE_KEPT + len(self._mark)) :]
            return b""
        self.passed = True
        self._kept = before[-NOISE_KEPT:]
        return after

    @property
    def noise(self) -> bytes:
        """The last that was dropped, for messages."""
        return self._kept
