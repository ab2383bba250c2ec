"""When notifications are sent: after a short delay, in which an answer withdraws them, and at most so many a minute.

Pure: every function gets the time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from dataclasses import dataclass

from .notification import Notification, NotificationItem
from .settings import WAITING_EVENTS, EventKind

__all__ = ["PendingItems", "RateLimit"]

MAX_PENDING = 1_000
"""Ends that wait, and as many of what waits for an operator; more are only counted."""
MERGE_WINDOW = 1.0
"""Seconds: events that are due within this time are sent together."""
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class _Pending:
    item: NotificationItem
    due: float
    is_withdrawn_at_end: bool


class RateLimit:
    """At most so many notifications of ends in any minute, and as many of what waits: ends do not hold that back."""

    def __init__(self, max_per_minute: int) -> None:
        self._sent: dict[bool, deque[float]] = {waits: deque(maxlen=max_per_minute) for waits in (False, True)}

    def allowed_at(self, event: EventKind) -> float:
        """Return when an event may be sent."""
        sent = self._sent[event in WAITING_EVENTS]
        return sent[0] + MINUTE if len(sent) == sent.maxlen else 0.0

    def note(self, notification: Notification, now: float) -> None:
        """Count a notification."""
        self._sent[notification.is_urgent].append(now)


class PendingItems:
    """Events that are not sent yet."""

    def __init__(self) -> None:
        self._items: dict[Hashable, _Pending] = {}
        self._more: Counter[EventKind] = Counter()

    def add(self, key: Hashable, item: NotificationItem, due: float, *, is_withdrawn_at_end: bool = False) -> None:
        """Add an event.

        Args:
            key: Identifies it for :meth:`withdraw`; an earlier event with this key is replaced.
            item: The event.
            due: When it may be sent.
            is_withdrawn_at_end: Whether it is not sent once the session has ended.
        """
        limit = MAX_PENDING * (2 if item.event in WAITING_EVENTS else 1)
        if key not in self._items and len(self._items) >= limit:
            self._more[item.event] += 1
        else:
            self._items[key] = _Pending(item, due, is_withdrawn_at_end)

    def withdraw(self, key: Hashable) -> None:
        """Drop an event, if it was not sent yet."""
        self._items.pop(key, None)

    def due_at(self, rate: RateLimit) -> float | None:
        """Return when the first event is to be sent; None without events."""
        times = (max(pending.due, rate.allowed_at(pending.item.event)) for pending in self._items.values())
        return min(times, default=None)

    def take(self, now: float) -> Notification | None:
        """Remove and return what is due now or shortly after."""
        return self._taken([key for key, pending in self._items.items() if pending.due <= now + MERGE_WINDOW])

    def take_last(self) -> Notification | None:
        """Remove everything, and return what is of interest after the end of the session."""
        self._items = {key: pending for key, pending in self._items.items() if not pending.is_withdrawn_at_end}
        return self._taken(list(self._items))

    def _taken(self, keys: list[Hashable]) -> Notification | None:
        items = [self._items.pop(key).item for key in keys]
        more, self._more = self._more, Counter()
        return Notification.of(items, more) if items else None
