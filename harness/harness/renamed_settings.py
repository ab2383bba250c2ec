"""Old names of settings, which still work for one release in files and variables, with a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from .errors import ConfigError

__all__ = ["RENAMED", "RENAMED_VALUES", "both_given", "rename_settings", "rename_variable"]

_ENGINE = {
    "tmux_at": "tmux_host",
    "fresh_connection": "dedicated_connection",
    "job_log_limit": "job_log_max_bytes",
}

RENAMED: Mapping[str, str] = {
    **_ENGINE,
    **{f"targets.*.{old}": new for old, new in _ENGINE.items()},
    "agent.keep_conversations": "conversations_max_age",
    "agent.conversations_size": "conversations_max_bytes",
    "agent.compact_at": "compaction_threshold",
    "agent.on_job_end": "on_job_exit",
    "agent.turn_budget": "turn_budget_usd",
    "agent.session_budget": "conversation_budget_usd",
    "agent.session_tokens": "conversation_max_tokens",
    "models.*.context_limit": "context_window",
    "models.*.max_output": "max_output_tokens",
    "permissions.only": "allowed_tools",
    "permissions.secrets": "secret_paths",
    "permissions.blocked": "blocked_commands",
    "permissions.timeout": "approval_timeout",
    "permissions.aiexclude_seconds": "aiexclude_cache_seconds",
    "tools.disabled": "disabled_plugins",
    "tools.partial_read_counts": "allow_overwrite_after_partial_read",
    "tools.profile": "tool_profile",
    "tools.secrets": "redact_patterns",
    "web.allow": "allowed_hosts",
    "web.credentials": "credential_hosts",
    "web.search.key_variable": "api_key_env",
    "hooks.*.*.malformed": "on_invalid_output",
    "mcp.handoff": "job_handoff_seconds",
    "mcp.servers.*.pin": "program_sha256",
    "mcp.servers.*.max_message": "max_message_bytes",
}
"""Path of the old key → its new name in the same table; ``*`` is any key of a table and any entry of a list."""

_TMUX_HOSTS = {"here": "local"}
RENAMED_VALUES: Mapping[str, Mapping[str, str]] = {
    "tmux_at": _TMUX_HOSTS,
    "targets.*.tmux_at": _TMUX_HOSTS,
    "agent.on_job_end": {"wake": "start_turn", "tell": "next_turn"},
}
"""Path of the old key → its old values and the new ones."""


def rename_settings(values: MutableMapping[str, Any], origin: str) -> tuple[str, ...]:
    """Replace the old names and values in one file by the new ones.

    Args:
        values: everything that the file holds; it is changed.
        origin: the file, for messages.

    Returns:
        A warning for each old name.

    Raises:
        ConfigError: A table has both names of a setting.
    """
    found = []
    for path, new in RENAMED.items():
        *parents, old = path.split(".")
        for place, table in _tables(values, parents, ""):
            if old in table:
                if new in table:
                    raise both_given(f"{origin}: {place}{old}", place + new)
                given = table.pop(old)
                table[new] = _new_value(path, given)
                changed = table[new] != given
                found.append(
                    f"{origin}: {_written(place + old, given, changed)} is deprecated: "
                    f"use {_written(place + new, table[new], changed)}"
                )
    return tuple(found)


def rename_variable(name: str, text: str) -> tuple[str, str]:
    """Return the new name and value of a setting that an environment variable sets; unchanged if it is not renamed."""
    return RENAMED.get(name, name), _new_value(name, text)


def _tables(value: Any, parents: list[str], place: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yield the tables at a path, each with the path to write before a key of it."""
    if not parents:
        if isinstance(value, dict):
            yield place, value
        return
    name, *rest = parents
    if isinstance(value, list) and name == "*":
        for entry in value:
            yield from _tables(entry, rest, place)
    elif isinstance(value, dict):
        for key in list(value) if name == "*" else [name] if name in value else []:
            yield from _tables(value[key], rest, f"{place}{key}.")


def _new_value(path: str, value: Any) -> Any:
    return RENAMED_VALUES.get(path, {}).get(value, value) if isinstance(value, str) else value


def _written(name: str, value: Any, with_value: bool) -> str:
    return f'{name} = "{value}"' if with_value else name


def both_given(old: str, new: str) -> ConfigError:
    """Return the error for a setting that is given by both of its names."""
    return ConfigError(f"{old} and {new} are the same setting", hint="remove the old name, which is the first")
