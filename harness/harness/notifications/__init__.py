"""Notifications of operators: an approval waits, an agent stops, a job or a run ends, a budget is nearly used.

A program that uses harness as a library notifies if it asks for that:

>>> from harness.live import announce, share_approver, show_calls
>>> from harness.notifications import NotificationSettings, open_notifier
>>> async with announce("python") as announcement, open_notifier(NotificationSettings(bell=True)) as notifier:
...     approver = share_approver(announcement)  # doctest: +SKIP
...     async with open_executor(execution, approver=approver) as executor:
...         with show_calls(announcement, executor, approver) as session:
...             with notifier.watching(session.state, executor.events, executor.services.redactor.text):
...                 await executor.call(ToolCall("run_shell", {"command": "uptime"}))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .loading import load_notification_settings
    from .notifier import Notifier
    from .opening import open_notifier
    from .settings import NotificationSettings, WebhookSettings

__all__ = ["NotificationSettings", "Notifier", "WebhookSettings", "load_notification_settings", "open_notifier"]

_NAMES = {
    "loading": ("load_notification_settings",),
    "notifier": ("Notifier",),
    "opening": ("open_notifier",),
    "settings": ("NotificationSettings", "WebhookSettings"),
}

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
