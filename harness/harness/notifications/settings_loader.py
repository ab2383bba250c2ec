"""Loads the ``[notifications]`` table of the settings files.

A file in a directory that is not trusted may set none of it: it could run a program, or send what happens elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..settings import CommandLineChoices, SettingsTable, load_tables
from .settings import NotificationSettings

__all__ = ["load_notification_settings", "notification_settings_of"]


def load_notification_settings(choices: CommandLineChoices | None = None) -> NotificationSettings:
    """Return the settings of the ``[notifications]`` tables of the settings files.

    Raises:
        ConfigError: a file is unreadable, a key is unknown, a value is wrong, or an untrusted file sets one.
    """
    return notification_settings_of(load_tables("notifications", choices))


def notification_settings_of(tables: Iterable[SettingsTable]) -> NotificationSettings:
    """Return the settings of all tables; later tables override earlier ones, key by key.

    Raises:
        ConfigError: as for :func:`load_notification_settings`.
    """
    settings = NotificationSettings()
    for table in tables:
        from .settings_table import checked  # loaded on demand: few settings files have this table

        table.check_trusted("[notifications]")
        settings = replace(settings, **checked(table))
    return settings
