"""Settings of permissions: the ``[permissions]`` table of the settings files.

A file of a directory that is not trusted may only make it stricter: its rules that allow, its mode when that is laxer,
and its exceptions from secrets are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import ConfigError
from ...settings import SettingsTable
from .blocklist import BLOCKED
from .globs import has_wildcard
from .rules import ANYTHING, Action, Match, Rule
from .secretpaths import SECRETS

__all__ = ["Mode", "PermissionSettings", "settings_of"]


class Mode(StrEnum):
    """What happens to what no rule decides."""

    ASK = "ask"
    """Read-only things run, everything else asks."""
    AUTO = "auto"
    """Everything runs but what must be asked."""
    DENY = "deny"
    """Nothing runs."""
    STRICT = "strict"
    """Everything asks."""


STRICTNESS = {Mode.AUTO: 0, Mode.ASK: 1, Mode.STRICT: 2, Mode.DENY: 3}


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """What the operator has set. Times are in seconds."""

    mode: Mode = Mode.ASK
    rules: tuple[Rule, ...] = ()
    """In their order; the first that covers a thing decides, but one that denies always does."""
    only: tuple[str, ...] = ()
    """Tools (patterns) beside which nothing runs; empty is no such limit."""
    secrets: tuple[str, ...] = SECRETS
    blocked: tuple[str, ...] = BLOCKED
    network_lookups: bool = False
    """Commands that look something up on other hosts (``dig``, ``ping -c``, ``curl -I``) run as those that read."""
    timeout: float = 60.0
    """How long a question waits for its answer; then it is denied."""
    aiexclude_seconds: float = 5.0
    """How long an ``.aiexclude`` that was read is taken for known."""


class _RuleTable(BaseModel):
    """A rule as a file writes it: ``"git *"`` is one for commands, a table says more."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    target: str = ANYTHING
    tool: str = ANYTHING
    argument: str | None = None
    match: Literal["glob", "literal"] = "glob"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    mode: Mode | None = None
    allow: list[_RuleTable | str] = Field(default_factory=list)
    deny: list[_RuleTable | str] = Field(default_factory=list)
    ask: list[_RuleTable | str] = Field(default_factory=list)
    only: list[str] = Field(default_factory=list)
    secrets: list[str] = Field(default_factory=list)
    blocked: list[str] = Field(default_factory=list)
    network_lookups: bool | None = None
    timeout: float | None = Field(None, gt=0, le=86400)
    aiexclude_seconds: float | None = Field(None, ge=0, le=3600)


def settings_of(tables: Iterable[SettingsTable]) -> PermissionSettings:
    """The settings of all files, in their order: a later mode, time or whitelist counts, and lists add up.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or a file that is not trusted would loosen something.
    """
    settings = PermissionSettings()
    for table in tables:
        settings = _with(settings, _checked(table.values, table.origin), table)
    return settings


def _checked(values: Mapping[str, Any], origin: str) -> _Table:
    try:
        return _Table.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(["permissions", *(str(part) for part in first["loc"] if part not in ("_RuleTable", "str"))])
        raise ConfigError(f"{origin}: {where}: {first['msg']}", hint="docs/permissions.md lists the keys") from None


def _with(settings: PermissionSettings, table: _Table, source: SettingsTable) -> PermissionSettings:
    if not source.trusted:
        _refuse_loosening(settings, table, source.origin)
    rules = tuple(_rule(entry, action, source.origin) for action, entry in _entries(table))
    return replace(
        settings,
        mode=table.mode or settings.mode,
        rules=(*rules, *settings.rules),
        only=_narrowed(settings.only, tuple(table.only), trusted=source.trusted),
        secrets=(*settings.secrets, *table.secrets),
        blocked=(*settings.blocked, *table.blocked),
        network_lookups=settings.network_lookups if table.network_lookups is None else table.network_lookups,
        timeout=table.timeout or settings.timeout,
        aiexclude_seconds=_given(table.aiexclude_seconds, settings.aiexclude_seconds),
    )


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _narrowed(known: tuple[str, ...], added: tuple[str, ...], *, trusted: bool) -> tuple[str, ...]:
    """A later whitelist counts; one that is not trusted only takes tools away."""
    if not added or trusted or not known:
        return added or known
    return tuple(name for name in added if name in known) or ("",)


def _entries(table: _Table) -> list[tuple[Action, _RuleTable | str]]:
    return [
        *((Action.DENY, entry) for entry in table.deny),
        *((Action.ASK, entry) for entry in table.ask),
        *((Action.ALLOW, entry) for entry in table.allow),
    ]


def _rule(entry: _RuleTable | str, action: Action, origin: str) -> Rule:
    table = _RuleTable(tool="run_shell", argument=entry) if isinstance(entry, str) else entry
    argument = table.argument or ""
    literal = table.match == "literal" or ("/" in argument and not has_wildcard(argument))
    match = Match.LITERAL if literal else Match.GLOB
    return Rule(action, table.target, table.tool, table.argument, match, origin=origin)


def _refuse_loosening(settings: PermissionSettings, table: _Table, origin: str) -> None:
    loosened = [
        *(["allow"] if table.allow else []),
        *(["mode"] if table.mode and STRICTNESS[table.mode] < STRICTNESS[settings.mode] else []),
        *(["secrets"] if any(pattern.startswith("!") for pattern in table.secrets) else []),
        *(["network_lookups"] if table.network_lookups and not settings.network_lookups else []),
        *(["timeout"] if table.timeout and table.timeout > settings.timeout else []),
        *(["aiexclude_seconds"] if _given(table.aiexclude_seconds, 0) > settings.aiexclude_seconds else []),
    ]
    if loosened:
        raise ConfigError(
            f"{origin}: permissions.{loosened[0]} would allow more, and this directory is not trusted",
            hint="add the directory to trusted_dirs in your own settings, or set it there",
        )
