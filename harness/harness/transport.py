"""Seam 1: how a process is started on a target.

A transport has one job: start a program on its target and connect its three streams. Everything else (files, jobs,
terminals) is written once, above it. Transports compose: one that enters a container takes the transport of the host
that the container runs on, and starts its own client program through it.
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

        Returns as soon as anything is there: reads are partial. Cancelling loses nothing. After the end, every
        further call returns ``b""``. Bytes that login scripts printed before the program started are not included.
        A lost link ends the stream like an end of file; :meth:`wait` then tells the two apart.
        """

    @abstractmethod
    async def receive_stderr(self, max_bytes: int = 65536) -> bytes:
        """As :meth:`receive`, for standard error. Unread data may make the program wait."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Write all of ``data`` to standard input, waiting while the program does not read.

        If cancelled, an unknown part has been written.

        Raises:
            BrokenPipeError: the program closed its input or ended, or the link is gone.
        """

    @abstractmethod
    async def send_eof(self) -> None:
        """Close standard input after what was sent. Calling it again, or after the end, does nothing."""

    @abstractmethod
    async def wait(self) -> int:
        """Return the exit status: 0 to 255, or ``128 + N`` when signal N killed it. Safe to call many times.

        Does not drain the streams. Cancelling does not affect the program.

        Raises:
            ConnectionLost: the link broke before the status arrived; the program may still be running.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """End our use of the program: close the streams and make it end as far as this transport can.

        Here and in containers the whole process group is killed. Over SSH the channel is closed, and a program that
        ignores both the end of its input and a closed output lives on; who needs proof of death must kill it on the
        target. Shielded from cancellation, bounded to a few seconds, never raises, may be called twice.
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
    """How many processes may be open at once, or None when nothing limits it (sshd's MaxSessions does)."""

    shares_sockets: bool = True
    """Whether programs there may reach a tmux server of another target, as through ``sudo``, ``nsenter`` or ``chroot``.

    The terminal then uses a tmux server of the target's own: see :meth:`tmux_socket`. A transport to a machine of its
    own sets False.
    """

    renewals: int = 0
    """How often it was lost and made anew, which it tells the log ``harness_backends.links`` each time."""

    @property
    def state(self) -> str:
        """What was last seen of the target itself, where it has a life of its own: a container's state and health."""
        return ""

    @property
    def identity(self) -> str:
        """What is entered, when the target's words may mean another one tomorrow, or elsewhere: a container's id."""
        return ""

    def tmux_socket(self, name: str) -> str:
        """Return the name of the target's tmux server, as in ``tmux -L``.

        A server starts its panes where it was started itself. So a target that may reach the server of another one has
        its own: no command runs as the other's user, or in the other's place.

        Args:
            name: the setting ``tmux_socket``.

        Returns:
            The name itself, or with the scheme and a digest of the target after it.
        """
        if not self.shares_sockets:
            return name
        hops = self.target.hops[1:] or self.target.hops  # a host has its own sockets, by whatever name it is reached
        words = "+".join(str(hop) for hop in hops) + f"\n{self.identity}"
        digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{name}-{self.target.last.scheme}-{digest[:8]}"

    @abstractmethod
    async def open_process(self, argv: Sequence[str]) -> Process:
        """Start ``argv`` (never a shell string) with three pipes, no terminal, in the login's directory.

        The caller owns the result and must leave it through ``async with``. Arguments arrive exactly as given,
        whatever the login shell is; they may hold any character but NUL. If this is cancelled, nothing is left open.

        Raises:
            ConnectError: the target cannot be entered (any more).
            ConnectionLost: the link is gone.
        """

    @abstractmethod
    def interactive_argv(self, argv: Sequence[str]) -> list[str]:
        """The command that a person runs on *this* machine to get ``argv`` on the target with a terminal.

        For example ``["ssh", "-t", "web1", ...]``. It starts nothing.
        """

    @abstractmethod
    def describe(self) -> str:
        """One short phrase for logs and errors, for example ``ssh master`` or ``local``."""
