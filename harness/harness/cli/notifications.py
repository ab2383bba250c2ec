"""The notifier of one run of the program: from the settings, ``--notify``, and the dashboard that runs here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..notifications.settings import NotificationSettings
from ..notifications.settings_loader import load_notification_settings
from .options import Invocation

if TYPE_CHECKING:
    from ..notifications.notifier import Notifier

__all__ = ["dashboard_link", "notification_settings", "open_notifications"]


def notification_settings(invocation: Invocation, kind: str = "") -> NotificationSettings:
    """Return the settings for one run of the program.

    With ``--notify`` the end of a command is notified however short it was, and by the terminal if nothing else is
    configured.

    Args:
        invocation: The program's command line.
        kind: The command, as for :func:`open_notifications`.

    Raises:
        ConfigError: A setting is wrong, or an untrusted file sets one.
    """
    settings = load_notification_settings(invocation.choices)
    if invocation.notify is None:
        return settings
    if not invocation.notify:
        return NotificationSettings()
    if not settings.has_channels:
        settings = replace(settings, bell=True, terminal="auto")
    return settings if kind == "prompt" else replace(settings, min_duration=0.0)


@asynccontextmanager
async def open_notifications(invocation: Invocation, kind: str) -> AsyncIterator[Notifier | None]:
    """Send notifications while the context is open, and at its end those that are on their way.

    Args:
        invocation: The program's command line.
        kind: The command, as for :func:`.announcement.announce`.

    Yields:
        The notifier; None if no notifications are configured.

    Raises:
        ConfigError: A setting is wrong, or an untrusted file sets one.
    """
    settings = notification_settings(invocation, kind)
    if not settings.has_channels:
        yield None
        return
    from ..live.sockets import socket_name
    from ..notifications.notifier import open_notifier
    from ..system.process_identity import this_process

    link = partial(dashboard_link, socket_name(this_process()))
    async with open_notifier(settings, link=link, is_attended=kind == "prompt") as notifier:
        yield notifier


def dashboard_link(process: str, session: str) -> str:
    """Return the URL of the dashboard that runs on this machine, without a login; empty without one. Blocks.

    Args:
        process: The process of the session, by the name of its socket.
        session: The session; empty for the page with all sessions.
    """
    from ..web.logins import LoginStore, login_directory

    directory = login_directory()
    url = LoginStore(directory).running_url if directory.is_dir() else ""
    return f"{url}#/session/{quote(f'{process}/{session}', safe='')}" if url and session else url
