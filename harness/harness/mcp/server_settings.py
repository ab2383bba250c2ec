"""Settings of the server: keys of the ``[mcp]`` table of the settings files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import ConfigError
from ..settings import SettingsTable
from .handles import DEFAULT_HANDOFF

__all__ = ["ServerSettings", "server_settings_of"]

OF_THE_CLIENT = frozenset({"servers", "files"})
"""Keys of the same table that are about other servers."""
LONGEST = 86_400.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the operator has set about the server.

    ``handoff``: seconds after which a call whose command still runs returns the handle of its job.
    """

    handoff: float = DEFAULT_HANDOFF


def server_settings_of(tables: Iterable[SettingsTable]) -> ServerSettings:
    """The settings of all files, in their order: what comes later counts.

    Raises:
        ConfigError: a key is unknown, or a value is wrong.
    """
    settings = ServerSettings()
    for table in tables:
        for key, value in table.values.items():
            if key == "handoff":
                settings = replace(settings, handoff=_seconds(value, table.origin))
            elif key not in OF_THE_CLIENT:
                raise ConfigError(
                    f"{table.origin}: mcp.{key} is not a setting", hint="there are: files, handoff, servers"
                )
    return settings


def _seconds(value: object, origin: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LONGEST:
        raise ConfigError(f"{origin}: mcp.handoff is a number of seconds from 1 to {LONGEST:.0f}, not {value!r}")
    return float(value)
