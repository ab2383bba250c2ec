"""The interface of an SSH connection that forwards: a backend's ``open_forwarding`` opens it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from ..config import Config
from ..errors import ForwardError
from ..target import Target
from .specification import Address, SocketPath
from .streams import ByteStream

__all__ = ["Forwarding", "OpenForwarding", "Serve", "connect_refused", "listen_refused"]

Serve = Callable[[ByteStream], Awaitable[None]]
"""Serves one connection, and closes it; does not raise."""


class Forwarding(ABC):
    """The connection of a target, over which connections can be forwarded in both directions."""

    target: Target

    @abstractmethod
    async def connect(self, address: Address) -> ByteStream:
        """Connect the target to an address that it reaches.

        Raises:
            ForwardError: The target cannot connect, or does not permit it.
            ConnectionLost: The SSH connection was lost.
        """

    @abstractmethod
    def listen(self, address: Address, serve: Serve) -> AbstractAsyncContextManager[int]:
        """Let the target listen at an address while the context is open; yields the port, 0 for a Unix socket.

        Raises:
            ForwardError: The target refuses it, mostly because the port is in use there.
            ConnectionLost: The SSH connection was lost.
        """

    @abstractmethod
    async def wait_lost(self) -> None:
        """Wait until the SSH connection is lost."""

    @abstractmethod
    async def reconnect(self) -> None:
        """Log in again after a loss; a refused login is final.

        Raises:
            ConnectError: The login failed.
            ConnectionLost: The connection was lost again.
        """


def connect_refused(address: Address, target: Target) -> ForwardError:
    """Return the error for an address that a target cannot connect to; ssh does not report why."""
    return ForwardError(f"the target cannot connect to {address}, or does not permit it", target=target)


def listen_refused(address: Address, target: Target) -> ForwardError:
    """Return the error for an address that a target cannot listen on; ssh does not report why."""
    hint = "it may be in use there, or AllowTcpForwarding or PermitListen of its sshd_config forbid it"
    if isinstance(address, SocketPath):
        hint = "the file may exist there: remove it, or set StreamLocalBindUnlink in its sshd_config"
    return ForwardError(f"the target cannot listen on {address}, or does not permit it", target=target, hint=hint)


OpenForwarding = Callable[[Target, Config], AbstractAsyncContextManager[Forwarding]]
"""Logs in to a target, and closes what it opened."""
