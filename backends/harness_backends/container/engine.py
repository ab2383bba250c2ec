"""What the transport needs of an engine: to look at a container, and to start a process in it.

One implementation talks to the engine's API, the other runs the engine's program on any transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harness.transport import Process

from .information import ContainerInfo
from .temporary_container import TemporaryContainer

__all__ = ["Engine", "ExecRequest"]


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A process to start in a container: in which, as whom and where (both empty: as the image says)."""

    container_id: str
    argv: tuple[str, ...]
    user: str = ""
    directory: str = ""


class Engine(ABC):
    """An engine that answers."""

    name: str
    """``docker`` or ``podman``: what people type."""

    version: str
    """As the engine reports it."""

    @abstractmethod
    async def inspect(self, name: str) -> ContainerInfo | None:
        """A container by its name or id; None when there is none.

        Raises:
            ConnectError, ConnectionLost: the engine cannot be asked (any more).
        """

    @abstractmethod
    async def execute(self, request: ExecRequest) -> Process:
        """Start a process; its streams are exact, its ``wait`` ends with the last of its streams.

        Closing it leaves the process alone. That it could not be started shows in an end without any output, in what
        it writes to standard error, or here.

        Raises:
            EngineError: the engine refused.
            ConnectError, ConnectionLost: the engine cannot be asked (any more).
        """

    @abstractmethod
    async def copy_out(self, container_id: str, path: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
        """Give what is at an absolute path, and all that is below it, to ``sink`` as a tar archive, in pieces.

        What ``sink`` raises ends the copy and comes out. Docker shows links as links, Podman what they lead to.

        Raises:
            EngineError: the engine refused, perhaps after a part of the archive; its status is 404 when the engine
                sees no such file.
            ConnectError, ConnectionLost: the engine cannot be asked (any more).
        """

    @abstractmethod
    async def fetch(self, image: str) -> None:
        """Make sure that the engine has an image; getting one takes as long as it takes.

        Raises:
            EngineError: the engine refused, or there is no such image.
            ConnectError, ConnectionLost: the engine cannot be asked (any more).
        """

    @abstractmethod
    async def create(self, scratch: TemporaryContainer) -> str:
        """Make and start a container; its id. A failure may leave one that has not run.

        Raises:
            EngineError: the engine refused.
            ConnectError, ConnectionLost: the engine cannot be asked (any more).
        """

    @abstractmethod
    async def remove(self, container_id: str) -> None:
        """End and remove a container, with its own volumes; one that is gone is no error."""

    @abstractmethod
    async def scratches(self) -> list[tuple[str, str]]:
        """Every throw-away container, running or not: its id and the label that names its maker."""

    @abstractmethod
    def interactive_argv(self, request: ExecRequest) -> list[str]:
        """What a person types on the machine that asks the engine, for a process with a terminal."""

    @abstractmethod
    def describe(self) -> str:
        """One short phrase: the engine, its version and how it is reached."""
