"""The one string that SSH carries to a login shell, and the removal of what that shell's start-up files printed. Pure.

sshd gives the string to the user's login shell, whatever it is. Inside single quotes, letters, digits and most
punctuation mean themselves in every shell; quotes, backslashes, ``!``, newlines and bytes beyond ASCII do not, and
travel as octal escapes that ``sh`` undoes.
"""

from __future__ import annotations

import secrets
import shlex
import string
from collections.abc import Sequence

from harness.errors import UnsupportedOperation

__all__ = ["MAX_COMMAND", "NoiseFilter", "new_nonce", "remote_command"]

MAX_COMMAND = 120_000
"""Bytes. Linux refuses a single argument of 128 KiB, and the command is one argument of the login shell."""
MAX_NOISE = 4096

_PLAIN = frozenset((string.ascii_letters + string.digits + " _@%+=:,./-;&|<>()*?[]{}~#").encode())


def new_nonce() -> str:
    """A word that nobody else can know, for :func:`remote_command` and :class:`NoiseFilter`."""
    return secrets.token_hex(12)


def remote_command(argv: Sequence[str], nonce: str) -> str:
    """The command line that starts ``argv`` from any login shell, once the nonce and ``:`` are on both streams.

    The text holds the nonce only in two halves, so a shell that shows what it runs (``set -v``, ``set -x``) cannot
    imitate the mark.

    Raises:
        UnsupportedOperation: the result is longer than a command line can be.
    """
    half = len(nonce) // 2
    say = f"printf %s%s: {nonce[:half]} {nonce[half:]}"
    script = f"{say}; {say} >&2; exec {shlex.join(argv)}"
    escaped = _escape(script)
    command = f"exec sh -c '{script}'" if escaped == script else f"""exec sh -c 'eval "$(printf %b "{escaped}")"'"""
    if len(command) > MAX_COMMAND:
        raise UnsupportedOperation(
            f"the command line is {len(command)} bytes long, and {MAX_COMMAND} is the most that SSH can start",
            hint="give long data on standard input, or in a file",
        )
    return command


def _escape(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in raw)


class NoiseFilter:
    """Drops a stream's bytes up to and including the mark (nonce and ``:``); the rest passes unchanged."""

    def __init__(self, nonce: str) -> None:
        self._mark = nonce.encode() + b":"
        self._held = bytearray()
        self._noise = bytearray()
        self.passed = False
        """True once the mark was seen: the program has started."""

    @property
    def noise(self) -> bytes:
        """The first bytes that came before the mark, for messages."""
        return bytes((self._noise + self._held)[:MAX_NOISE])

    def feed(self, data: bytes) -> bytes:
        """Add bytes; return those of the program."""
        if self.passed:
            return data
        self._held += data
        found = self._held.find(self._mark)
        if found < 0:
            self._drop(max(0, len(self._held) - len(self._mark)))
            return b""
        rest = bytes(self._held[found + len(self._mark) :])
        self._drop(found)
        self._held.clear()
        self.passed = True
        return rest

    def _drop(self, count: int) -> None:
        self._noise += self._held[: min(count, MAX_NOISE - len(self._noise))]
        del self._held[:count]
