"""The interface of a container engine: inspect containers, and start processes in them.

One implementation uses the engine's socket, the other runs the engine's program on any transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harness.transport import Process

from .information import ContainerInfo
from .temporary_container import TemporaryContainer

__all__ = ["PULL_TIMEOUT", "Engine", "EngineError", "ExecRequest", "exec_options"]

PULL_TIMEOUT = 3600.0
"""Seconds that pulling an image may take."""


class EngineError(Exception):
    """The engine refused a request with this HTTP ``status`` (0: invalid response, or an error of its program)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A process to start in a container; an empty user or directory is the image's."""

    container_id: str
    argv: tuple[str, ...]
    user: str = ""
    directory: str = ""


def exec_options(request: ExecRequest) -> list[str]:
    """Return the options of the engines' programs for an exec request."""
    user = ["--user", request.user] if request.user else []
    directory = ["--workdir", request.directory] if request.directory else []
    return [*user, *directory]


class Engine(ABC):
    """A reachable container engine."""

    name: str
    """The engine's command, ``docker`` or ``podman``."""

    version: str
    """The version that the engine reports."""

    @abstractmethod
    async def inspect(self, name: str) -> ContainerInfo | None:
        """Inspect a container by its name or id; return None if it does not exist.

        Raises:
            ConnectError, ConnectionLost: the engine cannot be reached.
        """

    @abstractmethod
    async def execute(self, request: ExecRequest) -> Process:
        """Start a process with exact streams, whose ``wait`` ends when all its streams have ended.

        Closing it does not kill the process. A failed start shows in an exit without output, in its standard error, or
        as an exception.

        Raises:
            EngineError: the engine refused.
            ConnectError, ConnectionLost: the engine cannot be reached.
        """

    @abstractmethod
    async def copy_out(self, container_id: str, path: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Copy an absolute path and its content to ``sink`` as a tar archive, in pieces.

        An exception of ``sink`` ends the copy and is raised. Docker sends links as links, Podman their targets.

        Raises:
            EngineError: the engine refused, possibly after a part of the archive; its status is 404 if the engine does
                not find the file.
            ConnectError, ConnectionLost: the engine cannot be reached.
        """

    @abstractmethod
    async def fetch(self, image: str) -> None:
        """Pull an image if the engine does not have it.

        Raises:
            EngineError: the engine refused, or the image does not exist.
            ConnectError, ConnectionLost: the engine cannot be reached.
        """

    @abstractmethod
    async def create(self, scratch: TemporaryContainer) -> str:
        """Create and start a container, and return its id; a failure may leave a container that has not run.

        Raises:
            EngineError: the engine refused.
            ConnectError, ConnectionLost: the engine cannot be reached.
        """

    @abstractmethod
    async def remove(self, container_id: str) -> None:
        """Stop and remove a container with its own volumes; ignore a container that no longer exists."""

    @abstractmethod
    async def scratches(self) -> list[tuple[str, str]]:
        """Return the id and the owner label of every temporary container, running or not."""

    @abstractmethod
    def interactive_argv(self, request: ExecRequest) -> list[str]:
        """Return the command for a process with a terminal, to run on the machine of the engine's client."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short description: the engine, its version and how it is reached."""
