"""Sends notifications in the background: the session that they are about neither waits for them nor fails with them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ..errors import HarnessError
from ..system.background_tasks import BackgroundTasks, open_background_tasks
from ..system.daemon_thread import run_in_daemon_thread
from ..toolkit.events import EventBus
from .channel import Channel
from .notification import Notification, NotificationItem
from .pending import PendingItems, RateLimit
from .settings import NotificationSettings

if TYPE_CHECKING:
    from ..agent.models.keys import KeySource
    from ..live.sessions.state import SessionState
    from .session_watch import ReadEnd

__all__ = ["CHANNEL_TIMEOUT", "CLOSE_TIMEOUT", "Notifier", "build_channels", "find_dashboard", "open_notifier"]

CHANNEL_TIMEOUT = 10.0
"""Seconds of one delivery."""
CLOSE_TIMEOUT = 3.0
"""Seconds that the end of the program waits for deliveries."""
LINK_TIMEOUT = 2.0
"""Seconds to find out whether a dashboard runs."""
OUTPUT_TIMEOUT = 2.0
"""Seconds to read the outputs of the jobs of a notification."""
MAX_QUEUED = 10
"""Notifications that wait for a slow channel; the oldest are dropped."""
log = logging.getLogger(__name__)


class Notifier:
    """The notifications of one process; :func:`open_notifier` opens it.

    Args:
        settings: What to notify of, and how often.
        channels: What delivers notifications.
        link: Returns the URL of the dashboard, with the page of a session; empty while none runs. It may block.
        is_attended: Whether an operator is at the session, ends it and cancels turns: that needs no notification.
    """

    def __init__(
        self,
        settings: NotificationSettings,
        channels: Sequence[Channel],
        link: Callable[[str], str],
        *,
        is_attended: bool = False,
    ) -> None:
        self.settings = settings
        self._deliveries = [_Delivery(channel) for channel in channels]
        self._link = link
        self.is_attended = is_attended
        self._pending = PendingItems()
        self._rate = RateLimit(settings.max_per_minute)
        self._wakeup = anyio.Event()
        self._sending = anyio.Lock()

    # -- events

    def add(
        self, key: Hashable, item: NotificationItem, *, delay: float = 0.0, is_withdrawn_at_end: bool = False
    ) -> None:
        """Notify of an event soon; never waits.

        Args:
            key: Identifies the event for :meth:`withdraw`.
            item: The event, redacted.
            delay: Seconds until it is sent at the earliest.
            is_withdrawn_at_end: Whether it is of no interest once the session has ended.
        """
        if item.event in self.settings.events:
            due = anyio.current_time() + delay
            self._pending.add(key, item, due, is_withdrawn_at_end=is_withdrawn_at_end)
            self._wakeup.set()

    def withdraw(self, key: Hashable) -> None:
        """Do not notify of an event that was answered, if it was not sent yet."""
        self._pending.withdraw(key)

    @contextmanager
    def watching(
        self,
        state: Callable[[], SessionState],
        events: EventBus,
        redact: Callable[[str], str],
        read_end: ReadEnd | None = None,
    ) -> Iterator[None]:
        """Notify of the events of a session while the context is open.

        Args:
            state: Returns the session's state, as dashboards show it.
            events: Its events.
            redact: Replaces its secrets.
            read_end: Returns the end of the output of a job.
        """
        from .session_watch import SessionWatch  # imports the events of agents

        with events.listening(SessionWatch(self, state, redact, read_end).heard):
            yield

    def discard(self) -> None:
        """Do not notify of what was not sent yet: an operator has ended the session."""
        self._pending = PendingItems()

    # -- sending

    def start(self, tasks: BackgroundTasks) -> None:
        """Send events until the tasks are cancelled."""
        tasks.start_soon(self._serve)
        tasks.start_soon(self._prepare)
        for delivery in self._deliveries:
            tasks.start_soon(delivery.serve)

    async def _prepare(self) -> None:
        """Load what a delivery needs, once the end would be notified: at the end there is little time."""
        await anyio.sleep(self.settings.min_duration)
        await find_dashboard(partial(self._link, ""))
        for delivery in self._deliveries:
            await delivery.prepare()

    async def _serve(self) -> None:
        while True:
            due = self._pending.due_at(self._rate)
            left = None if due is None else due - anyio.current_time()
            if left is None or left > 0:
                self._wakeup = anyio.Event()
                with anyio.move_on_after(left):
                    await self._wakeup.wait()
            else:
                await self._send(lambda: self._pending.take(anyio.current_time()))

    async def _send(self, take: Callable[[], Notification | None]) -> None:
        async with self._sending:  # the end waits for it
            notification = take()
            if notification is not None:
                await self._hand_over(notification)

    async def _hand_over(self, notification: Notification) -> None:
        self._rate.note(notification, anyio.current_time())
        sessions = {item.session for item in notification.items}
        link = partial(self._link, sessions.pop() if len(sessions) == 1 else "")
        notification = await _with_outputs(replace(notification, url=await find_dashboard(link)))
        for delivery in self._deliveries:
            if (part := notification.only(delivery.channel.events)) is not None:
                delivery.put(part)

    async def finish(self) -> None:
        """Send what is left, and wait for deliveries, for a limited time."""
        with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
            await self._send(lambda: None if self.is_attended else self._pending.take_last())
            for delivery in self._deliveries:
                await delivery.wait_idle()
        slow = [delivery for delivery in self._deliveries if not delivery.is_idle]
        if not any(delivery.channel.writes_to_stderr for delivery in slow):
            for delivery in slow:
                delivery.warn(f"it took longer than {CLOSE_TIMEOUT:g} s at the end")


async def find_dashboard(link: Callable[[], str]) -> str:
    """Return the URL of the dashboard; empty if it cannot be found in time: a notification is sent without it.

    Args:
        link: Returns the URL. It may block.
    """
    try:
        with anyio.move_on_after(LINK_TIMEOUT):
            return await run_in_daemon_thread(link)
    except Exception as error:  # the file may be damaged in any way
        log.debug("the dashboard is not known: %s", error, exc_info=not isinstance(error, HarnessError))
    return ""


async def _with_outputs(notification: Notification) -> Notification:
    """Return the notification with the outputs that can be read in time."""
    items = list(notification.items)
    with anyio.move_on_after(OUTPUT_TIMEOUT):
        for place, item in enumerate(items):
            if item.read_output is not None:
                try:
                    items[place] = replace(item, output=await item.read_output()).cleaned()
                except Exception as error:  # a notification must not end the program that it is about
                    log.debug("the output of a job could not be read: %s", type(error).__name__, exc_info=True)
    return replace(notification, items=tuple(items))


class _Delivery:
    """The deliveries of one channel, one at a time: a slow channel delays no other one."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._waiting: deque[Notification] = deque(maxlen=MAX_QUEUED)
        self._more = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._has_failed = False

    def put(self, notification: Notification) -> None:
        """Deliver a notification soon."""
        self._waiting.append(notification)
        self._idle = anyio.Event() if self._idle.is_set() else self._idle
        self._more.set()

    async def wait_idle(self) -> None:
        """Wait until it is idle."""
        await self._idle.wait()

    @property
    def is_idle(self) -> bool:
        """Whether everything was delivered, or has failed."""
        return self._idle.is_set()

    async def prepare(self) -> None:
        """Load what the first delivery needs; a failure is reported with that."""
        try:
            await self.channel.prepare()
        except Exception as error:
            log.debug("%s is not prepared: %s", self.channel.name, type(error).__name__)

    async def serve(self) -> None:
        """Deliver until cancelled."""
        while True:
            if not self._waiting:
                self._idle.set()
                self._more = anyio.Event()
                await self._more.wait()
            await self._deliver(self._waiting.popleft())

    async def _deliver(self, notification: Notification) -> None:
        try:
            with anyio.fail_after(CHANNEL_TIMEOUT):
                await self.channel.send(notification)
        except TimeoutError:
            if not self.channel.writes_to_stderr:
                self.warn(f"it took longer than {CHANNEL_TIMEOUT:g} s")
        except HarnessError as error:
            self.warn(str(error))
        except Exception as error:  # a notification must not end the program that it is about
            self.warn(f"{type(error).__name__}")
            log.debug("a notification failed", exc_info=True)

    def warn(self, why: str) -> None:
        """Warn of a failure, once."""
        level = logging.DEBUG if self._has_failed else logging.WARNING
        self._has_failed = True
        log.log(level, "cannot notify by %s: %s", self.channel.name, why)


