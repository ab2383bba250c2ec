"""How long the audit is kept: the ``[audit]`` table of the settings files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import cast

from ...command import parse_duration
from ...errors import ConfigError
from ...settings import SettingsTable
from ...settings_schema import parse_size, suggest
from .retention import Retention

__all__ = ["retention_of"]

_READERS: Mapping[str, tuple[Callable[[str | int], float], float, str]] = {
    "max_age": (parse_duration, 3600.0, "a time of an hour or more: seconds, or 12h, 90d"),
    "max_bytes": (parse_size, 1 << 20, "a size of 1 MiB or more: bytes, or 256MiB, 2G"),
}


def retention_of(tables: Iterable[SettingsTable]) -> Retention:
    """The limits of all files, in their order: what comes later counts.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or the file is not trusted: whoever wrote a directory must not
            decide how soon the record of what happened there goes.
    """
    limits = Retention()
    for table in tables:
        if not table.trusted:
            raise ConfigError(
                f"{table.origin}: [audit] may only be set by files that are trusted",
                hint="add the directory to trusted_dirs in your own settings, or set it there",
            )
        changes = {name: _value(name, value, table.origin) for name, value in table.values.items()}
        limits = replace(limits, **changes)  # type: ignore[arg-type]  # each is what its reader makes
    return limits


def _value(name: str, value: object, origin: str) -> float:
    if name not in _READERS:
        known = ", ".join(_READERS)
        raise ConfigError(
            f"{origin}: unknown key 'audit.{name}'", hint=suggest(name, tuple(_READERS)) or f"known: {known}"
        )
    read, least, meaning = _READERS[name]
    try:
        found = read(cast("str | int", value)) if isinstance(value, str | int | float) else 0
    except ValueError:
        found = 0
    if found < least or isinstance(value, bool):
        raise ConfigError(f"{origin}: audit.{name}: {value!r} is not {meaning}")
    return found
