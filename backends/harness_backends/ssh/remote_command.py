"""The command line of an SSH exec request, Pure.

sshd passes the command to the user's login shell as ``SHELL -c COMMAND``, whichever shell that is. So the command uses
only what means the same in sh, bash, zsh, fish and csh: the word ``exec``, and one single-quoted string without quotes,
escaping backslashes, ``!`` or line ends. Everything else is written in octal and decoded by ``printf`` in the ``sh``
that it starts.

Before the program, that ``sh`` prints a random line (the nonce) on each stream; earlier output is from start-up files.
It remains the program's parent, because OpenSSH's client cannot report a death by signal, and ``exit $?`` can; but for
the persistent shell.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from harness.errors import UnsupportedOperation

__all__ = ["MAX_COMMAND", "interactive_command", "new_nonce", "remote_command"]

MAX_COMMAND = 128_000
"""Bytes: Linux allows 131,072 in one argument, and sshd passes the whole command as one."""

# The nonce is split in two, so that a shell that echoes its commands (`set -v`) does not print it. If the line cannot
# be written, the caller has timed out because of a slow start-up file, and the program must not run.
_START = 'echo {first}"{second}e" >&2;echo {first}"{second}o"||exit 125;{decode};'
# The shell's own messages ("Killed") must not mix with the program's, so its standard error is discarded.
_RUN = 'exec 3>&2 2>/dev/null;(exec "$@" 2>&3 3>&-);exit $?'
_SHELL = ["sh"]
"""The persistent shell replaces that sh: its exact exit status means nothing, and each process at the start counts."""

_PLAIN = re.compile(r"[A-Za-z0-9_@+:,./-]+")
_LITERAL = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\!\"$`%")
_OCTAL = {byte: f"\\{byte:03o}" for byte in range(256) if byte not in _LITERAL}


def new_nonce() -> str:
    """Return an unguessable word for :func:`remote_command` and :class:`~..posix.output_noise.NoiseFilter`."""
    return os.urandom(12).hex()


def remote_command(argv: Sequence[str], nonce: str) -> str:
    """Return the command of an exec request that prints the nonce, then runs ``argv``.

    Raises:
        UnsupportedOperation: the command is longer than :data:`MAX_COMMAND`.
        ValueError: an argument contains a NUL byte, or ``argv`` is empty.
    """
    half = len(nonce) // 2
    decode, run = (":", "exec sh") if [*argv] == _SHELL else (_decode(argv), _RUN)
    script = _START.format(first=nonce[:half], second=nonce[half:], decode=decode) + run
    return _bounded(f"exec sh -c '{script}'")


def interactive_command(argv: Sequence[str]) -> str:
    """Return the command of a session with a PTY that is replaced by ``argv``; readable if the arguments allow it.

    Raises:
        UnsupportedOperation: the command is longer than :data:`MAX_COMMAND`.
        ValueError: an argument contains a NUL byte, or ``argv`` is empty.
    """
    _check(argv)
    if all(_PLAIN.fullmatch(word.removeprefix("=")) for word in argv):
        # zsh expands =NAME to a program's path; a backslash prevents that in every shell
        return _bounded(" ".join(["exec", *(f"\\{word}" if word.startswith("=") else word for word in argv)]))
    script = f'{_decode(argv)};exec "$@"'
    return _bounded(f"exec sh -c '{script}'")


def _decode(argv: Sequence[str]) -> str:
    """Return shell code that sets the positional parameters; ``;:`` keeps ``$(...)`` from stripping a final newline."""
    _check(argv)
    text = f"set -- {shlex.join(argv)} ;:".encode("utf-8", "surrogateescape")
    return f'eval "$(printf "{_octal(text)}")"'


def _octal(text: bytes) -> str:
    return text.decode("latin-1").translate(_OCTAL)


def _check(argv: Sequence[str]) -> None:
    if not argv or not argv[0]:
        raise ValueError("no program to start")
    if any("\0" in word for word in argv):
        raise ValueError("an argument cannot contain a NUL byte")


def _bounded(command: str) -> str:
    if len(command) > MAX_COMMAND:
        raise UnsupportedOperation(
            f"the command line has {len(command)} bytes; SSH servers accept {MAX_COMMAND}",
            hint="pass the data on standard input or in a file",
        )
    return command
