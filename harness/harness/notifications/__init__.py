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
    from .notifier import Notifier, open_notifier
    from .settings import NotificationSettings, WebhookSettings
    from .settings_loader import load_notification_settings

__all__ = ["NotificationSettings", "Notifier", "WebhookSettings", "load_notification_settings", "open_notifier"]

_NAMES = {
    "notifier": ("Notifier", "open_notifier"),
    "settings": ("NotificationSettings", "WebhookSettings"),
    "settings_loader": ("load_notification_settings",),
}

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__, __dir__ = lazy_names(__name__, _NAMES)
