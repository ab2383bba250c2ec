"""The interface of a channel, which delivers notifications."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..errors import HarnessError
from .notification import Notification
from .settings import EVENTS, EventKind

__all__ = ["Channel", "NotificationError"]


class NotificationError(HarnessError):
    """A notification was not delivered."""


class Channel(ABC):
    """Delivers notifications in one way."""

    name: str
    """Its name in messages; not a secret."""
    events: tuple[EventKind, ...] = EVENTS
    """The events that it delivers."""
    writes_to_stderr = False
    """Whether it writes to standard error: while that is blocked, no warning may be written to it either."""

    async def prepare(self) -> None:  # noqa: B027  # most channels load nothing
        """Load what the first delivery needs.

        Raises:
            NotificationError: It cannot be loaded; a delivery fails in the same way.
        """

    @abstractmethod
    async def send(self, notification: Notification) -> str:
        """Deliver a notification; the caller limits the time.

        Returns:
            What is known of the delivery, in a few words.

        Raises:
            NotificationError: It was not delivered.
        """
