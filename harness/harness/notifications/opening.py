"""Opens the channels of the settings, and the notifier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..system.background_tasks import open_background_tasks
from .channel import Channel
from .notifier import Notifier
from .settings import NotificationSettings

if TYPE_CHECKING:
    from ..agent.models.keys import KeySource

__all__ = ["build_channels", "open_notifier"]


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
