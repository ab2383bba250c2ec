"""Lists of servers in the form that other clients read: ``.mcp.json`` with ``{"mcpServers": {NAME: {...}}}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..toolkit.values import Json
from .client_config import ServerConfig, server_config

__all__ = ["parse_mcp_json"]

KEYS = ("mcpServers", "servers")
OURS = frozenset({"command", "args", "env", "cwd", "url", "headers", "disabled"})
"""What is taken from an entry; the rest is other clients' business."""
KINDS = {"": "", "stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}


def parse_mcp_json(text: str | bytes, origin: str) -> tuple[ServerConfig, ...]:
    """The servers of such a file, in its order.

    Raises:
        ConfigError: it is no such file, or an entry cannot be used; the message names the file and the entry.
    """
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: this is not JSON: {error}") from error
    entries = _entries(document, origin)
    return tuple(server_config(name, _table(name, entry, origin), origin) for name, entry in entries.items())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _entries(document: object, origin: str) -> Mapping[str, Any]:
    given = [document[key] for key in KEYS if key in document] if isinstance(document, dict) else []
    if len(given) != 1 or not isinstance(given[0], dict):
        raise ConfigError(f'{origin}: it holds no list of servers; write {{"mcpServers": {{...}}}}')
    return given[0]


def _table(name: str, entry: object, origin: str) -> Mapping[str, Json]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{origin}: server {name!r} is no object")
    kind = str(entry.get("type", entry.get("transport", "")))
    if kind not in KINDS:
        hint = "use its streamable HTTP endpoint" if kind == "sse" else "known: stdio, http"
        raise ConfigError(f"{origin}: server {name!r} speaks {kind!r}, which is not spoken here", hint=hint)
    if KINDS[kind] and KINDS[kind] not in entry:
        raise ConfigError(f"{origin}: server {name!r} is of type {kind!r} and has no {KINDS[kind]}")
    return {key: value for key, value in entry.items() if key in OURS}