# -- Opening.


def build_channels(settings: NotificationSettings) -> tuple[Channel, ...]:
    """Return the configured channels; that of the terminal only if there is one."""
    channels: list[Channel] = []
    if settings.bell or settings.terminal != "off":
        from .terminal import TerminalChannel

        if TerminalChannel.is_possible():
            channels.append(TerminalChannel(bell=settings.bell, protocol=settings.terminal))
    if settings.desktop or settings.command:
        from .programs import CommandChannel, DesktopChannel

        channels += [DesktopChannel()] if settings.desktop else []
        channels += [CommandChannel(settings.command)] if settings.command else []
    if settings.webhooks:
        from .webhook import WebhookChannel

        channels += [WebhookChannel(one, number, _read_secret) for number, one in enumerate(settings.webhooks, 1)]
    return tuple(channels)


async def _read_secret(source: KeySource) -> str:
    from ..agent.models.keys import read_key  # with the first secret

    return await read_key(source)


@asynccontextmanager
async def open_notifier(
    settings: NotificationSettings,
    *,
    link: Callable[[str], str] = lambda session: "",
    is_attended: bool = False,
) -> AsyncIterator[Notifier]:
    """Open the notifier of a process.

    At its end, it waits at most three seconds for deliveries.

    Args:
        settings: The operator's settings.
        link: Returns the URL of a dashboard that shows a session, or all for an empty one; empty while none runs.
        is_attended: Whether an operator is at the session, ends it and cancels turns: that needs no notification.
    """
    async with open_background_tasks() as tasks:
        notifier = Notifier(settings, build_channels(settings), link, is_attended=is_attended)
        notifier.start(tasks)
        try:
            yield notifier
        finally:
            await notifier.finish()
