"""The interface of a session to dashboards: its state, the actions it takes, and the streams it opens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...errors import HarnessError, UnsupportedOperation

if TYPE_CHECKING:
    from ...system.process_identity import ProcessId
    from .pane_leases import PaneLeases
    from .state import SessionState

__all__ = [
    "ACTIONS",
    "MAX_TYPED_CHARS",
    "QUERIES",
    "STREAMS",
    "AnnouncedSessions",
    "LiveSession",
    "StreamItems",
    "work_to_cancel",
]

StreamItems = AsyncGenerator[Mapping[str, Any], None]

ACTIONS: Final = frozenset(
    {
        *("approve", "deny", "edit"),
        *("pause", "resume", "cancel"),
        *("interrupt_job", "kill_job"),
        *("take_pane", "type", "release_pane"),
    }
)
"""What changes something, and requires authorization."""
MAX_TYPED_CHARS: Final = 10_000
"""Maximum characters, and maximum keys, of one action ``type``."""
QUERIES: Final = frozenset({"jobs", "panes"})
"""What only asks the target."""
STREAMS: Final = frozenset({"tail", "events", "pane", "hosts"})
"""What is sent until it ends, or the client stops it."""


def work_to_cancel(arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of what the action ``cancel`` is for, as the client has seen them in the state.

    Raises:
        HarnessError: they are missing, or the client has seen nothing that runs.
    """
    work = arguments.get("work")
    if not isinstance(work, list):
        raise HarnessError("the argument work is missing")
    if not work:
        raise HarnessError("nothing that can be cancelled was running; nothing was cancelled")
    return frozenset(map(str, work))


class AnnouncedSessions(Protocol):
    """What a process shows to its clients; ``started`` is a Unix time."""

    here: ProcessId
    kind: str
    started: float
    sessions: dict[str, LiveSession]

    @property
    def leases(self) -> PaneLeases:
        """The panes that connections hold."""

    @property
    def has_operators(self) -> bool:
        """Whether a client is connected that may answer approval requests."""

    def changed(self) -> None:
        """Let connected clients know that the state of a session may have changed. Never waits."""

    def release_panes_of(self, connection: object) -> None:
        """Release the panes that a closed connection holds, unless their operator connects again soon."""

    def start_soon(self, work: Callable[[], Awaitable[object]]) -> None:
        """Run a function that does not raise, even if the client that asked for it disconnects."""


class LiveSession(ABC):
    """One session of this process. Only :meth:`state` is required; the state names the actions that work."""

    session_id: str

    @abstractmethod
    def state(self) -> SessionState:
        """Return the state now, redacted. Called only while a client is connected."""

    async def act(self, action: str, arguments: Mapping[str, Any], by: str) -> Mapping[str, Any]:
        """Do what a client asks for.

        Args:
            action: one of :data:`ACTIONS`.
            arguments: its arguments, unchecked.
            by: who asks, for the audit log.

        Raises:
            HarnessError: it is not possible, now or at all.
        """
        raise UnsupportedOperation(f"this session does not support: {action}")

    async def query(self, query: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to one of :data:`QUERIES`, redacted.

        Raises:
            HarnessError: it is not possible.
        """
        raise UnsupportedOperation(f"this session does not support: {query}")

    def open_stream(self, stream: str, arguments: Mapping[str, Any]) -> StreamItems:
        """Return the redacted items of one of :data:`STREAMS`; they may be fetched as slowly as a client reads.

        Raises:
            HarnessError: it is not possible.
        """
        raise UnsupportedOperation(f"this session has no stream: {stream}")
