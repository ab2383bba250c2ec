"""Calls into the shell library: through the held shell, or in a process of its own when they may take long."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from harness.errors import ConnectError, FileError, FileNotFound, UnsupportedOperation
from harness.transport import Process, Transport

from . import filescript
from .fileerrors import file_error, shown
from .fileversion import Scheme, parse_scheme
from .shell import HeldShell, Reply

__all__ = ["FileCalls"]

CALL_TIMEOUT = 120.0
MAX_SHOWN_ANSWER = 80
"""Bytes of an answer that cannot be read which the message shows."""


class FileCalls:
    """Runs library functions on one target. The library is sent with the first call, and lives with the shell.

    ``library`` takes the place of the one for targets with tools.
    """

    def __init__(self, shell: HeldShell, transport: Transport, home: str, library: str = "") -> None:
        self.transport = transport
        self.home = home
        self._shell = shell
        self._library = library or filescript.library(home)
        self._defined = False
        self._scheme: Scheme | None = None

    async def run(self, path: str, script: str) -> Reply:
        """Run a script in the held shell: one round trip.

        Raises:
            FileError: it refused, or failed; the message names ``path``.
            ConnectionLost: the link was lost; it may have run.
        """
        check_path(path, self.transport.target)
        return self.checked(path, await self.attempt(script))

    async def attempt(self, script: str) -> Reply:
        """Run a script in the held shell, whatever its exit code."""
        if not self._defined:
            self._shell.define(self._library)
            self._defined = True  # later calls queue behind this one, and a new shell starts with the library
            return await self._send(f"{self._library}\n", script)
        reply = await self._send("", script)
        if reply.exit_code == 127 and b"hxf_" in reply.stderr:  # the first call was cancelled before it was sent
            reply = await self._send(f"{self._library}\n", script)
        return reply

    async def _send(self, prefix: str, script: str) -> Reply:
        quoted = shlex.quote(script)
        return await self._shell.request(lambda number: f"{prefix}hx_call {number} {quoted}\n", timeout=CALL_TIMEOUT)

    def checked(self, path: str, reply: Reply) -> Reply:
        """The reply, when it is a success."""
        if reply.exit_code != 0:
            raise file_error(path, reply.exit_code, reply.stderr, self.transport.target)
        return reply

    @contextmanager
    def understanding(self, path: str, data: bytes) -> Iterator[None]:
        """Read an answer of the library inside this: what is none is told as that.

        Raises:
            FileError: it is not what ``stat``, ``find`` or another program that was asked would write.
        """
        try:
            yield
        except (ValueError, IndexError, OverflowError) as error:
            answer = ascii(data[:MAX_SHOWN_ANSWER].decode("utf-8", "replace"))
            raise FileError(
                f"{shown(path)}: the answer of the target cannot be read: {answer}",
                target=self.transport.target,
                hint="look at which programs stat, find and readlink are in the PATH of the target's shell",
            ) from error

    async def scheme(self) -> Scheme:
        """How this target computes versions."""
        if self._scheme is None:
            reply = await self.attempt("hxf_reply")
            with self.understanding(self.home, reply.stdout):
                self._scheme = parse_scheme(reply.text.removesuffix("\0"))
        return self._scheme

    async def open_script(self, script: str) -> Process | None:
        """A process of its own that runs a script with the library; None when there is no channel for it."""
        return await self.open_argv(filescript.standalone(self._library, script))

    async def open_argv(self, argv: Sequence[str]) -> Process | None:
        """A process of its own; None when there is no channel for it, so that the held shell must do."""
        if self.transport.max_channels == 1:
            return None
        try:
            return await self.transport.open_process(argv)
        except (ConnectError, UnsupportedOperation):
            return None


def check_path(path: str, target: object) -> None:
    """Refuse what cannot be a path.

    Raises:
        ValueError: it holds a NUL.
        FileNotFound: it is empty.
    """
    if "\0" in path:
        raise ValueError(f"{path!r}: a path cannot hold a NUL")
    if not path:
        raise FileNotFound("the path is empty", target=target, hint="name a file")
