"""The interface of transports, which start processes on a target.

A transport starts a program on its target and connects its three streams. Everything else (files, jobs, terminals) is
written once, above it. Transports compose: one that enters a container uses the transport of the container's host to
start its client program.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from .target import Target

__all__ = ["Process", "Transport"]


class Process(ABC):
    """A running program with separate, byte-exact streams. One task may read each stream, one may write.

    An async context manager: leaving it calls :meth:`aclose`.
    """

    @abstractmethod
    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return the next bytes of standard output, at least one, at most ``max_bytes``; ``b""`` at its end.

        Returns as soon as there is any data: reads are partial. Cancelling drops no data. After the end, every further
        call returns ``b""``. Output of login scripts from before the program's start is not included. A lost
        connection ends the stream like end of file; :meth:`wait` distinguishes the two.
        """

    @abstractmethod
    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        """Return the next bytes of standard error, as :meth:`receive` does; unread data may block the program."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Write all of ``data`` to standard input, waiting while the program does not read.

        If cancelled, an unknown part has been written.

        Raises:
            BrokenPipeError: The program closed its input or exited, or the connection is lost.
        """

    @abstractmethod
    async def send_eof(self) -> None:
        """Close standard input after what was sent. Calling it again, or after the end, does nothing."""

    @abstractmethod
    async def wait(self) -> int:
        """Return the exit status: 0 to 255, or ``128 + N`` when signal N killed it. Safe to call many times.

        Does not drain the streams. Cancelling does not affect the program.

        Raises:
            ConnectionLost: The connection broke before the status arrived; the program may still be running.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the streams and end the program as far as this transport can.

        On this machine and in containers the whole process group is killed. Over SSH the channel is closed, and a
        program that ignores both the end of its input and a closed output keeps running; callers that need its exit
        must kill it on the target. Shielded from cancellation, bounded to a few seconds, never raises, may be called
        twice.
        """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class Transport(ABC):
    """A way to start processes on one target. Safe to use from several tasks.

    Obtained from an async context manager that owns the connection; it is usable until that is left.
    """

    target: Target
    """Where processes are started."""

    max_channels: int | None = None
    """Maximum number of open processes, such as sshd's MaxSessions; None for no limit."""

    shares_sockets: bool = True
    """Whether programs there may reach a tmux server of another target, as with ``sudo``, ``nsenter`` or ``chroot``.

    The terminal then uses a tmux server of its own: see :meth:`tmux_socket`. A transport to a separate machine sets
    False.
    """

    renewals: int = 0
    """Number of reconnects, each of which is logged to ``harness_backends.links``."""

    @property
    def state(self) -> str:
        """The last known state of the target itself, such as a container's state and health; empty for others."""
        return ""

    @property
    def identity(self) -> str:
        """The identity of the target if its URL may name another one later, such as a container's ID."""
        return ""

    def tmux_socket(self, name: str) -> str:
        """Return the name of the target's tmux server, as in ``tmux -L``.

        A server starts its panes where it was started itself. So a target that may reach the server of another one gets
        its own, so that no command runs as the other's user or on the other target.

        Args:
            name: The setting ``tmux_socket``.

        Returns:
            The name itself, or the name with the scheme and a digest of the target.
        """
        if not self.shares_sockets:
            return name
        hops = self.target.hops[1:] or self.target.hops  # a host has its own sockets, whatever its name
        words = "+".join(str(hop) for hop in hops) + f"\n{self.identity}"
        digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{name}-{self.target.last.scheme}-{digest[:8]}"

    @abstractmethod
    async def open_process(self, argv: Sequence[str]) -> Process:
        """Start ``argv`` (never a shell string) with three pipes, no terminal, in the login's directory.

        The caller owns the result and must leave it through ``async with``. Arguments arrive exactly as given,
        whatever the login shell is; they may hold any character but NUL. If this is cancelled, nothing is left open.

        Raises:
            ConnectError: The target cannot be entered (any more).
            ConnectionLost: The connection is lost.
        """

    @abstractmethod
    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        """Return the command that an operator runs on *this* machine to run ``argv`` on the target with a terminal.

        For example ``["ssh", "-t", "web1", ...]``. It starts nothing.
        """

    def supervised_argv(self, argv: Sequence[str]) -> list[str]:
        """Return :meth:`interactive_argv` for a program that reconnects by itself.

        The command never logs in: it uses the connection of this transport, and fails if that is lost. The default is
        for transports whose command needs no login.

        Raises:
            UnsupportedOperation: No other program can use the connection.
        """
        return self.interactive_argv(argv)

    @abstractmethod
    def describe(self) -> str:
        """Return a short phrase for logs and errors, for example ``ssh master`` or ``local``."""
