"""Reading the lists of servers from this machine's files, each with its trust."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..account import expand_home
from ..errors import ConfigError
from ..settings import Choices, SettingsTable, is_trusted, load_settings, load_tables
from .client_config import ServerConfig, server_config
from .mcpjson import parse_mcp_json

__all__ = ["FILE", "ServerList", "load_servers"]

FILE = ".mcp.json"
LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerList:
    """The servers to use, by name, and what was found and refused, for people."""

    servers: tuple[ServerConfig, ...] = ()
    refused: tuple[str, ...] = ()


def load_servers(
    choices: Choices | None = None, *, environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> ServerList:
    """The servers of the settings files, of the files that ``[mcp] files`` names, and of ``./.mcp.json``.

    A name that is there again replaces the earlier one; the settings files win over the others. A ``./.mcp.json`` in a
    directory that is not in ``trusted_dirs`` is refused, and the list says so: it starts programs on this machine.

    Raises:
        ConfigError: a file cannot be read or is wrong, or the settings of a project that is not trusted name servers.
    """
    here = directory or Path.cwd()
    tables = load_tables("mcp", choices, environ=environ, directory=directory)
    for table in tables:
        _check(table)
    found: dict[str, ServerConfig] = {}
    for path in _named(tables):
        found |= _by_name(parse_mcp_json(_read(path), str(path)))
    refused: tuple[str, ...] = ()
    if (here / FILE).exists():
        if is_trusted(here, load_settings(choices, environ=environ, directory=directory).trusted_dirs):
            found |= _by_name(parse_mcp_json(_read(here / FILE), str(here / FILE)))
        else:
            refused = (_refusal(here),)
    found |= _by_name(server for table in tables for server in _servers(table))
    return ServerList(tuple(found[name] for name in sorted(found)), refused)


def _check(table: SettingsTable) -> None:
    if not table.trusted and {"servers", "files"} & set(table.values):
        raise ConfigError(
            f"{table.origin}: [mcp] starts programs on this machine, and this directory is not trusted",
            hint="add the directory to trusted_dirs in your own settings",
        )


def _refusal(here: Path) -> str:
    return (
        f"{here / FILE} was not read: it starts programs on this machine, and this directory is not trusted "
        "(add it to trusted_dirs in your own settings)"
    )


def _named(tables: Iterable[SettingsTable]) -> list[Path]:
    paths = []
    for table in tables:
        files = table.values.get("files", [])
        if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
            raise ConfigError(f"{table.origin}: mcp.files is not a list of paths")
        paths += [Path(table.origin).parent / expand_home(name) for name in files]
    return paths


def _servers(table: SettingsTable) -> list[ServerConfig]:
    servers = table.values.get("servers", {})
    if not isinstance(servers, dict) or not all(isinstance(values, dict) for values in servers.values()):
        raise ConfigError(f"{table.origin}: mcp.servers is not a table of tables", hint="write [mcp.servers.NAME]")
    return [server_config(name, values, table.origin) for name, values in servers.items()]


def _by_name(servers: Iterable[ServerConfig]) -> dict[str, ServerConfig]:
    return {server.name: server for server in servers}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if len(data) > LIMIT:
        raise ConfigError(f"{path}: it is longer than {LIMIT} bytes")
    return data
